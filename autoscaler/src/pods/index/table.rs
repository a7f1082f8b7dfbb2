//! Table of pods and tracked revisions, and their relation. Each event affects only the revisions of its pod.

use super::{Inquiry, PodState};
use crate::pods::labels::{LabelHash, hashes};
use crate::pods::ownership::{Controllers, KnownOwner, PodRelation};
use crate::scale::{Chain, Failing, PodOwner, PodSet};
use autoscaler_core::cause::{self, Cause};
use autoscaler_core::pod_counts;
use common::RevisionKey;
use common::labels::Labels;
use common_controller::Relist;
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;
use tokio::time::Instant;

/// Time for which a port must refuse connections before this is reported.
const REFUSES: Duration = Duration::from_secs(10);
/// Maximum number of foreign controllers that are kept by name.
const FOREIGN_CONTROLLERS_MAX: usize = 16;

pub(super) type PodName = RevisionKey;

#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) pods: HashMap<PodName, Entry>,
    pub(super) tracked: HashMap<RevisionKey, Tracked>,
    /// Revisions by one label of their selectors, or by their namespace. It is the label under which the fewest other
    /// revisions were indexed when the revision was tracked: an event of a pod checks all revisions under each of its
    /// labels, and `app: shop` may be part of thousands of selectors.
    selectors: HashMap<LabelHash, SmallVec<[RevisionKey; 1]>>,
    /// Pods by each of their labels, for revisions that are tracked later.
    labelled: HashMap<LabelHash, SmallVec<[PodName; 1]>>,
    controllers: Controllers,
    pub(super) relist: Relist<PodName>,
}

/// Kept state of a pod.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) pod: PodState,
    pub(super) listens: Option<Listens>,
    /// Revisions whose selectors match it.
    pub(super) revisions: SmallVec<[RevisionKey; 1]>,
}

/// Result of the port test of a pod that Kubernetes reports ready without a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listens {
    /// Test in progress.
    Pending,
    /// Connections have been refused since this time.
    Refused { since: Instant, port: u16 },
    /// A connection was accepted, or the port cannot be tested.
    Proven,
}

/// Tracked revision, with its pods and counts.
#[derive(Debug, Default)]
pub(super) struct Tracked {
    pub(super) selector: PodSet,
    /// Hash under which it is indexed in `selectors`; none: it selects nothing.
    at: Option<LabelHash>,
    /// Owner whose pods count; none: all selected pods count.
    pub(super) owner: Option<PodOwner>,
    /// Own pods, sorted, so that of several failures the same one is reported each time.
    pub(super) members: Vec<PodName>,
    /// Foreign pods that the selector matches, sorted likewise.
    pub(super) foreign: Vec<PodName>,
    /// Kind and name of the controllers of unfinished foreign pods.
    pub(super) foreign_controllers: Box<[String]>,
    pub(super) counts: pod_counts::PodCounts,
    pub(super) failing: Option<Box<Failing>>,
    /// Port on which its pods must listen to be ready; none: Kubernetes' condition counts.
    pub(super) port: Option<u16>,
}

/// Changes to report after the lock is released.
#[derive(Default)]
pub(super) struct Changed {
    pub(super) keys: HashSet<RevisionKey>,
    pub(super) inquiries: Vec<Inquiry>,
}

impl Index {
    pub(super) fn apply(&mut self, name: PodName, pod: PodState, changed: &mut Changed) {
        let (revisions, address) = (self.revisions_of(&name, &pod.labels), pod.address);
        // A pod that is not ready (as after a restart) or has a new address is tested again.
        let known = self.pods.get(&name).filter(|before| before.pod.address == address && pod.state.ready);
        let listens = known.and_then(|before| before.listens);
        if self.pods.get(&name).is_none_or(|before| before.pod.labels != pod.labels) {
            if let Some(before) = self.pods.get(&name) {
                unlabel(&mut self.labelled, &name, &before.pod.labels);
                changed.keys.extend(revisions.iter().cloned());
            }
            for hash in hashes(&pod.labels, name.namespace()) {
                self.labelled.entry(hash).or_default().push(name.clone());
            }
        }
        let before = self.pods.insert(name.clone(), Entry { pod, listens, revisions: revisions.clone() });
        let moved = before.as_ref().map(|entry| entry.pod.address) != Some(address);
        let former = before.map(|entry| entry.revisions).unwrap_or_default();
        for key in former.iter().filter(|key| !revisions.contains(key)) {
            self.leave(&name, key, changed);
        }
        for key in &revisions {
            self.place(&name, key, changed);
            if let Some(tracked) = self.tracked.get(key)
                && moved
                && (matches!(tracked.selector, PodSet::Expressions(_)) || !tracked.foreign.is_empty())
            {
                changed.keys.insert(key.clone()); // No Service selects its pods, so a reconcile writes their addresses.
            }
            self.recount(key, changed);
        }
    }

