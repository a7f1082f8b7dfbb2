//! All revisions, by key, by host and by the port of their own ([`ports`]). Requests read; one task writes.
//!
//! # Hosts
//!
//! In standalone a host is looked up in a [`HostTable`], whose rules keep namespaces apart. It is rebuilt and swapped
//! whole when names or hosts change; a burst of changes is one rebuild, and so is all that is told before everything is
//! known: until then no host leads anywhere, and requests are refused as not served yet.
//!
//! # Odd cases
//!
//! - Pods and activators may be told before their revision: they wait for it.
//! - The caller's namespace is known for pods of revisions alone ([`callers`]); a bare name from anywhere else leads
//!   nowhere.

pub(crate) mod backends;
mod callers;
pub(crate) mod explain;
mod inbox;
pub(crate) mod ports;
pub(crate) mod readiness;
pub(crate) mod revision;
pub(crate) mod stats;

use crate::discovery::{Event, Listing, Spec};
use crate::metrics::Metrics;
use crate::registry::readiness::Readiness;
use activator_core::accounting::Clock;
use activator_core::hold::HeldBytes;
use activator_core::own_index::own_index;
use activator_net::{Alarm, Pools};
use arc_swap::ArcSwap;
use backends::ProbeBudget;
use callers::Callers;
use common::RevisionKey;
use common::host::HostPattern;
use common::hosts::table::{Claimed, HostTable, Named};
use dashmap::DashMap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use ports::{Numbers, WorkloadPorts};
use revision::Revision;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// What new revisions are made with.
pub(crate) struct Parts {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    /// What held requests may keep.
    pub(crate) held: Arc<HeldBytes>,
    pub(crate) pools: Arc<Pools>,
    /// Told when everything is known.
    pub(crate) readiness: Arc<Readiness>,
    /// This activator's own address, as text.
    pub(crate) own_ip: String,
    /// Such as `cluster.local`.
    pub(crate) cluster_domain: String,
    /// Where workloads have ports of their own.
    pub(crate) ports: Option<WorkloadPorts>,
}

pub(crate) struct Registry {
    parts: Parts,
    probe_budget: Arc<ProbeBudget>,
    by_key: DashMap<Box<str>, Arc<Revision>, RandomState>,
    hosts: ArcSwap<Hosts>,
    callers: Callers,
    state: Mutex<State>,
}

/// What only the writer looks at.
#[derive(Default)]
struct State {
    specs: BTreeMap<RevisionKey, Spec>,
    pods: HashMap<RevisionKey, Listing>,
    activators: HashMap<RevisionKey, Vec<String>>,
    cluster_ips: HashMap<RevisionKey, activator_core::Destination>,
    /// By namespace: hosts, and names of the revisions that have them.
    hosts: BTreeMap<String, Vec<(HostPattern, String)>>,
    hosts_changed: bool,
    /// Changes whenever a uid is known, or not any more.
    version: u64,
    numbers: Numbers,
}

type Hosts = HostTable<Arc<Revision>, RandomState>;

