//! Watches of standalone mode: revisions from ZeroScalers, addresses from EndpointSlices with one label.
//!
//! The watches cover all namespaces, or those in `ZEROSCALE_NAMESPACES`. They never read Deployments. Port numbers, and
//! hosts beyond the names of the Services, come from the ledgers in the system namespace.
//!
//! ZeroScalers are listed first: there may be ten thousand, and the other data of each shares its name and uid in
//! memory.
//!
//! A user who may edit Services and slices of a namespace can write such objects there. [`super::proof`] decides which
//! of them count.
//!
//! If EndpointSlices are denied or absent, core/v1 Endpoints replace them. If those are denied as well, both are tried
//! in turn.

use super::proof::{PrivateService, Proof};
use super::scalers;
use super::sources::{self, WatchEvent, after_pause};
use crate::discovery::siblings;
use crate::discovery::slices::{Entry, Index, Labels, Owner, Ports, Side};
use crate::discovery::{Closed, Event, Spec};
use common::RevisionKey;
use common::hosts::ledger;
use common::names;
use common::pod_names::PodNames;
use common::ports::{self, Block};
use common_api::ZeroScaler;
use common_controller::changes::{Change, changes};
use common_controller::{ObjectKey, Relist, key_of};
use common_runtime::namespaces::Namespaces;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Watches until the receiver of `events` is gone.
pub(super) async fn run(client: Client, system_namespace: &str, namespaces: &Namespaces, events: mpsc::Sender<Event>) {
    let mut adapter = StandaloneWatch::new(events);
    // Fails only if the receiver is gone, so there is nothing to report.
    let _ = adapter.watch(client, system_namespace, namespaces).await;
}

struct StandaloneWatch {
    scalers: HashMap<RevisionKey, Arc<Spec>>,
    /// Private Services of ZeroScalers, including ZeroScalers that are not known yet.
    privates: HashMap<ObjectKey, PrivateService>,
    index: Index,
    /// Last port of each revision's pods, if it has any. If a Service's port is renamed, slices and ZeroScaler change
    /// one after the other, and this port bridges the gap.
    at: HashMap<RevisionKey, u16>,
    relists: Relists,
    listed: Listed,
    events: mpsc::Sender<Event>,
}

/// Running lists of the kinds that are stored by name here.
#[derive(Default)]
struct Relists {
    scalers: Relist<ObjectKey>,
    services: Relist<ObjectKey>,
    addresses: Relist<ObjectKey>,
}

/// Kinds that were listed completely once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Listed {
    scalers: bool,
    numbers: bool,
    services: bool,
    addresses: bool,
    hosts: bool,
}

impl StandaloneWatch {
    fn new(events: mpsc::Sender<Event>) -> Self {
        Self {
            scalers: HashMap::new(),
            privates: HashMap::new(),
            index: Index::default(),
            at: HashMap::new(),
            relists: Relists::default(),
            listed: Listed::default(),
            events,
        }
    }

    async fn watch(&mut self, client: Client, system_namespace: &str, namespaces: &Namespaces) -> Result<(), Closed> {
        let seen = (&client, namespaces);
        let mut scalers = sources::zero_scalers(seen);
        let mut numbers = sources::numbers(client.clone(), system_namespace).boxed();
        let mut services = sources::services(seen).boxed();
        let mut hosts = sources::hosts(client.clone(), system_namespace).boxed();
        let mut addresses = sources::slices(seen);
        let mut activators = siblings::of_slices(client.clone(), system_namespace);
        loop {
            let change = tokio::select! {
                Some(activators) = activators.next() => {
                    self.send(Event::Siblings(activators)).await?;
                    continue;
                }
                Some(change) = scalers.next() => change,
                Some(change) = numbers.next(), if self.listed.scalers => change,
                Some(change) = services.next(), if self.listed.scalers => change,
                Some(change) = addresses.next(), if self.listed.scalers => change,
                Some(change) = hosts.next(), if self.listed.scalers => change,
                () = self.events.closed() => return Err(Closed),
            };
            match change {
                WatchEvent::SlicesDenied(error) => {
                    tracing::info!(%error, "EndpointSlices cannot be watched, watching Endpoints instead");
                    addresses = sources::endpoints(seen);
                }
                WatchEvent::EndpointsDenied => addresses = after_pause(sources::slices(seen)),
                WatchEvent::ScalersDenied(error) => {
                    if !self.listed.scalers {
                        tracing::warn!(%error, "ZeroScalers cannot be watched: none is served until they can");
                    }
                    scalers = after_pause(sources::zero_scalers(seen));
                    self.set_listed(Listed { scalers: true, ..self.listed }).await?;
                }
                change => self.take(change).await?,
            }
        }
    }

