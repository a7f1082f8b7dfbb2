//! One reconcile: a plan for all workloads that this process leads, and writes of the maps that it changes.

use super::state::{AllocatedPorts, PortState};
use crate::cluster::error::Error;
use crate::cluster::writes::Writes;
use crate::standalone::cluster::Cluster;
use crate::standalone::unlisted::{QUERY_INTERVAL, UnlistedNamespaces};
use autoscaler_core::ports::claims;
use autoscaler_core::ports::{Access, Change, Plan, Serving, View, Wanted, Workload, plan};
use common::RevisionKey as Key;
use common::config::PortsConfig;
use common::names;
use common::ports::ledger::{self, Block, Ledger};
use common_controller::Priority;
use k8s_openapi::api::core::v1::ConfigMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Delay until the next check while the first lists are incomplete: only the list of the ledger triggers a reconcile by
/// itself.
const LISTED_RECHECK: Duration = Duration::from_millis(200);

/// Controller that plans and writes.
pub(crate) struct Controller {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) writes: Writes,
    pub(crate) unlisted: Arc<UnlistedNamespaces>,
    pub(crate) config: watch::Receiver<Arc<PortsConfig>>,
    /// Random start of the search for a free number, so that two processes seldom change the same map.
    pub(crate) start: u16,
}

/// Writes planned by a reconcile.
struct Planned {
    changes: BTreeMap<Block, Vec<Change>>,
    /// Changed maps, in the versions that the plan was made from.
    read: BTreeMap<Block, Arc<ConfigMap>>,
    /// Numbers taken from unknown workloads, with the keys and uids of these workloads.
    orphans: BTreeMap<u16, (Key, Arc<str>)>,
    again: Option<Duration>,
}

impl Controller {
    /// Runs one reconcile. If the write of one map fails, the others are written nevertheless.
    pub(crate) async fn reconcile(&self, key: &Key) -> Result<(), Error> {
        let Cluster { port_allocator, scalers, slices, .. } = &*self.cluster;
        let queue = &port_allocator.queue;
        if !(port_allocator.ledger.is_synced() && scalers.objects.is_synced() && slices.is_synced()) {
            queue.add_after(key.clone(), LISTED_RECHECK);
            return Ok(());
        }
        let begun = Instant::now();
        let mut planned = self.planned();
        port_allocator.planned_within(begun.elapsed());
        if let Some(again) = planned.again {
            queue.add_after(key.clone(), again);
        }
        let missing = planned.orphans.values().map(|(key, uid)| (key.clone(), uid.to_string())).collect();
        let (protected, mut outcome) = self.unlisted.protected(&missing, true).await;
        if !protected.is_empty() {
            planned.drop_changes_in(&protected);
            queue.add_after(key.clone(), QUERY_INTERVAL);
        }
        for (block, changes) in &planned.changes {
            outcome = outcome.and(self.write(&planned, *block, changes).await);
        }
        outcome
    }

