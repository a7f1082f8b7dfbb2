//! The breaker: how many requests of a revision may run at once, and who waits for a place.
//!
//! # The rule
//!
//! A request takes a place if one is free and nobody waits; otherwise it queues, if the queue has room; otherwise it
//! is refused. A place that becomes free goes to the waiter that came first. What was given to a waiter that has gone
//! meanwhile goes to the next.
//!
//! # How
//!
//! Capacity, running count and the mark "somebody waits" share one 64-bit atomic ([`word`]). While nobody waits, taking
//! and giving back are one successful compare-and-swap and one subtraction: no lock. A waiter sets the mark
//! under the queue's lock, by a compare-and-swap against the very word that showed no free place, so a place given back
//! in between makes it look again. While the mark stands newcomers queue, and whoever gives a place back hands it
//! on under the lock: a woken waiter owns its place before it runs, so nobody can overtake it.
//!
//! # Odd cases
//!
//! - Capacity may fall below what runs: nothing is interrupted, no place is given until enough have come back.
//! - Capacity 0 is how requests are held while a revision has no pods; [`Capacity::Unlimited`] is container concurrency
//!   0 with pods. Both can turn into anything else at any time.
//! - A request that was admitted, but could not be sent anywhere, returns to the head of the queue
//!   ([`Permit::requeue`]): behind those that returned before it, ahead of all that never ran. It may exceed the
//!   queue's limit, by at most the number that ran.
//! - Where waiting makes no sense (crash loop, revision deleted), [`Breaker::refuse_waiting`] turns away who waits and
//!   who would wait; free places are still given.
//! - A place granted to a waiter counts as in flight from that moment, before its task has run.
//!
//! # Counts
//!
//! received = in flight + queued + refused + finished + abandoned, at every instant. [`Breaker::load`] shows in flight
//! and queued of one instant, [`Breaker::turned_away`] the refused and abandoned; finished is counted by nobody here,
//! since that would cost every request an atomic.
//!
//! # Not here
//!
//! Time (a caller that stops waiting drops the future) and bytes (the process's bound is [`crate::hold`]'s).

mod acquire;
mod queue;
pub(crate) mod word;

use std::sync::Arc;

use smallvec::SmallVec;

pub use self::acquire::{Acquire, Permit};
use self::queue::{Line, WaitQueue};
use self::word::Word;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};

/// How many requests may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capacity {
    /// So many; 0: everyone waits. At most [`Capacity::MAX`], more is taken for it.
    Limited(u32),
    /// No bound but the breaker's own arithmetic, [`Capacity::MAX`].
    Unlimited,
}

impl Capacity {
    /// Nobody may run.
    pub const CLOSED: Self = Self::Limited(0);
    /// The largest number of places: 2^31 - 1, as Knative's.
    pub const MAX: u32 = i32::MAX as u32;

    /// The number of places.
    pub fn places(self) -> u32 {
        match self {
            Self::Limited(places) => places.min(Self::MAX),
            Self::Unlimited => Self::MAX,
        }
    }
}

/// What a breaker holds at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Requests with a place, those just granted one included.
    pub in_flight: u32,
    /// Requests waiting for one.
    pub queued: u32,
    /// How many may run at once.
    pub capacity: Capacity,
}

/// Requests that got no place, since the breaker was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnedAway {
    /// Answered with a [`AdmissionError`].
    pub refused: u64,
    /// Those that left before their turn.
    pub abandoned: u64,
}

/// Why a request gets no place and may not wait for one. Nothing of it was sent: it is safe to repeat elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// As many wait as may.
    #[error("{limit} requests are waiting for this revision, which is the most that may (max-held)")]
    QueueFull {
        /// The queue's limit.
        limit: u32,
    },
    /// The revision cannot start.
    #[error("the revision fails to start: {reason}")]
    Failing {
        /// What is known of the cause.
        reason: Arc<str>,
    },
    /// An operator keeps the revision without pods.
    #[error("the workload is paused, and has no pods")]
    Paused,
    /// The revision was deleted.
    #[error("the revision was deleted while the request waited")]
    Gone,
    /// Another activator holds the workload's pods: the request has its turn there.
    #[error("another activator holds the workload")]
    Elsewhere,
}

