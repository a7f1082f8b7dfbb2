//! One pass: a plan for all workloads that this process leads, and the maps that it changes.

use super::super::serverless::slices::{leads_to_activators, numbers_of};
use super::super::unread::{AGAIN, Unread};
use super::Numbers;
use super::state::{Given, State};
use crate::reconcile::error::Error;
use crate::reconcile::writes::Writes;
use autoscaler_core::ports::{Change, Plan, Serving, View, Wanted, Workload, plan};
use common::RevisionKey as Key;
use common::config::PortsConfig;
use common::names;
use common::ports::ledger::{self, Block, Ledger};
use common_api::ZeroScaler;
use common_controller::{Priority, Store, WriteError};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Until the first lists are complete, which the ledger's alone leads to a pass.
const LISTED_RECHECK: Duration = Duration::from_millis(200);

/// Plans and writes.
pub(crate) struct Controller {
    pub(crate) numbers: Arc<Numbers>,
    pub(crate) scalers: Arc<Store<ZeroScaler>>,
    pub(crate) slices: Arc<Store<EndpointSlice>>,
    pub(crate) writes: Writes,
    pub(crate) unread: Arc<Unread>,
    pub(crate) config: watch::Receiver<Arc<PortsConfig>>,
    /// Where this process begins to look for a free number, by chance: two processes seldom want the same map.
    pub(crate) start: u16,
}

/// What a pass is to write.
struct Planned {
    changes: BTreeMap<Block, Vec<Change>>,
    /// The maps that change, as the plan has seen them.
    read: BTreeMap<Block, Arc<ConfigMap>>,
    /// Whose the lines are that change.
    owners: HashMap<u16, Key>,
    /// Numbers that are taken from workloads that are not known, which have these uids.
    orphans: BTreeMap<u16, (Key, Arc<str>)>,
    /// Numbers that are closed if no slice has them, by the namespace of their slices.
    look_up: BTreeMap<String, Vec<u16>>,
    again: Option<std::time::Instant>,
}

impl Controller {
    /// One pass.
    ///
    /// # Errors
    /// The API server's; other maps are written nevertheless.
    pub(crate) async fn reconcile(&self, key: &Key) -> Result<(), Error> {
        let queue = self.numbers.queue();
        if !(self.numbers.ledger.is_synced() && self.scalers.is_synced() && self.slices.is_synced()) {
            queue.add_after(key.clone(), LISTED_RECHECK);
            return Ok(());
        }
        let begun = Instant::now();
        let mut planned = self.planned();
        self.numbers.planned_within(begun.elapsed());
        if let Some(again) = planned.again {
            queue.add_after(key.clone(), again.saturating_duration_since(Instant::now().into_std()));
        }
        let (unread, mut outcome) = self.unread.among(&planned.missing()).await;
        if !unread.is_empty() {
            planned.leave(&unread);
            queue.add_after(key.clone(), AGAIN);
        }
        for (block, changes) in &planned.changes {
            outcome = outcome.and(self.write(&planned, *block, changes).await);
        }
        outcome.and(self.look_up(&planned).await)
    }

    fn planned(&self) -> Planned {
        let now = Instant::now().into_std();
        let leads = |key: &Key| self.writes.leadership.owns(key);
        let (range, shared) = (self.config.borrow().range, &self.numbers.shared);
        let mut state = shared.state.lock();
        for block in Block::all() {
            state.maps.follow(block, self.numbers.ledger.get(&shared.map_key(block)));
        }
        let (activators, unreadable) = (state.activators(), state.maps.unreadable());
        let State { objects, wants, given, maps, listed, proofs, retiring, asks, .. } = &mut *state;
        let is_mine = |key: &Key, uid: &str| objects.get(key).is_some_and(|known| **known == *uid) && leads(key);
        // What was said while it was led here before, or of one that has gone since, may be old.
        wants.retain(|key, workload| is_mine(key, &workload.uid));
        given.retain(|key, given| is_mine(key, &given.uid));
        let unsaid = unsaid(&maps.lines, |key, uid| is_mine(key, uid) && !wants.contains_key(key));
        let mut workloads: Vec<&Workload> = wants.values().chain(unsaid.values()).collect();
        workloads.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let listed: BTreeSet<u16> = listed.values().flatten().copied().collect();
        proofs.follow(&activators, |number| maps.lines.contains_key(&number), now);
        asks.keep(|_, number| maps.lines.contains_key(&number));
        let ready = activators.iter().filter(|activator| activator.serving == Serving::Ready);
        let in_use = proofs.in_use(&ready.map(|activator| activator.address).collect());
        let view = View {
            range,
            start: range.first.saturating_add(self.start % u16::try_from(range.len()).unwrap_or(u16::MAX)),
            ledger: &maps.lines,
            unreadable: &unreadable,
            listed: &listed,
            in_use: &in_use,
            workloads: &workloads,
            is_mine: &leads,
        };
        let asked = retiring.look(&activators, &listed, proofs, now);
        let Plan { changes, ports, look_up, again } = plan(&view, retiring, now);
        for at in &asked {
            asks.of(*at);
        }
        for workload in &workloads {
            let Some(outcomes) = ports.get(&workload.key) else { continue };
            let ports = workload.ports.iter().map(|wanted| wanted.port.clone()).zip(outcomes.iter().cloned()).collect();
            let next = Given { uid: workload.uid.clone(), ports };
            if given.get(&workload.key) != Some(&next) {
                given.insert(workload.key.clone(), next);
                shared.paths.add(workload.key.clone(), Priority::Normal);
                shared.statuses.add(workload.key.clone(), Priority::Normal);
            }
        }
        let owner = |change: &Change| {
            let entry = change.entry.as_ref().or_else(|| maps.lines.get(&change.number))?;
            Some((change.number, entry.key.clone()))
        };
        let owners = changes.values().flatten().filter_map(owner).collect();
        let orphan = |change: &Change| {
            let line = maps.lines.get(&change.number).filter(|line| line.state == ledger::State::Held)?;
            let is_kept = change.entry.as_ref().is_some_and(|entry| entry.state == ledger::State::Held);
            let is_orphan = !is_kept && !objects.contains_key(&line.key);
            is_orphan.then(|| (change.number, (line.key.clone(), line.uid.clone())))
        };
        let orphans = changes.values().flatten().filter_map(orphan).collect();
        let mut namespaces: BTreeMap<String, Vec<u16>> = BTreeMap::new();
        for (number, entry) in look_up.iter().filter_map(|number| Some((*number, maps.lines.get(number)?))) {
            namespaces.entry(entry.key.namespace().to_owned()).or_default().push(number);
        }
        let read = changes.keys().filter_map(|block| Some((*block, maps.read.get(block)?.clone()))).collect();
        drop(state);
        if !asked.is_empty() {
            shared.asks.notify_one();
        }
        Planned { changes, read, owners, orphans, look_up: namespaces, again }
    }

