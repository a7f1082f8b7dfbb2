//! The index itself: synchronous, without a watch, so that tests feed it by hand.

use super::labels::{Labels, Place};
use crate::scale::{Attention, PodCounts, PodSet, Pods};
use autoscaler_core::decider::Unknown;
use autoscaler_core::pod_counts::{self, Phase};
use common::RevisionKey;
use common::time::Timestamp;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use tokio::sync::watch;

/// What is known of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodState {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Phase, deletion, readiness.
    pub state: pod_counts::Pod,
    /// Its address, once it has one.
    pub address: Option<IpAddr>,
    /// When it started.
    pub started: Option<Timestamp>,
    /// Why a container of it does not run, as `REASON: MESSAGE`.
    pub trouble: Option<String>,
}

/// A ready pod that can be asked for its stats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeTarget {
    /// Where.
    pub address: IpAddr,
    /// Since when it runs.
    pub started: Option<Timestamp>,
}

/// Pods by revision. Shared by the watch, which feeds it, the reconcilers, the deciders and the scraper.
#[derive(Debug)]
pub struct PodIndex {
    index: RwLock<Index>,
    /// Whether a full list has arrived.
    synced: watch::Sender<bool>,
    attention: Attention,
}

/// Namespace and name of a pod.
type PodName = RevisionKey;
#[derive(Debug, Default)]
struct Index {
    pods: HashMap<PodName, Entry>,
    tracked: HashMap<RevisionKey, Tracked>,
    /// Revisions by the first label of their selectors.
    selectors: HashMap<Place, SmallVec<[RevisionKey; 1]>>,
    /// Pods by each of their labels, for revisions that are tracked later.
    labelled: HashMap<Place, SmallVec<[PodName; 1]>>,
    /// Pods seen since a new full list began.
    listing: Option<HashSet<PodName>>,
}

/// What is kept of a pod.
#[derive(Debug)]
struct Entry {
    labels: Labels,
    state: pod_counts::Pod,
    address: Option<IpAddr>,
    started: Option<Timestamp>,
    trouble: Option<Box<str>>,
    revisions: SmallVec<[RevisionKey; 1]>,
}

/// A revision, and what its pods come to.
#[derive(Debug)]
struct Tracked {
    selector: Labels,
    /// Ordered, so that of several troubles the same is told each time.
    members: Vec<PodName>,
    counts: pod_counts::PodCounts,
    trouble: Option<Box<str>>,
}

impl PodIndex {
    /// An empty index that puts changed revisions on `attention`.
    pub fn new(attention: Attention) -> Self {
        Self { index: RwLock::default(), synced: watch::Sender::new(false), attention }
    }

    /// Waits for the first full list.
    pub async fn synced(&self) {
        // The sender lives as long as we do.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Ready pods of a revision.
    ///
    /// # Errors
    /// [`Unknown::Pods`] before the first full list, or if the revision is not tracked.
    pub fn ready(&self, key: &RevisionKey) -> Result<u32, Unknown> {
        let index = self.index.read();
        match index.tracked.get(key) {
            Some(tracked) if *self.synced.borrow() => Ok(tracked.counts.ready),
            _ => Err(Unknown::Pods),
        }
    }

    /// Ready pods of a revision, with their addresses.
    pub fn scrape_targets(&self, key: &RevisionKey) -> Vec<ScrapeTarget> {
        let index = self.index.read();
        let Some(tracked) = index.tracked.get(key) else { return Vec::new() };
        tracked
            .members
            .iter()
            .filter_map(|name| index.pods.get(name))
            .filter(|entry| is_ready(&entry.state))
            .filter_map(|entry| Some(ScrapeTarget { address: entry.address?, started: entry.started }))
            .collect()
    }

    /// A new full list begins: what it does not name is gone at its end.
    pub fn begin_list(&self) {
        self.index.write().listing = Some(HashSet::new());
    }

    /// The full list has ended: everything is known now.
    pub fn end_list(&self) {
        let mut index = self.index.write();
        let mut changed = Changed::default();
        if let Some(listed) = index.listing.take() {
            let gone: Vec<_> = index.pods.keys().filter(|name| !listed.contains(*name)).cloned().collect();
            for name in gone {
                index.remove(&name, &mut changed);
            }
        }
        if !self.synced.send_replace(true) {
            changed.keys.extend(index.tracked.keys().cloned());
        }
        drop(index);
        self.tell(changed);
    }

    /// A pod is as `pod` says.
    pub fn apply(&self, namespace: &str, name: &str, pod: PodState) {
        let mut changed = Changed::default();
        let mut index = self.index.write();
        let name = PodName::new(namespace, name);
        if let Some(listing) = &mut index.listing {
            listing.insert(name.clone());
        }
        index.apply(name, pod, &mut changed);
        drop(index);
        self.tell(changed);
    }

    /// A pod is gone.
    pub fn delete(&self, namespace: &str, name: &str) {
        let mut changed = Changed::default();
        self.index.write().remove(&PodName::new(namespace, name), &mut changed);
        self.tell(changed);
    }

    fn tell(&self, changed: Changed) {
        for key in changed.keys {
            self.attention.push(&key);
        }
    }
}

impl Pods for PodIndex {
    fn track(&self, key: &RevisionKey, pods: PodSet) {
        let selector = match pods {
            PodSet::Revision(name) => BTreeMap::from([(common::names::REVISION.to_owned(), name)]),
            PodSet::Selector(selector) => selector,
        };
        let selector = Labels::new(&selector);
        let mut index = self.index.write();
        if index.tracked.get(key).is_some_and(|tracked| tracked.selector == selector) {
            return;
        }
        index.untrack(key);
        index.track(key, selector);
    }

