//! Queue of waiting requests, in the order in which they get permits.
//!
//! Requests that were admitted once and returned come before requests that never ran. A waiter that was granted a
//! permit or refused has left the queue, but its outcome stays until its future has read it.

use std::collections::BTreeMap;
use std::task::Waker;

use super::{AdmissionError, NotAdmitted};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WaiterClass {
    /// The request was admitted before and has returned.
    Returned,
    /// The request was never admitted.
    Arrived,
}

pub(super) type WaiterKey = (WaiterClass, u64);

/// State of a request that asked for a permit.
pub(super) enum Enqueued {
    /// The request has a permit.
    Taken,
    /// The request waits under this key.
    Waiting(WaiterKey),
    /// The request is refused.
    Refused(AdmissionError),
}

#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    waiting: BTreeMap<WaiterKey, Waker>,
    /// Outcomes that futures have not read yet: a permit, or a refusal.
    outcomes: BTreeMap<WaiterKey, Result<(), AdmissionError>>,
    next: u64,
    /// Reason for which every request that would have to wait is refused.
    pub(super) refusal: Option<AdmissionError>,
    pub(super) not_admitted: NotAdmitted,
}

impl WaitQueue {
    /// Returns the number of waiters. The breaker's limits keep it far below 2^32.
    pub(super) fn len(&self) -> u32 {
        self.waiting.len() as u32
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, class: WaiterClass, waker: Waker) -> WaiterKey {
        let key = (class, self.next);
        self.next += 1;
        self.waiting.insert(key, waker);
        key
    }

    pub(super) fn grant_first(&mut self) -> Option<Waker> {
        let (key, waker) = self.waiting.pop_first()?;
        self.outcomes.insert(key, Ok(()));
        Some(waker)
    }

    pub(super) fn refuse_all(&mut self, refusal: &AdmissionError) -> Vec<Waker> {
        let waiting = std::mem::take(&mut self.waiting);
        self.not_admitted.refused += waiting.len() as u64;
        self.outcomes.extend(waiting.keys().map(|key| (*key, Err(refusal.clone()))));
        waiting.into_values().collect()
    }

    /// Returns the state of a waiter. Removes its outcome; if it has none, stores `waker` for it.
    pub(super) fn poll(&mut self, key: WaiterKey, waker: &Waker) -> Enqueued {
        if let Some(stored) = self.waiting.get_mut(&key) {
            stored.clone_from(waker);
            return Enqueued::Waiting(key);
        }
        match self.outcomes.remove(&key) {
            Some(Err(refusal)) => Enqueued::Refused(refusal),
            Some(Ok(())) | None => Enqueued::Taken,
        }
    }

    /// Removes a waiter whose future was dropped. Returns true if it had been granted a permit.
    pub(super) fn abandon(&mut self, key: WaiterKey) -> bool {
        let was_waiting = self.waiting.remove(&key).is_some();
        let was_granted = self.outcomes.remove(&key).is_some_and(|outcome| outcome.is_ok());
        self.not_admitted.abandoned += u64::from(was_waiting || was_granted);
        was_granted
    }
}
