//! Mapping of Service ports to pod ports.

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointPort;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Returns the ports of `service` on `pod`. A number is used unchanged. A name is looked up in the pod's containers for
/// the same protocol; a port whose name the pod does not have is left out.
pub(crate) fn resolve(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.as_ref().and_then(|s| s.ports.as_deref()).unwrap_or_default();
    ports
        .iter()
        .filter_map(|port| {
            Some(EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                protocol: Some(protocol(port.protocol.as_deref()).to_owned()),
                port: Some(target(port, pod)?),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect()
}

/// Returns the protocol; the default is TCP.
pub(crate) fn protocol(protocol: Option<&str>) -> &str {
    protocol.filter(|p| !p.is_empty()).unwrap_or("TCP")
}

fn target(port: &ServicePort, pod: &Pod) -> Option<i32> {
    match port.target_port.as_ref() {
        None | Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let containers = pod.spec.as_ref()?.containers.iter();
            containers
                .flat_map(|c| c.ports.as_deref().unwrap_or_default())
                .find(|p| {
                    p.name.as_ref() == Some(name)
                        && protocol(p.protocol.as_deref()) == protocol(port.protocol.as_deref())
                })
                .map(|p| p.container_port)
        }
    }
}