    /// Places a pod among the owner's pods, or among the foreign ones.
    fn place(&mut self, name: &PodName, key: &RevisionKey, changed: &mut Changed) {
        let Self { tracked, pods, controllers, .. } = self;
        let Some((tracked, entry)) = tracked.get_mut(key).zip(pods.get(name)) else { return };
        let is_own = match &tracked.owner {
            None => true,
            Some(owner) => match controllers.relation(owner, entry.pod.controller.as_ref()) {
                PodRelation::Own => true,
                PodRelation::Foreign => false,
                PodRelation::Unknown(controller) => {
                    if controllers.begin_query(&controller) {
                        changed.inquiries.push(Inquiry::Controller(name.namespace().to_owned(), controller));
                    }
                    owner.chain == Chain::Unknown
                }
            },
        };
        tracked.join(name, is_own);
    }

    /// Returns whether the controller still has pods, or controls a controller that has; otherwise forgets it.
    pub(super) fn is_controller(&mut self, uid: &str) -> bool {
        let has = |entry: &Entry| entry.pod.controller.as_ref().is_some_and(|controller| controller.uid == uid);
        let is_used = self.pods.values().any(has) || self.controllers.lead_to(uid);
        if !is_used {
            self.controllers.forget(uid);
        }
        is_used
    }

    /// Places all pods again whose controllers may now lead elsewhere.
    pub(super) fn controlled_by(&mut self, uid: &str, owner: KnownOwner, changed: &mut Changed) {
        if !self.controllers.record_owner(uid, owner) {
            return;
        }
        let controlled = self.pods.iter().filter(|(_, entry)| entry.pod.controller.is_some());
        let concerned: Vec<(PodName, RevisionKey)> = controlled
            .flat_map(|(name, entry)| entry.revisions.iter().map(|key| (name.clone(), key.clone())))
            .collect();
        concerned.iter().for_each(|(name, key)| self.place(name, key, changed));
        let keys: BTreeSet<&RevisionKey> = concerned.iter().map(|(_, key)| key).collect();
        keys.into_iter().for_each(|key| self.recount(key, changed));
    }

    pub(super) fn remove(&mut self, name: &PodName, changed: &mut Changed) {
        let Some(entry) = self.pods.remove(name) else { return };
        unlabel(&mut self.labelled, name, &entry.pod.labels);
        entry.revisions.iter().for_each(|key| self.leave(name, key, changed));
    }

    fn leave(&mut self, name: &PodName, key: &RevisionKey, changed: &mut Changed) {
        let Some(Tracked { members, foreign, .. }) = self.tracked.get_mut(key) else { return };
        for pods in [members, foreign] {
            if let Ok(at) = pods.binary_search(name) {
                pods.remove(at);
            }
        }
        self.recount(key, changed);
    }

    /// Returns the own pods of a revision, ordered by name; none if it is not tracked.
    pub(super) fn members(&self, key: &RevisionKey) -> impl Iterator<Item = (&PodName, &Entry)> {
        let members = self.tracked.get(key).into_iter().flat_map(|tracked| &tracked.members);
        members.filter_map(|name| Some((name, self.pods.get(name)?)))
    }

