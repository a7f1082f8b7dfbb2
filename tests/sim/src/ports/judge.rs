//! Invariants, checked against the state of the model and not against the view of a process.

use super::model::{Id, Object, Slices, ledger_of, proxy_at};
use super::world::{WORKLOADS, World};
use autoscaler_core::ports::Listed;
use autoscaler_core::ports::carriers::count;
use common::ports::ledger::NumberState;
use rand::RngExt;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    /// Checks that each number has one workload, and that no slice points to a closed port.
    pub(super) fn judge_numbers(&mut self) {
        let mut owners: BTreeMap<u16, String> = BTreeMap::new();
        let mut conflicts = Vec::new();
        let mut claim = |number: u16, uid: &str, place: &dyn Fn() -> String| match owners.get(&number) {
            Some(other) if other != uid => {
                let place = place();
                conflicts.push(format!("one workload for each number: {number} is {other}'s, and {uid}'s in {place}"));
            }
            Some(_) => {}
            None => _ = owners.insert(number, uid.to_owned()),
        };
        for (id, (_, object)) in &self.objects {
            match object {
                Object::Block(ledger) => {
                    ledger.iter().for_each(|(number, entry)| claim(*number, &entry.uid, &|| "the ledger".to_owned()));
                }
                Object::Slices(slices) => {
                    let numbers = slices.ports.values().flatten().map(|listed| listed.number);
                    numbers.for_each(|number| claim(number, &slices.uid, &|| format!("{id:?}")));
                }
                _ => {}
            }
        }
        for (index, proxy) in self.proxies.iter().enumerate() {
            for number in &proxy.sockets {
                if let Some(entry) = proxy.served_entry(*number) {
                    claim(*number, &entry.uid, &|| format!("activator {index}"));
                }
            }
        }
        let closed = (0..WORKLOADS).find_map(|workload| {
            let Some((_, Object::Slices(slices))) = self.objects.get(&Id::Slices(workload)) else { return None };
            let is_wrong = |listed: &&Listed| self.unreachable_reason(listed, &slices.uid).is_some();
            slices.ports.values().flatten().find(is_wrong).map(|listed| (workload, *listed, slices.uid.clone()))
        });
        if let Some(conflict) = conflicts.pop() {
            self.time.violate(conflict);
        }
        if let Some((workload, listed, uid)) = closed {
            let why = self.unreachable_reason(&listed, &uid).unwrap_or_default();
            self.time.violate(format!("no slice leads to a closed port: {listed:?} of workload {workload}: {why}"));
        }
    }

    /// Returns the reason why an address in a slice does not lead to its workload. Returns `None` if it does, or if the
    /// activator is down or not ready.
    fn unreachable_reason(&self, listed: &Listed, uid: &str) -> Option<String> {
        let proxy = &self.proxies[proxy_at(listed.address)];
        if proxy.down || !proxy.ready {
            return None;
        }
        // Another process took the number while the activator was down. No process could know that.
        if proxy.could_not_bind(listed.number) {
            return None;
        }
        match proxy.served_entry(listed.number) {
            Some(entry) if *entry.uid == *uid => None,
            Some(entry) => Some(format!("the activator serves {} there", entry.uid)),
            None => Some("the activator does not listen there".to_owned()),
        }
    }

    /// Connects a client by a node's copy of a workload's slices.
    pub(super) fn connect(&mut self) {
        let (node, workload) = (self.rng.random_range(0..self.nodes.len()), self.rng.random_range(0..WORKLOADS));
        let Some((_, Object::Slices(Slices { uid, ports }))) = self.nodes[node].get(&workload) else { return };
        let all: Vec<Listed> = ports.values().flatten().copied().collect();
        let ready: Vec<Listed> = all.iter().copied().filter(|listed| listed.ready).collect();
        let from = if ready.is_empty() { all } else { ready };
        if from.is_empty() {
            return;
        }
        let (listed, uid) = (from[self.rng.random_range(0..from.len())], uid.clone());
        if let Some(why) = self.unreachable_reason(&listed, &uid) {
            return self.time.violate(format!(
                "no slice leads to a closed port: a client of workload {uid} reaches {listed:?} by node {node}: {why}"
            ));
        }
        match self.proxies[proxy_at(listed.address)].served_entry(listed.number) {
            Some(_) => self.summary.connections += 1,
            None => self.summary.unreachable += 1,
        }
    }

    /// Checks the final state, some time after the last fault.
    pub(super) fn judge_end(&mut self) {
        let ledger = ledger_of(&self.objects);
        let Some((_, Object::Range(range))) = self.objects.get(&Id::Range) else { return };
        let mut live = BTreeSet::new();
        for workload in 0..WORKLOADS {
            let Some(scaler) = self.scaler(workload) else { continue };
            live.insert(scaler.uid.clone());
            let held = ledger.iter().filter(|(_, entry)| entry.uid == scaler.uid && entry.state == NumberState::Held);
            let held: BTreeMap<&str, u16> = held.map(|(number, entry)| (entry.port.name.as_str(), *number)).collect();
            let slices = match self.objects.get(&Id::Slices(workload)) {
                Some((_, Object::Slices(slices))) if slices.uid == scaler.uid => slices.ports.clone(),
                _ => BTreeMap::new(),
            };
            let names: BTreeSet<&str> = scaler.ports.iter().map(|port| port.name.as_str()).collect();
            let all = self.proxies.len();
            let needed = |current: usize| self.need(workload).map_or(all, |need| count(need, current).min(all));
            let is_right = |name: &&str| {
                let Some(number) = held.get(name) else { return false };
                let listed = slices.get(*name).map(Vec::as_slice).unwrap_or_default();
                range.contains(*number)
                    && scaler.status.get(*name) == Some(number)
                    && listed.len() == needed(listed.len())
                    && listed.iter().all(|listed| listed.number == *number && listed.ready)
            };
            if scaler.deleting || held.len() != names.len() || !names.iter().all(is_right) {
                let what = format!("without faults all ports serve: {scaler:?} of {range} has {held:?} and {slices:?}");
                return self.time.violate(what);
            }
        }
        let left = ledger.iter().find(|(_, entry)| entry.state == NumberState::Held && !live.contains(&entry.uid));
        if let Some((number, entry)) = left {
            self.time.violate(format!("without faults no deleted workload has a number: {number} is {entry}"));
        }
    }
}