impl Registry {
    /// Knows nothing yet.
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self {
            hosts: ArcSwap::from_pointee(Hosts::empty(&parts.cluster_domain)),
            parts,
            probe_budget: Arc::default(),
            by_key: DashMap::default(),
            callers: Callers::default(),
            state: Mutex::default(),
        })
    }

    /// Applies events until the stream ends.
    pub(crate) async fn run(self: Arc<Self>, mut events: mpsc::Receiver<Event>) {
        /// Events applied before the hosts are rebuilt once.
        const BATCH: usize = 256;
        let mut batch = Vec::with_capacity(BATCH);
        let mut alarm = Alarm::default();
        loop {
            let due = self.state.lock().numbers.due();
            tokio::select! {
                received = events.recv_many(&mut batch, BATCH) => if received == 0 {
                    return;
                },
                () = alarm.until(due) => {}
            }
            self.take(batch.drain(..));
        }
    }

    /// Applies events.
    fn take(&self, events: impl Iterator<Item = Event>) {
        let mut synced = self.parts.readiness.is_synced();
        {
            let mut state = self.state.lock();
            for event in events {
                synced |= matches!(event, Event::Synced);
                self.apply(&mut state, event);
            }
            if synced && std::mem::take(&mut state.hosts_changed) {
                self.rebuild_hosts(&state);
            }
            if let Some(ports) = &self.parts.ports {
                state.numbers.follow(ports, Instant::now());
            }
        }
        if synced {
            self.parts.readiness.set_synced();
        }
    }

    /// The revision `namespace/name`.
    pub(crate) fn by_key(&self, namespace: &str, name: &str) -> Option<Arc<Revision>> {
        let mut key: SmallVec<[u8; 128]> = SmallVec::with_capacity(namespace.len() + name.len() + 1);
        key.extend_from_slice(namespace.as_bytes());
        key.push(b'/');
        key.extend_from_slice(name.as_bytes());
        self.by_key.get(std::str::from_utf8(&key).ok()?).map(|entry| entry.value().clone())
    }

    /// The revision that `host`, as a caller at `peer` wrote it, means.
    pub(crate) fn by_host(&self, host: &str, peer: IpAddr) -> Option<Arc<Revision>> {
        self.hosts.load().get(host, || self.callers.namespace(peer)).cloned()
    }

    /// Whether workloads have ports of their own.
    pub(crate) fn has_ports(&self) -> bool {
        self.parts.ports.is_some()
    }

    /// All revisions at this moment, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<Revision>> {
        self.by_key.iter().map(|entry| entry.value().clone()).collect()
    }

    fn apply(&self, state: &mut State, event: Event) {
        match event {
            Event::Revision(spec) => self.set(state, *spec),
            Event::Deleted(key) => {
                state.specs.remove(&key);
                state.version += 1;
                state.hosts_changed = true;
                self.map_callers(state, &key);
                if let Some((_, revision)) = self.by_key.remove(key.to_string().as_str()) {
                    tracing::info!(revision = %key, "revision deleted");
                    revision.delete();
                }
            }
            Event::Pods { key, listing } => {
                if let Some(revision) = self.get(&key) {
                    revision.set_pods(listing.clone());
                }
                if listing.is_empty() {
                    state.pods.remove(&key)
                } else {
                    state.pods.insert(key.clone(), listing)
                };
                self.map_callers(state, &key);
            }
            Event::Activators { key, addresses } => {
                if let Some(revision) = self.get(&key) {
                    revision.set_activators(self.own_index(&addresses));
                }
                if addresses.is_empty() {
                    state.activators.remove(&key)
                } else {
                    state.activators.insert(key, addresses)
                };
            }
            Event::ClusterIp { key, destination } => {
                if let Some(revision) = self.get(&key) {
                    revision.set_cluster_ip(destination.clone());
                }
                match destination {
                    Some(destination) => state.cluster_ips.insert(key, destination),
                    None => state.cluster_ips.remove(&key),
                };
            }
            Event::Hosts { namespace, hosts } => {
                let former = match hosts.is_empty() {
                    true => state.hosts.remove(&namespace),
                    false => state.hosts.insert(namespace.clone(), hosts),
                };
                state.hosts_changed |= former.as_ref() != state.hosts.get(&namespace);
            }
            Event::Numbers { block, entries } => state.numbers.set(block, entries),
            Event::Synced => {}
        }
    }

    fn set(&self, state: &mut State, spec: Spec) {
        let former = state.specs.insert(spec.key.clone(), spec.clone());
        if former.as_ref().is_none_or(|former| former.uid != spec.uid) {
            state.version += 1;
        }
        match (former, self.get(&spec.key)) {
            (Some(former), Some(_)) if former == spec => return,
            (former, Some(revision)) => {
                revision.apply(&spec);
                state.hosts_changed |= former.is_none_or(|former| former.backend.service != spec.backend.service);
                self.map_callers(state, &spec.key);
                return;
            }
            (_, None) => {}
        }
        let revision = Revision::new(&spec, self.parts.clock.clone(), &self.parts.metrics, self.parts.held.share());
        if let Some(addresses) = state.activators.get(&spec.key) {
            revision.set_activators(self.own_index(addresses));
        }
        if let Some(destination) = state.cluster_ips.get(&spec.key) {
            revision.set_cluster_ip(Some(destination.clone()));
        }
        if let Some(listing) = state.pods.get(&spec.key) {
            revision.set_pods(listing.clone());
        }
        backends::start(&revision, self.parts.pools.clone(), self.probe_budget.clone());
        self.by_key.insert(spec.key.to_string().into(), revision);
        state.hosts_changed = true;
        self.map_callers(state, &spec.key);
    }

    fn get(&self, key: &RevisionKey) -> Option<Arc<Revision>> {
        self.by_key(key.namespace(), key.name())
    }

    fn own_index(&self, addresses: &[String]) -> activator_core::Activators {
        own_index(&self.parts.own_ip, addresses.iter().map(String::as_str))
    }

    /// Notes which addresses are its pods'. Of what is no revision, or not yet, no address is anybody's.
    fn map_callers(&self, state: &State, key: &RevisionKey) {
        let own = state.specs.get(key).filter(|spec| !spec.backend.host_network).and_then(|_| state.pods.get(key));
        let addresses = own.into_iter().flat_map(Listing::all).map(|destination| destination.address().ip());
        self.callers.set(key, addresses.collect());
    }

    fn rebuild_hosts(&self, state: &State) {
        let revisions = state.specs.iter().filter_map(|(key, spec)| {
            let (namespace, service) = (key.namespace(), spec.backend.service.as_str());
            Some(Named { namespace, service, means: self.get(key)? })
        });
        let hosts = state.hosts.iter().flat_map(|(namespace, hosts)| hosts.iter().map(move |host| (namespace, host)));
        let claimed = hosts.filter_map(|(namespace, (host, name))| {
            Some(Claimed { namespace, host, means: self.by_key(namespace, name)? })
        });
        self.hosts.store(Arc::new(Hosts::new(&self.parts.cluster_domain, revisions, claimed)));
    }
}

#[cfg(test)]
mod tests;
