//! Pods, the revisions that are tracked, and which belongs to which: each event touches the revisions of its pod alone.

use super::PodState;
use crate::pods::labels::{LabelHash, PackedLabels, PodSelector};
use autoscaler_core::pod_counts;
use common::RevisionKey;
use common::time::Timestamp;
use common_controller::Relist;
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// Namespace and name of a pod.
pub(super) type PodName = RevisionKey;

#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) pods: HashMap<PodName, Entry>,
    pub(super) tracked: HashMap<RevisionKey, Tracked>,
    /// Revisions by the first label of their selectors, or by their namespace.
    selectors: HashMap<LabelHash, SmallVec<[RevisionKey; 1]>>,
    /// Pods by each of their labels, for revisions that are tracked later.
    labelled: HashMap<LabelHash, SmallVec<[PodName; 1]>>,
    pub(super) relist: Relist<PodName>,
}

/// What is kept of a pod.
#[derive(Debug)]
pub(super) struct Entry {
    labels: PackedLabels,
    pub(super) state: pod_counts::CountedPod,
    pub(super) address: Option<IpAddr>,
    pub(super) started: Option<Timestamp>,
    failure_reason: Option<Box<str>>,
    revisions: SmallVec<[RevisionKey; 1]>,
}

/// A revision, and what its pods come to.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) selector: PodSelector,
    /// Ordered, so that of several failures the same is said each time.
    pub(super) members: Vec<PodName>,
    pub(super) counts: pod_counts::PodCounts,
    pub(super) failure_reason: Option<Box<str>>,
}

/// Revisions whose counts or failures have changed; told after the lock is released.
#[derive(Default)]
pub(super) struct Changed {
    pub(super) keys: HashSet<RevisionKey>,
}

impl Index {
    pub(super) fn apply(&mut self, name: PodName, pod: PodState, changed: &mut Changed) {
        let PodState { labels, state, address, started, failure_reason } = pod;
        let labels = PackedLabels::new(&labels);
        let revisions = self.revisions_of(&name, &labels);
        let failure_reason = failure_reason.map(String::into_boxed_str);
        let entry = Entry { labels, state, address, started, failure_reason, revisions: revisions.clone() };
        let before = match self.pods.get_mut(&name) {
            Some(held) => Some(std::mem::replace(held, entry)),
            None => {
                self.pods.insert(name.clone(), entry);
                None
            }
        };
        if before.as_ref().map(|before| &before.labels) != self.pods.get(&name).map(|entry| &entry.labels) {
            if let Some(before) = &before {
                unlabel(&mut self.labelled, &name, &before.labels);
            }
            if let Some(entry) = self.pods.get(&name) {
                for hash in entry.labels.hashes(name.namespace()) {
                    self.labelled.entry(hash).or_default().push(name.clone());
                }
            }
        }
        let moved = before.as_ref().map(|entry| entry.address) != Some(address);
        let former = before.map(|entry| entry.revisions).unwrap_or_default();
        for key in &former {
            if !revisions.contains(key)
                && let Some(tracked) = self.tracked.get_mut(key)
            {
                tracked.leave(&name);
                self.recount(key, changed);
            }
        }
        for key in &revisions {
            if let Some(tracked) = self.tracked.get_mut(key) {
                tracked.join(&name);
                if moved && matches!(tracked.selector, PodSelector::Expressions(_)) {
                    changed.keys.insert(key.clone()); // Nobody but us leads anybody to them.
                }
                self.recount(key, changed);
            }
        }
    }

    pub(super) fn remove(&mut self, name: &PodName, changed: &mut Changed) {
        let Some(entry) = self.pods.remove(name) else { return };
        unlabel(&mut self.labelled, name, &entry.labels);
        for key in &entry.revisions {
            if let Some(tracked) = self.tracked.get_mut(key) {
                tracked.leave(name);
                self.recount(key, changed);
            }
        }
    }

