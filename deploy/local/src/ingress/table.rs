//! Which endpoints a host leads to, kept current by two watches.
//!
//! A host is either a Service's own name (`NAME.NS`, `NAME.NS.svc`, `NAME.NS.svc.DOMAIN`) or one that a
//! PodAutoscaler asks for, which the ServerlessService controller publishes in the backend annotation of the private
//! Service.

use common::backend::Backend;
use common::names;
use common_runtime::watching::watch;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio_util::sync::CancellationToken;

/// Label that ties a slice to its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Where a request may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Ready addresses, the one to try first in front.
    pub addresses: Vec<SocketAddr>,
    /// Whether they speak h2c rather than HTTP/1.1.
    pub h2c: bool,
}

/// Hosts, Services and endpoints as last seen.
pub struct Table {
    domain: String,
    state: RwLock<State>,
    turn: AtomicUsize,
}

type Name = (String, String); // Namespace, name.

#[derive(Default)]
struct State {
    /// By host, lower case; wildcards as `*.domain`.
    hosts: HashMap<String, Name>,
    /// By private Service: the hosts it contributed.
    contributed: HashMap<Name, (Name, Vec<String>)>,
    /// By Service, then by slice name.
    slices: HashMap<Name, BTreeMap<String, Slice>>,
}

/// None of it where a slice names no port, as it does while there are no endpoints.
#[derive(Clone, Default)]
struct Slice {
    ready: Vec<IpAddr>,
    port: u16,
    h2c: bool,
}

impl Table {
    /// An empty table; `domain` is the cluster's, such as `cluster.local`.
    pub fn new(domain: String) -> Self {
        Self { domain, state: RwLock::default(), turn: AtomicUsize::new(0) }
    }

    /// The Service that `host` (as in a Host header) leads to, if any.
    pub fn service(&self, host: &str) -> Option<(String, String)> {
        let host = bare(host);
        let state = self.state.read();
        if let Some(name) = state.hosts.get(&host) {
            return Some(name.clone());
        }
        let mut rest = host.as_str();
        while let Some((_, parent)) = rest.split_once('.') {
            if let Some(name) = state.hosts.get(&format!("*.{parent}")) {
                return Some(name.clone());
            }
            rest = parent;
        }
        let mut parts = host.splitn(4, '.');
        let (name, namespace) = (parts.next()?, parts.next()?);
        let known_suffix = match (parts.next(), parts.next()) {
            (None, _) | (Some("svc"), None) => true,
            (Some("svc"), Some(domain)) => domain == self.domain,
            _ => false,
        };
        known_suffix.then(|| (namespace.to_owned(), name.to_owned()))
    }

    /// The current ready endpoints of a Service, rotated by one with each call; `None` if it has no slices.
    pub fn target(&self, namespace: &str, name: &str) -> Option<Target> {
        let state = self.state.read();
        let slices = state.slices.get(&(namespace.to_owned(), name.to_owned()))?;
        let h2c = slices.values().any(|slice| slice.h2c);
        let mut addresses: Vec<SocketAddr> =
            slices.values().flat_map(|slice| slice.ready.iter().map(|ip| SocketAddr::new(*ip, slice.port))).collect();
        if !addresses.is_empty() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % addresses.len();
            addresses.rotate_left(turn);
        }
        Some(Target { addresses, h2c })
    }

    fn service_applied(&self, service: &Service) {
        let Some(namespace) = service.namespace() else { return };
        let name = (namespace.clone(), service.name_any());
        let backend =
            service.annotations().get(names::BACKEND).and_then(|json| serde_json::from_str::<Backend>(json).ok());
        let mut state = self.state.write();
        state.forget_hosts(&name);
        if let Some(backend) = backend {
            let public = (namespace, backend.service);
            for host in &backend.hosts {
                state.hosts.insert(host.clone(), public.clone());
            }
            state.contributed.insert(name, (public, backend.hosts));
        }
    }

    fn service_deleted(&self, service: &Service) {
        if let Some(namespace) = service.namespace() {
            self.state.write().forget_hosts(&(namespace, service.name_any()));
        }
    }

    fn slice_applied(&self, slice: &EndpointSlice) {
        let Some((service, name)) = owner(slice) else { return };
        self.state.write().slices.entry(service).or_default().insert(name, read(slice).unwrap_or_default());
    }

    fn slice_deleted(&self, slice: &EndpointSlice) {
        if let Some((service, name)) = owner(slice) {
            self.state.write().forget_slice(&service, &name);
        }
    }
}

impl State {
    fn forget_hosts(&mut self, private: &Name) {
        if let Some((public, hosts)) = self.contributed.remove(private) {
            for host in hosts {
                if self.hosts.get(&host) == Some(&public) {
                    self.hosts.remove(&host);
                }
            }
        }
    }

    fn forget_slice(&mut self, service: &Name, name: &str) {
        if let Some(slices) = self.slices.get_mut(service) {
            slices.remove(name);
            if slices.is_empty() {
                self.slices.remove(service);
            }
        }
    }
}

/// Host without port and trailing dot, lower case.
fn bare(host: &str) -> String {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    without_port.trim_end_matches('.').to_ascii_lowercase()
}

fn owner(slice: &EndpointSlice) -> Option<(Name, String)> {
    let service = slice.labels().get(SERVICE_NAME)?;
    Some(((slice.namespace()?, service.clone()), slice.name_any()))
}

