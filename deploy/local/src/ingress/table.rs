//! Which endpoints a host leads to, kept current by three watches.
//!
//! A host is either a Service's own name (`NAME.NS`, `NAME.NS.svc`, `NAME.NS.svc.DOMAIN`, and `NAME.NS.localhost`) or one
//! that the ledger of hosts gives to a ZeroScaler.

use common::hosts::ledger;
use common::{host, names};
use common_api::ZeroScaler;
use common_controller::changes::{self, Change};
use common_controller::key_of;
use common_runtime::watching::watch;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
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

/// What ends a Service's name for programs of this machine.
const LOCALHOST: &str = ".localhost";

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
    /// ZeroScalers by host, lower case; wildcards as `*.domain`.
    hosts: HashMap<String, Name>,
    /// Names of their Services.
    services: HashMap<Name, String>,
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
        let host = host::normalize(host)?;
        if let Some(service) = local_name(&host) {
            return Some(service);
        }
        let state = self.state.read();
        let own = host::service_name(&host, &self.domain);
        let own = own.and_then(|service| Some((service.namespace?.to_owned(), service.name.to_owned())));
        // Two labels may be a host of the world as well.
        let is_own = |name: &Name| state.slices.contains_key(name) || host.matches('.').count() > 1;
        if own.as_ref().is_some_and(is_own) {
            return own;
        }
        host::lookup_keys(&host).find_map(|key| state.claimed(&key)).or(own)
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

    fn scaler_changed(&self, change: Change<ZeroScaler>) {
        let mut state = self.state.write();
        match change {
            Change::Applied(scaler) => {
                let name = (scaler.namespace().unwrap_or_default(), scaler.name_any());
                let served = scaler.status.as_ref().and_then(|status| status.service.as_deref());
                state.services.insert(name, served.unwrap_or_else(|| scaler.spec.service_name()).to_owned());
            }
            Change::Gone(key) => {
                state.services.remove(&(key.namespace().to_owned(), key.name().to_owned()));
            }
            Change::Listed => {}
        }
    }

    fn ledger_changed(&self, change: &Change<ConfigMap>) {
        let (key, data) = match change {
            Change::Applied(map) => (key_of(map), map.data.as_ref()),
            Change::Gone(key) => (key.clone(), None),
            Change::Listed => return,
        };
        let (Some(namespace), Ok(grants)) = (ledger::namespace_of(key.name()), ledger::grants(data)) else { return };
        let mut state = self.state.write();
        state.hosts.retain(|_, (owner, _)| owner != namespace);
        for (host, name) in ledger::hosts(&grants) {
            state.hosts.insert(host.to_string(), (namespace.to_owned(), name.to_owned()));
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
    /// The Service of whoever has this host.
    fn claimed(&self, host: &str) -> Option<Name> {
        let owner = self.hosts.get(host)?;
        Some((owner.0.clone(), self.services.get(owner)?.clone()))
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

/// The Service that `NAME.NS.localhost` means; none if the host is no such name.
fn local_name(host: &str) -> Option<Name> {
    let (name, namespace) = host.strip_suffix(LOCALHOST)?.split_once('.')?;
    (host::is_label(name) && host::is_label(namespace)).then(|| (namespace.to_owned(), name.to_owned()))
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
pub(super) async fn follow(
    table: std::sync::Arc<Table>,
    client: Client,
    system_namespace: &str,
    shutdown: CancellationToken,
) {
    let config = watcher::Config::default;
    let mut scalers = changes::watch(Api::<ZeroScaler>::all(client.clone()), config());
    let labelled = config().labels(&format!("{}={}", names::LEDGER, names::LEDGER_OF_HOSTS));
    let mut ledger = changes::watch(Api::<ConfigMap>::namespaced(client.clone(), system_namespace), labelled);
    let mut slices = watch(Api::<EndpointSlice>::all(client), config());
    // What the present list has not shown by its end is gone.
    let mut listed: BTreeMap<Name, Vec<String>> = BTreeMap::new();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            Some(change) = scalers.next() => table.scaler_changed(change),
            Some(change) = ledger.next() => table.ledger_changed(&change),
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
        let scaler = json!({"metadata": {"name": "hello", "namespace": "default"},
            "spec": {"target": {"name": "hello"}, "services": [{"name": "web"}]}});
        table.scaler_changed(Change::Applied(serde_json::from_value(scaler).expect("a ZeroScaler")));
        let hosts = ["hello.example.com", "*.wild.io", "wild.org", "hello.default", "*.default", "*.default.svc"];
        let grants = json!({"hello": {"uid": "u", "hosts": hosts}});
        let map = json!({"metadata": {"name": "hosts.default", "namespace": "system"}, "data": {"hosts": grants.to_string()}});
        table.ledger_changed(&Change::Applied(serde_json::from_value(map).expect("a ConfigMap")));
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
    fn a_host_leads_to_a_service_by_its_name_or_by_the_ledger() {
        let table = table();
        table.slice_applied(&slice(true));
        let hello = Some(("default".to_owned(), "hello".to_owned()));
        let web = Some(("default".to_owned(), "web".to_owned()));
        let rows = [
            ("hello.example.com", web.clone()),
            ("HELLO.example.com.:8080", web.clone()),
            ("a.b.wild.io", web.clone()),
            ("wild.org", web),
            ("wild.io", Some(("io".into(), "wild".into()))), // Two labels are a Service's name.
            ("hello.default", hello.clone()),
            ("hello.default.svc", hello.clone()),
            ("hello.default.svc.cluster.local:80", hello.clone()),
            ("hello.default.localhost", hello.clone()),
            ("Hello.default.localhost.:8080", hello.clone()),
            ("a.hello.default.localhost", None),
            ("hello.localhost", Some(("localhost".into(), "hello".into()))), // A namespace may have that name.
            ("localhost", None),
            ("hello.default.svc.other.domain", None),
            ("hello.default.example.com", None),
            ("hello", None),
        ];
        for (host, expected) in rows {
            assert_eq!(table.service(host), expected, "{host}");
        }
        table.ledger_changed(&Change::Gone(common::RevisionKey::new("system", "hosts.default")));
        assert_eq!(table.service("hello.example.com"), None, "given up");
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
