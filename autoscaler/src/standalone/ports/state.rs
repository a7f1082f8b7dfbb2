//! Present state of the port numbers, and the keys that a change concerns. Performs no I/O.

use crate::standalone::traffic::slices::{SERVICE_NAME, claim_of};
use autoscaler_core::ports::claims::Claim;
use autoscaler_core::ports::{Activator, PortOutcome, Proofs, Serving, Workload};
use common::RevisionKey as Key;
use common::names;
use common::ports::ledger::{self, Block, Ledger, PortId};
use common_controller::Priority;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Default)]
pub(super) struct PortState {
    /// All ZeroScalers, with their uids.
    pub(super) objects: HashMap<Key, Arc<str>>,
    /// Ports that each workload needs.
    pub(super) wants: BTreeMap<Key, Workload>,
    /// Ports that each workload has.
    pub(super) given: HashMap<Key, AllocatedPorts>,
    pub(super) maps: LedgerMaps,
    /// Port numbers that slices lead to, by slice.
    pub(super) claims: HashMap<Key, Claim>,
    /// Activators by the slice of their Service, each with its shared port for HTTP/1.1.
    activators: BTreeMap<Key, Vec<(Activator, u16)>>,
    pub(super) proofs: Proofs,
    /// Pending queries by address and number.
    pub(super) queries: BTreeMap<(IpAddr, u16), PendingQuery>,
}

/// Ports given to a workload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AllocatedPorts {
    /// Uid of the object.
    pub(crate) uid: Arc<str>,
    /// Ports of the Service with their outcomes; most workloads have one port.
    pub(crate) ports: Box<[(PortId, PortOutcome)]>,
}

impl AllocatedPorts {
    /// Returns the outcome of this port, or else the one of the port with its number. Skips a port whose name now
    /// belongs to another port.
    pub(crate) fn find(&self, port: &PortId, is_anothers: impl Fn(&str) -> bool) -> Option<&PortOutcome> {
        let is_it = |of: &PortId| of.port == port.port && !is_anothers(&of.name);
        let same = self.ports.iter().find(|(of, _)| of == port);
        same.or_else(|| self.ports.iter().find(|(of, _)| is_it(of))).map(|(_, outcome)| outcome)
    }

    /// Returns the outcome of the port with this allocated number.
    pub(crate) fn with_number(&self, number: u16) -> Option<&PortOutcome> {
        self.ports.iter().find_map(|(_, outcome)| (outcome.number == Some(number)).then_some(outcome))
    }
}

/// Query about a number that an activator has not confirmed yet, and the reconciles that wait for the response. The
/// ledger is reconciled after every response that concerns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PendingQuery {
    /// Path reconcile of a workload, and its priority.
    pub(super) path: Option<(Key, Priority)>,
    /// Scale reconcile of a workload.
    pub(super) decision: Option<Key>,
    /// Time of the next query; `None`: at once.
    pub(super) next: Option<tokio::time::Instant>,
    /// Pause after the last query.
    pub(super) pause: Duration,
}

/// Maps of the ledger as last read.
#[derive(Default)]
pub(super) struct LedgerMaps {
    pub(super) read: BTreeMap<Block, Arc<ConfigMap>>,
    pub(super) lines: Ledger,
    pub(super) unreadable: BTreeSet<u16>,
}

impl LedgerMaps {
    /// Applies the change of one map.
    pub(super) fn follow(&mut self, block: Block, map: Option<Arc<ConfigMap>>) {
        let version = |map: &Arc<ConfigMap>| map.resource_version();
        if self.read.get(&block).map(version) == map.as_ref().map(version) {
            return;
        }
        self.lines.retain(|number, _| Block::containing(*number) != block);
        self.unreadable.retain(|number| Block::containing(*number) != block);
        let Some(map) = map else {
            self.read.remove(&block);
            return;
        };
        let page = ledger::read(block, map.data.as_ref());
        for (number, line) in &page.unreadable {
            let config_map = map.name_any();
            tracing::error!(config_map, number, line, "a line of the ConfigMap of port numbers is unreadable");
        }
        self.lines.extend(page.entries);
        self.unreadable.extend(page.unreadable.into_keys());
        self.read.insert(block, map);
    }
}

impl PortState {
    /// Records that an object exists or no longer exists. Returns whether this is a change.
    pub(super) fn exists(&mut self, key: &Key, uid: Option<&str>) -> bool {
        let before = match uid {
            Some(uid) => self.objects.insert(key.clone(), uid.into()),
            None => self.objects.remove(key),
        };
        let is_another = before.as_deref() != uid;
        if is_another {
            // Data about an earlier object of the same name does not apply to this one.
            self.wants.remove(key);
            self.given.remove(key);
        }
        is_another
    }

    /// Applies a slice. Returns whether a new plan may be needed.
    pub(super) fn slice(&mut self, system: &str, key: &Key, slice: Option<&EndpointSlice>, now: Instant) -> bool {
        let is_theirs = |slice: &&EndpointSlice| {
            key.namespace() == system
                && slice.labels().get(SERVICE_NAME).is_some_and(|service| service == names::ACTIVATOR_SERVICE)
        };
        let addresses = slice.filter(is_theirs).map(addresses).unwrap_or_default();
        let activators_moved = self.activators.remove(key).unwrap_or_default() != addresses;
        if !addresses.is_empty() {
            self.activators.insert(key.clone(), addresses);
        }
        if activators_moved {
            let activators = self.activators();
            self.proofs.follow(&activators, |number| self.maps.lines.contains_key(&number), now);
            self.queries.retain(|(address, _), _| activators.iter().any(|activator| activator.address == *address));
        }
        let claim = slice.and_then(claim_of);
        let before = match &claim {
            None => self.claims.remove(key),
            Some(claim) => self.claims.insert(key.clone(), claim.clone()),
        };
        activators_moved || before != claim
    }

    /// Returns all activators, sorted by address.
    pub(super) fn activators(&self) -> Vec<Activator> {
        let all = self.activators.values().flatten().map(|(activator, _)| (activator.address, *activator));
        all.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    pub(super) fn shared_ports(&self) -> BTreeMap<IpAddr, u16> {
        self.activators.values().flatten().map(|(activator, port)| (activator.address, *port)).collect()
    }
}

/// Returns the addresses in a slice of the activators' Service, and the HTTP/1.1 port of each.
fn addresses(slice: &EndpointSlice) -> Vec<(Activator, u16)> {
    let ports = slice.ports.iter().flatten();
    let named = ports.filter(|port| port.name.as_deref() == Some("http")).find_map(|port| port.port);
    let shared = named.and_then(|port| u16::try_from(port).ok()).unwrap_or(names::ACTIVATOR_HTTP1_PORT);
    let endpoints = slice.endpoints.iter().flatten();
    let each = endpoints.flat_map(|endpoint| {
        let serving = serving(endpoint);
        let addresses = endpoint.addresses.iter().filter_map(|address| address.parse().ok());
        addresses.map(move |address| (Activator { address, serving }, shared))
    });
    each.collect()
}

fn serving(endpoint: &Endpoint) -> Serving {
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    match (conditions.ready.unwrap_or(true), conditions.serving, conditions.terminating.unwrap_or(false)) {
        (true, _, false) => Serving::Ready,
        (_, Some(true), true) => Serving::Terminating,
        (false, _, false) => Serving::Unready,
        (_, _, true) => Serving::Stopped,
    }
}
