//! One destination as the throttler sees it: how many requests of this activator it runs.
//!
//! A pod's count lives as long as somebody refers to it: the list of pods, or a request. A pod that leaves the list and
//! comes back while requests still run on it is the same pod with the same count.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use super::Inner;
use crate::destination::Destination;

/// A destination and its count.
///
/// Every request on it changes the count and that of the `Arc` around it. The order of the fields puts both on one
/// cache line, and what follows keeps the next pod's away from it: two lines, since processors fetch them in pairs.
#[derive(Debug)]
#[repr(C)]
pub(super) struct PodTracker {
    in_flight: AtomicU32,
    /// Not among those to pick from, and the throttler wants to know when a request on it ends.
    retired: AtomicBool,
    throttler: Weak<Inner>,
    pub(super) destination: Destination,
    _apart: [u64; 5],
}

/// A request's place on a pod, given back on drop.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) pod: Arc<PodTracker>,
}

impl PodTracker {
    pub(super) fn new(destination: Destination, throttler: Weak<Inner>) -> Arc<Self> {
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

    /// The throttler sets this before it reads the count, a request's end lowers the count before it reads this: one of
    /// them sees the other, so no capacity is left over; and so do a request's beginning and this, so none runs there that
    /// was not counted. Hence the strongest order, here and there.
    pub(super) fn set_retired(&self, retired: bool) {
        self.retired.store(retired, Ordering::SeqCst);
    }

    /// Requests that run on it, or are about to.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// A place, whatever runs there.
    pub(super) fn reserve(self: &Arc<Self>) -> Slot {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        Slot { pod: Arc::clone(self) }
    }

    /// A place, if fewer than `limit` run there.
    pub(super) fn try_reserve(self: &Arc<Self>, limit: u32) -> Option<Slot> {
        self.in_flight
            .fetch_update(Ordering::SeqCst, Ordering::Acquire, |n| (n < limit).then_some(n + 1))
            .ok()
            .map(|_| Slot { pod: Arc::clone(self) })
    }
}

impl Slot {
    pub(super) fn destination(&self) -> &Destination {
        &self.pod.destination
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
