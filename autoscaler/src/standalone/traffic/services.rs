//! Desired state of the two Services of a revision in the standalone front end.
//!
//! The private Service selects the pods, so that Kubernetes writes slices for them. It is headless, so it has no
//! address. The public Service has no selector: we write its endpoints ([`super::slices`]). Ports, labels and
//! annotations of our own Services are corrected after foreign edits; other user settings (type, load balancer, node
//! ports) stay.
//!
//! An adopted Service keeps its own ports. Activators carry its first 64 TCP ports in order of precedence
//! ([`super::super::services::service_ports`]); if the pods have queue-proxies, only the ports that lead to them. Ports
//! that activators do not carry always lead to the pods. Each of them has a port of the private Service, so that its
//! number at the pods is known.

use super::backend::{AUTOMETRIC_PORT, BackendPort, has_queue_proxy};
use super::slice_plan::ServedPort;
use crate::cluster::facts::Labels;
use crate::cluster::facts::Target;
use crate::standalone::services::service_ports::{TcpPort, is_tcp, leads_alike, ports_of, target_of, tcp_ports};
use common::backend::Protocol;
use common::names;
use common::ports::PortId;
use common_api::ZeroScaler;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `appProtocol` for HTTP/2 without TLS.
const H2C: &str = "kubernetes.io/h2c";
/// Port of the private Service for requests in both protocols.
const PRIVATE_PORT: i32 = 80;
/// First port of the private Service for additional ports of an adopted Service.
const EXTRA_PORT_FIRST: i32 = 20_000;

/// Common properties of both Services.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    /// Namespace of all objects.
    pub(crate) namespace: String,
    /// Labels without the kind of Service.
    pub(crate) labels: Labels,
    /// Owning ZeroScaler.
    pub(crate) owner: OwnerReference,
    /// Protocol of the pods.
    pub(crate) protocol: Protocol,
}

impl Common {
    fn metadata(&self, name: &str, kind: &str) -> ObjectMeta {
        let (name, namespace) = (Some(name.to_owned()), Some(self.namespace.clone()));
        let (labels, owner_references) = (Some(self.labels_of(kind)), Some(vec![self.owner.clone()]));
        ObjectMeta { name, namespace, labels, owner_references, ..ObjectMeta::default() }
    }

    /// Returns the labels of a public or private object.
    pub(crate) fn labels_of(&self, kind: &str) -> Labels {
        let mut labels = self.labels.clone();
        labels.insert(names::SIDE.to_owned(), kind.to_owned());
        labels
    }

    fn app_protocol(&self) -> Option<String> {
        (self.protocol == Protocol::H2c).then(|| H2C.to_owned())
    }

    fn port(&self, name: &str, port: i32, target: IntOrString) -> ServicePort {
        let (name, target_port, protocol) = (Some(name.to_owned()), Some(target), Some("TCP".to_owned()));
        ServicePort { name, port, target_port, protocol, app_protocol: self.app_protocol(), node_port: None }
    }
}

/// Port of an adopted Service that does not carry the revision's traffic.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExtraPort {
    /// Name in the private Service.
    pub(crate) name: String,
    /// Port of the pods that it leads to.
    pub(crate) target: IntOrString,
    /// `TCP`, `UDP` or `SCTP`.
    pub(crate) protocol: String,
}

