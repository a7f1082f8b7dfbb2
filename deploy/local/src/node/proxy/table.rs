//! Destinations of Service ports, computed from Services and EndpointSlices, for in-process clients.

use crate::node::service_links::{self, MASTER};
use common_controller::{ObjectKey, key_of};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
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
            let links = is_linked.then(|| service_links::variables(service, |port| self.lookup(&home, &name, port)));
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