    fn counts(&self, key: &RevisionKey) -> PodCounts {
        let index = self.index.read();
        let counts = index.tracked.get(key).map(|tracked| tracked.counts).unwrap_or_default();
        let signed = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        PodCounts {
            ready: signed(counts.ready),
            not_ready: signed(counts.not_ready),
            pending: signed(counts.pending),
            terminating: signed(counts.terminating),
        }
    }

    fn trouble(&self, key: &RevisionKey) -> Option<String> {
        self.index.read().tracked.get(key)?.trouble.as_deref().map(str::to_owned)
    }

    fn untrack(&self, key: &RevisionKey) {
        self.index.write().untrack(key);
    }
}

/// Revisions whose counts or troubles have changed; told after the lock is released.
#[derive(Default)]
struct Changed {
    keys: HashSet<RevisionKey>,
}

impl Index {
    fn apply(&mut self, name: PodName, pod: PodState, changed: &mut Changed) {
        let PodState { labels, state, address, started, trouble } = pod;
        let labels = Labels::new(&labels);
        let revisions = self.revisions_of(&name, &labels);
        let trouble = trouble.map(String::into_boxed_str);
        let entry = Entry { labels, state, address, started, trouble, revisions: revisions.clone() };
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
                for place in entry.labels.places(name.namespace()) {
                    self.labelled.entry(place).or_default().push(name.clone());
                }
            }
        }
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
                self.recount(key, changed);
            }
        }
    }

    fn remove(&mut self, name: &PodName, changed: &mut Changed) {
        let Some(entry) = self.pods.remove(name) else { return };
        unlabel(&mut self.labelled, name, &entry.labels);
        for key in &entry.revisions {
            if let Some(tracked) = self.tracked.get_mut(key) {
                tracked.leave(name);
                self.recount(key, changed);
            }
        }
    }

    fn revisions_of(&self, name: &PodName, labels: &Labels) -> SmallVec<[RevisionKey; 1]> {
        let mut revisions = SmallVec::new();
        for place in labels.places(name.namespace()) {
            for key in self.selectors.get(&place).into_iter().flatten() {
                let is_selected =
                    |tracked: &Tracked| key.namespace() == name.namespace() && tracked.selector.select(labels);
                if self.tracked.get(key).is_some_and(is_selected) && !revisions.contains(key) {
                    revisions.push(key.clone());
                }
            }
        }
        revisions
    }

    fn track(&mut self, key: &RevisionKey, selector: Labels) {
        let mut members = Vec::new();
        if let Some(place) = selector.places(key.namespace()).next() {
            self.selectors.entry(place).or_default().push(key.clone());
            for name in self.labelled.get(&place).into_iter().flatten() {
                if let Some(entry) = self.pods.get_mut(name)
                    && name.namespace() == key.namespace()
                    && selector.select(&entry.labels)
                {
                    members.push(name.clone());
                    entry.revisions.push(key.clone());
                }
            }
        }
        members.sort_unstable();
        let counts = pod_counts::PodCounts::default();
        self.tracked.insert(key.clone(), Tracked { selector, members, counts, trouble: None });
        self.recount(key, &mut Changed::default());
    }

    fn untrack(&mut self, key: &RevisionKey) {
        let Some(tracked) = self.tracked.remove(key) else { return };
        if let Some(place) = tracked.selector.places(key.namespace()).next() {
            take(&mut self.selectors, place, key);
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
        let live = |entry: &&Entry| !entry.state.deleting;
        let trouble =
            if counts.ready > 0 { None } else { members().filter(live).find_map(|entry| entry.trouble.clone()) };
        if let Some(tracked) = self.tracked.get_mut(key)
            && (tracked.counts != counts || tracked.trouble != trouble)
        {
            (tracked.counts, tracked.trouble) = (counts, trouble);
            changed.keys.insert(key.clone());
        }
    }
}

