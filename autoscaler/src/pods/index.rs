//! The index itself: synchronous and without a watch, so that tests feed it by hand. A [`table`] under its lock
//! contains the relations of pods and revisions; changes are reported after the lock is released.

mod table;
#[cfg(test)]
mod tests;

use self::table::{Changed, Index, Listens, PodName, is_ready};
use super::ownership::{Controller, KnownOwner};
use crate::scale::{Failing, ForeignPods, PodAddress, PodCounts, PodOwner, PodSet, Pods, Requests};
use autoscaler_core::cause::Cause;
use autoscaler_core::decider::Unknown;
use autoscaler_core::pod_counts::{self, Phase};
use common::RevisionKey;
use common::time::Timestamp;
use common_controller::Priority;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Known state of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodState {
    /// Labels of the pod.
    pub labels: BTreeMap<String, String>,
    /// Phase, deletion, readiness.
    pub state: pod_counts::CountedPod,
    /// IP address, once assigned.
    pub address: Option<IpAddr>,
    /// Start time.
    pub started: Option<Timestamp>,
    /// Reason why it does not serve.
    pub cause: Option<Cause>,
    /// Controller of the pod.
    pub controller: Option<Arc<Controller>>,
}

/// Index of pods by revision. The watch feeds it; reconcilers, deciders and the scraper read it.
#[derive(Debug)]
pub struct PodIndex {
    index: RwLock<Index>,
    /// Set once a full list has arrived.
    synced: watch::Sender<bool>,
    requests: Requests,
    inquiries: mpsc::UnboundedSender<Inquiry>,
    /// Receiver of the inquiries, until the watch takes it.
    receiver: Mutex<Option<mpsc::UnboundedReceiver<Inquiry>>>,
}

/// Inquiry that the index leaves to the watch, because it needs I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Inquiry {
    /// Tests whether a pod listens on its port.
    Port(PodName),
    /// Queries the owner of a controller in a namespace.
    Controller(String, Arc<Controller>),
}

impl PodIndex {
    /// Creates an empty index that adds changed revisions to `requests`.
    pub fn new(requests: Requests) -> Self {
        let (inquiries, receiver) = mpsc::unbounded_channel();
        let (synced, receiver) = (watch::Sender::new(false), Mutex::new(Some(receiver)));
        Self { index: RwLock::default(), synced, requests, inquiries, receiver }
    }

    /// Returns the receiver of inquiries, to the first caller only.
    pub(super) fn inquiries(&self) -> Option<mpsc::UnboundedReceiver<Inquiry>> {
        self.receiver.lock().take()
    }

    /// Returns whether the controller of this uid still has pods.
    pub(super) fn is_controller(&self, uid: &str) -> bool {
        self.index.write().is_controller(uid)
    }

    /// Records the owner of a controller.
    pub(super) fn controlled_by(&self, uid: &str, owner: KnownOwner) {
        self.change(|index, changed| index.controlled_by(uid, owner, changed));
    }

    /// Returns the address at which to test whether a pod listens; none: it is gone, or needs no test.
    pub(super) fn probe_address(&self, pod: &PodName) -> Option<(IpAddr, u16)> {
        let index = self.index.read();
        let entry = index.pods.get(pod).filter(|entry| !matches!(entry.listens, None | Some(Listens::Proven)))?;
        let own = entry.revisions.iter().filter_map(|key| index.tracked.get(key)).filter(|of| of.has(pod));
        let port = own.filter_map(|tracked| tracked.port).next()?;
        Some((entry.pod.address?, port))
    }

    /// Records whether a tested pod listens.
    pub(super) fn record_probe(&self, pod: &PodName, port: u16, listens: bool) {
        self.change(|index, changed| {
            let Some(entry) = index.pods.get_mut(pod).filter(|entry| entry.listens.is_some()) else { return };
            entry.listens = Some(match entry.listens {
                _ if listens => Listens::Proven,
                Some(Listens::Refused { since, .. }) => Listens::Refused { since, port },
                _ => Listens::Refused { since: Instant::now(), port },
            });
            for key in entry.revisions.clone() {
                index.recount(&key, changed);
            }
        });
    }

