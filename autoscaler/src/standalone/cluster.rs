//! Watches of the standalone front end: ZeroScalers, Services and EndpointSlices. Maps their events to the workloads
//! that they concern.
//!
//! | event | keys queued for the path | keys queued for the scale |
//! |---|---|---|
//! | ZeroScaler | itself, unless only its status changed; the statuses of ZeroScalers whose fallbacks lead to it | itself |
//! | a path is requested or followed | itself | itself |
//! | Service | ZeroScalers with this public Service or with pods it selects; its owner; the statuses of ZeroScalers that fall back on it | ZeroScalers with this public Service or with pods it selects |
//! | EndpointSlice | the ZeroScaler in its label; ZeroScalers with this public Service; all if it belongs to `activator-service`, awake workloads first | the ZeroScaler that waits for slices of the Service it gave back |
//! | NetworkPolicy | ZeroScalers of its namespace; all if it belongs to the system namespace; the ZeroScaler that it guards | |
//!
//! The public Services of a ZeroScaler are those of the version in force and those of the newest version, if these
//! differ.
//!
//! Events about hosts are handled in [`super::hosts`].
//!
//! The watches have no label selector: a foreign Service with the name of ours, and slices left behind by another
//! controller, have none of our labels.

use crate::cluster::facts::Target;
use crate::cluster::links::Named as Targets;
use crate::cluster::multi_map::MultiMap;
use crate::cluster::target_key::TargetKey;
use crate::cluster::targets::{TargetEvent, TargetListener};
use crate::cluster::{FrontEndQueues, Index};
use crate::engine::parts::Parts;
use crate::reconcile::Watches;
use crate::scale::Pods;
use crate::standalone::finalizer::{adopted_target, has_finalizer};
use crate::standalone::hosts::Hosts;
use crate::standalone::hosts::claims::{Claims, Named};
use crate::standalone::hpa_conflicts::Horizontals;
use crate::standalone::policies::{Concerned, Guard, Policies};
use crate::standalone::ports::PortAllocator;
use crate::standalone::release::handover::{Addresses, Handovers};
use crate::standalone::scalers::Scalers;
use crate::standalone::scalers::findings::Findings;
use crate::standalone::services::choice::{self, Choice, Selections};
use crate::standalone::services::fallbacks::{self, Fallbacks, Resolved};
use crate::standalone::services::service_ports::TcpPort;
use crate::standalone::traffic::adopt::{ADOPTED_BY, Claimant, OWNER_KINDS};
use crate::standalone::traffic::paths::{PathProgress, PathRequest, Paths};
use crate::standalone::traffic::slices::{self, SERVICE_NAME};
use common::RevisionKey as Key;
use common::config::PortsConfig;
use common::host::HostPattern;
use common::hosts::claims::Claim;
use common::names;
use common::time::Timestamp;
use common_api::ZeroScaler;
use common_api::zeroscaler::{ServiceChoice, ServicePath};
use common_controller::changes::{self, Change};
use common_controller::objects::controller;
use common_controller::{Priority, Store, WorkQueue, key_of};
use common_runtime::namespaces::Namespaces;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// Requested public Service and the existing one, if it exists.
pub(crate) type RequestedService = (ServiceChoice, Option<Arc<Service>>);

/// Stores and indices of the standalone front end. Maps events to the keys of workloads.
pub(crate) struct Cluster {
    this: Weak<Self>,
    pub(crate) services: Arc<Store<Service>>,
    pub(crate) slices: Arc<Store<EndpointSlice>>,
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) horizontals: Arc<Horizontals>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) scalers: Arc<Scalers>,
    pub(crate) port_allocator: Arc<PortAllocator>,
    pub(crate) handovers: Handovers,
    namespaces: Namespaces,
    /// Key of `activator-service`.
    activators: Key,
    /// Queue of workloads to reconcile.
    autoscalers: WorkQueue<Key>,
    /// Queue of workloads whose path needs reconciling.
    pub(crate) path_queue: WorkQueue<Key>,
    paths: Paths,
    claims: Arc<Claims>,
    selections: Selections,
    fallbacks: Fallbacks,
    slices_by_service: RwLock<MultiMap<Key, Key>>,
    /// Services by the uid of the ZeroScaler that borrowed them, taken from their annotation. Anyone who can edit a
    /// Service can write that annotation, and the ZeroScaler may be in any namespace.
    borrowed: RwLock<MultiMap<String, Key>>,
}

