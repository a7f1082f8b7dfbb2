//! Autoscaler as the owner of port numbers: the real plan, proofs and endpoints over copies of objects. Each object has
//! one pending write at a time.

use super::model::{Event, Id, Object, Objects, Scaler, Slices, ToOwner};
use super::model::{address, apply, key, ledger_of, proxy_at, workload_of};
use super::world::{BUCKETS, WORKLOADS, World};
use super::{CLOCKS_DIFFER, Without};
use autoscaler_core::ports::carriers::endpoints_among;
use autoscaler_core::ports::slices::Port;
use autoscaler_core::ports::{
    Access, Activator, COOLDOWN, Change, Listed, NumberResponse, Plan, PortOutcome, Proofs, Serving, View, Wanted,
    Workload, plan,
};
use common::config::PortRange;
use common::ports::Listening;
use common::ports::ledger::{Block, Ledger, NumberState};
use rand::RngExt;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Maximum wait for the response to a write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum time between two probes of a number.
const PROBE_PERIOD: Duration = Duration::from_secs(1);

/// Time in seconds after which the number of activators that a workload needs changes, in turn to all, one and two.
const NEED_LASTS: u64 = 60;
const NEEDS: usize = 3;

#[derive(Default)]
pub(super) struct Owner {
    pub(super) life: u32,
    pub(super) down: bool,
    pub(super) paused: bool,
    pub(super) backlog: Vec<ToOwner>,
    pub(super) stalled_until: Duration,
    /// Time until which the owner receives no changes of slices.
    pub(super) blind_until: Duration,
    /// True if the owner reaches no activator.
    pub(super) cut: bool,
    /// Buckets that the owner acts on.
    pub(super) owns: BTreeSet<usize>,
    view: Objects,
    is_synced: bool,
    is_queued: bool,
    proofs: Proofs,
    /// Seconds by which the clock is ahead.
    clock_ahead: u64,
    /// Time of the last probe of each address and number.
    probed_at: BTreeMap<(IpAddr, u16), Duration>,
    /// Objects with a pending write, and its start time.
    writing: BTreeMap<Id, Duration>,
}

impl Owner {
    pub(super) fn die(&mut self) {
        *self = Self { life: self.life + 1, down: true, ..Self::default() };
    }
}

impl World {
    pub(super) fn start_owner(&mut self, index: usize) {
        let life = self.owners.get(index).map_or(0, |old| old.life);
        let fresh = Owner { life, clock_ahead: self.rng.random_range(0..=CLOCKS_DIFFER), ..Owner::default() };
        if index < self.owners.len() {
            self.owners[index] = fresh
        } else {
            self.owners.push(fresh)
        }
        let delay = Duration::from_millis(self.rng.random_range(50..1000));
        self.time.after(delay, Event::ToOwner(index, life, ToOwner::Listed));
        self.time.after(delay, Event::ToOwner(index, life, ToOwner::Tick));
    }

    pub(super) fn owner_event(&mut self, index: usize, event: ToOwner) {
        let life = self.owners[index].life;
        match event {
            ToOwner::Listed => {
                let owner = &mut self.owners[index];
                owner.view.clone_from(&self.objects);
                owner.is_synced = true;
            }
            ToOwner::Notify(id) => {
                let stored = self.objects.get(&id).cloned();
                let owner = &mut self.owners[index];
                let known = owner.view.get(&id).map_or(0, |(version, _)| *version);
                if let Some(stored) = stored.filter(|(version, _)| owner.is_synced && *version > known) {
                    owner.view.insert(id, stored);
                    self.enqueue(index);
                }
            }
            ToOwner::Tick => {
                self.time.after(Duration::from_secs(1), Event::ToOwner(index, life, ToOwner::Tick));
                self.enqueue(index);
            }
            ToOwner::Pass => {
                self.owners[index].is_queued = false;
                if self.owners[index].is_synced {
                    self.reconcile(index);
                }
            }
            ToOwner::Probed { address, number, response, sent } => {
                let sent = self.instant(sent);
                self.owners[index].proofs.record(address, number, response, sent);
                self.enqueue(index);
            }
            ToOwner::Written { id, version, object } => {
                let owner = &mut self.owners[index];
                owner.writing.remove(&id);
                if owner.view.get(&id).is_none_or(|(known, _)| *known < version) {
                    owner.view.insert(id, (version, object));
                }
                self.enqueue(index);
            }
            ToOwner::WriteFailed(id) => {
                self.owners[index].writing.remove(&id);
                self.enqueue(index);
            }
        }
    }

    fn enqueue(&mut self, index: usize) {
        let owner = &mut self.owners[index];
        if !std::mem::replace(&mut owner.is_queued, true) {
            let life = owner.life;
            let delay = Duration::from_millis(self.rng.random_range(1..20));
            self.time.after(delay, Event::ToOwner(index, life, ToOwner::Pass));
        }
    }

