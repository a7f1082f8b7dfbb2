//! TCP ports of a workload's Services, in order of precedence.
//!
//! The first port receives requests on the shared ports of the activators. It is the first port that the ZeroScaler
//! names, or else the first port of the first Service.
//!
//! Each TCP port of the first Service is an entry. A port of a further Service joins an existing entry if it leads to
//! the same port of the pods; otherwise it is an additional entry. An entry is therefore identified by the pod port it
//! leads to. Its name and number are those of the first Service that has it.

use crate::cluster::facts::Target;
use common::ports::PortId;
use common_api::ZeroScaler;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;

/// TCP port of a workload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TcpPort {
    /// Name and number, each unique within the workload.
    pub(crate) id: PortId,
    /// Port of the pods that it leads to.
    pub(crate) target: IntOrString,
    /// Its `appProtocol`.
    pub(crate) app_protocol: Option<String>,
    /// Ports of further Services that lead to the same pod port. An entry of a further Service has its original port
    /// here too, because its name and number may be changed.
    pub(crate) also: Vec<TcpPort>,
}

/// Maximum number of ports with numbers on activators and room in a status; further ports lead only to pods.
const PORTS_MAX: usize = 64;
/// Name of the first port if it has no name and there are further ports.
const FIRST: &str = "main";

/// Returns the TCP ports of a workload, up to [`PORTS_MAX`]. `target` is the scaled object, if it is known.
pub(crate) fn tcp_ports(object: &ZeroScaler, services: &[Arc<Service>], target: Option<&Target>) -> Vec<TcpPort> {
    let mut ports: Vec<TcpPort> = Vec::new();
    for (index, service) in services.iter().enumerate() {
        for port in ports_of(service).filter(|port| is_tcp(port)).filter_map(TcpPort::from_service_port) {
            match ports.iter_mut().find(|known| index > 0 && leads_alike(&known.target, &port.target, target)) {
                Some(known) => known.also.push(port),
                None if index > 0 => ports.push(with_unique_id(port, &ports, target)),
                None => ports.push(port),
            }
        }
    }
    if let [first, _, ..] = &mut ports[..]
        && first.id.name.is_empty()
    {
        first.id.name = FIRST.to_owned();
    }
    let first = object.spec.ports.iter().find_map(|named| ports.iter().position(|port| port.is_named(&named.name)));
    if let Some(first) = first {
        ports[..=first].rotate_right(1);
    }
    ports.truncate(PORTS_MAX);
    ports
}

/// Returns a port of a further Service with a unique name and number.
fn with_unique_id(port: TcpPort, known: &[TcpPort], target: Option<&Target>) -> TcpPort {
    let is_free = |number: &u16| known.iter().all(|port| port.id.port != *number);
    let at_pods = number_of(&port.target, target).and_then(|number| u16::try_from(number).ok());
    let mut numbers = [port.id.port].into_iter().chain(at_pods).chain(port.id.port..=u16::MAX).chain(1..port.id.port);
    let number = numbers.find(is_free).unwrap_or(port.id.port);
    let name = port.id.name.clone();
    let is_of = |known: &TcpPort| known.id.name == name || (known.id.name.is_empty() && name == FIRST);
    let is_taken = name.is_empty() || known.iter().any(is_of);
    let name = if is_taken { format!("also-{number}") } else { name };
    TcpPort { id: PortId { name, port: number }, also: vec![port.clone()], ..port }
}

impl TcpPort {
    fn from_service_port(port: &ServicePort) -> Option<Self> {
        let id = PortId { name: port.name.clone().unwrap_or_default(), port: u16::try_from(port.port).ok()? };
        Some(Self { id, target: target_of(port), app_protocol: port.app_protocol.clone(), also: Vec::new() })
    }

    /// Reports whether a ZeroScaler may refer to this port by this name or number.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.names().any(|id| id.name == name || id.port.to_string() == name)
    }

    /// Returns all identities of the port in its Services.
    fn names(&self) -> impl Iterator<Item = &PortId> {
        [&self.id].into_iter().chain(self.also.iter().map(|also| &also.id))
    }

    /// Returns the name of the port, or its number if it has no name.
    pub(crate) fn label(&self) -> String {
        if self.id.name.is_empty() { self.id.port.to_string() } else { self.id.name.clone() }
    }
}

