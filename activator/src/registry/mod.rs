//! All revisions, by key, by host and by port ([`ports`]). Requests read; a single task writes.
//!
//! # Hosts
//!
//! In standalone mode a host is looked up in a [`HostTable`], whose rules keep namespaces apart. The table is rebuilt
//! and swapped as a whole when names or hosts change. A burst of changes causes one rebuild, and so do all events
//! before the first sync: until then the table is empty and requests wait for a while ([`crate::layers::lookup`]). With
//! tens of thousands of hosts a rebuild takes a tenth of a second. It runs outside the lock that probes take, and uses
//! at most a tenth of the time.
//!
//! # Edge cases
//!
//! - Pods and activators may be reported before their revision; they are stored until it comes.
//! - A revision is created when it is needed ([`workload`]); a mere inspection does not create it.
//! - The namespace of a client is only known for pods of revisions ([`callers`]). A bare name from any other address
//!   finds nothing.

pub(crate) mod backends;
mod callers;
pub(crate) mod explain;
mod learned_http;
mod observations;
pub(crate) mod ports;
mod probe_inbox;
pub(crate) mod readiness;
pub(crate) mod revision;
pub(crate) mod speaker;
pub(crate) mod stats;
mod workload;

use crate::discovery::{Event, Spec};
use crate::holders::Holders;
use crate::metrics::Metrics;
use crate::registry::readiness::Readiness;
use activator_core::Activators;
use activator_core::accounting::Clock;
use activator_core::breaker::{Capacity, Load};
use activator_core::own_index::own_index;
use activator_net::{Alarm, Memory, Pools};
use arc_swap::ArcSwap;
use backends::ProbeBudget;
use callers::Callers;
use common::RevisionKey;
use common::host::HostPattern;
use common::hosts::table::HostTable;
use dashmap::DashMap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use ports::{PortBindings, WorkloadPorts};
use revision::Revision;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use workload::Workload;

pub(crate) struct Parts {
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
    /// Memory for held requests, among others.
    pub(crate) memory: Memory,
    pub(crate) pools: Arc<Pools>,
    /// Notified when everything is known.
    pub(crate) readiness: Arc<Readiness>,
    /// Address of this activator, as text.
    pub(crate) own_ip: String,
    /// DNS domain, such as `cluster.local`.
    pub(crate) cluster_domain: String,
    /// Ports of workloads, if workloads have their own.
    pub(crate) ports: Option<WorkloadPorts>,
    pub(crate) runtime: Handle,
    pub(crate) probe_budget: Arc<ProbeBudget>,
    /// Shared limits, if this activator may share limits.
    pub(crate) holders: Option<Arc<Holders>>,
}

pub(crate) struct Registry {
    parts: Parts,
    /// Workloads by the text of their keys.
    by_key: DashMap<Arc<str>, Arc<Workload>, RandomState>,
    hosts: ArcSwap<Table>,
    callers: Callers,
    state: Mutex<RegistryState>,
}

#[derive(Default)]
struct RegistryState {
    /// Hosts with the names of their revisions, by namespace.
    hosts: Hosts,
    hosts_changed: bool,
    /// Set once all initial events were received.
    is_synced: bool,
    bindings: PortBindings,
    /// Set if another activator is ready.
    has_ready_sibling: bool,
    /// Revisions whose Service returns to direct routing.
    being_released: BTreeSet<RevisionKey>,
    /// Set if a Service of one of `being_released` may bypass this activator now.
    may_be_bypassed: bool,
}

type Hosts = BTreeMap<String, Arc<[(HostPattern, String)]>>;

type Table = HostTable<Arc<Workload>, RandomState>;

/// Interval between checks for unused revisions.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Pause between two rebuilds of the host table, as a multiple of the last rebuild's duration.
const REBUILD_PAUSE_FACTOR: u32 = 9;

