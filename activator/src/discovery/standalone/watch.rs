//! Watches of standalone mode: revisions from ZeroScalers, addresses from EndpointSlices with one label.
//!
//! The watches cover all namespaces, or those in `ZEROSCALE_NAMESPACES`. They never read Deployments. Port numbers, and
//! hosts beyond the names of the Services, come from the ledgers in the system namespace.
//!
//! ZeroScalers are listed first: there may be ten thousand, and the other data of each shares its name and uid in
//! memory. If they are denied or their kind does not exist, the other kinds are listed nevertheless.
//!
//! A user who may edit Services and slices of a namespace can write such objects there. [`super::proof`] decides which
//! of them count.

use super::proof::{PrivateService, covers};
use super::scalers;
use crate::discovery::siblings;
use crate::discovery::slices::{Entry, Index, PortRule, ServiceRef, ServiceRole};
use crate::discovery::{Event, Spec};
use common::RevisionKey;
use common::hosts::ledger;
use common::names;
use common::pod_names::PodNames;
use common::ports::{self, Block};
use common_api::ZeroScaler;
use common_controller::changes::{self, Change, changes};
use common_controller::{ObjectKey, Relist, key_of};
use common_runtime::namespaces::Namespaces;
use common_runtime::watching::{attempts, watch};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Watches until the receiver of `sender` is gone.
pub(super) async fn run(client: Client, system_namespace: String, namespaces: Namespaces, sender: mpsc::Sender<Event>) {
    let labelled = |selector: &str| watcher::Config::default().labels(selector);
    let privates = format!("{}={}", names::SIDE, names::SERVICE_TYPE_PRIVATE);
    let mut scalers = attempts(namespaces.reach::<ZeroScaler>(&client), watcher::Config::default());
    let ledgers = Api::<ConfigMap>::namespaced(client.clone(), &system_namespace);
    let mut ledgers = changes::watch(ledgers, labelled(names::LEDGER));
    let mut services = watch(namespaces.reach::<Service>(&client), labelled(&privates));
    let mut slices = watch(namespaces.reach::<EndpointSlice>(&client), labelled(names::SIDE));
    let mut activators = siblings::of_slices(client.clone(), &system_namespace);
    let mut adapter = StandaloneWatch::default();
    loop {
        let knows_scalers = adapter.listed[0];
        tokio::select! {
            Some(activators) = activators.next() => adapter.events.push(Event::Siblings(activators)),
            Some(event) = scalers.next() => match event {
                Ok(event) => adapter.take_scalers(event),
                Err(error) if is_denied(&error) => adapter.scalers_denied(&error),
                Err(_) => {} // The stream has logged it.
            },
            Some(change) = ledgers.next(), if knows_scalers => adapter.take_ledgers(change),
            Some(event) = services.next(), if knows_scalers => adapter.take_services(event),
            Some(event) = slices.next(), if knows_scalers => adapter.take_slices(event),
            () = sender.closed() => return,
        }
        for event in adapter.events.drain(..) {
            if sender.send(event).await.is_err() {
                return;
            }
        }
    }
}

/// Reports whether the API server permanently refuses to serve this kind.
fn is_denied(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => matches!(status.code, 403 | 404),
        _ => false,
    }
}

#[derive(Default)]
struct StandaloneWatch {
    scalers: HashMap<RevisionKey, Arc<Spec>>,
    /// Private Services of ZeroScalers, including ZeroScalers that are not known yet.
    private_services: HashMap<ObjectKey, PrivateService>,
    index: Index,
    /// Last port of each revision's pods, if it has pods. If a Service's port is renamed, slices and ZeroScaler change
    /// one after the other. In between this port is used.
    last_ports: HashMap<RevisionKey, u16>,
    /// Running lists of ZeroScalers, Services and slices.
    relists: [Relist<ObjectKey>; 3],
    /// Kinds that were listed completely once, in the same order; then ledgers.
    listed: [bool; 4],
    events: Vec<Event>,
}

impl StandaloneWatch {
    fn take_scalers(&mut self, event: watcher::Event<ZeroScaler>) {
        for change in changes(event, &mut self.relists[0], self.scalers.keys()) {
            match change {
                Change::Applied(object) => self.scaler(&object),
                Change::Gone(key) => self.scaler_gone(&key),
                Change::Listed => self.set_listed(0),
            }
        }
    }