impl Cluster {
    /// Builds a view of the cluster without objects. `autoscalers` is the queue of workloads to reconcile.
    pub(crate) fn new(
        system_namespace: &str,
        cluster_domain: &str,
        namespaces: Namespaces,
        autoscalers: WorkQueue<Key>,
        scalers: Arc<Scalers>,
        config: watch::Receiver<Arc<PortsConfig>>,
    ) -> Arc<Self> {
        let (claims, port_allocator) = (Arc::<Claims>::default(), scalers.port_allocator.clone());
        Arc::new_cyclic(|this: &Weak<Self>| {
            let (for_services, for_slices, ports) = (this.clone(), this.clone(), port_allocator.clone());
            let service = move |key: &Key, old: Option<&Arc<Service>>, new: Option<&Arc<Service>>| {
                for_services.upgrade().iter().for_each(|cluster| cluster.service(key, old, new));
            };
            let slice = move |key: &Key, old: Option<&Arc<EndpointSlice>>, new: Option<&Arc<EndpointSlice>>| {
                ports.slice(key, new);
                for_slices.upgrade().iter().for_each(|cluster| cluster.slice(key, old, new));
            };
            Self {
                this: this.clone(),
                services: Arc::new(Store::packing(service)),
                slices: Arc::new(Store::packing(slice)),
                hosts: Hosts::new(system_namespace, cluster_domain, claims.clone(), autoscalers.clone()),
                horizontals: Arc::default(),
                policies: Arc::new(Policies::new(system_namespace, config)),
                handovers: Handovers::default(),
                namespaces,
                activators: Key::new(system_namespace, names::ACTIVATOR_SERVICE),
                autoscalers,
                path_queue: port_allocator.paths.clone(),
                paths: Paths::default(),
                claims,
                selections: Selections::default(),
                fallbacks: Fallbacks::default(),
                slices_by_service: RwLock::default(),
                borrowed: RwLock::default(),
                port_allocator,
                scalers,
            }
        })
    }

    /// Determines who may connect to a workload with these ports. Returns `None` if that is not known yet.
    pub(crate) fn guard(
        &self,
        (key, uid): (&Key, &str),
        ports: &[TcpPort],
        target: &Target,
        pods: &dyn Pods,
    ) -> Option<Guard> {
        let given = self.port_allocator.given(key, uid);
        let numbers = |port: &TcpPort| {
            let outcome = given.as_ref().and_then(|given| given.find(&port.id, |_| true));
            let numbers =
                outcome.into_iter().flat_map(|outcome| outcome.number.into_iter().chain(outcome.former.clone()));
            numbers.collect()
        };
        let ports = self.policies.pod_ports(uid, ports, numbers);
        self.policies.guard((key.namespace(), uid), target, || pods.labels(key), &ports)
    }

    /// Queues workloads that are gone and still have a policy: their leader may have ended before it deleted the
    /// policy.
    pub(super) fn queue_leftover_guards(&self) {
        for key in self.policies.guarded().into_iter().filter(|key| !self.scalers.objects.holds(key)) {
            self.path_queue.add(key, Priority::Slow);
        }
    }

    /// Queues workloads, to determine again who may connect, and whether the activators reach their pods.
    pub(super) fn queue_guards(&self, concerned: Concerned<'_>) {
        let keys = match concerned {
            Concerned::All => self.scalers.objects.keys(),
            Concerned::Namespace(namespace) => self.scalers.objects.keys_within(namespace),
            Concerned::One(key) => vec![key],
        };
        for key in keys {
            self.scalers.queue.add(key.clone(), Priority::Normal);
            self.queue_path(&key, Priority::Normal);
        }
    }