/// Maximum pause between two rebuilds of the host table. The measured duration also contains time in which the process
/// did not run, and until the rebuild a new workload has no name.
const REBUILD_PAUSE_MAX: Duration = Duration::from_millis(100);

impl Registry {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self {
            hosts: ArcSwap::from_pointee(Table::empty(&parts.cluster_domain)),
            parts,
            by_key: DashMap::default(),
            callers: Callers::default(),
            state: Mutex::default(),
        })
    }

    /// Applies events until the stream ends.
    pub(crate) async fn run(self: Arc<Self>, mut events: mpsc::Receiver<Event>) {
        /// Maximum number of events applied before the host table is rebuilt.
        const BATCH: usize = 256;
        let mut batch = Vec::with_capacity(BATCH);
        let mut alarm = Alarm::default();
        let mut checks = tokio::time::interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rebuilt_from = Instant::now();
        loop {
            let due = self.due(rebuilt_from);
            tokio::select! {
                now = checks.tick() => self.by_key.iter().for_each(|workload| workload.drop_if_unused(now)),
                received = events.recv_many(&mut batch, BATCH) => if received == 0 {
                    return;
                },
                () = alarm.until(due) => {}
            }
            self.take(batch.drain(..));
            let begun = Instant::now();
            if begun >= rebuilt_from && self.rebuild_changed_hosts() {
                rebuilt_from = Instant::now() + (REBUILD_PAUSE_FACTOR * begun.elapsed()).min(REBUILD_PAUSE_MAX);
            }
        }
    }

    /// Returns the next time at which something changes without an event. Hosts are not rebuilt before `rebuilt_from`.
    fn due(&self, rebuilt_from: Instant) -> Option<Instant> {
        let state = self.state.lock();
        let hosts = (state.is_synced && state.hosts_changed).then_some(rebuilt_from);
        let numbers = self.parts.ports.as_ref().and_then(|ports| state.bindings.due(ports));
        numbers.into_iter().chain(hosts).min()
    }

    fn take(&self, events: impl Iterator<Item = Event>) {
        let mut state = self.state.lock();
        for event in events {
            state.is_synced |= matches!(event, Event::Synced);
            self.apply(&mut state, event);
        }
        if let Some(ports) = &self.parts.ports {
            state.bindings.follow(ports);
            self.end_bypassed_connections(&mut state, ports);
        }
    }

    /// Rebuilds the host table and returns true, if everything is known and something has changed. No lock is held
    /// meanwhile: only the caller changes the inputs.
    fn rebuild_changed_hosts(&self) -> bool {
        let hosts = {
            let mut state = self.state.lock();
            if !state.is_synced {
                return false;
            }
            std::mem::take(&mut state.hosts_changed).then(|| state.hosts.clone())
        };
        hosts.iter().for_each(|hosts| self.rebuild_hosts(hosts));
        self.parts.readiness.set_synced();
        hosts.is_some()
    }

    /// Returns the revision `namespace/name` for a request, and creates it if necessary.
    pub(crate) fn by_key(&self, namespace: &str, name: &str) -> Option<Arc<Revision>> {
        self.workload(namespace, name)?.active_revision(&self.parts, |_| true)
    }

    /// Returns the revision for a request that names `host` and comes from `peer`.
    pub(crate) fn by_host(&self, host: &str, peer: IpAddr) -> Option<Arc<Revision>> {
        self.hosts.load().get(host, || self.callers.namespace(peer))?.active_revision(&self.parts, |_| true)
    }

    /// Returns the current load of `namespace/name`; `None` if it is unknown.
    pub(crate) fn load(&self, namespace: &str, name: &str) -> Option<Load> {
        let workload = self.workload(namespace, name)?;
        workload.spec()?;
        let asleep = Load { in_flight: 0, queued: 0, capacity: Capacity::CLOSED };
        Some(workload.revision().map_or(asleep, |revision| revision.throttler.load()))
    }

    /// Reports whether workloads have ports of their own.
    pub(crate) fn has_ports(&self) -> bool {
        self.parts.ports.is_some()
    }

    /// Returns the number of workloads whose Service still has this activator as an endpoint although another
    /// activator could take over, because it is listed beside this one or ready.
    pub(crate) fn replaceable_workloads(&self) -> usize {
        let least = if self.state.lock().has_ready_sibling { 1 } else { 2 };
        let has_endpoint = |workload: &Workload| workload.activators().count().is_some_and(|count| count >= least);
        self.by_key.iter().filter(|entry| has_endpoint(entry.value())).count()
    }

    /// Returns all known workloads in the order of their keys.
    fn known(&self) -> Vec<(Arc<Spec>, Arc<Workload>)> {
        let known = |workload: &Arc<Workload>| Some((workload.spec()?, workload.clone()));
        let mut known: Vec<_> = self.by_key.iter().filter_map(|entry| known(entry.value())).collect();
        known.sort_unstable_by(|(a, _), (b, _)| a.key.cmp(&b.key));
        known
    }

    fn workload(&self, namespace: &str, name: &str) -> Option<Arc<Workload>> {
        let mut key: SmallVec<[u8; 128]> = SmallVec::with_capacity(namespace.len() + name.len() + 1);
        key.extend_from_slice(namespace.as_bytes());
        key.push(b'/');
        key.extend_from_slice(name.as_bytes());
        self.by_key.get(std::str::from_utf8(&key).ok()?).map(|entry| entry.value().clone())
    }

    fn apply(&self, state: &mut RegistryState, event: Event) {
        match event {
            Event::Revision(spec) => self.set(state, spec),
            Event::Deleted(key) => {
                state.hosts_changed = true;
                state.being_released.remove(&key);
                let Some(workload) = self.get(&key).filter(|workload| workload.spec().is_some()) else { return };
                tracing::info!(revision = %key, "revision deleted");
                self.update(&key, &workload, Workload::delete);
                self.callers.set(&key, workload.addresses());
            }
            Event::Pods { key, listing } => {
                let Some(workload) = self.get_or_create_unless(&key, listing.is_empty()) else { return };
                self.update(&key, &workload, |workload| workload.set_pods(listing, &self.parts));
                self.callers.set(&key, workload.addresses());
            }
            Event::Activators { key, addresses } => {
                let addresses = addresses.iter().map(String::as_str).filter(|address| self.is_of_own_family(address));
                let activators = own_index(&self.parts.own_ip, addresses);
                let is_unknown = activators == Activators::Unknown;
                let Some(workload) = self.get_or_create_unless(&key, is_unknown) else { return };
                state.may_be_bypassed |= state.being_released.contains(&key);
                self.update(&key, &workload, |workload| workload.set_activators(activators));
            }
            Event::ClusterIp { key, destination } => {
                let Some(workload) = self.get_or_create_unless(&key, destination.is_none()) else { return };
                self.update(&key, &workload, |workload| workload.set_cluster_ip(destination));
            }
            Event::Hosts { namespace, hosts } => {
                let former = match hosts.is_empty() {
                    true => state.hosts.remove(&namespace),
                    false => state.hosts.insert(namespace.clone(), hosts.into()),
                };
                state.hosts_changed |= former.as_ref() != state.hosts.get(&namespace);
            }
            Event::Numbers { block, entries } => {
                state.bindings.set(block, entries);
                state.may_be_bypassed = true; // A number that is bound late has clients, too.
            }
            Event::Siblings(mut activators) => {
                activators.all.retain(|(address, _)| self.is_of_own_family(&address.ip().to_string()));
                let is_other = |address: &IpAddr| address.to_string() != self.parts.own_ip;
                state.has_ready_sibling =
                    activators.all.iter().any(|(address, ready)| *ready && is_other(&address.ip()));
                self.parts.holders.iter().for_each(|holders| holders.set_activators(&activators));
            }
            Event::Synced => self.parts.holders.iter().for_each(Holders::set_synced),
        }
    }

    /// Reports whether an activator's address belongs to the address family that identifies activators. In a dual-stack
    /// cluster each activator has two addresses, but counts once.
    fn is_of_own_family(&self, address: &str) -> bool {
        address.contains(':') == self.parts.own_ip.contains(':')
    }

    fn set(&self, state: &mut RegistryState, spec: Arc<Spec>) {
        let Some(workload) = self.get_or_create_unless(&spec.key, false) else { return };
        let former = workload.set_spec(spec.clone(), &self.parts);
        if former.as_ref() == Some(&spec) {
            return;
        }
        state.may_be_bypassed |= match spec.is_being_released {
            true => state.being_released.insert(spec.key.clone()),
            false => state.being_released.remove(&spec.key),
        };
        let has_same_names = |former: &Spec| {
            (&former.backend.service, &former.further_services) == (&spec.backend.service, &spec.further_services)
        };
        state.hosts_changed |= !former.is_some_and(|former| has_same_names(&former));
        self.callers.set(&spec.key, workload.addresses());
    }

    /// Makes clients of released Services reconnect, once the Services bypass this activator.
    fn end_bypassed_connections(&self, state: &mut RegistryState, ports: &WorkloadPorts) {
        if !std::mem::take(&mut state.may_be_bypassed) || state.being_released.is_empty() {
            return;
        }
        let uid_if_bypassed = |key: &RevisionKey| {
            let workload = self.get(key)?;
            let spec = workload.spec().filter(|spec| spec.is_being_released)?;
            (workload.activators() == Activators::Unknown).then(|| spec.uid.clone())
        };
        let bypassed: HashSet<Arc<str>> = state.being_released.iter().filter_map(uid_if_bypassed).collect();
        if !bypassed.is_empty() {
            ports.end_connections(&bypassed);
        }
    }

    fn get(&self, key: &RevisionKey) -> Option<Arc<Workload>> {
        self.by_key.get(key.as_str()).map(|entry| entry.value().clone())
    }

    /// Returns the workload, and creates it unless there is nothing to store.
    fn get_or_create_unless(&self, key: &RevisionKey, is_nothing: bool) -> Option<Arc<Workload>> {
        let known = self.get(key);
        if known.is_some() || is_nothing {
            return known;
        }
        let workload = Arc::<Workload>::default();
        self.by_key.insert(key.text().clone(), workload.clone());
        Some(workload)
    }

    /// Applies a change to a workload, and removes the workload if nothing is known of it afterwards.
    fn update(&self, key: &RevisionKey, workload: &Workload, change: impl FnOnce(&Workload)) {
        change(workload);
        if workload.is_unknown() {
            self.by_key.remove(key.as_str());
        }
    }

    fn rebuild_hosts(&self, hosts: &Hosts) {
        let known = self.known();
        let mains = known.iter().map(|(spec, workload)| (spec, &*spec.backend.service, workload));
        let further = known
            .iter()
            .flat_map(|(spec, workload)| spec.further_services.iter().map(move |service| (spec, &**service, workload)));
        // If a Service is the main Service of another workload, it belongs to that one.
        let all = mains.chain(further);
        let revisions = all.map(|(spec, service, workload)| (spec.key.namespace(), service, workload.clone()));
        let hosts = hosts.iter().flat_map(|(namespace, hosts)| hosts.iter().map(move |host| (namespace, host)));
        let claimed = hosts.filter_map(|(namespace, (host, name))| {
            let owner = self.workload(namespace, name).filter(|workload| workload.spec().is_some())?;
            Some((namespace.as_str(), host, owner))
        });
        self.hosts.store(Arc::new(Table::new(&self.parts.cluster_domain, revisions, claimed)));
    }
}

#[cfg(test)]
mod tests;
