//! Destinations of Service ports, computed from Services and EndpointSlices, for in-process clients, which resolve the
//! names of Services without DNS.
//!
//! Each container has environment variables for the Services of its namespace, as set by the kubelet:
//! `NAME_SERVICE_HOST`, `NAME_SERVICE_PORT`, and Docker's older variables such as `NAME_PORT_80_TCP_ADDR`. A Service
//! without a ClusterIP has none. A pod with `enableServiceLinks: false` only has those of `kubernetes`.

use common_controller::{ObjectKey, key_of};
use common_runtime::resolve::{Dns, Resolve, service_of};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A TCP port of a Service.
pub(crate) type PortKey = (ObjectKey, u16);

/// ClusterIP and port, or `None` for a headless Service; and the preferred endpoints, sorted.
pub(crate) type ServicePort = (Option<SocketAddr>, Vec<SocketAddr>);

/// Service ports of a cluster, updated by the node. Clones are cheap and share the table.
#[derive(Clone, Debug, Default)]
pub struct ServiceTable {
    /// Addresses of each port for this process: that of the proxy's listener, or, for a headless Service, those of the
    /// endpoints.
    destinations: Arc<RwLock<HashMap<PortKey, Vec<SocketAddr>>>>,
    services: Arc<RwLock<Vec<Arc<Service>>>>,
}

impl ServiceTable {
    /// Returns the address of a Service port. `None` if there is no such port, or a headless Service has no endpoint.
    pub fn lookup(&self, namespace: &str, service: &str, port: u16) -> Option<SocketAddr> {
        self.addresses(namespace, service, port)?.first().copied()
    }

    /// Returns the address of a Service port, or all addresses of a headless Service. `None` if there is no such port.
    pub(crate) fn addresses(&self, namespace: &str, service: &str, port: u16) -> Option<Vec<SocketAddr>> {
        self.destinations.read().get(&(ObjectKey::new(namespace, service), port)).cloned()
    }

    /// Returns variables for the containers of a namespace: those of its Services if `all` is set, and those of
    /// [`MASTER`].
    pub(crate) fn variables(&self, namespace: &str, all: bool) -> BTreeMap<String, String> {
        let services = self.services.read();
        let variables = services.iter().flat_map(|service| {
            let (home, name) = (service.namespace().unwrap_or_default(), service.name_any());
            let is_linked = (all && home == namespace) || (home.as_str(), name.as_str()) == MASTER;
            let links = is_linked.then(|| variables(service, |port| self.lookup(&home, &name, port)));
            links.into_iter().flatten().collect::<Vec<_>>()
        });
        variables.collect()
    }

    pub(crate) fn replace_services(&self, services: Vec<Arc<Service>>) {
        *self.services.write() = services;
    }

    pub(crate) fn replace(&self, destinations: impl Iterator<Item = (PortKey, Vec<SocketAddr>)>) {
        *self.destinations.write() = destinations.collect();
    }
}

/// Returns all TCP ports of `services`, with their endpoints in `slices`.
pub(crate) fn service_ports<'a>(
    services: impl Iterator<Item = &'a Service>,
    slices: impl Iterator<Item = &'a EndpointSlice>,
) -> BTreeMap<PortKey, ServicePort> {
    let mut by_service: HashMap<ObjectKey, Vec<&EndpointSlice>> = HashMap::new();
    for slice in slices {
        if let Some(service) = slice.labels().get("kubernetes.io/service-name") {
            let service = ObjectKey::new(slice.namespace().unwrap_or_default(), service.clone());
            by_service.entry(service).or_default().push(slice);
        }
    }
    let mut ports = BTreeMap::new();
    for service in services {
        let (key, Some(spec)) = (key_of(service), service.spec.as_ref()) else { continue };
        let address = spec.cluster_ip.as_deref().unwrap_or_default();
        let cluster_ip = address.parse::<IpAddr>().ok();
        if cluster_ip.is_none() && address != "None" {
            continue; // Not assigned yet, or a name only.
        }
        let slices = by_service.get(&key).map(Vec::as_slice).unwrap_or_default();
        for port in spec.ports.iter().flatten() {
            let (Ok(number), "TCP") = (u16::try_from(port.port), port.protocol.as_deref().unwrap_or("TCP")) else {
                continue;
            };
            let backends = backends(slices, port.name.as_deref().unwrap_or_default());
            let address = cluster_ip.map(|ip| SocketAddr::new(ip, number));
            ports.insert((key.clone(), number), (address, backends));
        }
    }
    ports
}