    /// Returns the Services that clients of a ZeroScaler call: those that this process or the status lists as served,
    /// and the first Service that the spec names.
    pub(crate) fn public_services(&self, key: &Key) -> BTreeSet<Key> {
        let known = self.scalers.former_version(key).or_else(|| self.scalers.objects.get(key));
        let named = known.as_deref().map_or(key.name(), |object| object.spec.service_name());
        let status = known.as_deref().and_then(|object| object.status.as_ref());
        let services = status.into_iter().flat_map(|status| &status.services);
        let served =
            services.filter(|service| service.path == ServicePath::Served).map(|service| service.name.as_str());
        let listed = served.chain([named]).map(|name| Key::new(key.namespace(), name));
        self.selections.services_of(key).into_iter().chain(listed).collect()
    }

    /// Chooses the existing Services that serve a version of a ZeroScaler, and records the choice.
    pub(crate) fn choose(&self, original: &ZeroScaler, target: &Target, claimant: Claimant<'_>) -> Choice {
        let (key, spec, selections) = (original.key(), &original.spec, &self.selections);
        let named = spec.services.iter().map(|service| service.name.as_str()).chain([spec.target.name.as_str()]);
        let named = named.map(|name| Key::new(key.namespace(), name));
        let keys: BTreeSet<_> = selections.selecting(&key, &target.labels).into_iter().chain(named).collect();
        let services: Vec<_> = keys.iter().filter_map(|service| self.services.get(service)).filter(is_public).collect();
        let other = |name: &str| {
            let naming = self.claims.of_service(&Key::new(key.namespace(), name));
            naming.first().filter(|_| !naming.contains(&key)).map(|other| other.name().to_owned())
        };
        let inputs = choice::Inputs { original, target, claimant, services: &services, other: &other };
        let choice = choice::choose(&inputs);
        selections.serve(&key, &choice.names);
        choice
    }

    /// Returns the public Services of a version with their existing objects, the first in precedence first. Omits
    /// Services that do not exist and must not be created. Returns none if the first one is omitted.
    pub(crate) fn requested_services(
        &self,
        original: &ZeroScaler,
        target: &Target,
        claimant: Claimant<'_>,
    ) -> Vec<RequestedService> {
        let existing = |choice: &ServiceChoice| self.services.get(&Key::new(original.key().namespace(), &*choice.name));
        let names = self.choose(original, target, claimant).names.into_iter();
        let is_there = |(choice, existing): &RequestedService| existing.is_some() || choice.create;
        let mut found: Vec<RequestedService> = names.map(|choice| (choice.clone(), existing(&choice))).collect();
        let has_first = found.first().is_some_and(is_there);
        found.retain(|requested| has_first && is_there(requested));
        found
    }

    /// Resolves the fallback of this version of an object, or reports the fault in it. Returns `None` if the object has
    /// no fallback.
    pub(crate) fn fallback(&self, object: &ZeroScaler) -> Option<Resolved> {
        let (key, fallback) = (object.key(), object.spec.wake.fallback.as_ref()?);
        let service = self.services.get(&Key::new(key.namespace(), fallback.service.as_str()));
        let circle = self.fallbacks.circle(key.namespace(), object.spec.service_name(), &fallback.service);
        Some(fallbacks::resolve(fallback, service.as_deref(), circle.as_deref()))
    }

    /// Returns all slices of a Service, whatever wrote them, sorted by name.
    pub(crate) fn slices_of(&self, service: &Key) -> Vec<Arc<EndpointSlice>> {
        let keys = self.slices_by_service.read().get(service).to_vec();
        keys.iter().filter_map(|key| self.slices.get(key)).collect()
    }

    /// Records a new slice under its Service, because the next reconcile may run before the watch delivers the slice.
    pub(crate) fn record_new_slice(&self, slice: &EndpointSlice) {
        let key = key_of(slice);
        self.slices_by_service.write().relocate(&key, None, service_of(&key, slice));
    }

    /// Returns the Services of a namespace that the ZeroScaler with this uid has borrowed, sorted by name. The watch
    /// may lag, so a caller that takes a Service back must check that it is still borrowed.
    pub(crate) fn borrowed_by(&self, namespace: &str, uid: &str) -> Vec<Arc<Service>> {
        let keys = self.borrowed.read().get(uid).to_vec();
        let within = keys.iter().filter(|key| key.namespace() == namespace);
        within.filter_map(|key| self.services.get(key)).collect()
    }

