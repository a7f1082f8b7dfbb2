//! What the process holds for requests that wait: a bound in bytes across all workloads, and each one's share of it.
//!
//! How many requests of one workload may wait is its breaker's [queue limit](crate::breaker::AdmissionError::QueueFull).
//! This is the other bound: all held requests together may keep so many bytes (a quarter of the memory limit, by the
//! shell's choice), so that many workloads, each within its own limit, cannot exhaust the process. And none of them may
//! take so much that the others' first requests find no room: [`rule`] divides it.
//!
//! A request is charged what it keeps while it waits, from when it would queue until it is admitted or has gone. Charges
//! are values that are given back on drop. One that lost its pod and waits again is charged again, and not refused
//! ([`Share::hold_again`]).
//!
//! # Odd cases
//!
//! - A charge larger than the whole bound is refused, also when nothing else is held.
//! - A workload's share ends with its last handle, charges included.

pub mod rule;

use parking_lot::Mutex;
use rule::{Amounts, Full, Part, Rule};
use slab::Slab;
use std::sync::Arc;

/// Bytes that held requests may keep, of all workloads of the process.
#[derive(Debug)]
pub struct HeldBytes {
    rule: Rule,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    all: Amounts,
    requests: u64,
    shares: Slab<Amounts>,
}

/// A workload's share. Cheap to clone; clones are the same.
#[derive(Clone, Debug)]
pub struct Share(Arc<Place>);

/// Where a workload stands in the list of those that hold.
#[derive(Debug)]
struct Place {
    budget: Arc<HeldBytes>,
    key: usize,
}

/// A held request's charge, given back on drop.
#[derive(Debug)]
pub struct Charge {
    share: Share,
    part: Part,
    bytes: u64,
}

/// Holding one more request would exceed a bound. Nothing of it was sent: it is safe to repeat elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "held requests may keep {limit} bytes, their workload's keep {own}, and this one needs {needed}: {full:?} bound"
)]
pub struct BytesFull {
    /// Whose bound it is.
    pub full: Full,
    /// The bound for all.
    pub limit: u64,
    /// What its workload held.
    pub own: u64,
    /// What this request would have added.
    pub needed: u64,
}

impl HeldBytes {
    /// A bound of `limit` bytes; `None`: no bound.
    pub fn new(limit: Option<u64>) -> Arc<Self> {
        Arc::new(Self { rule: Rule::new(limit.unwrap_or(u64::MAX)), held: Mutex::default() })
    }

    /// One more workload.
    pub fn share(self: &Arc<Self>) -> Share {
        let key = self.held.lock().shares.insert(Amounts::default());
        Share(Arc::new(Place { budget: Arc::clone(self), key }))
    }

    /// Bytes held now.
    pub fn bytes(&self) -> u64 {
        self.held.lock().all.sum()
    }

    /// Requests held now.
    pub fn requests(&self) -> u64 {
        self.held.lock().requests
    }
}

impl Share {
    /// Charges a request that begins to wait.
    pub fn hold(&self, bytes: u64) -> Result<Charge, BytesFull> {
        let Place { budget, key } = &*self.0;
        let mut held = budget.held.lock();
        let Held { all, requests, shares } = &mut *held;
        let own = &mut shares[*key];
        let full = |full| BytesFull { full, limit: budget.rule.limit(), own: own.sum(), needed: bytes };
        let part = budget.rule.admit(*all, *own, bytes).map_err(full)?;
        *own.of(part) += bytes;
        *all.of(part) += bytes;
        *requests += 1;
        Ok(Charge { share: self.clone(), part, bytes })
    }

    /// The same for a request that was admitted before: beyond the bound if need be, so that others find it full.
    pub fn hold_again(&self, bytes: u64) -> Charge {
        self.hold(bytes).unwrap_or_else(|_| {
            let Place { budget, key } = &*self.0;
            let mut held = budget.held.lock();
            let part = Part::Common;
            *held.shares[*key].of(part) += bytes;
            *held.all.of(part) += bytes;
            held.requests += 1;
            Charge { share: self.clone(), part, bytes }
        })
    }

    /// Bytes that the workload holds now.
    pub fn bytes(&self) -> u64 {
        self.0.budget.held.lock().shares[self.0.key].sum()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Place { budget, key } = &*self.share.0;
        let mut held = budget.held.lock();
        *held.shares[*key].of(self.part) -= self.bytes;
        *held.all.of(self.part) -= self.bytes;
        held.requests -= 1;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.budget.held.lock().shares.remove(self.key);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_refused_beyond_the_bound_and_given_back_on_drop() {
        let budget = HeldBytes::new(Some(1200));
        let (one, other) = (budget.share(), budget.share());
        let first = one.hold(600).expect("half of the bound, for one alone");
        let full = one.hold(2).expect_err("too much");
        assert_eq!(full, BytesFull { full: Full::Share, limit: 1200, own: 600, needed: 2 });
        assert!(full.to_string().contains("1200"), "the bound is named: {full}");
        assert_eq!(other.hold(301).expect_err("more than is left").full, Full::Process);
        let second = other.hold(200).expect("another has a share of what is left");
        assert_eq!((budget.bytes(), budget.requests()), (800, 2));
        assert_eq!((one.bytes(), other.bytes()), (600, 200));
        drop((first, second));
        assert_eq!((budget.bytes(), budget.requests()), (0, 0));
        assert_eq!((one.bytes(), other.bytes()), (0, 0));
    }

    /// Goal: who waits again is never refused, and others find the bound full for as long as it waits.
    #[test]
    fn who_waits_again_is_charged_beyond_the_bound() {
        let budget = HeldBytes::new(Some(1200));
        let (one, other) = (budget.share(), budget.share());
        let again = one.hold_again(5000);
        assert_eq!((budget.bytes(), budget.requests(), one.bytes()), (5000, 1, 5000));
        assert_eq!(other.hold(301).expect_err("beyond the bound already").full, Full::Process);
        drop(again);
        assert_eq!((budget.bytes(), budget.requests(), one.bytes()), (0, 0, 0));
        assert!(other.hold(301).is_ok());
    }

    #[test]
    fn without_a_bound_everything_is_held() {
        let budget = HeldBytes::new(None);
        let share = budget.share();
        let _held: Vec<Charge> = (0..8).map(|_| share.hold(1 << 50).expect("no bound")).collect();
        assert!(share.hold(u64::MAX).is_err(), "no overflow");
    }

    /// Goal: a workload that has gone leaves nothing, and not before its last request.
    #[test]
    fn a_share_ends_with_its_last_charge() {
        let budget = HeldBytes::new(Some(1 << 20));
        let share = budget.share();
        let held = share.hold(1000).expect("room");
        drop(share);
        assert_eq!((budget.bytes(), budget.held.lock().shares.len()), (1000, 1));
        drop(held);
        assert_eq!((budget.bytes(), budget.held.lock().shares.len()), (0, 0));
    }
}