    /// Reconciles all workloads that this process owns.
    fn reconcile(&mut self, index: usize) {
        let (at, now) = (self.time.now, self.instant(self.time.now));
        let mut owner = std::mem::take(&mut self.owners[index]);
        owner.writing.retain(|_, since| at < *since + WRITE_TIMEOUT);
        let others = self.owners.iter().any(|other| !other.down && !other.owns.is_disjoint(&owner.owns));
        self.summary.disagreements += u64::from(others);
        let ledger = ledger_of(&owner.view);
        let activators = activators(&owner.view);
        let wall_clock = self.wall_clock(owner.clock_ahead);
        let is_open = |number: u16| ledger.get(&number).is_some_and(|line| line.state.is_open(wall_clock));
        owner.proofs.follow(&activators, is_open, now);
        let (workloads, mut planned) = self.planned(index, &owner, ledger);
        self.summary.problems += planned.ports.values().flatten().filter(|port| port.problem.is_some()).count() as u64;
        let mut probes: BTreeSet<(IpAddr, u16)> = owner.proofs.unidentified(now).into_iter().collect();
        let mut writes = Vec::new();
        for (workload, scaler) in &workloads {
            let outcomes = planned.ports.remove(&key(*workload)).unwrap_or_default();
            let slices = slices_of(&owner.view, *workload);
            let own = slices.filter(|slices| slices.uid == scaler.uid).into_iter();
            let listed: Vec<Listed> = own.flat_map(|slices| slices.ports.values().flatten().copied()).collect();
            let mut next = Slices { uid: scaler.uid.clone(), ports: BTreeMap::new() };
            let mut status = BTreeMap::new();
            let port = |outcome| {
                let PortOutcome { number, former, .. }: &PortOutcome = outcome;
                Port { uid: &scaler.uid, number: *number, former, listed: &listed }
            };
            let ports: Vec<Port<'_>> = outcomes.iter().map(port).collect();
            if self.without == Some(Without::Proof) {
                ports.iter().for_each(|port| self.assume_listening(&mut owner, &activators, port));
            }
            let (need, name) = (self.need(*workload), key(*workload));
            let found = endpoints_among(&ports, &activators, need, name.name(), &owner.proofs, now);
            for ((id, outcome), found) in scaler.ports.iter().zip(&outcomes).zip(found) {
                probes.extend(found.to_probe.iter().copied());
                next.ports.insert(id.name.clone(), found.with_unready());
                status.extend(outcome.number.map(|number| (id.name.clone(), number)));
            }
            let next = if scaler.deleting { Object::Gone } else { Object::Slices(next) };
            let current = owner.view.get(&Id::Slices(*workload)).map_or(&Object::Gone, |(_, object)| object);
            if *current != next {
                writes.push((Id::Slices(*workload), next));
            } else if scaler.deleting {
                writes.push((Id::Workload(*workload), Object::Gone));
            } else if status != scaler.status {
                writes.push((Id::Workload(*workload), Object::Workload(Scaler { status, ..scaler.clone() })));
            }
        }
        let life = owner.life;
        for (address, number) in probes {
            let before = owner.probed_at.get(&(address, number)).copied();
            if before.is_none_or(|before| self.time.now >= before + PROBE_PERIOD) {
                owner.probed_at.insert((address, number), self.time.now);
                let delay = Duration::from_millis(self.rng.random_range(1..200));
                let address = proxy_at(address);
                self.time.after(delay, Event::ProbeArrives { by: index, life, address, number, sent: self.time.now });
            }
        }
        self.owners[index] = owner;
        for (id, object) in writes {
            let base = self.owners[index].view.get(&id).map_or(0, |(version, _)| *version);
            self.write(index, id, base, object, Vec::new());
        }
        for (block, changes) in planned.changes {
            let base = self.owners[index].view.get(&Id::Block(block)).map_or(0, |(version, _)| *version);
            if self.owners[index].writing.contains_key(&Id::Block(block)) {
                continue;
            }
            self.write_lines(index, block, base, changes);
        }
    }

    /// Returns the number of activators that a workload needs, which changes over time.
    pub(super) fn need(&self, workload: usize) -> Option<NonZeroUsize> {
        NonZeroUsize::new((self.time.now.as_secs() / NEED_LASTS + workload as u64) as usize % NEEDS)
    }

