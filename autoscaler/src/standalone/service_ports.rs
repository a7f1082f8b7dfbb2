//! The TCP ports of a ZeroScaler's Service, in the order in which they count: first the one that requests on the shared
//! ports of the activators lead to, which is the first that the ZeroScaler names, else the Service's first.

use common::ports::PortId;
use common_api::ZeroScaler;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TcpPort {
    /// Name and number there.
    pub(crate) id: PortId,
    /// Where it leads at a pod.
    pub(crate) target: IntOrString,
    /// Its `appProtocol`.
    pub(crate) app_protocol: Option<String>,
}

/// So many have numbers on activators, and room in a status; further ones lead to pods alone.
const PORTS_MAX: usize = 64;

/// All of them, up to [`PORTS_MAX`].
pub(crate) fn tcp_ports(object: &ZeroScaler, service: &Service) -> Vec<TcpPort> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let mut ports: Vec<TcpPort> = ports.filter(|port| is_tcp(port)).filter_map(TcpPort::of).collect();
    let first = object.spec.ports.iter().find_map(|said| ports.iter().position(|port| port.is_named(&said.name)));
    if let Some(first) = first {
        ports[..=first].rotate_right(1);
    }
    ports.truncate(PORTS_MAX);
    ports
}

impl TcpPort {
    fn of(port: &ServicePort) -> Option<Self> {
        let id = PortId { name: port.name.clone().unwrap_or_default(), port: u16::try_from(port.port).ok()? };
        Some(Self { id, target: target_of(port), app_protocol: port.app_protocol.clone() })
    }

    /// Whether a ZeroScaler means it by this name, or number.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.id.name == name || self.id.port.to_string() == name
    }

    /// Its name; its number, where it has none.
    pub(crate) fn label(&self) -> String {
        if self.id.name.is_empty() { self.id.port.to_string() } else { self.id.name.clone() }
    }
}

/// Whether a port is a TCP port.
pub(crate) fn is_tcp(port: &ServicePort) -> bool {
    port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")
}

/// Where a port of a Service leads at a pod.
pub(crate) fn target_of(port: &ServicePort) -> IntOrString {
    port.target_port.clone().unwrap_or(IntOrString::Int(port.port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_port_that_is_named_comes_first_and_the_others_stay_in_order() {
        let service: Service = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"ports": [
            {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "web", "port": 80, "targetPort": "http"},
            {"name": "db", "port": 5432}, {"name": "admin", "port": 9000, "protocol": "TCP"},
        ]}}))
        .expect("a Service");
        let names = |ports: Value| {
            let value = json!({"metadata": {"name": "a"}, "spec": {"target": {"name": "a"}, "ports": ports}});
            let object: ZeroScaler = serde_json::from_value(value).expect("a ZeroScaler");
            tcp_ports(&object, &service).iter().map(TcpPort::label).collect::<Vec<_>>().join(" ")
        };
        let rows = [
            (json!([]), "web db admin"),
            (json!([{"name": "db"}]), "db web admin"),
            (json!([{"name": "nobody"}, {"name": "9000"}, {"name": "db"}]), "admin web db"),
            (json!([{"name": "dns"}]), "web db admin"),
        ];
        for (ports, expected) in rows {
            assert_eq!(names(ports.clone()), expected, "{ports}");
        }
    }

    /// Goal: a status has room for all of them. Method: a Service with more, of which the last is the first that counts.
    #[test]
    fn ports_beyond_the_bound_do_not_count() {
        let ports: Vec<Value> = (1..=100).map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
        let service = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"ports": ports}}));
        let object = json!({"metadata": {"name": "a"}, "spec": {"target": {"name": "a"}, "ports": [{"name": "p100"}]}});
        let object: ZeroScaler = serde_json::from_value(object).expect("a ZeroScaler");
        let counted = tcp_ports(&object, &service.expect("a Service"));
        let ends = counted.first().zip(counted.last()).map(|(first, last)| (first.id.port, last.id.port));
        assert_eq!((counted.len(), ends), (64, Some((100, 63))));
    }
}