/// Returns the ready endpoints of the port with that name, or, if there is none, terminating endpoints that still
/// serve.
fn backends(slices: &[&EndpointSlice], port_name: &str) -> Vec<SocketAddr> {
    let (mut ready, mut ending) = (Vec::new(), Vec::new());
    for slice in slices {
        let port = slice.ports.iter().flatten().find(|p| p.name.as_deref().unwrap_or_default() == port_name);
        let Some(port) = port.and_then(|p| u16::try_from(p.port?).ok()) else { continue };
        for endpoint in slice.endpoints.iter().flatten() {
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            let addresses = endpoint.addresses.iter().take(1).filter_map(|a| a.parse::<IpAddr>().ok());
            let addresses = addresses.map(|address| SocketAddr::new(address, port));
            if conditions.ready.unwrap_or(true) {
                ready.extend(addresses);
            } else if conditions.serving == Some(true) && conditions.terminating == Some(true) {
                ending.extend(addresses);
            }
        }
    }
    let mut best = if ready.is_empty() { ending } else { ready };
    best.sort_unstable();
    best.dedup();
    best
}

/// Resolves `NAME.NS`, `NAME.NS.svc` and `NAME.NS.svc.DOMAIN` by a [`ServiceTable`], and everything else by the system.
///
/// The returned addresses include the port to use, which may differ from the requested one.
#[derive(Clone, Debug)]
pub struct ServiceResolver {
    table: ServiceTable,
    cluster_domain: String,
}

impl ServiceResolver {
    /// Creates a resolver for the Services in `table`, in a cluster with this domain (`cluster.local`).
    pub fn new(table: ServiceTable, cluster_domain: impl Into<String>) -> Self {
        Self { table, cluster_domain: cluster_domain.into() }
    }
}

impl Resolve for ServiceResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let Some((name, namespace)) = service_of(host, &self.cluster_domain) else { return Dns.resolve(host, port) };
        let (kind, message) = match self.table.addresses(namespace, name, port) {
            Some(addresses) if !addresses.is_empty() => return Box::pin(ready(Ok(addresses))),
            Some(_) => (
                io::ErrorKind::ConnectionRefused,
                format!("Service {namespace}/{name} has no ready endpoint for port {port}"),
            ),
            None => (
                io::ErrorKind::NotFound,
                format!("{host:?} cannot be resolved: there is no Service {namespace}/{name} with port {port}"),
            ),
        };
        Box::pin(ready(Err(io::Error::new(kind, message))))
    }

    fn follows_names(&self) -> bool {
        false
    }
}

/// Namespace and name of the Service for which every pod has variables.
const MASTER: (&str, &str) = ("default", "kubernetes");

