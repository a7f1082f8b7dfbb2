//! The index itself: synchronous, without a watch, so that tests feed it by hand.

use crate::scale::{Attention, PodCounts, PodSet, Pods};
use autoscaler_core::decider::Unknown;
use autoscaler_core::pod_counts::{self, Phase};
use common::RevisionKey;
use common::time::Timestamp;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::watch;

/// What is kept of a pod.
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

type PodName = (Arc<str>, Arc<str>);
type Label = (Arc<str>, String, String);

#[derive(Debug, Default)]
struct Index {
    pods: HashMap<PodName, Entry>,
    tracked: HashMap<RevisionKey, Tracked>,
    /// Revisions by namespace and one label of their selector.
    by_label: HashMap<Label, Vec<RevisionKey>>,
    /// Pods seen since a new full list began.
    listing: Option<HashSet<PodName>>,
}

#[derive(Debug)]
struct Entry {
    pod: PodState,
    revisions: SmallVec<[RevisionKey; 1]>,
}

#[derive(Debug)]
struct Tracked {
    selector: BTreeMap<String, String>,
    members: BTreeSet<Arc<str>>,
    counts: pod_counts::PodCounts,
    trouble: Option<String>,
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
            .filter_map(|name| index.pods.get(&(key.namespace().into(), name.clone())))
            .filter(|entry| is_ready(&entry.pod.state))
            .filter_map(|entry| Some(ScrapeTarget { address: entry.pod.address?, started: entry.pod.started }))
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
        let name = (Arc::from(namespace), Arc::from(name));
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
        self.index.write().remove(&(namespace.into(), name.into()), &mut changed);
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
        self.index.read().tracked.get(key)?.trouble.clone()
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
        let revisions = self.revisions_of(&name.0, &pod.labels);
        let before = self.pods.insert(name.clone(), Entry { pod, revisions: revisions.clone() });
        let former = before.map(|entry| entry.revisions).unwrap_or_default();
        for key in &former {
            if !revisions.contains(key)
                && let Some(tracked) = self.tracked.get_mut(key)
            {
                tracked.members.remove(&name.1);
                self.recount(key, changed);
            }
        }
        for key in &revisions {
            if let Some(tracked) = self.tracked.get_mut(key) {
                tracked.members.insert(name.1.clone());
                self.recount(key, changed);
            }
        }
    }

    fn remove(&mut self, name: &PodName, changed: &mut Changed) {
        let Some(entry) = self.pods.remove(name) else { return };
        for key in &entry.revisions {
            if let Some(tracked) = self.tracked.get_mut(key) {
                tracked.members.remove(&name.1);
                self.recount(key, changed);
            }
        }
    }

    fn revisions_of(&self, namespace: &Arc<str>, labels: &BTreeMap<String, String>) -> SmallVec<[RevisionKey; 1]> {
        let mut revisions = SmallVec::new();
        for (label, value) in labels {
            let Some(keys) = self.by_label.get(&(namespace.clone(), label.clone(), value.clone())) else { continue };
            for key in keys {
                if self.tracked.get(key).is_some_and(|tracked| matches(&tracked.selector, labels)) {
                    revisions.push(key.clone());
                }
            }
        }
        revisions
    }

    fn track(&mut self, key: &RevisionKey, selector: BTreeMap<String, String>) {
        if let Some((label, value)) = selector.iter().next() {
            let label = (Arc::from(key.namespace()), label.clone(), value.clone());
            self.by_label.entry(label).or_default().push(key.clone());
        }
        let mut members = BTreeSet::new();
        for ((namespace, name), entry) in &mut self.pods {
            if &**namespace == key.namespace() && matches(&selector, &entry.pod.labels) {
                members.insert(name.clone());
                entry.revisions.push(key.clone());
            }
        }
        let counts = pod_counts::PodCounts::default();
        self.tracked.insert(key.clone(), Tracked { selector, members, counts, trouble: None });
        self.recount(key, &mut Changed::default());
    }

    fn untrack(&mut self, key: &RevisionKey) {
        let Some(tracked) = self.tracked.remove(key) else { return };
        if let Some((label, value)) = tracked.selector.into_iter().next() {
            let label = (Arc::from(key.namespace()), label, value);
            if let Some(keys) = self.by_label.get_mut(&label) {
                keys.retain(|other| other != key);
                if keys.is_empty() {
                    self.by_label.remove(&label);
                }
            }
        }
        for name in tracked.members {
            if let Some(entry) = self.pods.get_mut(&(key.namespace().into(), name)) {
                entry.revisions.retain(|other| other != key);
            }
        }
    }

    fn recount(&mut self, key: &RevisionKey, changed: &mut Changed) {
        let Some(tracked) = self.tracked.get(key) else { return };
        let namespace: Arc<str> = key.namespace().into();
        let members = || tracked.members.iter().filter_map(|name| self.pods.get(&(namespace.clone(), name.clone())));
        let counts: pod_counts::PodCounts = members().map(|entry| entry.pod.state).collect();
        let live = |entry: &&Entry| !entry.pod.state.deleting;
        let trouble =
            if counts.ready > 0 { None } else { members().filter(live).find_map(|entry| entry.pod.trouble.clone()) };
        if let Some(tracked) = self.tracked.get_mut(key)
            && (tracked.counts != counts || tracked.trouble != trouble)
        {
            (tracked.counts, tracked.trouble) = (counts, trouble);
            changed.keys.insert(key.clone());
        }
    }
}

fn matches(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    !selector.is_empty() && selector.iter().all(|(label, value)| labels.get(label) == Some(value))
}

fn is_ready(state: &pod_counts::Pod) -> bool {
    state.phase == Phase::Running && state.ready && !state.deleting
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