pub(crate) fn ports_of(service: &Service) -> impl Iterator<Item = &ServicePort> {
    service.spec.iter().flat_map(|spec| spec.ports.iter().flatten())
}

pub(crate) fn is_tcp(port: &ServicePort) -> bool {
    port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")
}

/// Returns the pod port that a Service port leads to.
pub(crate) fn target_of(port: &ServicePort) -> IntOrString {
    port.target_port.clone().unwrap_or(IntOrString::Int(port.port))
}

/// Reports whether two ports lead to the same port of the pods.
pub(crate) fn leads_alike(one: &IntOrString, other: &IntOrString, target: Option<&Target>) -> bool {
    one == other || number_of(one, target).is_some_and(|number| number_of(other, target) == Some(number))
}

/// Returns the number of a port of the pods.
pub(crate) fn number_of(port: &IntOrString, target: Option<&Target>) -> Option<i32> {
    match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let target = target?;
            let containers = target.containers.iter().chain(&target.sidecars);
            let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
            ports.find(|port| port.name.as_ref() == Some(name)).map(|port| port.container_port)
        }
    }
}

/// Returns a target whose pods have these containers.
#[cfg(test)]
pub(crate) fn target_with(containers: serde_json::Value) -> Target {
    Target { containers: serde_json::from_value(containers).expect("containers"), ..Target::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(ports: Value) -> Arc<Service> {
        let value = json!({"metadata": {"name": "a"}, "spec": {"ports": ports}});
        Arc::new(serde_json::from_value(value).expect("a Service"))
    }

    /// Returns a ZeroScaler whose spec names these ports.
    fn scaler(ports: Value) -> ZeroScaler {
        let value = json!({"metadata": {"name": "a"}, "spec": {"target": {"name": "a"}, "ports": ports}});
        serde_json::from_value(value).expect("a ZeroScaler")
    }

    #[test]
    fn the_named_port_comes_first_and_the_others_stay_in_order() {
        let service = service(json!([
            {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "web", "port": 80, "targetPort": "http"},
            {"name": "db", "port": 5432}, {"name": "admin", "port": 9000, "protocol": "TCP"},
        ]));
        let names = |ports: Value| {
            let ports = tcp_ports(&scaler(ports), std::slice::from_ref(&service), None);
            ports.iter().map(TcpPort::label).collect::<Vec<_>>().join(" ")
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

    /// Goal: a status has room for all ports. Method: a Service with too many ports, whose last port takes precedence.
    #[test]
    fn ports_beyond_the_maximum_are_left_out() {
        let ports: Vec<Value> = (1..=100).map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
        let counted = tcp_ports(&scaler(json!([{"name": "p100"}])), &[service(json!(ports))], None);
        let ends = counted.first().zip(counted.last()).map(|(first, last)| (first.id.port, last.id.port));
        assert_eq!((counted.len(), ends), (64, Some((100, 63))));
    }

    /// Goal: Service ports that lead to the same port of the pods are one port, whatever their names, and no two ports
    /// share a name or a number.
    #[test]
    fn service_ports_that_lead_to_the_same_pod_port_are_one_port() {
        let target = target_with(json!([{"name": "app", "ports": [{"name": "web", "containerPort": 8080}]}]));
        let object = scaler(json!([]));
        let services = [
            service(json!([{"port": 80, "targetPort": "web"}])),
            service(json!([{"name": "http", "port": 8888, "targetPort": 8080}, {"name": "db", "port": 5432}])),
            service(json!([{"port": 80, "targetPort": 9090}])),
        ];
        let first_ports = |count: usize| {
            let ports = tcp_ports(&object, &services[..count], Some(&target));
            ports.iter().map(|port| format!("{} {}", port.id.name, port.id.port)).collect::<Vec<_>>()
        };
        assert_eq!(first_ports(1), [" 80"]);
        assert_eq!(first_ports(2), ["main 80", "db 5432"]);
        assert_eq!(first_ports(3), ["main 80", "db 5432", "also-9090 9090"]);
        assert!(tcp_ports(&object, &services, Some(&target))[0].is_named("8888"));
    }
}