    fn planned(&self) -> Planned {
        let now = Instant::now().into_std();
        let leads = |key: &Key| self.writes.leadership.owns(key);
        let (config, port_allocator) = (**self.config.borrow(), &*self.cluster.port_allocator);
        let range = config.range;
        let mut state = port_allocator.state.lock();
        for block in Block::all() {
            state.maps.follow(block, port_allocator.ledger.get(&port_allocator.map_key(block)));
        }
        let activators = state.activators();
        let PortState { objects, wants, given, maps, claims, proofs, queries, .. } = &mut *state;
        let is_mine = |key: &Key, uid: &str| objects.get(key).is_some_and(|known| **known == *uid) && leads(key);
        // Records from an earlier leadership, or of a deleted object, may be stale.
        wants.retain(|key, workload| is_mine(key, &workload.uid));
        given.retain(|key, given| is_mine(key, &given.uid));
        let unrecorded = without_recorded_needs(&maps.lines, |key, uid| is_mine(key, uid) && !wants.contains_key(key));
        let mut workloads: Vec<&Workload> = wants.values().chain(unrecorded.values()).collect();
        workloads.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let is_known = |key: &Key, uid: &str| objects.get(key).is_some_and(|known| **known == *uid);
        let ports = |key: &Key| wants.get(key).map_or(&[][..], |workload| &workload.ports);
        let listed = claims::listed(claims.values(), &maps.lines, range, config.guarded, is_known, ports);
        let wall = port_allocator.clock.now();
        let is_open = |number: u16| maps.lines.get(&number).is_some_and(|line| line.state.is_open(wall));
        proofs.follow(&activators, is_open, now);
        queries.retain(|(_, number), _| is_open(*number));
        let ready = activators.iter().filter(|activator| activator.serving == Serving::Ready);
        let in_use = proofs.in_use(&ready.map(|activator| activator.address).collect());
        let view = View {
            range,
            guarded: config.guarded,
            start: range.first.saturating_add(self.start % u16::try_from(range.len()).unwrap_or(u16::MAX)),
            ledger: &maps.lines,
            unreadable: &maps.unreadable,
            listed: &listed,
            in_use: &in_use,
            workloads: &workloads,
            is_mine: &leads,
        };
        let Plan { changes, ports, again } = plan(&view, wall);
        for workload in &workloads {
            let Some(outcomes) = ports.get(&workload.key) else { continue };
            let ports = workload.ports.iter().map(|wanted| wanted.port.clone()).zip(outcomes.iter().cloned()).collect();
            let next = AllocatedPorts { uid: workload.uid.clone(), ports };
            if given.get(&workload.key) != Some(&next) {
                given.insert(workload.key.clone(), next);
                port_allocator.paths.add(workload.key.clone(), Priority::Normal);
                port_allocator.statuses.add(workload.key.clone(), Priority::Normal);
            }
        }
        let orphan = |change: &Change| {
            let line = maps.lines.get(&change.number).filter(|line| line.state == ledger::NumberState::Held)?;
            let is_known = objects.get(&line.key).is_some_and(|uid| *uid == line.uid);
            let is_orphan = change.entry.state != ledger::NumberState::Held && !is_known;
            is_orphan.then(|| (change.number, (line.key.clone(), line.uid.clone())))
        };
        let orphans = changes.values().flatten().filter_map(orphan).collect();
        let read = changes.keys().filter_map(|block| Some((*block, maps.read.get(block)?.clone()))).collect();
        Planned { changes, read, orphans, again }
    }

    async fn write(&self, planned: &Planned, block: Block, changes: &[Change]) -> Result<(), Error> {
        let (port_allocator, store) = (&self.cluster.port_allocator, &self.cluster.port_allocator.ledger);
        // The first workload's lease is checked and stands for all. Concurrent writers are detected by the version.
        let Some(led) = changes.first().map(|change| &change.entry.key) else { return Ok(()) };
        let map_key = port_allocator.map_key(block);
        let read = planned.read.get(&block);
        let mut map = read.map(|map| ConfigMap::clone(map)).unwrap_or_default();
        let data = map.data.get_or_insert_default();
        changes.iter().for_each(|change| ledger::write(data, change.number, &change.entry));
        if read.is_some() {
            self.writes.replace(led, store, &map, "failed to update the ConfigMap of port numbers").await?;
        } else {
            map.metadata.namespace = Some(map_key.namespace().to_owned());
            map.metadata.name = Some(map_key.name().to_owned());
            map.metadata.labels = Some([(names::LEDGER.to_owned(), names::LEDGER_OF_PORTS.to_owned())].into());
            self.writes.create(led, store, &map, "failed to create the ConfigMap of port numbers").await?;
        }
        port_allocator.queue_plan(); // The written map is now input of the next plan.
        Ok(())
    }
}

impl Planned {
    /// Drops the changes that take numbers from workloads of these namespaces.
    fn drop_changes_in(&mut self, namespaces: &BTreeSet<String>) {
        let Self { changes, orphans, .. } = self;
        let is_left =
            |change: &Change| orphans.get(&change.number).is_some_and(|(key, _)| namespaces.contains(key.namespace()));
        changes.values_mut().for_each(|changes| changes.retain(|change| !is_left(change)));
        changes.retain(|_, changes| !changes.is_empty());
    }
}

/// Returns the objects that have lines in the ledger but no recorded needs. These objects need the ports that they
/// have.
fn without_recorded_needs(lines: &Ledger, is_one: impl Fn(&Key, &str) -> bool) -> BTreeMap<Key, Workload> {
    let mut found: BTreeMap<Key, Workload> = BTreeMap::new();
    let held = lines.values().filter(|entry| entry.state == ledger::NumberState::Held);
    for entry in held.filter(|entry| is_one(&entry.key, &entry.uid)) {
        let (key, uid) = (entry.key.clone(), entry.uid.clone());
        let fresh = || Workload { key: key.clone(), uid, ports: Vec::new(), access: Access::Unknown };
        let ports = &mut found.entry(key.clone()).or_insert_with(fresh).ports;
        if ports.iter().all(|wanted| wanted.port.name != entry.port.name) {
            ports.push(Wanted { port: entry.port.clone(), in_slices: None, in_status: None });
        }
    }
    found
}
