//! Watches of Revisions, core/v1 Endpoints and private Services, which need no rights beyond those of Knative's
//! activator.
//!
//! [`super::revision`] translates Revisions. Changes of `mesh-compatibility-mode` and `enable-mesh-pod-addressability`
//! in `config-network` apply live (Knative reads them once).
//!
//! Revisions are listed first, because later objects share the name of their revision in memory.
//!
//! # Not here
//!
//! System-internal TLS ([`crate::InternalTls`]); the annotation for full duplex, which is always on.

use super::revision::{passthrough, rules, spec};
use crate::discovery::siblings;
use crate::discovery::slices::{Entry, Index, PortRule, ServiceRef, ServiceRole};
use crate::discovery::{Event, Listing, Spec};
use activator_core::Destination;
use common::RevisionKey;
use common::backend::Protocol;
use common::config::NetworkConfig;
use common::names;
use common::pod_names::PodNames;
use common_api::Revision;
use common_controller::changes::{Change, changes};
use common_controller::{ObjectKey, Relist, key_of};
use common_runtime::watching::watch as watch_all;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Watches until the receiver of `sender` is gone. `probe_timeout` is `PROBE_TIMEOUT`.
pub(super) async fn run(
    client: Client,
    mut network: watch::Receiver<Arc<NetworkConfig>>,
    probe_timeout: Duration,
    system_namespace: String,
    sender: mpsc::Sender<Event>,
) {
    let mut activators = siblings::of_endpoints(client.clone(), &system_namespace);
    let by_label = watcher::Config::default().labels(names::SERVICE_TYPE);
    let mut revisions = watch_all(Api::<Revision>::all(client.clone()), watcher::Config::default());
    let mut endpoints = watch_all(Api::<Endpoints>::all(client.clone()), by_label.clone());
    let mut services = watch_all(Api::<Service>::all(client), by_label);
    let network_now = network.borrow_and_update().clone();
    let mut adapter = KnativeWatch { network: network_now, probe_timeout, ..KnativeWatch::default() };
    loop {
        let knows_revisions = adapter.listed[0];
        tokio::select! {
            Some(activators) = activators.next() => adapter.events.push(Event::Siblings(activators)),
            Some(event) = revisions.next() => adapter.take_revision(event),
            Some(event) = endpoints.next(), if knows_revisions => adapter.take_endpoints(event),
            Some(event) = services.next(), if knows_revisions => adapter.take_service(event),
            Ok(()) = network.changed() => adapter.set_network(network.borrow_and_update().clone()),
            () = sender.closed() => return,
        }
        for event in adapter.events.drain(..) {
            if sender.send(event).await.is_err() {
                return;
            }
        }
    }
}

struct Known {
    spec: Arc<Spec>,
    trusts_probe: bool,
}

/// Cluster address of a private Service for HTTP/1.1, and for h2c.
type ClusterAddresses = [Option<SocketAddr>; 2];

#[derive(Default)]
struct KnativeWatch {
    network: Arc<NetworkConfig>,
    probe_timeout: Duration,
    known: HashMap<RevisionKey, Known>,
    services: HashMap<RevisionKey, (ObjectKey, ClusterAddresses)>,
    revision_of_service: HashMap<ObjectKey, RevisionKey>,
    index: Index,
    /// Running lists of revisions, Endpoints and Services.
    relists: [Relist<ObjectKey>; 3],
    /// Kinds that were listed completely once, in the same order.
    listed: [bool; 3],
    events: Vec<Event>,
}

impl KnativeWatch {
    fn take_revision(&mut self, event: watcher::Event<Revision>) {
        for change in changes(event, &mut self.relists[0], self.known.keys()) {
            match change {
                Change::Applied(revision) => self.revision(&revision),
                Change::Gone(key) => self.revision_gone(key),
                Change::Listed => self.set_listed(0),
            }
        }
    }