/// Returns the variables of one Service. `proxied_at` returns the address at which the proxy serves a port, if known.
fn variables(service: &Service, proxied_at: impl Fn(u16) -> Option<SocketAddr>) -> Vec<(String, String)> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let address = spec.cluster_ip.as_deref().and_then(|address| address.parse::<IpAddr>().ok());
    let Some(address) = address else { return Vec::new() };
    let word = |text: &str| text.replace('-', "_").to_uppercase();
    let prefix = word(&service.name_any());
    let mut all = Vec::new();
    for (index, port) in spec.ports.iter().flatten().enumerate() {
        let number = u16::try_from(port.port).unwrap_or_default();
        // This is the ClusterIP, unless this machine could not listen there.
        let at = proxied_at(number).unwrap_or(SocketAddr::new(address, number));
        let (host, at_port) = (at.ip().to_string(), at.port().to_string());
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let url = format!("{}://{at}", protocol.to_lowercase());
        if index == 0 {
            all.push((format!("{prefix}_SERVICE_HOST"), host.clone()));
            all.push((format!("{prefix}_SERVICE_PORT"), at_port.clone()));
            all.push((format!("{prefix}_PORT"), url.clone()));
        }
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            all.push((format!("{prefix}_SERVICE_PORT_{}", word(name)), at_port.clone()));
        }
        let link = format!("{prefix}_PORT_{number}_{protocol}");
        all.push((format!("{link}_PROTO"), protocol.to_lowercase()));
        all.push((format!("{link}_PORT"), at_port));
        all.push((format!("{link}_ADDR"), host));
        all.push((link, url));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use common_controller::ObjectKey;
    use serde_json::json;

    #[tokio::test]
    async fn names_of_services_are_resolved_in_every_form() {
        let table = ServiceTable::default();
        let address: SocketAddr = "127.1.128.9:4000".parse().expect("an address");
        table.replace([((ObjectKey::new("ns", "a"), 80), vec![address])].into_iter());
        let resolver = ServiceResolver::new(table, "cluster.local");
        for host in ["a.ns", "a.ns.svc", "a.ns.svc.cluster.local", "a.ns.svc.cluster.local."] {
            assert_eq!(resolver.resolve(host, 80).await.expect("known"), [address], "{host}");
        }
        for (host, port) in [("a.ns", 81), ("b.ns", 80), ("a.other.svc", 80)] {
            let kind = resolver.resolve(host, port).await.map_err(|e| e.kind());
            assert_eq!(kind, Err(io::ErrorKind::NotFound), "{host}:{port}");
        }
        let literal = resolver.resolve("127.0.0.1", 5).await.expect("an address");
        assert_eq!(literal, ["127.0.0.1:5".parse().expect("an address")]);
    }

    /// Goal: the example in Kubernetes' documentation has the documented variables. A Service without a ClusterIP has
    /// none.
    #[test]
    fn variables_match_the_example_of_kubernetes() {
        let service = |spec: serde_json::Value| -> Service {
            serde_json::from_value(json!({"metadata": {"name": "redis-primary"}, "spec": spec})).expect("a Service")
        };
        let redis = service(json!({"clusterIP": "10.0.0.11", "ports": [{"port": 6379, "name": "a-b"}]}));
        let given = variables(&redis, |_| None);
        let lines: Vec<_> = given.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected = [
            "REDIS_PRIMARY_SERVICE_HOST=10.0.0.11",
            "REDIS_PRIMARY_SERVICE_PORT=6379",
            "REDIS_PRIMARY_PORT=tcp://10.0.0.11:6379",
            "REDIS_PRIMARY_SERVICE_PORT_A_B=6379",
            "REDIS_PRIMARY_PORT_6379_TCP_PROTO=tcp",
            "REDIS_PRIMARY_PORT_6379_TCP_PORT=6379",
            "REDIS_PRIMARY_PORT_6379_TCP_ADDR=10.0.0.11",
            "REDIS_PRIMARY_PORT_6379_TCP=tcp://10.0.0.11:6379",
        ];
        assert_eq!(lines, expected);
        for spec in [json!({"clusterIP": "None", "ports": [{"port": 80}]}), json!({"clusterIP": "10.0.0.1"})] {
            assert_eq!(variables(&service(spec), |_| None), []);
        }
        let moved = variables(&redis, |_| Some(([127, 0, 0, 1], 40_000).into()));
        assert_eq!(moved[2].1, "tcp://127.0.0.1:40000");
    }
}
