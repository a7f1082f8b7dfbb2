//! Queue of waiting requests: two linked lists in one slab.
//!
//! The first list holds requests that were admitted once and returned, the second requests that never ran. A waiter is
//! a waker and two links (48 bytes in its slab). It is found by its key and leaves from any position in constant time.
//! A waiter that was granted a permit or refused has left its list, but stays in the slab until its future has read the
//! outcome.

use std::task::Waker;

use slab::Slab;

use super::{AdmissionError, TurnedAway};

/// List that a waiter is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The request was admitted before and has returned.
    Returned,
    /// The request was never admitted.
    Arrived,
}

#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    waiters: Slab<Waiter>,
    returned: Ends,
    arrived: Ends,
    len: u32,
    /// Reason for which every request that would have to wait is refused.
    pub(super) refusal: Option<AdmissionError>,
    pub(super) turned_away: TurnedAway,
}

/// First and last waiter of a list.
#[derive(Debug, Default)]
struct Ends {
    first: Option<u32>,
    last: Option<u32>,
}

#[derive(Debug)]
enum Waiter {
    Waiting { waker: Waker, line: Line, before: Option<u32>, after: Option<u32> },
    Granted,
    Refused(Box<AdmissionError>),
}

/// State of a waiter at a poll.
pub(super) enum WaiterState {
    Waiting,
    Granted,
    Refused(AdmissionError),
}

/// Capacity up to which the slab keeps its memory when the last waiter has left.
const KEPT_SLOTS: usize = 64;

impl WaitQueue {
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a waiter to a list. The breaker's limits keep the slab far below 2^32 entries.
    pub(super) fn push(&mut self, line: Line, waker: Waker) -> u32 {
        let before = self.ends(line).last;
        let slot = self.waiters.insert(Waiter::Waiting { waker, line, before, after: None });
        let key = slot as u32;
        match before {
            Some(before) => *self.link(before).1 = Some(key),
            None => self.ends(line).first = Some(key),
        }
        self.ends(line).last = Some(key);
        self.len += 1;
        key
    }

    /// Grants a permit to the first waiter and returns its waker.
    pub(super) fn grant_first(&mut self) -> Option<Waker> {
        let first = self.returned.first.or(self.arrived.first)?;
        Some(self.take_out(first, Waiter::Granted))
    }

    /// Refuses all waiters and returns their wakers.
    pub(super) fn refuse_all(&mut self, refusal: &AdmissionError) -> Vec<Waker> {
        let mut wakers = Vec::with_capacity(self.len as usize);
        while let Some(first) = self.returned.first.or(self.arrived.first) {
            wakers.push(self.take_out(first, Waiter::Refused(Box::new(refusal.clone()))));
            self.turned_away.refused += 1;
        }
        wakers
    }

    /// Returns the state of a waiter. Removes a waiter that has an outcome; otherwise stores `waker` for it.
    pub(super) fn look(&mut self, key: u32, waker: &Waker) -> WaiterState {
        if let Waiter::Waiting { waker: kept, .. } = &mut self.waiters[key as usize] {
            kept.clone_from(waker);
            return WaiterState::Waiting;
        }
        match self.forget(key) {
            Waiter::Refused(refusal) => WaiterState::Refused(*refusal),
            Waiter::Granted | Waiter::Waiting { .. } => WaiterState::Granted,
        }
    }

    /// Removes a waiter whose future was dropped. Returns true if it had been granted a permit.
    pub(super) fn abandon(&mut self, key: u32) -> bool {
        if matches!(self.waiters[key as usize], Waiter::Waiting { .. }) {
            drop(self.take_out(key, Waiter::Granted));
            self.forget(key);
            self.turned_away.abandoned += 1;
            return false;
        }
        let granted = matches!(self.forget(key), Waiter::Granted);
        self.turned_away.abandoned += u64::from(granted);
        granted
    }

    /// Unlinks a waiter, stores `outcome` for its future, and returns its waker.
    fn take_out(&mut self, key: u32, outcome: Waiter) -> Waker {
        let Waiter::Waiting { waker, line, before, after } =
            std::mem::replace(&mut self.waiters[key as usize], outcome)
        else {
            unreachable!("only waiters in a line are taken out of it");
        };
        match before {
            Some(before) => *self.link(before).1 = after,
            None => self.ends(line).first = after,
        }
        match after {
            Some(after) => *self.link(after).0 = before,
            None => self.ends(line).last = before,
        }
        self.len -= 1;
        waker
    }

    fn forget(&mut self, key: u32) -> Waiter {
        let waiter = self.waiters.remove(key as usize);
        if self.waiters.is_empty() && self.waiters.capacity() > KEPT_SLOTS {
            self.waiters = Slab::new();
        }
        waiter
    }

    fn ends(&mut self, line: Line) -> &mut Ends {
        match line {
            Line::Returned => &mut self.returned,
            Line::Arrived => &mut self.arrived,
        }
    }

    /// Returns the links of a waiter in a list: previous and next.
    fn link(&mut self, key: u32) -> (&mut Option<u32>, &mut Option<u32>) {
        match &mut self.waiters[key as usize] {
            Waiter::Waiting { before, after, .. } => (before, after),
            Waiter::Granted | Waiter::Refused(_) => unreachable!("a line links only those who wait in it"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Goal: the breaker's share of the cost of a held request is negligible beside that of its socket.
    #[test]
    fn a_waiter_is_small() {
        assert!(size_of::<Waiter>() <= 40, "{} bytes", size_of::<Waiter>());
    }

    #[test]
    fn memory_of_a_burst_is_given_back() {
        let mut queue = WaitQueue::default();
        let keys: Vec<u32> = (0..1000).map(|_| queue.push(Line::Arrived, Waker::noop().clone())).collect();
        for key in keys {
            queue.abandon(key);
        }
        assert_eq!((queue.len(), queue.waiters.capacity()), (0, 0));
        assert_eq!(queue.turned_away, TurnedAway { refused: 0, abandoned: 1000 });
    }

    #[test]
    fn a_small_queue_keeps_its_memory() {
        for (slots, kept) in [(KEPT_SLOTS, KEPT_SLOTS), (KEPT_SLOTS + 1, 0)] {
            let mut queue = WaitQueue::default();
            queue.waiters.reserve_exact(slots);
            assert_eq!(queue.waiters.capacity(), slots, "exactly as many were asked for");
            let key = queue.push(Line::Arrived, Waker::noop().clone());
            queue.abandon(key);
            assert_eq!(queue.waiters.capacity(), kept, "of {slots}");
        }
    }
}