/// Returns the private Service, whose port for requests is named `traffic`. It has no selector if its slices are
/// written by this process. It is headless because no client calls it: an API server assigns addresses one at a time
/// from a range that may be small, and each node would have rules for each address.
pub(crate) fn private(
    common: &Common,
    name: &str,
    selector: Option<&Labels>,
    (traffic, port): (&str, &BackendPort),
    target: &Target,
    extra: &[ExtraPort],
) -> Service {
    let mut ports = vec![common.port(traffic, PRIVATE_PORT, port.target.clone())];
    if has_queue_proxy(target) {
        let metrics = common.port(AUTOMETRIC_PORT, 9090, IntOrString::String(AUTOMETRIC_PORT.to_owned()));
        ports.push(ServicePort { app_protocol: None, ..metrics });
    }
    ports.extend((EXTRA_PORT_FIRST..).zip(extra).map(|(number, extra)| ServicePort {
        protocol: Some(extra.protocol.clone()),
        app_protocol: None,
        ..common.port(&extra.name, number, extra.target.clone())
    }));
    let (cluster_ip, selector) = (Some("None".to_owned()), selector.cloned());
    let spec = ServiceSpec { cluster_ip, ports: Some(ports), selector, ..ServiceSpec::default() };
    Service { metadata: common.metadata(name, names::SERVICE_TYPE_PRIVATE), spec: Some(spec), status: None }
}

/// Returns the public Service if we create it, with port 80 and the backend's port if that is different.
pub(crate) fn public(common: &Common, name: &str, port: &BackendPort) -> Service {
    let traffic = common.protocol.port_name();
    let mut ports = vec![common.port(traffic, 80, port.target.clone())];
    if port.number != 80 {
        ports.push(common.port(&format!("{traffic}-backend"), port.number, port.target.clone()));
    }
    let spec = ServiceSpec { ports: Some(ports), ..ServiceSpec::default() };
    Service { metadata: common.metadata(name, names::SERVICE_TYPE_PUBLIC), spec: Some(spec), status: None }
}

/// Returns the reason why a Service cannot be adopted: none of its ports leads to the pods' port for requests.
pub(crate) fn why_not_adoptable(service: &Service, backend: &BackendPort, target: &Target) -> Option<String> {
    let leads_there = |port: &ServicePort| is_tcp(port) && leads_alike(&target_of(port), &backend.target, Some(target));
    let (name, port) = (service.name_any(), backend.number);
    let leads_elsewhere = !ports_of(service).any(leads_there);
    leads_elsewhere.then(|| format!("Service {name:?} has no port that leads to port {port} of the pods"))
}

/// Ports of a ZeroScaler's Services, and the ports that its private Service needs for them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Served {
    /// Ports of each Service.
    pub(crate) ports: Vec<Vec<ServedPort>>,
    /// Name of the private Service's port for requests by host.
    pub(crate) traffic: String,
    /// Additional ports of the private Service.
    pub(crate) extra: Vec<ExtraPort>,
}

/// Determines the ports that activators carry. For plain pods these are all TCP ports, under the names that the
/// Services give them; for pods with queue-proxies, the ports that lead to them.
pub(crate) fn served_ports(
    original: &ZeroScaler,
    services: &[Arc<Service>],
    backend: &BackendPort,
    target: &Target,
    protocol: Protocol,
) -> Served {
    let is_plain = !has_queue_proxy(target);
    let counted = tcp_ports(original, services, Some(target));
    let traffic = counted.first().map(|first| first.id.name.clone()).filter(|name| is_plain && !name.is_empty());
    let traffic = traffic.unwrap_or_else(|| protocol.port_name().to_owned());
    let mut extra: Vec<ExtraPort> = Vec::new();
    let mut ports_of_service = |index: usize, service: &Service| {
        let mut ports = Vec::new();
        for port in ports_of(service) {
            let Ok(number) = u16::try_from(port.port) else { continue };
            let id = PortId { name: port.name.clone().unwrap_or_default(), port: number };
            let (leads_to, protocol) = (target_of(port), port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()));
            let is_it = |counted: &TcpPort| match index {
                0 => counted.id.port == number,
                _ => leads_alike(&counted.target, &leads_to, Some(target)),
            };
            let place = counted.iter().position(is_it).filter(|_| is_tcp(port));
            let is_carried = place.is_some() && (is_plain || leads_alike(&backend.target, &leads_to, Some(target)));
            let workload = place.map_or(&id, |place| &counted[place].id);
            let private = match is_carried {
                true if !is_plain || place == Some(0) => traffic.clone(),
                _ => {
                    let wanted = Some(&workload.name).filter(|name| is_plain && !name.is_empty());
                    let same = |extra: &&ExtraPort| {
                        (extra.target == leads_to || is_carried)
                            && extra.protocol == protocol
                            && wanted == Some(&extra.name)
                    };
                    let is_taken = |name: &&String| **name == traffic || extra.iter().any(|extra| extra.name == **name);
                    match extra.iter().find(same) {
                        Some(same) => same.name.clone(),
                        None => {
                            let own = || format!("also-{}", extra.len());
                            let name = wanted.filter(|name| !is_taken(name)).cloned().unwrap_or_else(own);
                            extra.push(ExtraPort { name: name.clone(), target: leads_to, protocol: protocol.clone() });
                            name
                        }
                    }
                }
            };
            let (workload, app_protocol) = (workload.clone(), port.app_protocol.clone());
            ports.push(ServedPort { id, workload, protocol, app_protocol, private, is_carried });
        }
        ports
    };
    let ports = services.iter().enumerate().map(|(index, service)| ports_of_service(index, service)).collect();
    Served { ports, traffic, extra }
}

