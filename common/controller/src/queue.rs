//! Work queue of one controller: keys to reconcile, in order of priority, never one key twice at a time.
//!
//! A key is queued once however often it is added. If it is added while a worker holds it, it is served again when the
//! worker is done. So a reconcile always starts after the change that requested it.
//!
//! # Priorities
//!
//! - [`Priority::Urgent`]: decisions. A poke that wakes a workload waits only for other decisions.
//! - [`Priority::Normal`]: events, timers and retries.
//! - [`Priority::New`]: new objects.
//! - [`Priority::Slow`]: sweeps over all keys, after a changed ConfigMap, a won lease, or the removal of an activator.
//!
//! A key that is added again with a higher priority moves up to it. Of thousands of new objects, the first ones are
//! finished first: their writes cause events of normal priority, which precede new objects. At a start no process leads
//! yet, so all objects are reconciled by the sweep after a lease is won.
//!
//! One of every [`LOWEST_PRIORITY_INTERVAL`] keys is taken from the lowest priority that waits. So neither many new
//! objects nor persistently failing keys starve the others.
//!
//! # Timers
//!
//! [`WorkQueue::add_after`] keeps the earliest time of a key and drops later ones, since each reconcile asks again for
//! the time that it needs. Failed keys return after a back-off that doubles from 5 ms to 5 min, unless a queue has
//! another limit. The first success resets it.
//!
//! # Bound
//!
//! The queue holds each key at most once, and once among the timers. So it is bounded by the number of live objects,
//! which the stores hold anyway.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// First delay after a failure; it doubles with each further failure.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
/// Longest delay after repeated failures, unless a queue sets another one.
const BACKOFF_MAX: Duration = Duration::from_secs(300);

/// Number of consecutive failures that are not reported. With the back-off they span five seconds: the objects of one
/// manifest may be created in any order, so early failures are expected.
const QUIET_FAILURES: u32 = 10;

/// Interval, in attempts to take a key of any priority, at which a key of the lowest waiting priority is taken.
const LOWEST_PRIORITY_INTERVAL: u32 = 8;

/// Urgency of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Decisions; a change of replicas may depend on them.
    Urgent,
    /// Events, timers and retries.
    Normal,
    /// New objects.
    New,
    /// Sweeps over all keys.
    Slow,
}

/// Place of a waiting key: its priority, and the number of its arrival.
type Place = (Priority, u64);

/// Shared queue; clones refer to the same queue.
#[derive(Clone, Debug)]
pub struct WorkQueue<K: Ord> {
    shared: Arc<QueueShared<K>>,
}

#[derive(Debug)]
struct QueueShared<K: Ord> {
    state: Mutex<QueueState<K>>,
    backoff_max: Duration,
    wake: Notify,
    /// Notifies workers that serve only urgent keys.
    urgent: Notify,
    /// Notifies holders of keys that a decision about a held key has been added, so they can hurry.
    decision_pending: Notify,
}

#[derive(Debug)]
struct QueueState<K: Ord> {
    waiting: BTreeMap<Place, K>,
    entries: BTreeMap<K, Entry>,
    timers: BTreeSet<(Instant, K)>,
    /// Number of arrivals.
    arrived: u64,
    /// Number of attempts to take a key of any priority.
    attempts: u32,
}

/// State of a key; removed once it is idle.
#[derive(Debug, Default)]
struct Entry {
    /// Place in which the key waits.
    queued: Option<Place>,
    /// Set while a worker holds the key.
    running: bool,
    /// Priority of an add while a worker held the key.
    again: Option<Priority>,
    /// End of the key's timer, and its priority then.
    due: Option<(Instant, Priority)>,
    /// Consecutive failures.
    failures: u32,
    /// Number of failures from which the next failure is reported.
    reported_from: u32,
}

impl Priority {
    /// Returns the priority of a new object, or of one that changed or was deleted.
    pub fn of_change<T>(old: Option<&T>, new: Option<&T>) -> Self {
        if old.is_none() && new.is_some() { Self::New } else { Self::Normal }
    }
}

impl Entry {
    fn is_idle(&self) -> bool {
        let waits = self.queued.is_some() || self.running || self.again.is_some() || self.due.is_some();
        !waits && self.failures == 0
    }
}