    /// Returns how much longer our slices of a Service given back by `from` must stay. Returns `None` if they may be
    /// deleted.
    pub(crate) fn remaining_slice_time(&self, service: &Key, from: &Key) -> Option<Duration> {
        self.handovers.remaining_slice_time(service, from, self.addresses(service, from))
    }

    /// Reports whether clients may still hold connections to activators although the Service given back by `from` leads
    /// past them.
    pub(crate) fn may_hold_connections(&self, service: &Key, from: &Key) -> bool {
        let addresses = self.addresses(service, from);
        addresses.pods > 0 && addresses.is_handed_over() && slices::ready(&self.activators()) > 0
    }

    fn addresses(&self, service: &Key, from: &Key) -> Addresses {
        let private = self.slices_of(&Key::new(from.namespace(), names::private_service(from.name())));
        Addresses::count(self.services.get(service).as_deref(), slices::ready(&private), self.slices_of(service))
    }

    pub(crate) fn activators(&self) -> Vec<Arc<EndpointSlice>> {
        self.slices_of(&self.activators)
    }

    /// Applies a ZeroScaler of the watch.
    pub(crate) fn apply(&self, index: &Index, object: ZeroScaler) {
        self.scalers.apply(object, &|key, old, new| self.changed(index, key, old, new));
    }

    pub(crate) fn delete(&self, index: &Index, key: &Key) {
        self.scalers.delete(key, &|key, old, new| self.changed(index, key, old, new));
    }

    /// Applies the object that the API server returned for one of our writes.
    pub(super) fn apply_response(&self, index: &Index, object: ZeroScaler) {
        self.scalers.apply_response(object, &|key, old, new| self.changed(index, key, old, new));
    }

    /// Records the findings of a reconcile about the object version that the reconcile read.
    pub(crate) fn record_findings(&self, read: &ZeroScaler, findings: Findings) {
        self.scalers.record_findings(read, findings, |key| self.autoscalers.add(key.clone(), Priority::Normal));
    }

    /// Returns the path of a ZeroScaler, or `None` if no reconcile has requested one.
    pub(crate) fn path(&self, object: &ZeroScaler) -> Option<PathProgress> {
        self.paths.get(&object.key(), object.metadata.uid.as_deref().unwrap_or_default())
    }

    pub(crate) fn request_path(&self, object: &ZeroScaler, request: PathRequest) {
        let (key, uid) = (object.key(), object.metadata.uid.as_deref().unwrap_or_default());
        let served = object.status.as_ref().and_then(|status| status.service.as_deref()).unwrap_or_default();
        let path = request.path;
        if self.paths.request(&key, uid, request, served) {
            tracing::info!(revision = %key, ?path, "path");
            self.path_changed(&key);
        }
    }

    /// Records how far the path in `read` is followed.
    pub(crate) fn report_path(&self, key: &Key, read: &PathProgress, (service, in_path): (&str, bool), now: Timestamp) {
        if self.paths.report(key, read, service, in_path, now) {
            self.path_changed(key);
        }
    }

    /// Forgets the path of a workload that was deleted, given back, or moved to another process.
    pub(super) fn forget_path(&self, key: &Key) {
        if self.paths.forget(key) {
            self.path_changed(key);
        }
    }
}

impl Watches for Cluster {
    fn follow<'a>(&'a self, parts: &'a Parts) -> BoxFuture<'a, ()> {
        let (stores, client, shutdown) = (&parts.stores, &parts.writes.client, &parts.shutdown);
        let namespaces = &self.namespaces;
        self.scalers.enabled.follow((client, namespaces), shutdown);
        let (cluster, index) = (self.this.clone(), stores.index.clone());
        changes::follow(namespaces.reach::<ZeroScaler>(client), shutdown, move |change| {
            let Some(cluster) = cluster.upgrade() else { return };
            match change {
                Change::Applied(object) => cluster.apply(&index, object),
                Change::Gone(key) => cluster.delete(&index, &key),
                Change::Listed => cluster.scalers.objects.listed(),
            }
        });
        let index = stores.index.clone();
        let concern = move |target: &TargetKey| index.on_event(TargetEvent::Changed(target));
        self.horizontals.follow(client, namespaces, shutdown, concern);
        let cluster = self.this.clone();
        self.policies.follow(client, namespaces, shutdown, move |concerned| {
            if let Some(cluster) = cluster.upgrade() {
                cluster.queue_guards(concerned);
            }
        });
        self.services.spawn(namespaces.reach(client), shutdown);
        // This store also holds the activators' own slices.
        self.slices.spawn(namespaces.and(self.activators.namespace()).reach(client), shutdown);
        self.hosts.follow(client, namespaces, shutdown);
        self.port_allocator.follow(client, shutdown);
        async {
            self.scalers.objects.synced().await;
            stores.prepare_targets();
            self.services.synced().await;
            self.slices.synced().await;
            self.horizontals.targets.synced().await;
        }
        .boxed()
    }
}

