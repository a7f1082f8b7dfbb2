//! All revisions, by key and by host. Requests read; one task writes.
//!
//! # Hosts
//!
//! In standalone a host means, in this order: an exact entry of `hosts`, the longest wildcard entry, a public Service
//! as `NAME.NS[.svc[.DOMAIN]]`, the bare `NAME` of a public Service in the caller's namespace. The table is rebuilt and
//! swapped whole when a revision's names change; a burst of changes is one rebuild. Whatever can be settled then is: a
//! request that names a host plainly (lower case, without port) takes one lookup and no allocation.
//!
//! Conflicts are settled before they get here, since only the controller knows which revision is older; should two
//! claim one host all the same, the first by key has it, on every activator.
//!
//! # Odd cases
//!
//! - Pods and activators may be told before their revision: they wait for it.
//! - The caller's namespace is known for pods of revisions alone; a bare name from anywhere else leads nowhere.

pub(crate) mod backends;
pub(crate) mod explain;
mod inbox;
pub(crate) mod readiness;
pub(crate) mod revision;
pub(crate) mod stats;

use crate::discovery::{Event, Listing, Spec};
use crate::metrics::Metrics;
use crate::registry::readiness::Readiness;
use activator_core::accounting::Clock;
use activator_core::own_index::own_index;
use activator_net::Pools;
use arc_swap::ArcSwap;
use backends::ProbeBudget;
use common::RevisionKey;
use common::host;
use dashmap::DashMap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use revision::Revision;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::mpsc;

/// What new revisions are made with.
pub(crate) struct Parts {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) pools: Arc<Pools>,
    /// Told when everything is known.
    pub(crate) readiness: Arc<Readiness>,
    /// This activator's own address, as text.
    pub(crate) own_ip: String,
    /// Such as `cluster.local`.
    pub(crate) cluster_domain: String,
}

pub(crate) struct Registry {
    parts: Parts,
    probe_budget: Arc<ProbeBudget>,
    by_key: DashMap<Box<str>, Arc<Revision>, RandomState>,
    hosts: ArcSwap<Hosts>,
    namespaces: DashMap<IpAddr, Arc<str>>,
    state: Mutex<State>,
}

/// What only the writer looks at.
#[derive(Default)]
struct State {
    specs: BTreeMap<RevisionKey, Spec>,
    pods: HashMap<RevisionKey, Listing>,
    activators: HashMap<RevisionKey, Vec<String>>,
    cluster_ips: HashMap<RevisionKey, activator_core::Destination>,
    hosts_changed: bool,
}

/// The table of hosts.
#[derive(Default)]
struct Hosts {
    /// Everything that can be looked up without further thought.
    plain: HashMap<Box<str>, Arc<Revision>, RandomState>,
    /// `hosts` entries: names and `*.domain`.
    patterns: HashMap<Box<str>, Arc<Revision>>,
    /// Public Services, `NAME.NS`.
    services: HashMap<Box<str>, Arc<Revision>>,
}