    async fn take(&mut self, change: WatchEvent) -> Result<(), Closed> {
        match change {
            WatchEvent::Scaler(event) => {
                for change in changes(*event, &mut self.relists.scalers, self.scalers.keys()) {
                    match change {
                        Change::Applied(object) => self.scaler(&object).await?,
                        Change::Gone(key) => self.scaler_gone(&key).await?,
                        Change::Listed => self.set_listed(Listed { scalers: true, ..self.listed }).await?,
                    }
                }
            }
            WatchEvent::Numbers(change) => match *change {
                Change::Applied(map) => self.numbers(&map.name_any(), map.data.as_ref()).await?,
                Change::Gone(name) => self.numbers(name.name(), None).await?,
                Change::Listed => self.set_listed(Listed { numbers: true, ..self.listed }).await?,
            },
            WatchEvent::Service(event) => {
                for change in changes(*event, &mut self.relists.services, self.privates.keys()) {
                    match change {
                        Change::Applied(service) => self.service(&service).await?,
                        Change::Gone(name) => self.gone(&name).await?,
                        Change::Listed => self.set_listed(Listed { services: true, ..self.listed }).await?,
                    }
                }
            }
            WatchEvent::Hosts(change) => match *change {
                Change::Applied(map) => self.hosts(&map).await?,
                Change::Gone(name) => {
                    if let Some(namespace) = ledger::namespace_of(name.name()) {
                        self.send(Event::Hosts { namespace: namespace.to_owned(), hosts: Vec::new() }).await?;
                    }
                }
                Change::Listed => self.set_listed(Listed { hosts: true, ..self.listed }).await?,
            },
            WatchEvent::Slice(event) => self.addresses(*event, |slice| Entry::of_slice(Labels::OWN, slice)).await?,
            WatchEvent::Endpoints(event) => self.addresses(*event, |of| Entry::of_endpoints(Labels::OWN, of)).await?,
            WatchEvent::ScalersDenied(_) | WatchEvent::SlicesDenied(_) | WatchEvent::EndpointsDenied => {}
        }
        Ok(())
    }

    async fn scaler(&mut self, object: &ZeroScaler) -> Result<(), Closed> {
        let (key, uid) = (object.key(), object.uid().unwrap_or_default());
        if self.scalers.get(&key).is_some_and(|former| *former.uid != *uid) {
            self.scaler_gone(&key).await?;
        }
        let Some(spec) = scalers::spec(object) else {
            return Ok(()); // The former spec stays in force.
        };
        // Returns the parts that decide which addresses belong to its pods.
        fn addressing(spec: &Spec) -> (Proof<'_>, Option<&str>, &PodNames) {
            (Proof::from_spec(spec), scalers::first_port(spec), &spec.pod_names)
        }
        let former = self.scalers.get(&key);
        if former.is_some_and(|former| **former == spec) {
            return Ok(());
        }
        let same_addresses = former.is_some_and(|former| addressing(former) == addressing(&spec));
        let spec = Arc::new(spec);
        self.scalers.insert(spec.key.clone(), spec.clone());
        self.send(Event::Revision(spec)).await?;
        // Its slices may have come first.
        if same_addresses { Ok(()) } else { self.tell_all_addresses(&key).await }
    }