    fn scalers_denied(&mut self, error: &watcher::Error) {
        if !self.listed[0] {
            tracing::warn!(%error, "ZeroScalers cannot be watched; the activator serves no workload until they can");
        }
        self.set_listed(0);
    }

    fn take_ledgers(&mut self, change: Change<ConfigMap>) {
        match change {
            Change::Applied(map) => self.ledger(&map.name_any(), map.data.as_ref()),
            Change::Gone(key) => self.ledger(key.name(), None),
            Change::Listed => self.set_listed(3),
        }
    }

    fn take_services(&mut self, event: watcher::Event<Service>) {
        for change in changes(event, &mut self.relists[1], self.private_services.keys()) {
            match change {
                Change::Applied(service) => self.service(&service),
                Change::Gone(key) => self.service_gone(&key),
                Change::Listed => self.set_listed(1),
            }
        }
    }

    fn take_slices(&mut self, event: watcher::Event<EndpointSlice>) {
        for change in changes(event, &mut self.relists[2], self.index.names()) {
            match change {
                Change::Applied(slice) => self.set_addresses(key_of(&slice), Entry::of_slice(&slice)),
                Change::Gone(key) => self.set_addresses(key, Vec::new()),
                Change::Listed => self.set_listed(2),
            }
        }
    }

    fn scaler(&mut self, object: &ZeroScaler) {
        let (key, uid) = (object.key(), object.uid().unwrap_or_default());
        if self.scalers.get(&key).is_some_and(|former| *former.uid != *uid) {
            self.scaler_gone(&key);
        }
        let Some(spec) = scalers::spec(object) else {
            return; // The former spec stays in force.
        };
        // Returns the parts that decide which addresses belong to its pods.
        fn addressing(spec: &Spec) -> (&str, Option<&str>, &PodNames) {
            (&*spec.uid, scalers::first_port(spec), &spec.pod_names)
        }
        let former = self.scalers.get(&key);
        if former.is_some_and(|former| **former == spec) {
            return;
        }
        let same_addresses = former.is_some_and(|former| addressing(former) == addressing(&spec));
        let spec = Arc::new(spec);
        self.scalers.insert(spec.key.clone(), spec.clone());
        self.events.push(Event::Revision(spec));
        if !same_addresses {
            self.push_all_addresses(&key); // Its slices may have come first.
        }
    }

    fn scaler_gone(&mut self, key: &RevisionKey) {
        if self.scalers.remove(key).is_some() {
            self.events.push(Event::Deleted(key.clone()));
            self.push_all_addresses(key);
        }
    }

    /// Applies a ledger of port numbers, or of a namespace's hosts. `data`: none if it is gone.
    fn ledger(&mut self, name: &str, data: Option<&BTreeMap<String, String>>) {
        if let Some(block) = Block::of_map(name) {
            self.numbers(block, name, data);
        } else if let Some(namespace) = ledger::namespace_of(name) {
            self.hosts(namespace, name, data);
        }
    }

    fn numbers(&mut self, block: Block, name: &str, data: Option<&BTreeMap<String, String>>) {
        let page = ports::ledger::read(block, data);
        if !page.unreadable.is_empty() {
            tracing::error!(config_map = name, lines = ?page.unreadable, "invalid lines: their ports have no workload");
        }
        let mut entries = page.entries;
        for entry in entries.values_mut() {
            if let Some(spec) = self.scalers.get(&entry.key) {
                entry.key = spec.key.clone();
                if entry.uid == spec.uid {
                    entry.uid = spec.uid.clone();
                }
            }
        }
        self.events.push(Event::Numbers { block, entries });
    }

    fn service(&mut self, service: &Service) {
        let name = key_of(service);
        let Some(private) = PrivateService::from_service(service) else { return self.service_gone(&name) };
        let key = RevisionKey::new(name.namespace(), private.scaler());
        let former = self.private_services.insert(name, private.clone());
        if former != Some(private) {
            self.push_addresses(&(key, ServiceRole::Private));
        }
    }

    fn service_gone(&mut self, name: &ObjectKey) {
        if let Some(private) = self.private_services.remove(name) {
            self.push_addresses(&(RevisionKey::new(name.namespace(), private.scaler()), ServiceRole::Private));
        }
    }

    /// Applies the entries of a slice; none for a slice that is gone.
    fn set_addresses(&mut self, name: ObjectKey, mut entries: Vec<Entry>) {
        for entry in &mut entries {
            if let Some(spec) = self.scalers.get(&entry.key) {
                entry.share(spec);
            }
        }
        for service in self.index.set(name, entries) {
            self.push_addresses(&service);
        }
    }