impl<K: Ord + Clone> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone> WorkQueue<K> {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self::with_backoff_max(BACKOFF_MAX)
    }

    /// Creates an empty queue with this longest delay after repeated failures.
    pub fn with_backoff_max(backoff_max: Duration) -> Self {
        let (waiting, entries, timers) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let state = QueueState { waiting, entries, timers, arrived: 0, attempts: 0 };
        let (wake, urgent, decision_pending) = (Notify::new(), Notify::new(), Notify::new());
        Self { shared: Arc::new(QueueShared { state: Mutex::new(state), backoff_max, wake, urgent, decision_pending }) }
    }

    /// Requests a reconcile of `key`.
    pub fn add(&self, key: K, priority: Priority) {
        let queued = self.shared.state.lock().add(key, priority);
        if queued {
            self.shared.notify(priority);
        } else if priority == Priority::Urgent {
            self.shared.decision_pending.notify_waiters();
        }
    }

    /// Waits until a decision about `key` is pending while a worker holds it. Waits forever if there is none.
    ///
    /// Cancel safe.
    pub async fn decision_pending(&self, key: &K) {
        loop {
            let notified = self.shared.decision_pending.notified();
            tokio::pin!(notified);
            notified.as_mut().enable(); // Before the check, so that no later decision is missed.
            let waits = |entry: &Entry| entry.running && entry.again == Some(Priority::Urgent);
            if self.shared.state.lock().entries.get(key).is_some_and(waits) {
                return;
            }
            notified.await;
        }
    }

    /// Requests a reconcile of `key` with normal priority after `delay`, unless an earlier time is already set.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.add_after_with_priority(key, Priority::Normal, delay);
    }

    /// Like [`add_after`](Self::add_after), with the given priority. A key has one timer, which keeps the highest
    /// requested priority.
    pub fn add_after_with_priority(&self, key: K, priority: Priority, delay: Duration) {
        if delay.is_zero() {
            return self.add(key, priority);
        }
        let due = Instant::now() + delay;
        if self.shared.state.lock().add_timer(key, due, priority) {
            self.shared.wake.notify_one(); // A worker must wake earlier now.
        }
    }

    /// Returns the next key, if one waits.
    pub fn try_next(&self) -> Option<Item<K>> {
        let mut state = self.shared.state.lock();
        state.promote(Instant::now());
        let (key, priority) = state.take(None)?;
        Some(Item { queue: self.clone(), key, priority, failed: false })
    }

    /// Waits for the next key. No other worker gets it until the returned item is dropped.
    ///
    /// Cancel safe: takes a key only if it returns.
    pub async fn next(&self) -> Item<K> {
        self.next_in(None).await
    }

    /// Waits for the next key of one priority, or of any priority, the highest first, if `only` is `None`.
    ///
    /// Cancel safe: takes a key only if it returns.
    pub async fn next_in(&self, only: Option<Priority>) -> Item<K> {
        let arrived = if only == Some(Priority::Urgent) { &self.shared.urgent } else { &self.shared.wake };
        loop {
            let notified = arrived.notified();
            let due = {
                let mut state = self.shared.state.lock();
                state.promote(Instant::now());
                if let Some((key, priority)) = state.take(only) {
                    // One notification may stand for several adds, and the worker that waited for the first timer is
                    // busy now. Another worker must take the remaining keys and wait for the next timer.
                    let has_work = match only {
                        Some(only) => state.first_of(only).is_some(),
                        None => !state.waiting.is_empty() || !state.timers.is_empty(),
                    };
                    if has_work {
                        arrived.notify_one();
                    }
                    return Item { queue: self.clone(), key, priority, failed: false };
                }
                state.timers.first().map(|(due, _)| *due)
            };
            match due.filter(|_| only.is_none()) {
                Some(due) => tokio::select! { () = notified => {}, () = tokio::time::sleep_until(due) => {} },
                None => notified.await,
            }
        }
    }

    /// Returns the number of waiting keys.
    pub fn depth(&self) -> usize {
        self.shared.state.lock().waiting.len()
    }

    fn finish(&self, key: &K, failed: bool) {
        let mut state = self.shared.state.lock();
        let Some(entry) = state.entries.get_mut(key) else { return };
        entry.running = false;
        let again = entry.again.take();
        if failed {
            let delay = backoff(entry.failures).min(self.shared.backoff_max);
            entry.failures += 1;
            state.add_timer(key.clone(), Instant::now() + delay, Priority::Normal);
        } else {
            (entry.failures, entry.reported_from) = (0, 0);
        }
        match again {
            Some(priority) => _ = state.add(key.clone(), priority),
            None if state.entries.get(key).is_some_and(Entry::is_idle) => _ = state.entries.remove(key),
            None => {}
        }
        drop(state);
        self.shared.notify(again.unwrap_or(Priority::Normal));
    }
}

