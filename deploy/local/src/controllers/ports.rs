//! Which port of a pod a Service's port leads to.

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointPort;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The ports of `service` as `pod` has them: a number as it stands, a name as the pod's containers define it for the
/// same protocol. A name that the pod does not have leaves that port out.
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

/// TCP unless said otherwise.
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
