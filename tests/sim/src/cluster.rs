//! Cluster around the processes: the API server's store and its watches, pods, and the propagation of endpoints to
//! entries. None of these fails by itself.

use crate::events::{Event, Local, ProcessId};
use crate::model::{Id, Object};
use crate::plan::Fault;
use crate::simulation::{Change, SimulatedPod, Simulation};
use rand::RngExt;
use std::time::Duration;

/// Minimum time for which a removed pod still serves. It is longer than [`ENTRIES_APART`].
const LINGER: Duration = Duration::from_secs(1);
/// Maximum difference in milliseconds between the times at which two entries learn of a change. A probe tests only one
/// entry.
pub(crate) const ENTRIES_APART: u64 = 500;

impl Simulation {
    /// Returns the transit time to the API server or back.
    pub(crate) fn api_delay(&mut self) -> Duration {
        let most = if self.links.is_active(Fault::SlowApi) { 1500 } else { 40 };
        Duration::from_millis(self.rng.random_range(1..=most))
    }

    /// Stores an object, notifies all watches, and returns the object's version.
    pub(crate) fn put(&mut self, id: Id, object: Object) -> u64 {
        self.store_version += 1;
        let version = self.store_version;
        self.store.put(id, version, object);
        if !matches!(id, Id::Lease(_)) {
            self.time.trace(|| self.describe(id));
        }
        for index in 0..self.autoscalers.len() {
            self.notify(ProcessId::Autoscaler(index), id);
        }
        if matches!(id, Id::Public(_) | Id::Private(_)) {
            (0..self.activators.len()).for_each(|index| self.notify(ProcessId::Activator(index), id));
        }
        match id {
            Id::Target(revision) => {
                let delay = Duration::from_millis(self.rng.random_range(5..200));
                self.time.after(delay, Event::ReconcileDeployment(revision));
                self.schedule_rival(revision);
            }
            Id::Public(revision) => self.publish(revision),
            _ => {}
        }
        version
    }

    pub(crate) fn notify(&mut self, to: ProcessId, id: Id) {
        let delay = Duration::from_millis(self.rng.random_range(1..80));
        self.schedule(to, delay, Local::Notify(id));
    }

    /// Delivers all objects, as at the start of a watch.
    pub(crate) fn relist(&mut self, to: ProcessId) {
        for id in self.store.ids() {
            self.notify(to, id);
        }
        if let ProcessId::Autoscaler(_) = to {
            for bucket in 0..self.plan.buckets {
                if self.store.lease(bucket).is_none() {
                    self.notify(to, Id::Lease(bucket));
                }
            }
        }
    }

    /// Propagates a revision's endpoints to the entries, all with about the same delay. A change that no entry has
    /// learned of yet is overtaken by the next one: propagation carries the newest state, not its history.
    pub(crate) fn publish(&mut self, revision: usize) {
        let lag = Duration::from_millis(self.links.entries_lag().map_or(20, |seconds| seconds * 1000));
        let from = self.time.now + lag;
        let changes = &mut self.changes[revision];
        changes.retain(|change| change.from <= self.time.now);
        let from = changes.last().map_or(from, |last| from.max(last.from + Duration::from_millis(ENTRIES_APART)));
        let version = self.store.version(Id::Public(revision));
        changes.push(Change { from, version });
        for entry in 0..self.entries.len() {
            let apart = Duration::from_millis(self.rng.random_range(0..ENTRIES_APART));
            let endpoints = self.store.public(revision).to_vec();
            self.time.after(from + apart - self.time.now, Event::EntryLearns { entry, revision, version, endpoints });
        }
    }

    /// Creates or removes pods until there are as many as the target requests; the youngest are removed first.
    pub(crate) fn deploy(&mut self, revision: usize) {
        let wanted = usize::try_from(self.store.target(revision).unwrap_or(0)).unwrap_or(0);
        let stays = |pod: &SimulatedPod| pod.revision == revision && !pod.terminating;
        let current: Vec<usize> = self.pods.iter().filter(|(_, pod)| stays(pod)).map(|(id, _)| *id).collect();
        for _ in current.len()..wanted {
            self.next_pod += 1;
            let pod = self.next_pod;
            self.pods.insert(pod, SimulatedPod { revision, ready: false, terminating: false });
            let start_up = self.plan.revisions[revision].start_up.mul_f64(self.rng.random_range(0.7..1.5));
            self.time.after(start_up, Event::PodReady(pod));
        }
        for pod in current.into_iter().skip(wanted) {
            if let Some(pod) = self.pods.get_mut(&pod) {
                pod.terminating = true;
            }
            let linger = LINGER.mul_f64(self.rng.random_range(1.0..2.0));
            self.time.after(linger, Event::PodGone(pod));
        }
        self.publish_pods(revision);
    }

    pub(crate) fn publish_pods(&mut self, revision: usize) {
        let serves = |pod: &SimulatedPod| pod.revision == revision && pod.ready && !pod.terminating;
        let ready: Vec<usize> = self.pods.iter().filter(|(_, pod)| serves(pod)).map(|(id, _)| *id).collect();
        if self.store.ready_pods(revision) != ready {
            self.put(Id::Private(revision), Object::Ready(ready));
        }
    }

    pub(crate) fn publish_activators(&mut self) {
        let ready = (0..self.activators.len()).filter(|index| self.ready_since[*index].is_some()).collect();
        self.put(Id::Activators, Object::Ready(ready));
    }
}