impl Registry {
    /// Knows nothing yet.
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self {
            parts,
            probe_budget: Arc::default(),
            by_key: DashMap::default(),
            hosts: ArcSwap::default(),
            namespaces: DashMap::new(),
            state: Mutex::default(),
        })
    }

    /// Applies events until the stream ends.
    pub(crate) async fn run(self: Arc<Self>, mut events: mpsc::Receiver<Event>) {
        /// Events applied before the hosts are rebuilt once.
        const BATCH: usize = 256;
        let mut batch = Vec::with_capacity(BATCH);
        while events.recv_many(&mut batch, BATCH).await > 0 {
            let mut synced = false;
            {
                let mut state = self.state.lock();
                for event in batch.drain(..) {
                    synced |= matches!(event, Event::Synced);
                    self.apply(&mut state, event);
                }
                if std::mem::take(&mut state.hosts_changed) {
                    self.rebuild_hosts(&state);
                }
            }
            if synced {
                self.parts.readiness.set_synced();
            }
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
        let hosts = self.hosts.load();
        if let Some(revision) = hosts.plain.get(host) {
            return Some(revision.clone());
        }
        let host = host::normalize(host)?;
        hosts.plain.get(host.as_str()).or_else(|| hosts.resolve(&host, &self.parts.cluster_domain)).cloned().or_else(
            || {
                let service = host::service_name(&host, &self.parts.cluster_domain)?;
                let namespace = self.namespaces.get(&peer).map(|entry| entry.value().clone())?;
                service
                    .namespace
                    .is_none()
                    .then(|| hosts.services.get(service_key(service.name, &namespace).as_str()).cloned())?
            },
        )
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
                state.hosts_changed = true;
                if let Some((_, revision)) = self.by_key.remove(key.to_string().as_str()) {
                    tracing::info!(revision = %key, "revision deleted");
                    revision.delete();
                }
            }
            Event::Pods { key, listing } => {
                self.map_namespaces(state, &key, &listing);
                if let Some(revision) = self.get(&key) {
                    revision.set_pods(listing.clone());
                }
                if listing.is_empty() {
                    state.pods.remove(&key)
                } else {
                    state.pods.insert(key, listing)
                };
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
            Event::Synced => {}
        }
    }

    fn set(&self, state: &mut State, spec: Spec) {
        let former = state.specs.insert(spec.key.clone(), spec.clone());
        match (former, self.get(&spec.key)) {
            (Some(former), Some(_)) if former == spec => return,
            (former, Some(revision)) => {
                revision.apply(&spec);
                state.hosts_changed |= former.is_none_or(|former| {
                    (&former.backend.hosts, &former.backend.service) != (&spec.backend.hosts, &spec.backend.service)
                });
                return;
            }
            (_, None) => {}
        }
        let revision = Revision::new(&spec, self.parts.clock.clone(), &self.parts.metrics);
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
    }

    fn get(&self, key: &RevisionKey) -> Option<Arc<Revision>> {
        self.by_key(key.namespace(), key.name())
    }

    fn own_index(&self, addresses: &[String]) -> activator_core::Activators {
        own_index(&self.parts.own_ip, addresses.iter().map(String::as_str))
    }

    fn map_namespaces(&self, state: &State, key: &RevisionKey, listing: &Listing) {
        for destination in state.pods.get(key).into_iter().flat_map(Listing::all) {
            self.namespaces.remove(&destination.address().ip());
        }
        let namespace: Arc<str> = key.namespace().into();
        for destination in listing.all() {
            self.namespaces.insert(destination.address().ip(), namespace.clone());
        }
    }

    fn rebuild_hosts(&self, state: &State) {
        let mut hosts = Hosts::default();
        for (key, spec) in &state.specs {
            let Some(revision) = self.get(key) else { continue };
            let service = service_key(&spec.backend.service, key.namespace());
            hosts.services.entry(service.into()).or_insert_with(|| revision.clone());
            for pattern in spec.backend.hosts.iter().filter_map(|host| host::HostPattern::parse(host)) {
                hosts.patterns.entry(pattern.to_string().into()).or_insert_with(|| revision.clone());
            }
        }
        let domain = &self.parts.cluster_domain;
        let spellings = hosts
            .services
            .keys()
            .flat_map(|service| [service.to_string(), format!("{service}.svc"), format!("{service}.svc.{domain}")]);
        let names = hosts.patterns.keys().filter(|pattern| !pattern.starts_with('*')).map(ToString::to_string);
        hosts.plain = spellings
            .chain(names)
            .filter_map(|host| hosts.resolve(&host, domain).cloned().map(|revision| (host.into(), revision)))
            .collect();
        self.hosts.store(Arc::new(hosts));
    }
}

impl Hosts {
    /// The revision of a normalized host that names its namespace, or stands in `hosts`.
    fn resolve(&self, host: &str, cluster_domain: &str) -> Option<&Arc<Revision>> {
        host::lookup_keys(host).find_map(|key| self.patterns.get(key.as_str())).or_else(|| {
            let service = host::service_name(host, cluster_domain)?;
            self.services.get(service_key(service.name, service.namespace?).as_str())
        })
    }
}

fn service_key(name: &str, namespace: &str) -> String {
    format!("{name}.{namespace}")
}
