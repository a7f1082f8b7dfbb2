//! One destination as the throttler sees it: how many requests of this activator it runs.
//!
//! A pod's count lives as long as somebody refers to it: the list of pods, or a request. A pod that leaves the list and
//! comes back while requests still run on it is the same pod with the same count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::destination::Destination;

/// A destination and its count.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) destination: Destination,
    in_flight: AtomicU32,
}

/// A request's place on a pod, given back on drop.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) pod: Arc<Pod>,
}

impl Pod {
    pub(super) fn new(destination: Destination) -> Arc<Self> {
        Arc::new(Self { destination, in_flight: AtomicU32::new(0) })
    }

    /// Requests that run on it, or are about to.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Acquire)
    }

    /// A place, whatever runs there.
    pub(super) fn reserve(self: &Arc<Self>) -> Slot {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        Slot { pod: Arc::clone(self) }
    }

    /// A place, if fewer than `limit` run there.
    pub(super) fn try_reserve(self: &Arc<Self>, limit: u32) -> Option<Slot> {
        self.in_flight
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < limit).then_some(n + 1))
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
        self.pod.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}