/// Bounded admission with a queue in order of arrival. See the module's text.
#[derive(Debug)]
pub struct Breaker {
    word: AtomicU64,
    queue_limit: AtomicU32,
    queue: Mutex<WaitQueue>,
}

/// What became of an attempt to queue.
enum Enqueued {
    /// A place was free after all.
    Taken,
    /// Waiting under this key.
    Waiting(u32),
    /// Neither taken nor waiting.
    Refused(AdmissionError),
}

impl Breaker {
    /// A breaker with `capacity` places where at most `queue_limit` requests wait.
    pub fn new(capacity: Capacity, queue_limit: u32) -> Self {
        Self {
            word: AtomicU64::new(Word::new(capacity).bits()),
            queue_limit: AtomicU32::new(queue_limit),
            queue: Mutex::new(WaitQueue::default()),
        }
    }

    /// Takes a place if one is free and nobody waits. A request that gets none here was not received: it counts
    /// nowhere.
    pub fn try_acquire(&self) -> Option<Permit<&Self>> {
        self.try_take().then(|| Permit::new(self))
    }

    /// Takes a place, now or in turn. See [`Acquire`], which also works on an owned handle.
    pub fn acquire(&self) -> Acquire<&Self> {
        Acquire::new(self)
    }

    /// Changes the number of places. Waiters get new places at once; what runs beyond a smaller number runs on.
    pub fn set_capacity(&self, capacity: Capacity) {
        if self.store_capacity(capacity) {
            self.grant();
        }
    }

    /// The first half of [`Breaker::set_capacity`], for callers that hold a lock under which nobody may be woken. Says
    /// whether somebody waits, and the second half, [`Breaker::grant`], is due.
    pub(crate) fn store_capacity(&self, capacity: Capacity) -> bool {
        let mut seen = self.load_word();
        while let Err(now) = self.swap(seen, seen.with_capacity(capacity)) {
            seen = now;
        }
        seen.has_waiters()
    }

    /// Changes how many may wait. Those who wait already stay.
    pub fn set_queue_limit(&self, limit: u32) {
        self.queue_limit.store(limit, Ordering::Relaxed);
    }

