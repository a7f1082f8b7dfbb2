//! Concurrency limit of a revision with a bounded queue in front of it.
//!
//! # The rule
//!
//! A request gets a permit if one is free and no request waits. Otherwise it queues if the queue has room, and is
//! refused if not. A released permit goes to the longest waiting request. A permit granted to a request that has been
//! cancelled meanwhile goes to the next one.
//!
//! # Implementation
//!
//! Capacity, the running count and the flag "requests wait" share one 64-bit atomic ([`word`]). While no request waits,
//! acquiring is one successful compare-and-swap and releasing is one subtraction, without a lock. A waiter sets the
//! flag under the queue's lock, by a compare-and-swap against the very word that showed no free permit. A permit
//! released in between makes the waiter check again. While the flag is set, newcomers queue, and a released permit is
//! passed on under the lock. A woken waiter owns its permit before it runs, so no request can overtake it.
//!
//! # Edge cases
//!
//! - Capacity may fall below the running count. No request is interrupted; no permit is granted until enough were
//!   released.
//! - Capacity 0 holds requests while a revision has no pods. [`Capacity::Unlimited`] stands for container concurrency 0
//!   with pods. Either can change to any other capacity at any time.
//! - An admitted request that could not be sent returns to the head of the queue ([`Permit::requeue`]): behind requests
//!   that returned before it, ahead of requests that never ran. It may exceed the queue's limit, by at most the number
//!   of requests that ran.
//! - If waiting is pointless (crash loop, deleted revision), [`Breaker::refuse_waiting`] refuses requests that wait and
//!   requests that would have to wait. Free permits are still granted.
//! - A permit granted to a waiter counts as in flight from that moment, before its task has run.
//!
//! # Counts
//!
//! Received = in flight + queued + refused + finished + abandoned, at every instant. [`Breaker::load`] returns in
//! flight and queued of one instant, and [`Breaker::not_admitted`] refused and abandoned. Finished requests are not
//! counted, since that would cost every request an atomic.
//!
//! # Not here
//!
//! Time (a caller that stops waiting drops the future) and the bytes of held requests (the activator bounds them for
//! the whole process).

mod acquire;
mod queue;
pub(crate) mod word;

use std::sync::Arc;

use smallvec::SmallVec;

pub use self::acquire::{Acquire, Permit};
use self::queue::{Enqueued, WaitQueue, WaiterClass, WaiterKey};
use self::word::Word;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};

/// Maximum number of requests that run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capacity {
    /// This many requests; 0 makes every request wait. Values above [`Capacity::MAX`] are treated as that.
    Limited(u32),
    /// No limit except [`Capacity::MAX`], the bound of the breaker's own arithmetic.
    Unlimited,
}

impl Capacity {
    /// Capacity under which no request may run.
    pub const CLOSED: Self = Self::Limited(0);
    /// Largest number of permits: 2^31 - 1, as in Knative.
    pub const MAX: u32 = i32::MAX as u32;

    /// Returns the number of permits.
    pub fn permits(self) -> u32 {
        match self {
            Self::Limited(permits) => permits.min(Self::MAX),
            Self::Unlimited => Self::MAX,
        }
    }
}

/// Load of a breaker at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of requests with a permit, including permits just granted.
    pub in_flight: u32,
    /// Number of requests that wait for a permit.
    pub queued: u32,
    /// Maximum number of requests that run at once.
    pub capacity: Capacity,
}

/// Counts of requests that got no permit since the breaker was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotAdmitted {
    /// Requests that ended with an [`AdmissionError`].
    pub refused: u64,
    /// Requests that were cancelled before their turn.
    pub abandoned: u64,
}

/// Reason why a request gets no permit and may not wait. Nothing of the request was sent, so a retry elsewhere is safe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmissionError {
    /// The queue is full.
    QueueFull {
        /// Limit of the queue.
        limit: u32,
    },
    /// The revision cannot start.
    Failing {
        /// Known cause of the failure.
        reason: Arc<str>,
    },
    /// An operator keeps the revision without pods.
    Paused,
    /// The revision was deleted.
    Gone,
    /// Another activator holds the workload's pods. The request must be relayed to it.
    Elsewhere,
}