    fn planned(&self, index: usize, owner: &Owner, mut ledger: Ledger) -> (Vec<(usize, Scaler)>, Plan) {
        let is_mine = |workload: usize| owner.owns.contains(&(workload % BUCKETS));
        let mut workloads = Vec::new();
        let mut wanted = Vec::new();
        for workload in 0..WORKLOADS {
            let slices = slices_of(&owner.view, workload);
            let Some((_, Object::Workload(scaler))) = owner.view.get(&Id::Workload(workload)) else { continue };
            if !is_mine(workload) {
                continue;
            }
            let ports = scaler.ports.iter().map(|port| {
                let own = slices.filter(|slices| slices.uid == scaler.uid);
                let first = own.and_then(|slices| slices.ports.get(&port.name)?.first());
                let in_slices = first.map(|listed| listed.number);
                Wanted { port: port.clone(), in_slices, in_status: scaler.status.get(&port.name).copied() }
            });
            wanted.push(Workload {
                key: key(workload),
                uid: scaler.uid.clone(),
                ports: ports.collect(),
                access: Access::Open,
            });
            workloads.push((workload, scaler.clone()));
        }
        let ready = activators(&owner.view).into_iter().filter(|activator| activator.serving == Serving::Ready);
        let in_use = owner.proofs.in_use(&ready.map(|activator| activator.address).collect());
        let range = match owner.view.get(&Id::Range) {
            Some((_, Object::Range(range))) => *range,
            _ => PortRange::default(),
        };
        if self.without == Some(Without::Rest) {
            for entry in ledger.values_mut() {
                if let NumberState::Released(at) = &mut entry.state {
                    *at = *at - COOLDOWN;
                }
            }
        }
        let view = View {
            range,
            guarded: None,
            start: range.first + (index as u16 * 5) % range.len() as u16,
            ledger: &ledger,
            unreadable: &BTreeSet::new(),
            listed: &if self.without == Some(Without::Slices) { BTreeSet::new() } else { listed(&owner.view) },
            in_use: &in_use,
            workloads: &wanted.iter().collect::<Vec<_>>(),
            is_mine: &|key| is_mine(workload_of(key)),
        };
        let mut planned = plan(&view, self.wall_clock(owner.clock_ahead));
        // Ask the API server about workloads that the owner does not know.
        let exists = |change: &Change| {
            let scaler = self.scaler(workload_of(&change.entry.key));
            let is_known = wanted.iter().any(|workload| workload.uid == change.entry.uid);
            !is_known && scaler.is_some_and(|scaler| scaler.uid == change.entry.uid)
        };
        planned.changes.values_mut().for_each(|changes| changes.retain(|change| !exists(change)));
        (workloads, planned)
    }

    /// Records that every activator listens on a port's number, without a probe.
    fn assume_listening(&self, owner: &mut Owner, activators: &[Activator], port: &Port<'_>) {
        for Activator { address, .. } in activators {
            if let Some(number) = port.number {
                let listening = Listening { instance: String::new(), uid: port.uid.to_owned(), is_held: true };
                owner.proofs.record(*address, number, NumberResponse::Ours(listening), self.instant(self.time.now));
            }
        }
    }

    /// Writes changed lines into the map that was read with version `base`.
    fn write_lines(&mut self, index: usize, block: Block, base: u64, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        let read = match self.owners[index].view.get(&Id::Block(block)) {
            Some((version, Object::Block(ledger))) if *version == base => Some(ledger.clone()),
            None => Some(Ledger::new()),
            _ => None,
        };
        let Some(mut ledger) = read else { return };
        changes.iter().for_each(|change| apply(&mut ledger, change));
        self.write(index, Id::Block(block), base, Object::Block(ledger), changes);
    }

    fn write(&mut self, index: usize, id: Id, base: u64, object: Object, lines: Vec<Change>) {
        let delay = self.write_delay();
        let owner = &mut self.owners[index];
        if owner.writing.contains_key(&id) {
            return;
        }
        owner.writing.insert(id, self.time.now);
        let life = owner.life;
        self.time.after(delay, Event::Write { by: index, life, id, base, object, lines });
    }
}

fn activators(view: &Objects) -> Vec<Activator> {
    let Some((_, Object::Activators(activators))) = view.get(&Id::Activators) else { return Vec::new() };
    activators.clone()
}

/// Returns the numbers in all slices.
fn listed(view: &Objects) -> BTreeSet<u16> {
    let slices =
        view.values().filter_map(|(_, object)| if let Object::Slices(slices) = object { Some(slices) } else { None });
    slices.flat_map(|slices| slices.ports.values().flatten()).map(|listed| listed.number).collect()
}

fn slices_of(view: &Objects, workload: usize) -> Option<&Slices> {
    let (_, Object::Slices(slices)) = view.get(&Id::Slices(workload))? else { return None };
    Some(slices)
}

/// Returns the entry of an activator in its Service.
pub(super) fn activator(index: usize, serving: Serving) -> Activator {
    Activator { address: address(index), serving }
}
