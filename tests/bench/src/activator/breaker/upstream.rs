//! Upstream's breaker in Rust, limited to the path of a request that gets a permit without waiting: the same atomics in
//! the same order (`pkg/queue/breaker.go`). The Go version additionally pays for closures and interfaces, so this
//! peer is faster.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

pub(super) struct Breaker {
    /// Number of requests that run or wait.
    in_flight: AtomicI64,
    /// Maximum number of requests that run or wait.
    total: i64,
    /// Capacity in the high half, number of running requests in the low half.
    state: AtomicU64,
}

impl Breaker {
    pub(super) fn new(capacity: u32, queue_depth: u32) -> Self {
        let total = i64::from(capacity) + i64::from(queue_depth);
        Self { in_flight: AtomicI64::new(0), total, state: AtomicU64::new(u64::from(capacity) << 32) }
    }

    /// Corresponds to `Reserve`.
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

    /// Corresponds to the function that `Reserve` returns. No request waits, so none is notified.
    pub(super) fn release(&self) {
        let _ = self.state.fetch_update(SeqCst, SeqCst, |state| Some(state - 1)); // Cannot fail.
        self.in_flight.fetch_sub(1, SeqCst);
    }
}
