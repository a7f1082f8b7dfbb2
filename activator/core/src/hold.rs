//! What the process holds for requests that wait: a bound in bytes, across all revisions.
//!
//! How many requests of one revision may wait is its breaker's [queue limit](crate::breaker::AdmissionError::QueueFull). This
//! is the other bound: all held requests together may keep so many bytes (a quarter of the memory limit, by the
//! shell's choice), so that many revisions, each within its own limit, cannot exhaust the process.
//!
//! A request is charged what it keeps while it waits (its head and its connection's share; nothing of its body is
//! read), from when it would queue until it is admitted or has gone. Charges are values that are given back on drop.
//!
//! # Odd cases
//!
//! - A charge larger than the whole bound is refused, also when nothing else is held.
//! - The bound may fall below what is held: nothing is dropped, and nothing more is taken until enough has gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that held requests may keep, shared by all revisions of the process.
#[derive(Debug)]
pub struct HeldBytes {
    limit: AtomicU64,
    held: AtomicU64,
    requests: AtomicU64,
}

/// A held request's charge, given back on drop.
#[derive(Debug)]
pub struct Held {
    budget: Arc<HeldBytes>,
    bytes: u64,
}

/// Holding one more request would exceed the process's bound. Nothing of it was sent: it is safe to repeat elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("held requests keep {held} bytes of the {limit} that they may (memory bound), and this one needs {needed}")]
pub struct BytesFull {
    /// The bound.
    pub limit: u64,
    /// What was held.
    pub held: u64,
    /// What this request would have added.
    pub needed: u64,
}

impl HeldBytes {
    /// A bound of `limit` bytes; `None`: no bound.
    pub fn new(limit: Option<u64>) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicU64::new(limit.unwrap_or(u64::MAX)),
            held: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        })
    }

    /// Charges a request that begins to wait.
    pub fn hold(self: &Arc<Self>, bytes: u64) -> Result<Held, BytesFull> {
        let limit = self.limit.load(Ordering::Relaxed);
        self.held
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
                held.checked_add(bytes).filter(|total| *total <= limit)
            })
            .map_err(|held| BytesFull { limit, held, needed: bytes })?;
        self.requests.fetch_add(1, Ordering::AcqRel);
        Ok(Held { budget: Arc::clone(self), bytes })
    }

    /// Changes the bound.
    pub fn set_limit(&self, limit: Option<u64>) {
        self.limit.store(limit.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Bytes held now.
    pub fn bytes(&self) -> u64 {
        self.held.load(Ordering::Acquire)
    }

    /// Requests held now.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Acquire)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::AcqRel);
        self.budget.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_refused_beyond_the_bound_and_given_back_on_drop() {
        let budget = HeldBytes::new(Some(100));
        let first = budget.hold(60).expect("room");
        let full = budget.hold(41).expect_err("one byte too many");
        assert_eq!(full, BytesFull { limit: 100, held: 60, needed: 41 });
        assert!(full.to_string().contains("100"), "the bound is named: {full}");
        let second = budget.hold(40).expect("exactly full");
        assert_eq!((budget.bytes(), budget.requests()), (100, 2));
        drop((first, second));
        assert_eq!((budget.bytes(), budget.requests()), (0, 0));
    }

    #[test]
    fn a_bound_that_falls_drops_nothing() {
        let budget = HeldBytes::new(None);
        let held = budget.hold(1 << 40).expect("no bound");
        budget.set_limit(Some(10));
        assert!(budget.hold(1).is_err());
        drop(held);
        assert!(budget.hold(10).is_ok());
        assert!(budget.hold(u64::MAX).is_err(), "no overflow");
    }
}