impl<K: Ord> QueueShared<K> {
    /// Notifies workers that a key waits with this priority.
    fn notify(&self, priority: Priority) {
        if priority == Priority::Urgent {
            self.urgent.notify_one();
        }
        self.wake.notify_one();
    }
}

impl<K: Ord + Clone> QueueState<K> {
    /// Returns true if the key now waits with a priority that it did not have before.
    fn add(&mut self, key: K, priority: Priority) -> bool {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.running {
            entry.again = Some(entry.again.map_or(priority, |other| other.min(priority)));
            return false;
        }
        if let Some(place) = entry.queued {
            if place.0 <= priority {
                return false;
            }
            self.waiting.remove(&place);
        }
        self.arrived += 1;
        let place = (priority, self.arrived);
        entry.queued = Some(place);
        self.waiting.insert(place, key);
        true
    }

    /// Returns true if this is now the earliest of all timers.
    fn add_timer(&mut self, key: K, due: Instant, mut priority: Priority) -> bool {
        let entry = self.entries.entry(key.clone()).or_default();
        if let Some((other, with)) = entry.due {
            priority = priority.min(with);
            if other <= due {
                entry.due = Some((other, priority));
                return false;
            }
            self.timers.remove(&(other, key.clone()));
        }
        entry.due = Some((due, priority));
        self.timers.insert((due, key));
        self.timers.first().is_some_and(|(first, _)| *first == due)
    }

    /// Queues the keys whose timers have ended.
    fn promote(&mut self, now: Instant) {
        while self.timers.first().is_some_and(|(due, _)| *due <= now) {
            let Some((_, key)) = self.timers.pop_first() else { return };
            let due = self.entries.get_mut(&key).and_then(|entry| entry.due.take());
            self.add(key, due.map_or(Priority::Normal, |(_, priority)| priority));
        }
    }

    fn take(&mut self, only: Option<Priority>) -> Option<(K, Priority)> {
        let place = match only {
            Some(only) => self.first_of(only)?,
            None => {
                self.attempts = self.attempts.wrapping_add(1);
                let (lowest, _) = *self.waiting.last_key_value()?.0;
                let is_turn = self.attempts.is_multiple_of(LOWEST_PRIORITY_INTERVAL);
                if is_turn { self.first_of(lowest)? } else { *self.waiting.first_key_value()?.0 }
            }
        };
        let key = self.waiting.remove(&place)?;
        let entry = self.entries.entry(key.clone()).or_default();
        entry.queued = None;
        entry.running = true;
        Some((key, place.0))
    }

    /// Returns the first place of a priority.
    fn first_of(&self, priority: Priority) -> Option<Place> {
        self.waiting.range((priority, 0)..).map(|(place, _)| *place).next().filter(|place| place.0 == priority)
    }
}

/// Key held by a worker; dropping it returns the key.
#[derive(Debug)]
pub struct Item<K: Ord + Clone> {
    queue: WorkQueue<K>,
    key: K,
    priority: Priority,
    failed: bool,
}

impl<K: Ord + Clone> Item<K> {
    /// Returns true if a failure of this pass should be reported: first after [`QUIET_FAILURES`], then each time their
    /// number has doubled. Otherwise a key that fails every few seconds would fill the log.
    pub fn should_report(&self) -> bool {
        let mut state = self.queue.shared.state.lock();
        let Some(entry) = state.entries.get_mut(&self.key) else { return false };
        let is_due = entry.failures >= entry.reported_from.max(QUIET_FAILURES);
        if is_due {
            entry.reported_from = entry.failures.saturating_mul(2);
        }
        is_due
    }

    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the priority with which the key waited.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Returns the key to the queue for a retry after a back-off.
    pub fn retry(mut self) {
        self.failed = true;
    }
}

impl<K: Ord + Clone> Drop for Item<K> {
    /// Reports the key as done, or as failed after [`Item::retry`]. The key of an item that is dropped during unwinding
    /// or cancellation counts as done. [`Workers`](crate::Workers) catches panics and calls `retry`.
    fn drop(&mut self) {
        self.queue.finish(&self.key, self.failed);
    }
}

fn backoff(failures: u32) -> Duration {
    BACKOFF_MIN.saturating_mul(1u32.checked_shl(failures.min(31)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
