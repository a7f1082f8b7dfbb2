//! Pods that belong to no activator, because their number does not divide: who may use them, and when.
//!
//! # The rule
//!
//! An activator sends to its own pods first. Only when more requests wait than half of its own places could take in one
//! go is the head of the queue given a slot on a shared pod, at most the container concurrency for each such pod.
//!
//! Half, because whoever stands that far in front is served by an own pod within half of a service time, and a shared
//! pod may be busy with a sibling's request for as long: nobody tells an activator what its siblings do. A request that
//! is sent where a sibling's runs waits at the pod, where it can no longer change its mind. With two places of its own,
//! an activator that sent at once would meet its sibling so often that the 99th percentile under Poisson arrivals is
//! 1.6 times that of one ideal queue; with this rule it is below 1.5 (the test beside this module), and without sharing
//! the activator with fewer pods has no bound at all.
//!
//! # Where it holds
//!
//! Where something at the pod holds the container concurrency (a queue-proxy, whose queue takes ten times that), since
//! as many requests as there are activators may meet there. Knative's own activators may be among the siblings: they
//! use the leftover pods that they own as they always do.
//!
//! # How
//!
//! A slot on a shared pod is reserved first and laid out here; then the breaker gets one place more, which wakes the
//! head of the queue; whoever is admitted next takes what is laid out. The place goes when the slot is given back, as
//! for pods that are retired, so shared slots and own places cannot be confused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::pod::{PodTracker, Slot};
use super::policy::ContainerConcurrency;
use super::{Inner, Snapshot, Targets};

/// Slots on shared pods that have been reserved, each for a place that somebody has or will be given.
#[derive(Debug, Default)]
pub(super) struct SharedSlots {
    /// How many there are: picks look at this alone while there are none.
    count: AtomicU32,
    slots: Mutex<Vec<Slot>>,
}

impl SharedSlots {
    /// One of them, if there is one.
    pub(super) fn take(&self) -> Option<Slot> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let slot = self.slots.lock().pop()?;
        self.count.fetch_sub(1, Ordering::AcqRel);
        Some(slot)
    }

    fn put(&self, slot: Slot) {
        self.slots.lock().push(slot);
        self.count.fetch_add(1, Ordering::AcqRel);
    }
}

impl Snapshot {
    /// Whether `pod` is a shared one.
    pub(super) fn is_shared(&self, pod: &Arc<PodTracker>) -> bool {
        self.shared.iter().any(|other| Arc::ptr_eq(other, pod))
    }

    /// As many may wait for own pods.
    fn patience(&self, concurrency: u32) -> u32 {
        let own = match &self.targets {
            Targets::Pods(pods) => u32::try_from(pods.len()).unwrap_or(u32::MAX),
            Targets::ClusterIp(_) => return u32::MAX,
        };
        own.saturating_mul(concurrency) / 2
    }
}

impl Inner {
    /// Gives the head of the queue a slot on a shared pod, and the next one, while too many wait for own pods. Costs a
    /// look at the snapshot where there are no shared pods.
    pub(super) fn grant_shared(&self) {
        loop {
            {
                let snapshot = self.snapshot.load();
                if snapshot.shared.is_empty() {
                    return;
                }
                let state = self.state.lock();
                let ContainerConcurrency::Limited(limit) = state.concurrency else { return };
                if self.breaker.load().queued <= snapshot.patience(limit.get()) {
                    return;
                }
                let Some(slot) = snapshot.shared.iter().find_map(|pod| pod.try_reserve(limit.get())) else { return };
                self.shared_slots.put(slot);
                self.breaker.store_capacity(state.capacity(&snapshot.targets));
            }
            self.breaker.grant();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