    async fn scaler_gone(&mut self, key: &RevisionKey) -> Result<(), Closed> {
        if self.scalers.remove(key).is_none() {
            return Ok(());
        }
        self.send(Event::Deleted(key.clone())).await?;
        self.tell_all_addresses(key).await
    }

    async fn numbers(&mut self, name: &str, data: Option<&BTreeMap<String, String>>) -> Result<(), Closed> {
        let Some(block) = Block::of_map(name) else { return Ok(()) };
        let page = ports::ledger::read(block, data);
        if !page.unreadable.is_empty() {
            tracing::error!(config_map = name, lines = ?page.unreadable, "lines refused: their numbers are nobody's");
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
        self.send(Event::Numbers { block, entries }).await
    }

    async fn service(&mut self, service: &Service) -> Result<(), Closed> {
        let name = key_of(service);
        let Some(private) = PrivateService::from_service(service) else { return self.gone(&name).await };
        let key = RevisionKey::new(name.namespace(), private.scaler());
        let former = self.privates.insert(name, private.clone());
        if former == Some(private) { Ok(()) } else { self.tell_addresses(&(key, Side::Private)).await }
    }

    async fn gone(&mut self, name: &ObjectKey) -> Result<(), Closed> {
        let Some(private) = self.privates.remove(name) else { return Ok(()) };
        self.tell_addresses(&(RevisionKey::new(name.namespace(), private.scaler()), Side::Private)).await
    }

    /// Applies an event of an object with addresses, a slice or Endpoints.
    async fn addresses<K: Resource>(
        &mut self,
        event: watcher::Event<K>,
        entries: impl Fn(&K) -> Vec<Entry>,
    ) -> Result<(), Closed> {
        for change in changes(event, &mut self.relists.addresses, self.index.names()) {
            match change {
                Change::Applied(object) => self.set_addresses(key_of(&object), entries(&object)).await?,
                Change::Gone(name) => self.set_addresses(name, Vec::new()).await?,
                Change::Listed => self.set_listed(Listed { addresses: true, ..self.listed }).await?,
            }
        }
        Ok(())
    }

    async fn set_addresses(&mut self, name: ObjectKey, mut entries: Vec<Entry>) -> Result<(), Closed> {
        for entry in &mut entries {
            if let Some(spec) = self.scalers.get(&entry.key) {
                entry.share(spec);
            }
        }
        for owner in self.index.set(name, entries) {
            self.tell_addresses(&owner).await?;
        }
        Ok(())
    }

    async fn hosts(&mut self, map: &ConfigMap) -> Result<(), Closed> {
        let name = map.name_any();
        let Some(namespace) = ledger::namespace_of(&name) else { return Ok(()) };
        match ledger::grants(map.data.as_ref()) {
            Ok(grants) => {
                let hosts = ledger::hosts(&grants).map(|(host, name)| (host, name.to_owned())).collect();
                self.send(Event::Hosts { namespace: namespace.to_owned(), hosts }).await
            }
            Err(error) => {
                tracing::error!(config_map = name, %error, "hosts refused; what was known stays in force");
                Ok(())
            }
        }
    }

    async fn tell_all_addresses(&mut self, key: &RevisionKey) -> Result<(), Closed> {
        for side in [Side::Private, Side::Public] {
            self.tell_addresses(&(key.clone(), side)).await?;
        }
        Ok(())
    }

    /// Sends the addresses from objects that are proven to belong to the revision.
    async fn tell_addresses(&mut self, owner: &Owner) -> Result<(), Closed> {
        let (key, side) = owner;
        let private = self.privates.get(&ObjectKey::new(key.namespace(), names::private_service(key.name())));
        let spec = self.scalers.get(key).map(|spec| &**spec);
        let proof = spec.map(Proof::from_spec);
        let counts = |entry: &Entry| proof.is_some_and(|proof| proof.covers(entry.owner.as_ref(), *side, private));
        let (port, at) = (spec.and_then(scalers::first_port), self.at.get(key).copied());
        let own = spec.map_or(&PodNames::Any, |spec| &spec.pod_names);
        let event = self.index.event_of(owner, port, Ports::NamedOrOnly, at, own, counts);
        if let Event::Pods { listing, .. } = &event {
            match listing.ready.iter().chain(&listing.not_ready).next() {
                Some(pod) => _ = self.at.insert(key.clone(), pod.address().port()),
                None => _ = self.at.remove(key),
            }
        }
        self.send(event).await
    }

    async fn set_listed(&mut self, listed: Listed) -> Result<(), Closed> {
        let all = Listed { scalers: true, numbers: true, services: true, addresses: true, hosts: true };
        let before = std::mem::replace(&mut self.listed, listed);
        if listed == all && before != listed {
            self.send(Event::Synced).await?;
        }
        Ok(())
    }

    async fn send(&self, event: Event) -> Result<(), Closed> {
        self.events.send(event).await.map_err(|_| Closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::{from_value, json};

    /// Bytes stored here for a sleeping workload, including its spec.
    const ASLEEP_BYTES: i64 = 1050;

    /// Returns the ZeroScaler, private Service and slice of activators of a workload, as the autoscaler writes them.
    fn asleep(n: usize) -> [WatchEvent; 3] {
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
        [
            WatchEvent::Scaler(Box::new(watcher::Event::Apply(scaler))),
            WatchEvent::Service(Box::new(watcher::Event::Apply(private))),
            WatchEvent::Slice(Box::new(watcher::Event::Apply(slice))),
        ]
    }

    /// Goal: objects of each kind that were deleted while a watch was broken are reported by the next list.
    #[test]
    fn what_a_new_list_lacks_is_gone() {
        let (events, mut told) = mpsc::channel(16);
        let mut adapter = StandaloneWatch::new(events);
        let mut told_of = |adapter: &mut StandaloneWatch, events: Vec<WatchEvent>| {
            for event in events {
                assert!(adapter.take(event).now_or_never().expect("there is room").is_ok());
            }
            std::iter::from_fn(|| told.try_recv().ok()).collect::<Vec<_>>()
        };
        told_of(&mut adapter, asleep(0).into());
        let slices = [watcher::Event::Init, watcher::Event::InitDone].map(|event| WatchEvent::Slice(Box::new(event)));
        let told = told_of(&mut adapter, slices.into());
        assert!(matches!(&*told, [Event::Activators { addresses, .. }] if addresses.is_empty()), "{told:?}");
        let scalers = [watcher::Event::Init, watcher::Event::InitDone].map(|event| WatchEvent::Scaler(Box::new(event)));
        let told = told_of(&mut adapter, scalers.into());
        assert!(matches!(&*told, [Event::Deleted(_), ..]), "{told:?}");
        let services =
            [watcher::Event::Init, watcher::Event::InitDone].map(|event| WatchEvent::Service(Box::new(event)));
        told_of(&mut adapter, services.into());
        assert!(adapter.privates.is_empty());
    }

    /// Goal: while the first of several ports is renamed, pods stay listed, in either order of slices and ZeroScaler. A
    /// port that the pods no longer have is not used.
    #[test]
    fn pods_whose_port_is_renamed_stay_listed() {
        let (events, mut told) = mpsc::channel(16);
        let mut adapter = StandaloneWatch::new(events);
        let mut pods = |adapter: &mut StandaloneWatch, event: WatchEvent| {
            assert!(adapter.take(event).now_or_never().expect("there is room").is_ok());
            let told = std::iter::from_fn(|| told.try_recv().ok()).filter_map(|event| match event {
                Event::Pods { listing, .. } => Some(listing.ready.iter().map(ToString::to_string).collect::<Vec<_>>()),
                _ => None,
            });
            told.last()
        };
        let [WatchEvent::Scaler(scaler), service, WatchEvent::Slice(public)] = asleep(0) else {
            panic!("as they are made")
        };
        let (watcher::Event::Apply(scaler), watcher::Event::Apply(public)) = (*scaler, *public) else {
            panic!("likewise")
        };
        let scaler = |first: &str| {
            let mut scaler = scaler.clone();
            scaler.status.as_mut().expect("a status").ports[0].name = first.to_owned();
            WatchEvent::Scaler(Box::new(watcher::Event::Apply(scaler)))
        };
        let slice = |ports: serde_json::Value| {
            let mut slice = public.clone();
            slice.metadata.name = Some("pods".into());
            slice
                .metadata
                .labels
                .as_mut()
                .expect("labels")
                .insert(names::SIDE.into(), names::SERVICE_TYPE_PRIVATE.into());
            slice.ports = Some(from_value(ports).expect("ports"));
            WatchEvent::Slice(Box::new(watcher::Event::Apply(slice)))
        };
        let both = |first: &str| slice(json!([{"name": first, "port": 8080}, {"name": "metrics", "port": 9090}]));
        pods(&mut adapter, scaler("http"));
        pods(&mut adapter, service);
        let listed = Some(vec!["10.0.0.1:8080".to_owned(), "10.0.0.2:8080".to_owned()]);
        assert_eq!(pods(&mut adapter, both("http")), listed);
        for (n, slices_first) in [(1, true), (2, false)] {
            let name = format!("web-{n}");
            let mut said = [both(&name), scaler(&name)];
            if !slices_first {
                said.reverse();
            }
            for event in said {
                assert_eq!(pods(&mut adapter, event), listed, "slices first: {slices_first}");
            }
        }
        let other = slice(json!([{"name": "else", "port": 8081}, {"name": "metrics", "port": 9090}]));
        assert_eq!(pods(&mut adapter, other), Some(Vec::new()));
    }

    /// Goal: a workload is reported as returning to direct routing once its ZeroScaler is being deleted, not before.
    #[test]
    fn what_is_being_deleted_is_being_given_back() {
        let (events, mut told) = mpsc::channel(16);
        let mut adapter = StandaloneWatch::new(events);
        let [WatchEvent::Scaler(scaler), _, _] = asleep(0) else { panic!("as they are made") };
        let watcher::Event::Apply(mut scaler) = *scaler else { panic!("likewise") };
        let mut given_back = |scaler: &ZeroScaler| {
            let event = WatchEvent::Scaler(Box::new(watcher::Event::Apply(scaler.clone())));
            assert!(adapter.take(event).now_or_never().expect("there is room").is_ok());
            let told = std::iter::from_fn(|| told.try_recv().ok()).filter_map(|event| match event {
                Event::Revision(spec) => Some(spec.given_back),
                _ => None,
            });
            told.collect::<Vec<_>>()
        };
        assert_eq!(given_back(&scaler), [false]);
        scaler.metadata.deletion_timestamp = Some(from_value(json!("2026-01-01T00:00:00Z")).expect("a time"));
        assert_eq!(given_back(&scaler), [true]);
    }

    /// Goal: a sleeping workload needs little memory. Method: count the bytes allocated for many.
    #[test]
    fn a_workload_that_sleeps_costs_little() {
        const MANY: usize = 1000;
        let (events, mut told) = mpsc::channel(16);
        let mut adapter = StandaloneWatch::new(events);
        let mut known = 0;
        let kept = allocation_counter::measure(|| {
            for n in 0..MANY {
                for event in asleep(n) {
                    assert!(adapter.take(event).now_or_never().expect("there is room").is_ok());
                    while let Ok(event) = told.try_recv() {
                        known +=
                            usize::from(matches!(event, Event::Activators { addresses, .. } if addresses.len() == 2));
                    }
                }
            }
        });
        assert_eq!(known, MANY, "each is reached by its activators");
        let each = kept.bytes_current / MANY as i64;
        assert!(each <= ASLEEP_BYTES, "{each} bytes");
    }
}