/// Returns `have` corrected to match `want`, or `None` if it already matches. Corrects ports, selector, and the labels
/// and annotations in `want`. Keeps the address, since it is immutable.
pub(crate) fn corrected(have: &Service, want: &Service) -> Option<Service> {
    let mut next = have.clone();
    next.metadata.labels.get_or_insert_default().extend(want.metadata.labels.clone().unwrap_or_default());
    if let Some(annotations) = &want.metadata.annotations {
        next.metadata.annotations.get_or_insert_default().extend(annotations.clone());
    }
    let (want, spec) = (want.spec.clone().unwrap_or_default(), next.spec.get_or_insert_default());
    let node_ports: Vec<_> = spec.ports.iter().flatten().map(|port| (port.name.clone(), port.node_port)).collect();
    spec.selector = want.selector;
    spec.ports = want.ports.map(|ports| {
        let allocated =
            |name: &Option<String>| node_ports.iter().find(|(other, _)| other == name).and_then(|(_, n)| *n);
        ports.into_iter().map(|port| ServicePort { node_port: allocated(&port.name), ..port }).collect()
    });
    if spec.selector.as_ref().is_some_and(BTreeMap::is_empty) {
        spec.selector = None;
    }
    (next != *have).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standalone::services::service_ports::target_with;
    use serde_json::{Value, json};

    fn common() -> Common {
        let labels = [(names::WORKLOAD.to_owned(), "hello".to_owned())].into();
        let owner = OwnerReference { uid: "sks".into(), controller: Some(true), ..OwnerReference::default() };
        Common { namespace: "ns".into(), labels, owner, protocol: Protocol::Http1 }
    }

    fn target() -> Target {
        let ports = json!([{"name": "web", "containerPort": 8080}, {"name": "metrics", "containerPort": 9100}]);
        target_with(json!([{"name": "app", "ports": ports}]))
    }

    fn web() -> BackendPort {
        BackendPort { target: IntOrString::String("web".into()), number: 8080 }
    }

    fn ports(service: &Service) -> Value {
        serde_json::to_value(service.spec.as_ref().and_then(|spec| spec.ports.clone())).expect("ports")
    }

    #[test]
    fn the_private_service_selects_the_pods_and_has_no_annotations() {
        let selector: Labels = [("app".to_owned(), "hello".to_owned())].into();
        let service = private(&common(), "hello-private", Some(&selector), ("http", &web()), &target(), &[]);
        assert_eq!(service.spec.as_ref().and_then(|spec| spec.selector.clone()), Some(selector));
        assert_eq!(ports(&service), json!([{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}]));
        assert_eq!(service.metadata.annotations, None);
        assert_eq!(service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()), Some("None"));
        assert_eq!(service.metadata.labels.as_ref().expect("labels")[names::SIDE], "Private");
        let mut former = service.clone();
        former.spec.get_or_insert_default().cluster_ip = Some("10.0.0.1".to_owned());
        assert_eq!(corrected(&former, &service), None, "an existing Service keeps its address");
    }

    #[test]
    fn the_public_service_has_port_80_and_the_backends_and_no_selector() {
        let service = public(&common(), "hello", &web());
        let expected = json!([
            {"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"},
            {"name": "http-backend", "port": 8080, "targetPort": "web", "protocol": "TCP"},
        ]);
        assert_eq!((ports(&service), service.spec.as_ref().and_then(|s| s.selector.clone())), (expected, None));
        let at_80 = BackendPort { target: IntOrString::Int(80), number: 80 };
        let one = public(&common(), "hello", &at_80).spec.and_then(|spec| spec.ports).map(|ports| ports.len());
        assert_eq!(one, Some(1));
        let h2c = public(&Common { protocol: Protocol::H2c, ..common() }, "hello", &at_80);
        let expected = json!({"name": "http2", "port": 80, "targetPort": 80, "protocol": "TCP", "appProtocol": H2C});
        assert_eq!(ports(&h2c), json!([expected]));
    }

    #[test]
    fn a_services_ports_are_carried_under_their_own_names() {
        let service = |ports: Value| -> Service {
            serde_json::from_value(json!({"metadata": {"name": "hello"}, "spec": {"ports": ports}})).expect("a Service")
        };
        let served = |ports: Value| {
            let original = ZeroScaler::new("hello", common_api::ZeroScalerSpec::deployment("hello"));
            served_ports(&original, &[Arc::new(service(ports))], &web(), &target(), Protocol::Http1)
        };
        let one = served(json!([{"port": 80, "targetPort": "web"}]));
        assert_eq!((one.traffic.as_str(), one.ports[0][0].private.as_str(), one.extra.len()), ("http", "http", 0));
        let all = served(json!([
            {"name": "web", "port": 80, "targetPort": 8080}, {"name": "metrics", "port": 9100, "targetPort": "metrics"},
            {"name": "dns", "port": 53, "protocol": "UDP"},
        ]));
        let carried: Vec<_> = all.ports[0].iter().map(|port| (port.private.as_str(), port.is_carried)).collect();
        assert_eq!(carried, [("web", true), ("metrics", true), ("dns", false)]);
        assert_eq!(all.traffic, "web");
        let extra: Vec<_> = all.extra.iter().map(|extra| (extra.name.as_str(), extra.target.clone())).collect();
        assert_eq!(extra, [("metrics", IntOrString::String("metrics".into())), ("dns", IntOrString::Int(53))]);
        let why = "Service \"hello\" has no port that leads to port 8080 of the pods";
        for (port, expected) in [(json!({"port": 8080}), None), (json!({"port": 80, "targetPort": 9999}), Some(why))] {
            let service = service(json!([port]));
            assert_eq!(why_not_adoptable(&service, &web(), &target()).as_deref(), expected, "{port}");
        }
    }

    /// Goal: additions of users and of the API server stay, our parts are corrected, and nothing is written twice.
    #[test]
    fn corrections_change_only_our_parts() {
        let want = public(&common(), "hello", &web());
        let mut have = want.clone();
        have.metadata.resource_version = Some("7".into());
        have.metadata.labels.get_or_insert_default().insert("team".into(), "a".into());
        let spec = have.spec.as_mut().expect("spec");
        (spec.cluster_ip, spec.type_) = (Some("10.0.0.1".into()), Some("NodePort".into()));
        spec.ports.as_mut().expect("ports")[0].node_port = Some(30_000);
        assert_eq!(corrected(&have, &want), None);
        let mut tampered = have.clone();
        let spec = tampered.spec.as_mut().expect("spec");
        spec.selector = Some([("app".to_owned(), "evil".to_owned())].into());
        spec.ports.as_mut().expect("ports").truncate(1);
        tampered.metadata.labels.as_mut().expect("labels").remove(names::WORKLOAD);
        assert_eq!(corrected(&tampered, &want), Some(have));
    }
}