    fn take_endpoints(&mut self, event: watcher::Event<Endpoints>) {
        for change in changes(event, &mut self.relists[1], self.index.names()) {
            match change {
                Change::Applied(object) => self.addresses(key_of(&object), Entry::of_endpoints(&object)),
                Change::Gone(name) => self.addresses(name, Vec::new()),
                Change::Listed => self.set_listed(1),
            }
        }
    }

    fn take_service(&mut self, event: watcher::Event<Service>) {
        for change in changes(event, &mut self.relists[2], self.revision_of_service.keys()) {
            match change {
                Change::Applied(service) => self.service(&service),
                Change::Gone(name) => self.service_gone(&name),
                Change::Listed => self.set_listed(2),
            }
        }
    }

    fn revision(&mut self, revision: &Revision) {
        let (spec, trusts_probe) = spec(revision, &self.network, self.probe_timeout);
        let (key, protocol, spec) = (spec.key.clone(), spec.backend.protocol, Arc::new(spec));
        let former = self.known.insert(key.clone(), Known { spec: spec.clone(), trusts_probe });
        let is_new_protocol = former.is_none_or(|former| former.spec.backend.protocol != protocol);
        self.events.push(Event::Revision(spec));
        if is_new_protocol {
            // Endpoints and Services that came earlier could not be evaluated without the protocol.
            for role in [ServiceRole::Private, ServiceRole::Public] {
                self.push_addresses(&(key.clone(), role));
            }
            if let Some(addresses) = self.services.get(&key).map(|(_, addresses)| *addresses) {
                self.cluster_ip(&key, addresses);
            }
        }
    }

    /// Revokes everything sent about the revision. Without its protocol, later changes of its other objects cannot be
    /// evaluated. If the revision is created again, everything is sent again.
    fn revision_gone(&mut self, key: RevisionKey) {
        self.known.remove(&key);
        self.events.push(Event::Deleted(key.clone()));
        self.events.push(Event::Pods { key: key.clone(), listing: Listing::default() });
        self.events.push(Event::Activators { key: key.clone(), addresses: Vec::new() });
        self.events.push(Event::ClusterIp { key, destination: None });
    }

    /// Applies a changed mesh mode: the pods of every revision are checked by the new rules. Pods that passed before
    /// stay in use meanwhile, except pods that were never probed (mode `enabled`).
    fn set_network(&mut self, network: Arc<NetworkConfig>) {
        let mesh = |network: &NetworkConfig| (network.mesh_mode, network.mesh_pod_addressability);
        if mesh(&network) == mesh(&self.network) {
            return;
        }
        tracing::info!(mode = ?network.mesh_mode, addressable = network.mesh_pod_addressability, "mesh mode changed");
        self.network = network;
        for known in self.known.values_mut() {
            let spec = Arc::make_mut(&mut known.spec);
            spec.rules = rules(&self.network, known.trusts_probe, self.probe_timeout);
            spec.passthrough = passthrough(&spec.key, &self.network);
            self.events.push(Event::Revision(known.spec.clone()));
        }
    }

    fn addresses(&mut self, name: ObjectKey, mut entries: Vec<Entry>) {
        for entry in &mut entries {
            if let Some(known) = self.known.get(&entry.key) {
                entry.share(&known.spec);
            }
        }
        for service in self.index.set(name, entries) {
            self.push_addresses(&service);
        }
    }

    fn push_addresses(&mut self, service: &ServiceRef) {
        let Some(protocol) = self.protocol(&service.0) else { return };
        let port = Some(protocol.port_name());
        self.events.push(self.index.event(service, port, PortRule::Named, None, &PodNames::Any, |_| true));
    }

    fn service(&mut self, service: &Service) {
        let labels = service.labels();
        if labels.get(names::SERVICE_TYPE).map(String::as_str) != Some(names::SERVICE_TYPE_PRIVATE) {
            return;
        }
        let Some(revision) = labels.get(names::REVISION) else { return };
        let name = key_of(service);
        let key = RevisionKey::new(name.namespace(), revision.as_str());
        let key = self.known.get_key_value(&key).map_or(key, |(known, _)| known.clone());
        if self.revision_of_service.get(&name).is_some_and(|former| *former != key) {
            self.service_gone(&name);
        }
        let addresses = [Protocol::Http1, Protocol::H2c].map(|protocol| cluster_address(service, protocol));
        self.cluster_ip(&key, addresses);
        self.revision_of_service.insert(name.clone(), key.clone());
        self.services.insert(key, (name, addresses));
    }