/// Concurrency limit with a bounded queue in order of arrival. See the module documentation.
#[derive(Debug)]
pub struct Breaker {
    word: AtomicU64,
    queue_limit: AtomicU32,
    queue: Mutex<WaitQueue>,
}

impl Breaker {
    /// Creates a breaker with `capacity` permits and a queue of at most `queue_limit` requests.
    pub fn new(capacity: Capacity, queue_limit: u32) -> Self {
        Self {
            word: AtomicU64::new(Word::new(capacity).0),
            queue_limit: AtomicU32::new(queue_limit),
            queue: Mutex::new(WaitQueue::default()),
        }
    }

    /// Takes a permit if one is free and no request waits. A request that gets none here does not count as received.
    pub fn try_acquire(&self) -> Option<Permit<&Self>> {
        self.try_take().then(|| Permit::new(self))
    }

    /// Changes the number of permits. Waiters get new permits at once. Requests beyond a smaller number continue to
    /// run.
    pub fn set_capacity(&self, capacity: Capacity) {
        if self.store_capacity(capacity) {
            self.grant();
        }
    }

    /// Stores a new capacity without waking waiters: the first half of [`Breaker::set_capacity`], for callers that hold
    /// a lock. Returns true if requests wait, so that the second half, [`Breaker::grant`], is due.
    pub(crate) fn store_capacity(&self, capacity: Capacity) -> bool {
        let mut word = self.load_word();
        while let Err(current) = self.swap(word, word.with_capacity(capacity)) {
            word = current;
        }
        word.has_waiters()
    }

    /// Changes the queue's limit. Requests that already wait stay.
    pub fn set_queue_limit(&self, limit: u32) {
        self.queue_limit.store(limit, Ordering::Relaxed);
    }