    async fn write(&self, planned: &Planned, block: Block, changes: &[Change]) -> Result<(), Error> {
        let store = &self.numbers.ledger;
        // Its lease is looked at, and stands for those of the others: what two write, the version tells apart.
        let Some(led) = changes.iter().find_map(|change| planned.owners.get(&change.number)) else { return Ok(()) };
        let map_key = self.numbers.shared.map_key(block);
        let read = planned.read.get(&block);
        let mut map = read.map(|map| ConfigMap::clone(map)).unwrap_or_default();
        let data = map.data.get_or_insert_default();
        changes.iter().for_each(|change| ledger::write(data, change.number, change.entry.as_ref()));
        if read.is_some() {
            self.writes.replace(led, store, &map, "failed to update the map of ports").await?;
        } else {
            map.metadata.namespace = Some(map_key.namespace().to_owned());
            map.metadata.name = Some(map_key.name().to_owned());
            map.metadata.labels = Some([(names::LEDGER.to_owned(), names::LEDGER_OF_PORTS.to_owned())].into());
            self.writes.create(led, store, &map, "failed to create the map of ports").await?;
        }
        self.numbers.look(); // What was written is a fact now, and is to be seen.
        Ok(())
    }

    /// Looks for numbers in the slices of their namespaces, as the API server has them now. Where it does not say, because a
    /// right is missing for instance, numbers stay as they are; those of other namespaces do not wait for them.
    async fn look_up(&self, planned: &Planned) -> Result<(), Error> {
        let mut outcome = Ok(());
        for (namespace, numbers) in &planned.look_up {
            outcome = outcome.and(self.look_up_in(namespace, numbers).await);
        }
        outcome
    }

    async fn look_up_in(&self, namespace: &str, numbers: &[u16]) -> Result<(), Error> {
        let ours = ListParams::default().labels(&format!("{}={}", names::LEADS_TO, names::LEADS_TO_ACTIVATORS));
        let slices = Api::<EndpointSlice>::namespaced(self.writes.client.clone(), namespace);
        let begun = Instant::now().into_std();
        let list = slices.list(&ours).await;
        let list = list.map_err(WriteError::api(format!("failed to list EndpointSlices of {namespace}")))?;
        let now = Instant::now().into_std();
        let leading = list.items.iter().filter(|slice| leads_to_activators(slice));
        let listed: BTreeSet<u16> = leading.flat_map(numbers_of).collect();
        let mut state = self.numbers.shared.state.lock();
        for number in numbers {
            state.retiring.looked_up(*number, listed.contains(number), begun, now);
        }
        drop(state);
        self.numbers.look(); // When they are closed is known now.
        Ok(())
    }
}

impl Planned {
    /// Workloads that are not known, and their uids, from which something is taken away.
    fn missing(&self) -> BTreeMap<Key, String> {
        self.orphans.values().map(|(key, uid)| (key.clone(), uid.to_string())).collect()
    }

    /// Takes nothing away in these namespaces.
    fn leave(&mut self, unread: &BTreeSet<String>) {
        let Self { changes, orphans, .. } = self;
        let is_left =
            |change: &Change| orphans.get(&change.number).is_some_and(|(key, _)| unread.contains(key.namespace()));
        changes.values_mut().for_each(|changes| changes.retain(|change| !is_left(change)));
        changes.retain(|_, changes| !changes.is_empty());
    }
}

/// Objects that have lines, and of which nobody has said what they are to have: they have what they have.
fn unsaid(lines: &Ledger, is_one: impl Fn(&Key, &str) -> bool) -> BTreeMap<Key, Workload> {
    let mut found: BTreeMap<Key, Workload> = BTreeMap::new();
    for entry in lines.values().filter(|entry| is_one(&entry.key, &entry.uid)) {
        let fresh = || Workload { key: entry.key.clone(), uid: entry.uid.clone(), ports: Vec::new() };
        let ports = &mut found.entry(entry.key.clone()).or_insert_with(fresh).ports;
        if ports.iter().all(|wanted| wanted.port.name != entry.port.name) {
            ports.push(Wanted { port: entry.port.clone(), listed: None, shown: None });
        }
    }
    found
}
