//! A destination with the number of this activator's requests that run on it.
//!
//! The count lives as long as it is referenced by the list of pods or by a request. A pod that leaves the list and
//! returns while requests still run on it keeps its count.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use super::Throttler;
use crate::destination::Destination;

/// Destination and its count.
///
/// Every request on the pod changes the count and the reference count of the `Arc` around it. The order of the fields
/// puts both on one cache line. The padding keeps the next pod's data two lines away, since processors fetch lines in
/// pairs.
#[derive(Debug)]
#[repr(C)]
pub(super) struct PodTracker {
    in_flight: AtomicU32,
    /// True if the pod must not be picked, and the throttler needs to know when a request on it ends.
    retired: AtomicBool,
    throttler: Weak<Throttler>,
    pub(super) destination: Destination,
    _apart: [u64; 5],
}

/// Slot of a request on a pod, released on drop.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) pod: Arc<PodTracker>,
}

impl PodTracker {
    pub(super) fn new(destination: Destination, throttler: Weak<Throttler>) -> Arc<Self> {
        Arc::new(Self {
            in_flight: AtomicU32::new(0),
            retired: AtomicBool::new(false),
            throttler,
            destination,
            _apart: [0; 5],
        })
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::SeqCst)
    }

    /// Marks the pod as retired or used. The throttler sets the mark before it reads the count, and the end of a
    /// request lowers the count before it reads the mark. One of the two sees the other, so no extra capacity remains.
    /// The same holds for the start of a request, so no uncounted request runs on the pod. Both sides therefore use
    /// sequentially consistent ordering.
    pub(super) fn set_retired(&self, retired: bool) {
        self.retired.store(retired, Ordering::SeqCst);
    }

    /// Returns the number of requests that run on the pod or are about to.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// Takes a slot, whatever the count.
    pub(super) fn reserve(self: &Arc<Self>) -> Slot {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        Slot { pod: Arc::clone(self) }
    }

    /// Takes a slot if fewer than `limit` requests run on the pod.
    pub(super) fn try_reserve(self: &Arc<Self>, limit: u32) -> Option<Slot> {
        self.in_flight
            .fetch_update(Ordering::SeqCst, Ordering::Acquire, |n| (n < limit).then_some(n + 1))
            .ok()
            .map(|_| Slot { pod: Arc::clone(self) })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.pod.in_flight.fetch_sub(1, Ordering::SeqCst);
        if self.pod.is_retired()
            && let Some(throttler) = self.pod.throttler.upgrade()
        {
            throttler.retired_slot_ended();
        }
    }
}