    /// Refuses requests that wait or would have to wait, while `refusal` is `Some`. `None` permits waiting again.
    pub fn refuse_waiting(&self, refusal: Option<AdmissionError>) {
        let wakers = {
            let mut queue = self.queue.lock();
            let wakers = match &refusal {
                Some(refusal) => queue.refuse_all(refusal),
                None => Vec::new(),
            };
            queue.refusal = refusal;
            self.clear_waiters_flag_if_empty(&queue);
            wakers
        };
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// Returns in flight, queued and capacity at one instant.
    pub fn load(&self) -> Load {
        let word = self.load_word();
        if !word.has_waiters() {
            return Load { in_flight: word.running(), queued: 0, capacity: word.capacity() };
        }
        let queue = self.queue.lock();
        let word = self.load_word();
        Load { in_flight: word.running(), queued: queue.len(), capacity: word.capacity() }
    }

    /// Returns the capacity.
    pub fn capacity(&self) -> Capacity {
        self.load_word().capacity()
    }

    /// Returns the counts of refused and abandoned requests.
    pub fn not_admitted(&self) -> NotAdmitted {
        self.queue.lock().not_admitted
    }

    /// Acquires on the fast path: one successful compare-and-swap.
    #[inline]
    fn try_take(&self) -> bool {
        let mut word = self.load_word();
        loop {
            if word.has_waiters() || !word.has_room() {
                return false;
            }
            match self.swap(word, word.taken()) {
                Ok(()) => return true,
                Err(current) => word = current,
            }
        }
    }

    /// Releases a permit: one subtraction, and more only if requests wait.
    #[inline]
    fn give_back(&self) {
        if self.subtract_one().has_waiters() {
            self.grant();
        }
    }

    /// Takes a permit or queues. `waker` is called once the wait is over.
    fn enqueue(&self, waker: &std::task::Waker) -> Enqueued {
        let mut queue = self.queue.lock();
        let mut word = self.load_word();
        // Either take the permit that became free meanwhile, or set the flag on the very word that shows none. A permit
        // released from here on sees the flag and needs the lock that is held here. The flag is set exactly while the
        // queue is not empty, since both change only under this lock.
        loop {
            if queue.is_empty() && word.has_room() {
                match self.swap(word, word.taken()) {
                    Ok(()) => return Enqueued::Taken,
                    Err(current) => word = current,
                }
                continue;
            }
            let limit = self.queue_limit.load(Ordering::Relaxed);
            let full = || (queue.len() >= limit).then_some(AdmissionError::QueueFull { limit });
            if let Some(refusal) = queue.refusal.clone().or_else(full) {
                queue.not_admitted.refused += 1;
                return Enqueued::Refused(refusal);
            }
            if word.has_waiters() {
                return Enqueued::Waiting(queue.push(WaiterClass::Arrived, waker.clone()));
            }
            match self.swap(word, word.with_waiters()) {
                Ok(()) => return Enqueued::Waiting(queue.push(WaiterClass::Arrived, waker.clone())),
                Err(current) => word = current,
            }
        }
    }

    /// Trades a permit for the head of the queue. The permit is released only after the request is queued, so that no
    /// newcomer takes it in between. The wait always ends through `waker`, even if the permit is still free.
    fn requeue(&self, waker: &std::task::Waker) -> Enqueued {
        let key = {
            let mut queue = self.queue.lock();
            if let Some(refusal) = queue.refusal.clone() {
                queue.not_admitted.refused += 1;
                // No request waits while waiting is refused, so no request needs this permit.
                self.subtract_one();
                return Enqueued::Refused(refusal);
            }
            let key = queue.push(WaiterClass::Returned, waker.clone());
            let mut word = self.load_word();
            while let Err(current) = self.swap(word, word.with_waiters().released()) {
                word = current;
            }
            key
        };
        self.grant();
        Enqueued::Waiting(key)
    }

    /// Grants free permits to waiters in order and wakes them outside the lock, in batches.
    pub(crate) fn grant(&self) {
        /// Maximum number of wakers collected under one lock. More would keep other threads waiting for the lock.
        const BATCH: usize = 32;
        loop {
            let mut wakers: SmallVec<[std::task::Waker; BATCH]> = SmallVec::new();
            let more = {
                let mut queue = self.queue.lock();
                loop {
                    if queue.is_empty() {
                        self.clear_waiters_flag_if_empty(&queue);
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

    /// Takes a permit for the head of the queue. The caller holds the queue's lock.
    fn take_for_waiter(&self) -> bool {
        let mut word = self.load_word();
        while word.has_room() {
            match self.swap(word, word.taken()) {
                Ok(()) => return true,
                Err(current) => word = current,
            }
        }
        false
    }

    /// Clears the waiters' flag if the queue is empty, so that newcomers use the fast path again. The caller holds the
    /// queue's lock.
    fn clear_waiters_flag_if_empty(&self, queue: &WaitQueue) {
        if queue.is_empty() {
            self.word.fetch_and(!Word::WAITERS, Ordering::AcqRel);
        }
    }

    /// Ends a wait whose future was dropped, and passes on a permit that was already granted to it.
    fn abandon(&self, key: WaiterKey) {
        let hand_on = {
            let mut queue = self.queue.lock();
            let was_granted = queue.abandon(key);
            self.clear_waiters_flag_if_empty(&queue);
            // Under the lock, so that the request never counts both as in flight and as abandoned.
            was_granted && self.subtract_one().has_waiters()
        };
        if hand_on {
            self.grant();
        }
    }

    fn load_word(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    fn swap(&self, from: Word, to: Word) -> Result<(), Word> {
        self.word.compare_exchange_weak(from.0, to.0, Ordering::AcqRel, Ordering::Acquire).map(drop).map_err(Word)
    }

    /// Returns the word before the subtraction. Every call is paired with a taken permit, so the count cannot fall
    /// below zero.
    fn subtract_one(&self) -> Word {
        let before = Word(self.word.fetch_sub(1, Ordering::AcqRel));
        debug_assert!(before.running() > 0, "a permit was released twice");
        before
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