impl FrontEndQueues for Cluster {
    /// Queues a workload for the path controller. A sleeping workload whose path was never reconciled keeps the
    /// priority of a new workload, however often it was written since. Otherwise, after a mass creation, all workloads
    /// would get their Services before the first one has its slices.
    fn queue_path(&self, key: &Key, priority: Priority) {
        let is_new = !self.scalers.backends.contains_key(key) && !self.scalers.is_awake(key);
        let priority = if is_new { priority.max(Priority::New) } else { priority };
        self.path_queue.add(key.clone(), priority);
    }

    fn queue_path_after(&self, key: &Key, delay: Duration) {
        self.path_queue.add_after(key.clone(), delay);
    }
}

/// Reactions to events.
impl Cluster {
    /// Updates the indices and queues after a ZeroScaler was added, changed or deleted.
    fn changed(&self, index: &Index, key: &Key, old: Option<&Arc<ZeroScaler>>, new: Option<&Arc<ZeroScaler>>) {
        index.apply(key, new.map(|object| targets_of(object)), Priority::of_change(old, new));
        if new.is_none() {
            self.selections.forget(key);
        }
        if self.claims.apply(key, new.map(|object| named(object))) {
            self.hosts.queue_reconcile();
        }
        for concerned in self.fallbacks.apply(key, new.map(|object| &object.spec)) {
            self.scalers.queue.add(concerned, Priority::Slow);
        }
        let same = |(old, new): (&Arc<ZeroScaler>, &Arc<ZeroScaler>)| {
            old.spec == new.spec && path_inputs(&old.metadata) == path_inputs(&new.metadata)
        };
        if !old.zip(new).is_some_and(same) {
            match new.is_some_and(|object| object.metadata.deletion_timestamp.is_some()) {
                true => self.path_queue.add(key.clone(), Priority::Normal), // Others may wait for its end.
                false => self.queue_path(key, Priority::Normal),
            }
        }
    }

    fn path_changed(&self, key: &Key) {
        self.queue_path(key, Priority::Normal);
        self.autoscalers.add(key.clone(), Priority::Normal);
    }

    /// Returns the ZeroScalers with this public Service in the newest version or in the version in force.
    fn of_service(&self, service: &Key) -> BTreeSet<Key> {
        let former = self.scalers.with_former_service(service);
        let keys = self.claims.of_service(service).into_iter().chain(former);
        keys.chain(self.selections.served_by(service)).collect()
    }

    fn service(&self, key: &Key, old: Option<&Arc<Service>>, new: Option<&Arc<Service>>) {
        let borrower = |service: &Arc<Service>| service.annotations().get(ADOPTED_BY).cloned();
        self.borrowed.write().relocate(key, old.and_then(borrower).as_ref(), new.and_then(borrower));
        let mut concerned = self.of_service(key);
        concerned.extend(self.selections.service(key, old, new).into_iter().filter(|key| self.claims.knows(key)));
        for autoscaler in concerned {
            self.autoscalers.add(autoscaler.clone(), Priority::of_change(old, new));
            self.queue_path(&autoscaler, Priority::Normal);
        }
        for falling_back in self.fallbacks.on(key) {
            self.scalers.queue.add(falling_back, Priority::Normal);
        }
        let owner = new.or(old).and_then(|service| controller(&service.metadata));
        if let Some(owner) = owner.filter(|owner| OWNER_KINDS.contains(&owner.kind.as_str())) {
            self.path_queue.add(Key::new(key.namespace(), owner.name.as_str()), Priority::Normal);
        }
    }