    fn hosts(&mut self, namespace: &str, name: &str, data: Option<&BTreeMap<String, String>>) {
        match ledger::grants(data) {
            Ok(grants) => {
                let hosts = ledger::hosts(&grants).map(|(host, name)| (host, name.to_owned())).collect();
                self.events.push(Event::Hosts { namespace: namespace.to_owned(), hosts });
            }
            Err(error) => {
                tracing::error!(config_map = name, %error, "invalid hosts: the former ones stay in force")
            }
        }
    }

    fn push_all_addresses(&mut self, key: &RevisionKey) {
        for role in [ServiceRole::Private, ServiceRole::Public] {
            self.push_addresses(&(key.clone(), role));
        }
    }

    /// Sends the addresses in slices that are proven to belong to the revision.
    fn push_addresses(&mut self, service: &ServiceRef) {
        let (key, role) = service;
        let private = self.private_services.get(&ObjectKey::new(key.namespace(), names::private_service(key.name())));
        let spec = self.scalers.get(key).map(|spec| &**spec);
        let counts =
            |entry: &Entry| spec.is_some_and(|spec| covers(&spec.uid, entry.controller_uid.as_deref(), *role, private));
        let (port, last) = (spec.and_then(scalers::first_port), self.last_ports.get(key).copied());
        let own = spec.map_or(&PodNames::Any, |spec| &spec.pod_names);
        let event = self.index.event(service, port, PortRule::NamedOrOnly, last, own, counts);
        if let Event::Pods { listing, .. } = &event {
            match listing.all().next() {
                Some(pod) => _ = self.last_ports.insert(key.clone(), pod.address().port()),
                None => _ = self.last_ports.remove(key),
            }
        }
        self.events.push(event);
    }

    fn set_listed(&mut self, kind: usize) {
        let before = std::mem::replace(&mut self.listed[kind], true);
        if !before && self.listed == [true; 4] {
            self.events.push(Event::Synced);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::runtime::watcher::Event::{Apply, Init, InitDone};
    use serde_json::{from_value, json};

    /// Bytes stored here for a sleeping workload, including its spec.
    const ASLEEP_BYTES: i64 = 1150;

    /// Returns the ZeroScaler, private Service and slice of activators of a workload, as the autoscaler writes them.
    fn asleep(n: usize) -> (ZeroScaler, Service, EndpointSlice) {
        let (name, uid) = (format!("asleep-{n:05}"), format!("00000000-0000-0000-0000-{n:012}"));
        let owner = json!([{
            "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "name": name, "uid": uid, "controller": true,
        }]);
        let meta = |object: &str, side: &str| {
            json!({
                "namespace": "namespace", "name": object, "uid": format!("10000000-0000-0000-0000-{n:012}"),
                "labels": {names::SIDE: side, names::WORKLOAD: name}, "ownerReferences": owner,
            })
        };
        let scaler: ZeroScaler = from_value(json!({
            "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler",
            "metadata": {"namespace": "namespace", "name": name, "uid": uid},
            "spec": {"target": {"kind": "Deployment", "name": name}},
            "status": {
                "service": name, "backend": {"probe": {"type": "Tcp"}, "timeoutMs": 300_000, "maxHeld": 10_000},
                "ports": [{"name": "http", "port": 80, "protocol": "auto"}],
            },
        }))
        .expect("a ZeroScaler");
        let private: Service =
            from_value(json!({"metadata": meta(&names::private_service(&name), names::SERVICE_TYPE_PRIVATE)}))
                .expect("a Service");
        let ready = json!({"ready": true});
        let slice: EndpointSlice = from_value(json!({
            "metadata": meta(&name, names::SERVICE_TYPE_PUBLIC), "addressType": "IPv4",
            "ports": [{"name": "http", "port": 20_000}],
            "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": ready}, {"addresses": ["10.0.0.2"], "conditions": ready},
            ],
        }))
        .expect("a slice");
        (scaler, private, slice)
    }

    fn apply(adapter: &mut StandaloneWatch, (scaler, private, slice): (ZeroScaler, Service, EndpointSlice)) {
        adapter.take_scalers(Apply(scaler));
        adapter.take_services(Apply(private));
        adapter.take_slices(Apply(slice));
    }