    fn revisions_of(&self, name: &PodName, labels: &Labels) -> SmallVec<[RevisionKey; 1]> {
        let mut revisions = SmallVec::new();
        for hash in hashes(labels, name.namespace()).chain([LabelHash::of_all(name.namespace())]) {
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

    pub(super) fn track(&mut self, key: &RevisionKey, pods: PodSet, owner: Option<PodOwner>, changed: &mut Changed) {
        let share = |hash: &LabelHash| self.selectors.get(hash).map_or(0, SmallVec::len);
        let at = pods.hashes(key.namespace()).into_iter().min_by_key(share);
        if let Some(hash) = at {
            self.selectors.entry(hash).or_default().push(key.clone());
        }
        let candidates: Vec<PodName> = match (&pods, at) {
            (PodSet::Expressions(_), _) => self.pods.keys().cloned().collect(),
            (_, Some(hash)) => self.labelled.get(&hash).into_iter().flatten().cloned().collect(),
            (_, None) => Vec::new(),
        };
        self.tracked.insert(key.clone(), Tracked { selector: pods.clone(), at, owner, ..Tracked::default() });
        for name in candidates.iter().filter(|name| name.namespace() == key.namespace()) {
            if let Some(entry) = self.pods.get_mut(name).filter(|entry| pods.selects(&entry.pod.labels)) {
                entry.revisions.push(key.clone());
                self.place(name, key, changed);
            }
        }
        self.recount(key, changed);
    }

    pub(super) fn untrack(&mut self, key: &RevisionKey) {
        let Some(tracked) = self.tracked.remove(key) else { return };
        if let Some(hash) = tracked.at {
            take(&mut self.selectors, hash, key);
        }
        for name in tracked.members.iter().chain(&tracked.foreign) {
            if let Some(entry) = self.pods.get_mut(name) {
                entry.revisions.retain(|other| other != key);
            }
        }
    }

    pub(super) fn recount(&mut self, key: &RevisionKey, changed: &mut Changed) {
        let Self { tracked, pods, controllers, .. } = self;
        let Some(tracked) = tracked.get_mut(key) else { return };
        let foreign = tracked.foreign.iter().filter_map(|name| Some((name, pods.get(name)?)));
        let foreign_controllers = controllers_of(foreign, controllers);
        if tracked.foreign_controllers != foreign_controllers {
            tracked.foreign_controllers = foreign_controllers;
            changed.keys.insert(key.clone());
        }
        if tracked.port.is_some() {
            for name in &tracked.members {
                let entry = pods.get_mut(name).filter(|entry| entry.listens.is_none() && entry.pod.address.is_some());
                if let Some(entry) = entry.filter(|entry| is_ready(&entry.pod.state)) {
                    entry.listens = Some(Listens::Pending);
                    changed.inquiries.push(Inquiry::Port(name.clone()));
                }
            }
        }
        let members = || tracked.members.iter().filter_map(|name| Some((name, pods.get(name)?)));
        let counted = |entry: &Entry| {
            let state = entry.pod.state;
            let ready = state.ready && (tracked.port.is_none() || entry.listens == Some(Listens::Proven));
            pod_counts::CountedPod { ready, ..state }
        };
        let counts: pod_counts::PodCounts = members().map(|(_, entry)| counted(entry)).collect();
        let failing = if counts.ready > 0 { None } else { failing_of(members()) };
        // If the same pod still fails for the same reason, the failure has lasted.
        let failing = match (failing, tracked.failing.as_deref()) {
            (Some(is), Some(was)) if is.pod == was.pod && is.cause.reason == was.cause.reason => {
                Some(Failing { since: was.since, ..is })
            }
            (failing, _) => failing,
        };
        if let Some(tracked) = self.tracked.get_mut(key)
            && (tracked.counts != counts || tracked.failing.as_deref() != failing.as_ref())
        {
            (tracked.counts, tracked.failing) = (counts, failing.map(Box::new));
            changed.keys.insert(key.clone());
        }
    }
}

impl Tracked {
    fn join(&mut self, name: &PodName, is_own: bool) {
        let Self { members, foreign, .. } = self;
        let (to, from) = if is_own { (members, foreign) } else { (foreign, members) };
        if let Err(at) = to.binary_search(name) {
            to.insert(at, name.clone());
        }
        if let Ok(at) = from.binary_search(name) {
            from.remove(at);
        }
    }

    /// Returns whether a pod is its own.
    pub(super) fn has(&self, name: &PodName) -> bool {
        self.members.binary_search(name).is_ok()
    }
}

/// Returns kind and name of these pods' controllers, without finished pods.
fn controllers_of<'a>(pods: impl Iterator<Item = (&'a PodName, &'a Entry)>, known: &Controllers) -> Box<[String]> {
    let mut names = BTreeSet::new();
    for (name, entry) in pods.filter(|(_, entry)| entry.pod.state.phase != pod_counts::Phase::Other) {
        names.insert(match &entry.pod.controller {
            Some(controller) => known.describe(controller),
            None => format!("Pod {}", name.name()),
        });
        if names.len() == FOREIGN_CONTROLLERS_MAX {
            break;
        }
    }
    names.into_iter().collect()
}

/// Returns why none of these pods is about to serve: the first pod's cause, if each pod has one. Terminating and
/// finished pods do not count.
fn failing_of<'a>(pods: impl Iterator<Item = (&'a PodName, &'a Entry)>) -> Option<Failing> {
    let mut live = pods.filter(|(_, entry)| entry.is_live());
    let (name, first) = live.next()?;
    let cause = first.cause().filter(|_| live.all(|(_, entry)| entry.cause().is_some()))?;
    Some(Failing { cause, pod: name.name().to_owned(), since: Instant::now() })
}

