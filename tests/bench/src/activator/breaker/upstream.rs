//! Upstream's breaker in Rust, as far as a request goes through it that finds a place free and nobody waiting: the same
//! atomics in the same order (`pkg/queue/breaker.go`). Go's has the cost of closures and interfaces beside it, so this
//! is the harder peer.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

pub(super) struct Breaker {
    /// Requests that run or wait.
    in_flight: AtomicI64,
    /// How many of them there may be.
    total: i64,
    /// Capacity in the high half, what runs in the low half.
    state: AtomicU64,
}

impl Breaker {
    pub(super) fn new(capacity: u32, queue_depth: u32) -> Self {
        let total = i64::from(capacity) + i64::from(queue_depth);
        Self { in_flight: AtomicI64::new(0), total, state: AtomicU64::new(u64::from(capacity) << 32) }
    }

    /// `Reserve`.
    pub(super) fn reserve(&self) -> bool {
        let room = |in_flight| (in_flight != self.total).then_some(in_flight + 1);
        let free = |state: u64| (state as u32 as u64) < state >> 32;
        if self.in_flight.fetch_update(SeqCst, SeqCst, room).is_err() {
            return false;
        }
        let acquired = self.state.fetch_update(SeqCst, SeqCst, |state| free(state).then_some(state + 1)).is_ok();
        if !acquired {
            self.in_flight.fetch_sub(1, SeqCst);
        }
        acquired
    }

    /// What `Reserve` hands back. Nobody waits, so nobody is told.
    pub(super) fn release(&self) {
        let _ = self.state.fetch_update(SeqCst, SeqCst, |state| Some(state - 1)); // It cannot fail.
        self.in_flight.fetch_sub(1, SeqCst);
    }
}