    /// While `Some`, whoever waits or would have to is refused with it. `None` permits waiting again.
    pub fn refuse_waiting(&self, refusal: Option<AdmissionError>) {
        let wakers = {
            let mut queue = self.queue.lock();
            let wakers = match &refusal {
                Some(refusal) => queue.refuse_all(refusal),
                None => Vec::new(),
            };
            queue.refusal = refusal;
            self.clear_mark_if_empty(&queue);
            wakers
        };
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// In flight, queued and capacity at one instant.
    pub fn load(&self) -> Load {
        let word = self.load_word();
        if !word.has_waiters() {
            return Load { in_flight: word.running(), queued: 0, capacity: word.capacity() };
        }
        let queue = self.queue.lock();
        let word = self.load_word();
        Load { in_flight: word.running(), queued: queue.len(), capacity: word.capacity() }
    }

    /// The number of places.
    pub fn capacity(&self) -> Capacity {
        self.load_word().capacity()
    }

    /// Refused and abandoned so far.
    pub fn turned_away(&self) -> TurnedAway {
        self.queue.lock().turned_away
    }

    /// The fast path: one successful compare-and-swap.
    #[inline]
    fn try_take(&self) -> bool {
        let mut seen = self.load_word();
        loop {
            if seen.has_waiters() || !seen.has_room() {
                return false;
            }
            match self.swap(seen, seen.taken()) {
                Ok(()) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// The other half of the fast path: one subtraction; the rest only if somebody waits.
    #[inline]
    fn give_back(&self) {
        if self.subtract_one().has_waiters() {
            self.grant();
        }
    }

    /// Takes a place or queues; `waker` is called once the wait is over.
    fn enqueue(&self, waker: &std::task::Waker) -> Enqueued {
        let mut queue = self.queue.lock();
        let mut seen = self.load_word();
        // Either take the place that became free meanwhile, or set the mark on the very word that shows none: a place
        // given back from here on sees the mark and comes through the lock that is held here. The mark stands exactly
        // while the queue is not empty, since both change only under this lock.
        loop {
            if queue.is_empty() && seen.has_room() {
                match self.swap(seen, seen.taken()) {
                    Ok(()) => return Enqueued::Taken,
                    Err(now) => seen = now,
                }
                continue;
            }
            let limit = self.queue_limit.load(Ordering::Relaxed);
            let full = || (queue.len() >= limit).then_some(AdmissionError::QueueFull { limit });
            if let Some(refusal) = queue.refusal.clone().or_else(full) {
                queue.turned_away.refused += 1;
                return Enqueued::Refused(refusal);
            }
            if seen.has_waiters() {
                return Enqueued::Waiting(queue.push(Line::Arrived, waker.clone()));
            }
            match self.swap(seen, seen.with_waiters()) {
                Ok(()) => return Enqueued::Waiting(queue.push(Line::Arrived, waker.clone())),
                Err(now) => seen = now,
            }
        }
    }

    /// Trades a place for the head of the queue. The place is given back only after the request stands in line, so that
    /// nobody slips in between. The wait always ends through `waker`, even if the place is still free.
    fn requeue(&self, waker: &std::task::Waker) -> Enqueued {
        let key = {
            let mut queue = self.queue.lock();
            if let Some(refusal) = queue.refusal.clone() {
                queue.turned_away.refused += 1;
                // Nobody waits while waiting is refused, so there is nobody to hand the place to.
                self.subtract_one();
                return Enqueued::Refused(refusal);
            }
            let key = queue.push(Line::Returned, waker.clone());
            let mut seen = self.load_word();
            while let Err(now) = self.swap(seen, seen.with_waiters().given_back()) {
                seen = now;
            }
            key
        };
        self.grant();
        Enqueued::Waiting(key)
    }

    /// Hands free places to waiters in order and wakes them outside the lock, a batch at a time.
    pub(crate) fn grant(&self) {
        /// Wakers collected under one lock; more would lengthen the time that others wait for it.
        const BATCH: usize = 32;
        loop {
            let mut wakers: SmallVec<[std::task::Waker; BATCH]> = SmallVec::new();
            let more = {
                let mut queue = self.queue.lock();
                loop {
                    if queue.is_empty() {
                        self.clear_mark_if_empty(&queue);
                        break false;
                    }
                    if wakers.len() == BATCH {
                        break true;
                    }
                    if !self.take_for_waiter() {
                        break false;
                    }
                    wakers.extend(queue.grant_first());
                }
            };
            wakers.into_iter().for_each(std::task::Waker::wake);
            if !more {
                return;
            }
        }
    }

    /// Takes a place for the head of the queue, whose lock the caller holds.
    fn take_for_waiter(&self) -> bool {
        let mut seen = self.load_word();
        while seen.has_room() {
            match self.swap(seen, seen.taken()) {
                Ok(()) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Lets newcomers use the fast path again. The caller holds the queue's lock.
    fn clear_mark_if_empty(&self, queue: &WaitQueue) {
        if queue.is_empty() {
            self.word.fetch_and(!Word::WAITERS, Ordering::AcqRel);
        }
    }

    /// Ends a wait: the future polls, or was dropped and gives up what it holds.
    fn abandon(&self, key: u32) {
        let hand_on = {
            let mut queue = self.queue.lock();
            let was_granted = queue.abandon(key);
            self.clear_mark_if_empty(&queue);
            // Under the lock, so that nobody sees it both in flight and abandoned.
            was_granted && self.subtract_one().has_waiters()
        };
        if hand_on {
            self.grant();
        }
    }

    fn load_word(&self) -> Word {
        Word::from_bits(self.word.load(Ordering::Acquire))
    }

    fn swap(&self, from: Word, to: Word) -> Result<(), Word> {
        self.word
            .compare_exchange_weak(from.bits(), to.bits(), Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(Word::from_bits)
    }

    /// Returns the word as it was. Every call is paired with a place taken, so the count cannot fall below zero.
    fn subtract_one(&self) -> Word {
        let before = Word::from_bits(self.word.fetch_sub(1, Ordering::AcqRel));
        debug_assert!(before.running() > 0, "a place was given back twice");
        before
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