    fn service_gone(&mut self, name: &ObjectKey) {
        let Some(key) = self.revision_of_service.remove(name) else { return };
        if self.services.get(&key).is_none_or(|(present, _)| present != name) {
            return; // Another Service has replaced it.
        }
        self.services.remove(&key);
        self.events.push(Event::ClusterIp { key, destination: None });
    }

    fn cluster_ip(&mut self, key: &RevisionKey, [http1, h2c]: ClusterAddresses) {
        let address = match self.protocol(key) {
            Some(Protocol::Http1) => http1,
            Some(Protocol::H2c) => h2c,
            None => return,
        };
        let destination = address.map(Destination::from);
        self.events.push(Event::ClusterIp { key: key.clone(), destination });
    }

    fn set_listed(&mut self, kind: usize) {
        let before = std::mem::replace(&mut self.listed[kind], true);
        if !before && self.listed == [true; 3] {
            self.events.push(Event::Synced);
        }
    }

    fn protocol(&self, key: &RevisionKey) -> Option<Protocol> {
        self.known.get(key).map(|known| known.spec.backend.protocol)
    }
}

fn cluster_address(service: &Service, protocol: Protocol) -> Option<SocketAddr> {
    let spec = service.spec.as_ref()?;
    let ip: IpAddr = spec.cluster_ip.as_deref()?.parse().ok()?;
    let mut ports = spec.ports.iter().flatten();
    let port = ports.find(|port| port.name.as_deref() == Some(protocol.port_name()))?;
    Some(SocketAddr::new(ip, u16::try_from(port.port).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::knative::revision::tests::revision;
    use activator_core::backends::Fallback;
    use common::config::MeshMode;
    use serde_json::json;

    fn adapter() -> KnativeWatch {
        KnativeWatch { probe_timeout: Duration::from_millis(300), listed: [true; 3], ..KnativeWatch::default() }
    }

    fn app() -> Revision {
        revision(json!({"containers": [{}]}))
    }

    fn labels(kind: &str) -> serde_json::Value {
        json!({names::SERVICE_TYPE: kind, names::REVISION: "app-00001"})
    }

    fn service(name: &str, ip: &str) -> Service {
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": name, "labels": labels(names::SERVICE_TYPE_PRIVATE)},
            "spec": {"clusterIP": ip, "ports": [{"name": "http", "port": 80}]},
        }))
        .expect("a Service")
    }

    /// Goal: a revision has the address of its private Service in either order of events, until the last Service with
    /// its label is gone.
    #[test]
    fn a_revision_has_its_private_services_address() {
        let mut adapter = adapter();
        let address = |adapter: &mut KnativeWatch| {
            std::mem::take(&mut adapter.events).into_iter().find_map(|event| match event {
                Event::ClusterIp { destination, .. } => Some(destination.map(|address| address.to_string())),
                _ => None,
            })
        };
        let is = |address: &str| Some(Some(address.to_owned()));
        adapter.service(&service("first", "10.0.0.1"));
        assert_eq!(address(&mut adapter), None, "its revision is not known yet");
        adapter.revision(&app());
        assert_eq!(address(&mut adapter), is("10.0.0.1:80"));
        adapter.service(&service("second", "10.0.0.2"));
        assert_eq!(address(&mut adapter), is("10.0.0.2:80"));
        adapter.service_gone(&ObjectKey::new("ns", "first"));
        assert_eq!(address(&mut adapter), None, "another Service has replaced it");
        adapter.service_gone(&ObjectKey::new("ns", "second"));
        assert_eq!(address(&mut adapter), Some(None));
    }

    /// Goal: nothing stays known of a deleted revision, even if its other objects are deleted later. A revision that is
    /// created again gets the events of the remaining objects. Method: all events, step by step.
    #[test]
    fn events_are_revoked_with_their_revision_and_sent_again_with_it() {
        let mut adapter = adapter();
        let events = |adapter: &mut KnativeWatch| {
            let events = adapter.events.drain(..).map(|event| match event {
                Event::Revision(_) => "revision".to_owned(),
                Event::Deleted(_) => "deleted".to_owned(),
                Event::Pods { listing, .. } => format!("pods {}", listing.all().count()),
                Event::Activators { addresses, .. } => format!("activators {}", addresses.len()),
                Event::ClusterIp { destination, .. } => format!("cluster IP {}", destination.is_some()),
                other => panic!("not of a revision: {other:?}"),
            });
            events.collect::<Vec<_>>()
        };
        let endpoints = |kind: &str| -> Endpoints {
            let ports = json!([{"name": "http", "port": 8012}]);
            serde_json::from_value(json!({
                "metadata": {"namespace": "ns", "name": kind.to_lowercase(), "labels": labels(kind)},
                "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": ports}],
            }))
            .expect("Endpoints")
        };
        let service = service("private", "10.0.0.2");
        let kinds = [names::SERVICE_TYPE_PRIVATE, names::SERVICE_TYPE_PUBLIC].map(endpoints);
        let all = ["revision", "pods 1", "activators 1", "cluster IP true"];
        let gone = ["deleted", "pods 0", "activators 0", "cluster IP false"];

        adapter.take_revision(watcher::Event::Apply(app()));
        for endpoints in &kinds {
            adapter.take_endpoints(watcher::Event::Apply(endpoints.clone()));
        }
        adapter.take_service(watcher::Event::Apply(service.clone()));
        let first = ["revision", "pods 0", "activators 0", "pods 1", "activators 1", "cluster IP true"];
        assert_eq!(events(&mut adapter), first);
        for _ in 0..2 {
            adapter.take_revision(watcher::Event::Delete(app()));
            assert_eq!(events(&mut adapter), gone);
            adapter.take_revision(watcher::Event::Apply(app()));
            assert_eq!(events(&mut adapter), all);
        }
        adapter.take_revision(watcher::Event::Delete(app()));
        assert_eq!(events(&mut adapter), gone);
        for endpoints in kinds {
            adapter.take_endpoints(watcher::Event::Apply(endpoints.clone()));
            adapter.take_endpoints(watcher::Event::Delete(endpoints));
        }
        adapter.take_service(watcher::Event::Delete(service));
        let events = events(&mut adapter);
        assert!(events.iter().all(|event| event.ends_with(" 0") || event.ends_with(" false")), "{events:?}");
        assert!(adapter.known.is_empty() && adapter.services.is_empty() && adapter.index.names().next().is_none());
    }

    /// Goal: the mesh mode can change at any time, and later edits use the new mode.
    #[test]
    fn a_changed_mesh_mode_applies_to_every_revision() {
        let mut adapter = adapter();
        let fallback = |adapter: &mut KnativeWatch| {
            let revision = std::mem::take(&mut adapter.events).into_iter().find_map(|event| match event {
                Event::Revision(spec) => Some(spec.rules.fallback),
                _ => None,
            });
            revision.expect("an event")
        };
        let app = app();
        adapter.revision(&app);
        assert_eq!(fallback(&mut adapter), Fallback::WhenUnaddressable);
        let enabled = NetworkConfig { mesh_mode: MeshMode::Enabled, ..NetworkConfig::default() };
        adapter.set_network(Arc::new(enabled.clone()));
        assert_eq!(fallback(&mut adapter), Fallback::Always);
        adapter.revision(&app);
        assert_eq!(fallback(&mut adapter), Fallback::Always);
        let addressable = NetworkConfig { mesh_pod_addressability: true, ..enabled };
        adapter.set_network(Arc::new(addressable));
        assert_eq!(fallback(&mut adapter), Fallback::Never, "not if pods are addressable");
        let known = adapter.known.values().next().expect("app");
        assert_eq!(known.spec.passthrough.as_deref().expect("a host"), "app-00001-private.ns");
    }
}