    fn slice(&self, key: &Key, old: Option<&Arc<EndpointSlice>>, new: Option<&Arc<EndpointSlice>>) {
        let about = |slice: &Arc<EndpointSlice>| service_of(key, slice);
        let (before, after) = (old.and_then(about), new.and_then(about));
        self.slices_by_service.write().relocate(key, before.as_ref(), after.clone());
        for service in before.iter().chain(after.iter().filter(|after| before.as_ref() != Some(*after))) {
            if *service == self.activators {
                // Workloads that get requests now come first.
                for workload in self.paths.keys() {
                    let priority = if self.scalers.is_awake(&workload) { Priority::Normal } else { Priority::Slow };
                    self.path_queue.add(workload, priority);
                }
            }
            for autoscaler in self.of_service(service) {
                self.queue_path(&autoscaler, Priority::Normal);
            }
            if let Some(waiting) = self.handovers.waiting(service) {
                self.autoscalers.add(waiting.clone(), Priority::Normal);
                self.path_queue.add(waiting, Priority::Normal);
            }
        }
        let label = new.or(old).and_then(|slice| slice.labels().get(names::WORKLOAD).cloned());
        if let Some(name) = label {
            self.path_queue.add(Key::new(key.namespace(), name), Priority::Normal);
        }
    }
}

/// Returns the targets of a ZeroScaler: the target in its spec, and the target that it adopted and has not given back.
/// The two may differ.
fn targets_of(object: &ZeroScaler) -> Targets {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    match TargetKey::from_target(namespace, &object.spec.target) {
        Ok(target) => {
            let held = held(object).filter(|held| *held != target);
            [target].into_iter().chain(held).collect()
        }
        Err(_) => Targets::default(),
    }
}

/// Returns the target that a ZeroScaler has adopted and not given back.
pub(crate) fn held(object: &ZeroScaler) -> Option<TargetKey> {
    let held = adopted_target(object.annotations()).unwrap_or_else(|| object.spec.target.clone());
    let held = TargetKey::from_target(object.metadata.namespace.as_deref().unwrap_or_default(), &held).ok();
    held.filter(|_| has_finalizer(object))
}

/// Returns the Services and hosts that a ZeroScaler names.
fn named(object: &ZeroScaler) -> Named {
    let (key, newest) = (object.key(), &object.spec);
    // While an older version is in force, so are its hosts: also if no reconcile has looked at the newest one yet.
    let written = object.status.as_ref().and_then(|status| status.in_force.as_ref());
    let former = written.filter(|written| written.generation != object.metadata.generation);
    let former = former.and_then(|former| former.version_of(object));
    let spec = former.as_ref().map_or(newest, |former| &former.spec);
    // If the list is unreadable, the ZeroScaler keeps the hosts it had.
    let is_readable = spec.hosts.iter().all(|host| HostPattern::parse(host).is_some());
    let service = |name: &str| Key::new(key.namespace(), name);
    Named {
        services: match newest.services.is_empty() {
            false => newest.services.iter().map(|named| service(&named.name)).collect(),
            true => [service(newest.service_name())].into(),
        },
        claim: Claim {
            uid: object.uid().unwrap_or_default(),
            created: object.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            hosts: is_readable.then(|| spec.host_patterns()),
        },
    }
}

/// Reports whether a Service is meant for clients, unlike the private Services that track the pods of a workload.
pub(crate) fn is_public(service: &Arc<Service>) -> bool {
    service.labels().get(names::SIDE).is_none_or(|side| side != names::SERVICE_TYPE_PRIVATE)
}

fn service_of(key: &Key, slice: &EndpointSlice) -> Option<Key> {
    Some(Key::new(key.namespace(), slice.labels().get(SERVICE_NAME)?.as_str()))
}

/// Returns the metadata fields whose change may change the desired path.
fn path_inputs(meta: &ObjectMeta) -> impl PartialEq + '_ {
    (&meta.annotations, &meta.labels, &meta.deletion_timestamp, &meta.uid, meta.generation)
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