    fn revisions_of(&self, name: &PodName, labels: &PackedLabels) -> SmallVec<[RevisionKey; 1]> {
        let mut revisions = SmallVec::new();
        for hash in labels.hashes(name.namespace()).chain([LabelHash::of_all(name.namespace())]) {
            for key in self.selectors.get(&hash).into_iter().flatten() {
                let is_selected =
                    |tracked: &Tracked| key.namespace() == name.namespace() && tracked.selector.selects(labels);
                if self.tracked.get(key).is_some_and(is_selected) && !revisions.contains(key) {
                    revisions.push(key.clone());
                }
            }
        }
        revisions
    }

    pub(super) fn track(&mut self, key: &RevisionKey, selector: PodSelector) {
        let mut members = Vec::new();
        if let Some(hash) = selector.hash(key.namespace()) {
            self.selectors.entry(hash).or_default().push(key.clone());
            let mut join = |name: &PodName, entry: &mut Entry| {
                if name.namespace() == key.namespace() && selector.selects(&entry.labels) {
                    members.push(name.clone());
                    entry.revisions.push(key.clone());
                }
            };
            match &selector {
                PodSelector::Labels(_) => {
                    for name in self.labelled.get(&hash).into_iter().flatten() {
                        if let Some(entry) = self.pods.get_mut(name) {
                            join(name, entry);
                        }
                    }
                }
                PodSelector::Expressions(_) => self.pods.iter_mut().for_each(|(name, entry)| join(name, entry)),
            }
        }
        members.sort_unstable();
        let counts = pod_counts::PodCounts::default();
        self.tracked.insert(key.clone(), Tracked { selector, members, counts, failure_reason: None });
        self.recount(key, &mut Changed::default());
    }

    pub(super) fn untrack(&mut self, key: &RevisionKey) {
        let Some(tracked) = self.tracked.remove(key) else { return };
        if let Some(hash) = tracked.selector.hash(key.namespace()) {
            take(&mut self.selectors, hash, key);
        }
        for name in &tracked.members {
            if let Some(entry) = self.pods.get_mut(name) {
                entry.revisions.retain(|other| other != key);
            }
        }
    }

    fn recount(&mut self, key: &RevisionKey, changed: &mut Changed) {
        let Some(tracked) = self.tracked.get(key) else { return };
        let members = || tracked.members.iter().filter_map(|name| self.pods.get(name));
        let counts: pod_counts::PodCounts = members().map(|entry| entry.state).collect();
        let failure_reason = if counts.ready > 0 { None } else { failure_of(members()) };
        if let Some(tracked) = self.tracked.get_mut(key)
            && (tracked.counts != counts || tracked.failure_reason != failure_reason)
        {
            (tracked.counts, tracked.failure_reason) = (counts, failure_reason);
            changed.keys.insert(key.clone());
        }
    }
}

impl Tracked {
    fn join(&mut self, name: &PodName) {
        if let Err(at) = self.members.binary_search(name) {
            self.members.insert(at, name.clone());
        }
    }

    fn leave(&mut self, name: &PodName) {
        if let Ok(at) = self.members.binary_search(name) {
            self.members.remove(at);
        }
    }
}

/// Why none of these pods is about to serve: the first one's reason, if each has one. Those that end or have finished
/// do not count.
fn failure_of<'a>(pods: impl Iterator<Item = &'a Entry>) -> Option<Box<str>> {
    let mut live = pods.filter(|entry| !entry.state.deleting && entry.state.phase != pod_counts::Phase::Other);
    let first = live.next()?.failure_reason.clone();
    first.filter(|_| live.all(|entry| entry.failure_reason.is_some()))
}

fn unlabel(labelled: &mut HashMap<LabelHash, SmallVec<[PodName; 1]>>, name: &PodName, labels: &PackedLabels) {
    for hash in labels.hashes(name.namespace()) {
        take(labelled, hash, name);
    }
}

fn take(by_hash: &mut HashMap<LabelHash, SmallVec<[RevisionKey; 1]>>, hash: LabelHash, key: &RevisionKey) {
    if let Some(keys) = by_hash.get_mut(&hash) {
        keys.retain(|other| other != key);
        if keys.is_empty() {
            by_hash.remove(&hash);
        }
    }
}