impl Entry {
    /// Returns whether it starts or runs, and is not being deleted.
    pub(super) fn is_live(&self) -> bool {
        !self.pod.state.deleting && self.pod.state.phase != pod_counts::Phase::Other
    }

    /// Returns why it does not serve.
    fn cause(&self) -> Option<Cause> {
        match self.listens {
            Some(Listens::Refused { since, port }) if since.elapsed() >= REFUSES => Some(cause::port_closed(port)),
            _ => self.pod.cause.clone(),
        }
    }
}

/// Returns whether Kubernetes reports it ready, and it is not being deleted.
pub(super) fn is_ready(state: &pod_counts::CountedPod) -> bool {
    state.phase == pod_counts::Phase::Running && state.ready && !state.deleting
}

fn unlabel(labelled: &mut HashMap<LabelHash, SmallVec<[PodName; 1]>>, name: &PodName, labels: &Labels) {
    for hash in hashes(labels, name.namespace()) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::fixture::ready_pod;

    fn selector(pairs: &[(&str, &str)]) -> PodSet {
        PodSet::Selector(ready_pod(pairs).labels)
    }

    /// Goal: if many selectors share a label, a pod's event does not check all of them. Each revision is found under
    /// its indexed label, by earlier and later pods, until it is untracked.
    #[test]
    fn selectors_that_share_a_label_are_indexed_apart() {
        const MANY: i32 = 50;
        let mut index = Index::default();
        let tenants: Vec<String> = (0..MANY).map(|tenant| tenant.to_string()).collect();
        let of = |tenant: &str| RevisionKey::new("ns", tenant);
        for (n, tenant) in tenants.iter().enumerate() {
            let own_labels = [("app", "shop"), ("tenant", tenant.as_str())];
            let early = PodName::new("ns", format!("early-{tenant}"));
            let late = PodName::new("ns", format!("late-{tenant}"));
            index.apply(early, ready_pod(&own_labels), &mut Changed::default());
            index.track(&of(tenant), selector(&own_labels), None, &mut Changed::default());
            let mut changed = Changed::default();
            index.apply(late, ready_pod(&own_labels), &mut changed);
            assert_eq!(changed.keys, HashSet::from([of(tenant)]), "its own pod, after {n} others");
        }
        let counted = |index: &Index, tenant: &String| index.tracked.get(&of(tenant)).map(|found| found.counts.ready);
        assert!(tenants.iter().all(|tenant| counted(&index, tenant) == Some(2)));
        let most = index.selectors.values().map(SmallVec::len).max();
        assert_eq!((index.selectors.len(), most), (tenants.len(), Some(1)), "each under its own label");

        for tenant in &tenants {
            index.untrack(&of(tenant));
            index.track(&of(tenant), selector(&[("app", "shop")]), None, &mut Changed::default());
        }
        assert!(tenants.iter().all(|tenant| counted(&index, tenant) == Some(2 * MANY)), "another selector, other pods");
        tenants.iter().for_each(|tenant| index.untrack(&of(tenant)));
        assert!(index.selectors.is_empty() && index.tracked.is_empty());
    }
}