impl Tracked {
    fn join(&mut self, name: &PodName) {
        if let Err(place) = self.members.binary_search(name) {
            self.members.insert(place, name.clone());
        }
    }

    fn leave(&mut self, name: &PodName) {
        if let Ok(place) = self.members.binary_search(name) {
            self.members.remove(place);
        }
    }
}

fn unlabel(labelled: &mut HashMap<Place, SmallVec<[PodName; 1]>>, name: &PodName, labels: &Labels) {
    for place in labels.places(name.namespace()) {
        take(labelled, place, name);
    }
}

fn take(places: &mut HashMap<Place, SmallVec<[RevisionKey; 1]>>, place: Place, key: &RevisionKey) {
    if let Some(keys) = places.get_mut(&place) {
        keys.retain(|other| other != key);
        if keys.is_empty() {
            places.remove(&place);
        }
    }
}

fn is_ready(state: &pod_counts::Pod) -> bool {
    state.phase == Phase::Running && state.ready && !state.deleting
}

#[cfg(test)]
mod tests {
    use super::*;
    use autoscaler_core::sample;
    use std::time::Duration;

    fn pod(labels: &[(&str, &str)], phase: Phase, ready: bool) -> PodState {
        PodState {
            labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            state: pod_counts::Pod { phase, deleting: false, ready },
            address: Some("10.0.0.1".parse().expect("address")),
            started: None,
            trouble: None,
        }
    }

