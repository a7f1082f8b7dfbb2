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
    /// Not among those to pick from, or shared with other activators; and who wants to know when a request on it ends.
    retired: AtomicBool,
    /// Of a pod that is shared and not retired: so many requests of this activator may run there.
    open: AtomicU32,
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
            open: AtomicU32::new(0),
            throttler,
            destination,
            _apart: [0; 5],
        })
    }

    /// One whose ends are told from the first on.
    pub(super) fn shared(destination: Destination, throttler: Weak<Inner>) -> Arc<Self> {
        let pod = Self::new(destination, throttler);
        pod.set_retired(true);
        pod
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::SeqCst)
    }

    /// The throttler sets this before it reads the count, a request's end lowers the count before it reads this: one of
    /// them sees the other, so no capacity is left over. Hence the strongest order, here and there.
    pub(super) fn set_retired(&self, retired: bool) {
        self.retired.store(retired, Ordering::SeqCst);
    }

    /// From now on so many requests may run there without anybody being asked: see [`PodTracker::try_reserve_open`].
    pub(super) fn set_open(&self, requests: u32) {
        self.open.store(requests, Ordering::SeqCst);
        self.set_retired(false);
    }

    /// A place on a shared pod, if it is open. It is looked at again once the place is counted, since it may have been
    /// closed, and opened again for less, after it was found open. Whoever closes it retires it before it reads the count,
    /// and writes what it is open for before it ends that. So the place is in the count that was read, or it is seen here that
    /// it is one too many, and given back. (Two that meet so may both give back; they wait in line then.)
    pub(super) fn try_reserve_open(self: &Arc<Self>) -> Option<Slot> {
        let slot = self.try_reserve(self.open.load(Ordering::SeqCst))?;
        (!self.is_retired() && self.in_flight() <= self.open.load(Ordering::SeqCst)).then_some(slot)
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
            throttler.retired_slot_ended(&self.pod);
        }
    }
}