    /// Goal: objects of each kind that were deleted while a watch was broken are reported by the next list.
    #[test]
    fn objects_that_a_new_list_lacks_are_deleted() {
        let mut adapter = StandaloneWatch::default();
        apply(&mut adapter, asleep(0));
        adapter.events.clear();
        [Init, InitDone].into_iter().for_each(|event| adapter.take_slices(event));
        let events = std::mem::take(&mut adapter.events);
        assert!(matches!(&*events, [Event::Activators { addresses, .. }] if addresses.is_empty()), "{events:?}");
        [Init, InitDone].into_iter().for_each(|event| adapter.take_scalers(event));
        let events = std::mem::take(&mut adapter.events);
        assert!(matches!(&*events, [Event::Deleted(_), ..]), "{events:?}");
        [Init, InitDone].into_iter().for_each(|event| adapter.take_services(event));
        assert!(adapter.private_services.is_empty());
    }

    /// Goal: while the first of several ports is renamed, pods stay listed, in either order of slices and ZeroScaler. A
    /// port that the pods no longer have is not used.
    #[test]
    fn pods_whose_port_is_renamed_stay_listed() {
        let mut adapter = StandaloneWatch::default();
        let (scaler, service, public) = asleep(0);
        let scaler = |first: &str| {
            let mut scaler = scaler.clone();
            scaler.status.as_mut().expect("a status").ports[0].name = first.to_owned();
            scaler
        };
        let slice = |ports: serde_json::Value| {
            let mut slice = public.clone();
            slice.metadata.name = Some("pods".into());
            let labels = slice.metadata.labels.as_mut().expect("labels");
            labels.insert(names::SIDE.into(), names::SERVICE_TYPE_PRIVATE.into());
            slice.ports = Some(from_value(ports).expect("ports"));
            slice
        };
        let pods = |adapter: &mut StandaloneWatch| {
            let mut listings = adapter.events.drain(..).filter_map(|event| match event {
                Event::Pods { listing, .. } => Some(listing.ready.iter().map(ToString::to_string).collect::<Vec<_>>()),
                _ => None,
            });
            listings.next_back()
        };
        let both = |first: &str| slice(json!([{"name": first, "port": 8080}, {"name": "metrics", "port": 9090}]));
        adapter.take_scalers(Apply(scaler("http")));
        adapter.take_services(Apply(service));
        let listed = Some(vec!["10.0.0.1:8080".to_owned(), "10.0.0.2:8080".to_owned()]);
        adapter.take_slices(Apply(both("http")));
        assert_eq!(pods(&mut adapter), listed);
        for (n, slices_first) in [(1, true), (2, false)] {
            let name = format!("web-{n}");
            for takes_slices in [slices_first, !slices_first] {
                match takes_slices {
                    true => adapter.take_slices(Apply(both(&name))),
                    false => adapter.take_scalers(Apply(scaler(&name))),
                }
                assert_eq!(pods(&mut adapter), listed, "slices first: {slices_first}");
            }
        }
        adapter.take_slices(Apply(slice(json!([{"name": "else", "port": 8081}, {"name": "metrics", "port": 9090}]))));
        assert_eq!(pods(&mut adapter), Some(Vec::new()));
    }

    #[test]
    fn a_workload_is_released_while_its_scaler_is_being_deleted() {
        let mut adapter = StandaloneWatch::default();
        let (mut scaler, _, _) = asleep(0);
        for deleted_at in [None, Some("2026-01-01T00:00:00Z")] {
            scaler.metadata.deletion_timestamp = deleted_at.map(|time| from_value(json!(time)).expect("a time"));
            adapter.take_scalers(Apply(scaler.clone()));
            let reported = adapter.events.drain(..).filter_map(|event| match event {
                Event::Revision(spec) => Some(spec.is_being_released),
                _ => None,
            });
            assert_eq!(reported.collect::<Vec<_>>(), [deleted_at.is_some()]);
        }
    }

    /// Method: count the bytes allocated for many.
    #[test]
    fn a_sleeping_workload_needs_little_memory() {
        const MANY: usize = 1000;
        let mut adapter = StandaloneWatch::default();
        let mut known = 0;
        let allocated = allocation_counter::measure(|| {
            for n in 0..MANY {
                apply(&mut adapter, asleep(n));
                for event in adapter.events.drain(..) {
                    known += usize::from(matches!(event, Event::Activators { addresses, .. } if addresses.len() == 2));
                }
            }
        });
        assert_eq!(known, MANY, "each has two activators");
        let each = allocated.bytes_current / MANY as i64;
        assert!(each <= ASLEEP_BYTES, "{each} bytes");
    }
}