    fn selector(pairs: &[(&str, &str)]) -> PodSet {
        PodSet::Selector(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    fn drain(attention: &Attention) -> Vec<RevisionKey> {
        std::iter::from_fn(|| attention.try_next()).collect()
    }

    /// Goal: counts follow pods that come, change, move between selectors and go, whichever was known first.
    #[test]
    fn counts_follow_the_pods() {
        let attention = Attention::new();
        let index = PodIndex::new(attention.clone());
        let (a, b) = (RevisionKey::new("ns", "a"), RevisionKey::new("ns", "b"));
        index.apply("ns", "p1", pod(&[("app", "a"), ("tier", "web")], Phase::Running, true));
        index.apply("other", "p1", pod(&[("app", "a"), ("tier", "web")], Phase::Running, true));
        index.track(&a, selector(&[("app", "a"), ("tier", "web")]));
        index.track(&b, selector(&[("app", "b")]));
        assert_eq!(index.counts(&a).ready, 1, "a pod that was there before, and not its namesake elsewhere");
        assert_eq!(drain(&attention), [], "nobody is told what he asks for");

        index.apply("ns", "p2", pod(&[("app", "a")], Phase::Running, true));
        assert_eq!(index.counts(&a).ready, 1, "every label of a selector must match");
        index.apply("ns", "p3", pod(&[("app", "a"), ("tier", "web")], Phase::Pending, false));
        assert_eq!((index.counts(&a).pending, index.counts(&a).not_ready), (1, 1));
        assert_eq!(drain(&attention), std::slice::from_ref(&a));
        index.apply("ns", "p3", pod(&[("app", "b")], Phase::Running, true));
        assert_eq!((index.counts(&a).not_ready, index.counts(&b).ready), (0, 1), "relabelled pods move");
        drain(&attention);
        index.apply("ns", "p3", pod(&[("app", "b")], Phase::Running, true));
        assert_eq!(drain(&attention), [], "an event that changes no count is not told");
        index.delete("ns", "p1");
        assert_eq!(index.counts(&a), PodCounts::default());
        index.untrack(&b);
        assert_eq!(index.counts(&b), PodCounts::default());
    }

    /// Goal: unknown is not zero: before the first full list, and for what is not tracked.
    #[test]
    fn nothing_is_known_before_the_first_list() {
        let attention = Attention::new();
        let index = PodIndex::new(attention.clone());
        let key = RevisionKey::new("ns", "a");
        assert_eq!(index.ready(&key), Err(Unknown::Pods));
        index.track(&key, PodSet::Revision("a".into()));
        assert_eq!(index.ready(&key), Err(Unknown::Pods));
        index.begin_list();
        index.apply("ns", "p", pod(&[(common::names::REVISION, "a")], Phase::Running, true));
        index.end_list();
        assert_eq!(index.ready(&key), Ok(1));
        assert_eq!(drain(&attention), std::slice::from_ref(&key));
        index.begin_list();
        index.end_list();
        assert_eq!(index.ready(&key), Ok(0), "what a new list does not name is gone");
    }

    /// Goal: a crash loop is reported while nothing serves, and only then.
    #[test]
    fn trouble_is_told_while_no_pod_is_ready() {
        let attention = Attention::new();
        let index = PodIndex::new(attention.clone());
        let key = RevisionKey::new("ns", "a");
        index.track(&key, selector(&[("app", "a")]));
        let mut failing = pod(&[("app", "a")], Phase::Running, false);
        failing.trouble = Some("CrashLoopBackOff: exit code 1".into());
        index.apply("ns", "p1", failing);
        assert_eq!(index.trouble(&key).as_deref(), Some("CrashLoopBackOff: exit code 1"));
        index.apply("ns", "p2", pod(&[("app", "a")], Phase::Running, true));
        assert_eq!(index.trouble(&key), None);
    }

    #[test]
    fn only_ready_pods_with_an_address_are_scraped() {
        let index = PodIndex::new(Attention::new());
        let key = RevisionKey::new("ns", "a");
        index.track(&key, selector(&[("app", "a")]));
        index.apply("ns", "ready", pod(&[("app", "a")], Phase::Running, true));
        index.apply("ns", "starting", pod(&[("app", "a")], Phase::Running, false));
        let mut nowhere = pod(&[("app", "a")], Phase::Running, true);
        nowhere.address = None;
        index.apply("ns", "nowhere", nowhere);
        assert_eq!(index.scrape_targets(&key).len(), 1);
    }

    /// Reconcilers, 9.7: of pods that started at t, t − 1 s and t + 60 s the one from t − 1 s is asked first, whatever
    /// they are called; pods that failed, are pending or terminate are not asked. (Here age counts as far as it says
    /// who has seen a whole window; among those chance decides.)
    #[test]
    fn the_oldest_pod_is_scraped_first() {
        let index = PodIndex::new(Attention::new());
        let (key, t) = (RevisionKey::new("ns", "a"), Timestamp::from_secs(1_000_000));
        index.track(&key, selector(&[("app", "a")]));
        let second = Duration::from_secs(1);
        let started = [("a", t + 60 * second), ("b", t), ("c", t - second)];
        for (host, (name, started)) in (1..).zip(started) {
            let (labels, address) = (&[("app", "a")], Some(IpAddr::from([10, 0, 0, host])));
            let pod = PodState { address, started: Some(started), ..pod(labels, Phase::Running, true) };
            index.apply("ns", name, pod);
        }
        let terminating = pod_counts::Pod { phase: Phase::Running, deleting: true, ready: true };
        index.apply("ns", "d", PodState { state: terminating, ..pod(&[("app", "a")], Phase::Running, true) });
        for (name, phase) in [("e", Phase::Pending), ("f", Phase::Other)] {
            index.apply("ns", name, pod(&[("app", "a")], phase, true));
        }
        let targets = index.scrape_targets(&key).into_iter().map(|target| (target.address, target.started));
        let candidates = sample::choose(targets, t + 59 * second, 60 * second, &mut rand::rng());
        let hosts: Vec<IpAddr> = candidates.order;
        assert_eq!((hosts.len(), hosts[0]), (3, IpAddr::from([10, 0, 0, 3])));
    }
}