/// The HTTP port of a slice and its ready addresses; `None` if it has no port.
fn read(slice: &EndpointSlice) -> Option<Slice> {
    let ports = slice.ports.as_deref().unwrap_or_default();
    let named = |wanted: &str| ports.iter().find(|port| port.name.as_deref() == Some(wanted));
    let port = named("http").or_else(|| named("http2")).or_else(|| ports.first())?;
    let h2c = port.name.as_deref() == Some("http2") || port.app_protocol.as_deref() == Some("kubernetes.io/h2c");
    let ready = slice
        .endpoints
        .iter()
        .flatten()
        .filter(|endpoint| endpoint.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true))
        .flat_map(|endpoint| endpoint.addresses.iter())
        .filter_map(|address| address.parse().ok())
        .collect();
    Some(Slice { ready, port: u16::try_from(port.port?).ok()?, h2c })
}

/// Keeps `table` current until `shutdown`; survives an absent API server with the last known state.
pub(super) async fn follow(table: std::sync::Arc<Table>, client: Client, shutdown: CancellationToken) {
    let config = watcher::Config::default;
    let mut services = watch(Api::<Service>::all(client.clone()), config());
    let mut slices = watch(Api::<EndpointSlice>::all(client), config());
    // What the present list has not shown by its end is gone.
    let mut unseen_services: Option<Vec<Service>> = None;
    let mut listed: BTreeMap<Name, Vec<String>> = BTreeMap::new();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            Some(event) = services.next() => match event {
                watcher::Event::Init => unseen_services = Some(Vec::new()),
                watcher::Event::InitApply(service) => {
                    table.service_applied(&service);
                    if let Some(seen) = &mut unseen_services {
                        seen.push(service);
                    }
                }
                watcher::Event::Apply(service) => table.service_applied(&service),
                watcher::Event::InitDone => {
                    let seen: Vec<Name> = unseen_services.take().unwrap_or_default().iter()
                        .filter_map(|s| Some((s.namespace()?, s.name_any()))).collect();
                    let mut state = table.state.write();
                    let gone: Vec<Name> = state.contributed.keys().filter(|k| !seen.contains(k)).cloned().collect();
                    for name in gone {
                        state.forget_hosts(&name);
                    }
                }
                watcher::Event::Delete(service) => table.service_deleted(&service),
            },
            Some(event) = slices.next() => match event {
                watcher::Event::Init => listed.clear(),
                watcher::Event::InitApply(slice) => {
                    if let Some((service, name)) = owner(&slice) {
                        listed.entry(service).or_default().push(name);
                    }
                    table.slice_applied(&slice);
                }
                watcher::Event::Apply(slice) => table.slice_applied(&slice),
                watcher::Event::InitDone => {
                    table.state.write().slices.retain(|service, slices| {
                        slices.retain(|name, _| listed.get(service).is_some_and(|kept| kept.contains(name)));
                        !slices.is_empty()
                    });
                }
                watcher::Event::Delete(slice) => table.slice_deleted(&slice),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn table() -> Table {
        let table = Table::new("cluster.local".into());
        let backend = json!({"revision": "hello", "service": "hello", "hosts": ["hello.example.com", "*.wild.io"],
            "probe": {"type": "tcp"}, "timeoutMs": 1, "maxHeld": 1});
        let private = json!({"metadata": {"name": "hello-private", "namespace": "default",
            "annotations": {names::BACKEND: backend.to_string()}}});
        table.service_applied(&serde_json::from_value(private).expect("a Service"));
        table
    }

    fn slice(ready: bool) -> EndpointSlice {
        serde_json::from_value(json!({"addressType": "IPv4",
            "metadata": {"name": "hello-1", "namespace": "default", "labels": {SERVICE_NAME: "hello"}},
            "ports": [{"name": "http", "port": 8012}],
            "endpoints": [{"addresses": ["127.9.0.1"], "conditions": {"ready": true}},
                          {"addresses": ["127.9.0.2"], "conditions": {"ready": ready}}]}))
        .expect("an EndpointSlice")
    }

    #[test]
    fn a_host_leads_to_a_service_by_its_name_or_by_a_published_host() {
        let table = table();
        let hello = Some(("default".to_owned(), "hello".to_owned()));
        let rows = [
            ("hello.example.com", hello.clone()),
            ("HELLO.example.com.:8080", hello.clone()),
            ("a.b.wild.io", hello.clone()),
            ("wild.io", Some(("io".into(), "wild".into()))), // Two labels are a Service's name.
            ("hello.default", hello.clone()),
            ("hello.default.svc", hello.clone()),
            ("hello.default.svc.cluster.local:80", hello),
            ("hello.default.svc.other.domain", None),
            ("hello.default.example.com", None),
            ("hello", None),
        ];
        for (host, expected) in rows {
            assert_eq!(table.service(host), expected, "{host}");
        }
    }

    #[test]
    fn only_ready_endpoints_are_targets_and_turns_are_taken() {
        let table = table();
        assert_eq!(table.target("default", "hello"), None);
        table.slice_applied(&slice(false));
        let one = table.target("default", "hello").expect("slices");
        assert_eq!(one.addresses, ["127.9.0.1:8012".parse().expect("address")]);
        table.slice_applied(&slice(true));
        let first = table.target("default", "hello").expect("slices").addresses[0];
        let second = table.target("default", "hello").expect("slices").addresses[0];
        assert_ne!(first, second);
        table.slice_applied(&EndpointSlice { ports: None, endpoints: None, ..slice(true) });
        let none = table.target("default", "hello").expect("a slice, if an empty one");
        assert_eq!(none.addresses, []);
        table.slice_deleted(&slice(true));
        assert_eq!(table.target("default", "hello"), None, "without slices there is no Service");
        assert!(table.state.read().slices.is_empty(), "nothing is kept of it");
    }
}