    /// Waits for the first full list.
    pub async fn synced(&self) {
        // The sender lives as long as `self`.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Returns the number of ready pods of a revision.
    ///
    /// # Errors
    /// [`Unknown::Pods`] before the first full list, or if the revision is not tracked.
    pub fn ready(&self, key: &RevisionKey) -> Result<u32, Unknown> {
        let index = self.index.read();
        match index.tracked.get(key) {
            Some(tracked) if *self.synced.borrow() => Ok(tracked.counts.ready.unsigned_abs()),
            _ => Err(Unknown::Pods),
        }
    }

    /// Returns address and start time of each ready pod of a revision that has an address.
    pub fn scrape_targets(&self, key: &RevisionKey) -> Vec<(IpAddr, Option<Timestamp>)> {
        let index = self.index.read();
        let ready = index.members(key).map(|(_, entry)| &entry.pod).filter(|pod| is_ready(&pod.state));
        ready.filter_map(|pod| Some((pod.address?, pod.started))).collect()
    }

    /// Begins a new full list. Pods that are not in it are removed at its end.
    pub fn begin_list(&self) {
        self.index.write().relist.begin();
    }

    /// Ends the full list: all pods are known now.
    pub fn end_list(&self) {
        self.change(|index, changed| {
            let Index { relist, pods, .. } = index;
            for name in relist.end(pods.keys()) {
                index.remove(&name, changed);
            }
            if !self.synced.send_replace(true) {
                changed.keys.extend(index.tracked.keys().cloned());
            }
        });
    }

    /// Records the state of a pod.
    pub fn apply(&self, namespace: &str, name: &str, pod: PodState) {
        let name = PodName::new(namespace, name);
        self.change(|index, changed| {
            index.relist.record_existing(&name);
            index.apply(name, pod, changed);
        });
    }

    /// Removes a pod.
    pub fn delete(&self, namespace: &str, name: &str) {
        self.change(|index, changed| index.remove(&PodName::new(namespace, name), changed));
    }

    /// Changes the index, and reports the changes once its lock is released.
    fn change(&self, change: impl FnOnce(&mut Index, &mut Changed)) {
        let mut changed = Changed::default();
        change(&mut self.index.write(), &mut changed);
        for key in changed.keys {
            self.requests.add(key, Priority::Normal);
        }
        for inquiry in changed.inquiries {
            let _ = self.inquiries.send(inquiry); // The receiver lives as long as the watch.
        }
    }
}

impl Pods for PodIndex {
    fn track(&self, key: &RevisionKey, pods: PodSet, owner: Option<PodOwner>) {
        self.change(|index, changed| {
            if index.tracked.get(key).is_some_and(|tracked| tracked.selector == pods && tracked.owner == owner) {
                return;
            }
            index.untrack(key);
            index.track(key, pods, owner, changed);
            // The caller knows the counts that follow. Only foreign pods concern another reader, which routes clients
            // to the pods.
            let tracked = index.tracked.get(key);
            let has_foreign_pods = tracked.is_some_and(|tracked| !tracked.foreign_controllers.is_empty());
            changed.keys.retain(|_| has_foreign_pods);
        });
    }

    fn require_listening(&self, key: &RevisionKey, port: Option<u16>) {
        self.change(|index, changed| {
            if let Some(tracked) = index.tracked.get_mut(key).filter(|tracked| tracked.port != port) {
                tracked.port = port;
                index.recount(key, changed);
            }
        });
    }

    fn is_tracked(&self, key: &RevisionKey) -> bool {
        self.index.read().tracked.contains_key(key)
    }

    fn counts(&self, key: &RevisionKey) -> PodCounts {
        let index = self.index.read();
        index.tracked.get(key).map(|tracked| tracked.counts).unwrap_or_default()
    }

    fn addresses(&self, key: &RevisionKey) -> Vec<PodAddress> {
        let index = self.index.read();
        let with_address = index.members(key).filter_map(|(name, entry)| {
            let (state, address) = (&entry.pod.state, entry.pod.address?);
            let runs = state.phase == Phase::Running || state.phase == Phase::Pending;
            let pod = name.name().to_owned();
            runs.then_some(PodAddress { pod, address, ready: is_ready(state), deleting: state.deleting })
        });
        with_address.collect()
    }

    fn labels(&self, key: &RevisionKey) -> Option<BTreeSet<BTreeMap<String, String>>> {
        let index = self.index.read();
        index.tracked.get(key).filter(|_| *self.synced.borrow())?;
        Some(index.members(key).filter(|(_, entry)| entry.is_live()).map(|(_, e)| e.pod.labels.clone()).collect())
    }

    fn failing(&self, key: &RevisionKey) -> Option<Failing> {
        self.index.read().tracked.get(key)?.failing.as_deref().cloned()
    }

    fn foreign_pods(&self, key: &RevisionKey) -> Option<ForeignPods> {
        let index = self.index.read();
        let tracked = index.tracked.get(key).filter(|_| *self.synced.borrow())?;
        let pods = tracked.foreign.iter().map(|name| name.name().to_owned()).collect();
        Some(ForeignPods { pods, controllers: tracked.foreign_controllers.to_vec() })
    }

    fn untrack(&self, key: &RevisionKey) {
        self.index.write().untrack(key);
    }
}
