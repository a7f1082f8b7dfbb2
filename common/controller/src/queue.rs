//! The work queue of one controller: which keys to reconcile, in which order, never one key twice at a time.
//!
//! A key is queued once however often it is added, and while a worker holds it a further add is remembered and served
//! when the worker is done. So a reconcile always starts after the change that asked for it.
//!
//! # Priorities
//!
//! [`Priority::Urgent`] is for decisions (a poke that wakes a service waits behind nothing but other decisions),
//! [`Priority::Normal`] for events, timers and retries, [`Priority::New`] for what has come, [`Priority::Slow`] for
//! sweeps over all keys: a changed config map, a won lease, an activator that goes. A key that is added again with a
//! higher priority moves there. So of thousands that come at once the first is done before the last is begun: what its
//! first pass writes comes back as events. (At a start nobody leads yet: their turn comes with the sweep over what was won.)
//!
//! One key in [`TURN_OF_THE_LOWEST`] is of the lowest priority that waits: neither a mass of births nor keys that fail for
//! long keep the others waiting until they are over.
//!
//! # Timers
//!
//! [`WorkQueue::add_after`] keeps the earliest time of a key; a later one is dropped, since each reconcile asks again
//! for what it still needs. Failed keys come back after a back-off that doubles from 5 ms, to 5 min unless a queue has another limit, and is forgotten
//! with the first success.
//!
//! # Bound
//!
//! The queue holds each key at most once for each priority and once among the timers, so it is bounded by the number of
//! live objects, which the stores hold anyway.

use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// First delay after a failure; doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
/// Longest delay after repeated failures, unless a queue has another.
const BACKOFF_MAX: Duration = Duration::from_secs(300);

/// One of so many keys that are taken is of the lowest priority that waits.
const TURN_OF_THE_LOWEST: u32 = 8;

/// Room for so many keys is kept, however few there are.
const ROOM_MIN: usize = 64;

/// How soon a key is served, compared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Decisions: a replicas patch may depend on it.
    Urgent,
    /// Events, timers and retries.
    Normal,
    /// Objects that have come.
    New,
    /// Sweeps over all keys.
    Slow,
}

/// All priorities, in order.
const PRIORITIES: [Priority; 4] = [Priority::Urgent, Priority::Normal, Priority::New, Priority::Slow];

/// A shared queue; clones are handles to the same one.
#[derive(Debug)]
pub struct WorkQueue<K: Ord> {
    shared: Arc<Shared<K>>,
}

#[derive(Debug)]
struct Shared<K: Ord> {
    state: Mutex<State<K>>,
    backoff_max: Duration,
    wake: Notify,
    /// For those who serve urgent keys alone.
    urgent: Notify,
    /// For those who hold a key and could be quicker: a decision about some key that is held has come.
    hurried: Notify,
}

#[derive(Debug)]
struct State<K: Ord> {
    waiting: [VecDeque<K>; PRIORITIES.len()],
    entries: HashMap<K, Entry>,
    timers: BTreeSet<(Instant, K)>,
    /// Keys that were taken by whoever serves all priorities.
    taken: u32,
}

/// What is known of a key; removed once there is nothing left to know.
#[derive(Debug, Default)]
struct Entry {
    /// The priority that it waits with.
    queued: Option<Priority>,
    /// The deques that hold an entry of it. One of another priority than `queued` is stale, and skipped.
    present: [bool; PRIORITIES.len()],
    /// A worker holds it.
    running: bool,
    /// Added while a worker held it.
    again: Option<Priority>,
    /// When its timer ends, and the priority that it has then.
    due: Option<(Instant, Priority)>,
    /// Failures in a row.
    failures: u32,
    /// When the first of them was.
    failing_since: Option<Instant>,
    /// How long it must have failed until that is told again.
    quiet: Duration,
}

impl Priority {
    /// That of an object that came, or else changed or went.
    pub fn of_change<T>(old: Option<&T>, new: Option<&T>) -> Self {
        if old.is_none() && new.is_some() { Self::New } else { Self::Normal }
    }
}

impl Entry {
    fn is_idle(&self) -> bool {
        let waits = self.queued.is_some() || self.running || self.again.is_some() || self.due.is_some();
        !waits && self.failures == 0 && !self.present.contains(&true)
    }
}

impl<K: Ord> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Ord + Hash + Clone> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Hash + Clone> WorkQueue<K> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::with_backoff_max(BACKOFF_MAX)
    }

    /// An empty queue, with the longest delay after repeated failures.
    pub fn with_backoff_max(backoff_max: Duration) -> Self {
        let state = State { waiting: Default::default(), entries: HashMap::new(), timers: BTreeSet::new(), taken: 0 };
        let (wake, urgent, hurried) = (Notify::new(), Notify::new(), Notify::new());
        Self { shared: Arc::new(Shared { state: Mutex::new(state), backoff_max, wake, urgent, hurried }) }
    }

    /// Asks for `key` to be reconciled.
    pub fn add(&self, key: K, priority: Priority) {
        let queued = self.shared.state.lock().add(key, priority);
        if queued {
            self.shared.notify(priority);
        } else if priority == Priority::Urgent {
            self.shared.hurried.notify_waiters();
        }
    }

    /// Waits until a decision about `key` waits for the worker that holds it. For ever, if none comes.
    ///
    /// Cancel safe.
    pub async fn hurried(&self, key: &K) {
        loop {
            let notified = self.shared.hurried.notified();
            tokio::pin!(notified);
            notified.as_mut().enable(); // Before the look, so that no decision after it is missed.
            let waits = |entry: &Entry| entry.running && entry.again == Some(Priority::Urgent);
            if self.shared.state.lock().entries.get(key).is_some_and(waits) {
                return;
            }
            notified.await;
        }
    }

    /// Asks for `key` to be reconciled with normal priority after `delay`, unless an earlier time is set already.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.add_with_after(key, Priority::Normal, delay);
    }

    /// The same with a priority; of those that are asked for until then, the highest.
    pub fn add_with_after(&self, key: K, priority: Priority, delay: Duration) {
        if delay.is_zero() {
            return self.add(key, priority);
        }
        let due = Instant::now() + delay;
        if self.shared.state.lock().add_timer(key, due, priority) {
            self.shared.wake.notify_one(); // Somebody must sleep less long now.
        }
    }

    /// The next key, if one waits.
    pub fn try_next(&self) -> Option<Item<K>> {
        let mut state = self.shared.state.lock();
        state.promote(Instant::now());
        let (key, priority) = state.take(None)?;
        Some(Item { queue: self.clone(), key, priority, failed: false })
    }

    /// The next key, which nobody else gets until the returned item is dropped.
    ///
    /// Cancel safe: a key is only taken when this returns.
    pub async fn next(&self) -> Item<K> {
        self.next_in(None).await
    }

    /// The next key of one priority; of any, the highest first, if none is named.
    ///
    /// Cancel safe: a key is only taken when this returns.
    pub async fn next_in(&self, only: Option<Priority>) -> Item<K> {
        let arrived = if only == Some(Priority::Urgent) { &self.shared.urgent } else { &self.shared.wake };
        loop {
            let notified = arrived.notified();
            let due = {
                let mut state = self.shared.state.lock();
                state.promote(Instant::now());
                if let Some((key, priority)) = state.take(only) {
                    // One wake-up may stand for several adds, and whoever slept until the first timer is busy now: another
                    // must look for what is left, and sleep until the next timer.
                    if state.has_work(only) || (only.is_none() && !state.timers.is_empty()) {
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

    /// Keys that wait with some priority.
    pub fn depth(&self) -> usize {
        self.shared.state.lock().entries.values().filter(|entry| entry.queued.is_some()).count()
    }

    fn finish(&self, key: &K, failed: bool) {
        let mut state = self.shared.state.lock();
        let Some(entry) = state.entries.get_mut(key) else { return };
        entry.running = false;
        let again = entry.again.take();
        if failed {
            let delay = backoff(entry.failures).min(self.shared.backoff_max);
            entry.failures += 1;
            entry.failing_since.get_or_insert_with(Instant::now);
            state.add_timer(key.clone(), Instant::now() + delay, Priority::Normal);
        } else {
            entry.failures = 0;
            entry.failing_since = None;
            entry.quiet = Duration::ZERO;
        }
        match again {
            Some(priority) => {
                state.add(key.clone(), priority);
            }
            None => state.forget_if_idle(key),
        }
        drop(state);
        self.shared.notify(again.unwrap_or(Priority::Normal));
    }
}

impl<K: Ord> Shared<K> {
    /// A key waits with a priority.
    fn notify(&self, priority: Priority) {
        if priority == Priority::Urgent {
            self.urgent.notify_one();
        }
        self.wake.notify_one();
    }
}

impl<K: Ord + Hash + Clone> State<K> {
    /// True if the key now waits with a priority with which it did not before.
    fn add(&mut self, key: K, priority: Priority) -> bool {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.running {
            entry.again = Some(entry.again.map_or(priority, |other| other.min(priority)));
            return false;
        }
        if entry.queued.is_some_and(|other| other <= priority) {
            return false;
        }
        entry.queued = Some(priority);
        if !std::mem::replace(&mut entry.present[priority as usize], true) {
            self.waiting[priority as usize].push_back(key);
        }
        true
    }

    /// True if this is now the earliest of all timers.
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

    /// Queues what is due.
    fn promote(&mut self, now: Instant) {
        while self.timers.first().is_some_and(|(due, _)| *due <= now) {
            let Some((_, key)) = self.timers.pop_first() else { return };
            let due = self.entries.get_mut(&key).and_then(|entry| entry.due.take());
            self.add(key, due.map_or(Priority::Normal, |(_, priority)| priority));
        }
    }

    fn take(&mut self, only: Option<Priority>) -> Option<(K, Priority)> {
        if let Some(only) = only {
            return self.take_of(only);
        }
        self.taken = self.taken.wrapping_add(1);
        match self.taken.is_multiple_of(TURN_OF_THE_LOWEST) {
            true => PRIORITIES.into_iter().rev().find_map(|priority| self.take_of(priority)),
            false => PRIORITIES.into_iter().find_map(|priority| self.take_of(priority)),
        }
    }

    fn take_of(&mut self, priority: Priority) -> Option<(K, Priority)> {
        while let Some(key) = self.pop(priority) {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            entry.present[priority as usize] = false;
            if entry.queued == Some(priority) {
                entry.queued = None;
                entry.running = true;
                return Some((key, priority));
            }
            self.forget_if_idle(&key);
        }
        None
    }

    fn pop(&mut self, priority: Priority) -> Option<K> {
        let waiting = &mut self.waiting[priority as usize];
        let key = waiting.pop_front();
        if is_roomy(waiting.len(), waiting.capacity()) {
            waiting.shrink_to(2 * waiting.len());
        }
        key
    }

    fn has_work(&self, only: Option<Priority>) -> bool {
        PRIORITIES
            .iter()
            .any(|priority| only.is_none_or(|only| only == *priority) && !self.waiting[*priority as usize].is_empty())
    }

    fn forget_if_idle(&mut self, key: &K) {
        if self.entries.get(key).is_some_and(Entry::is_idle) {
            self.entries.remove(key);
            if is_roomy(self.entries.len(), self.entries.capacity()) {
                self.entries.shrink_to(2 * self.entries.len());
            }
        }
    }
}

/// Whether a burst has left much more room than is needed: what it costs to give it up is spread over the keys that have
/// gone since.
fn is_roomy(len: usize, capacity: usize) -> bool {
    capacity > ROOM_MIN && len < capacity / 8
}

/// A key in a worker's hands; dropping it gives it back.
#[derive(Debug)]
pub struct Item<K: Ord + Hash + Clone> {
    queue: WorkQueue<K>,
    key: K,
    priority: Priority,
    failed: bool,
}

impl<K: Ord + Hash + Clone> Item<K> {
    /// For how long the key has failed without a success between, this time not counted.
    pub fn failing_for(&self) -> Duration {
        let state = self.queue.shared.state.lock();
        let since = state.entries.get(&self.key).and_then(|entry| entry.failing_since);
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether it is time to tell that it fails: once it has for as long as `quiet`, and then whenever that time has
    /// doubled. A key that fails every few seconds would be all that a log holds.
    pub fn is_worth_telling(&self, quiet: Duration) -> bool {
        let lasted = self.failing_for();
        let mut state = self.queue.shared.state.lock();
        let Some(entry) = state.entries.get_mut(&self.key) else { return false };
        let tell = lasted >= quiet.max(entry.quiet);
        if tell {
            entry.quiet = lasted * 2;
        }
        tell
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The priority that it waited with.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Gives the key back, to be tried again after a back-off.
    pub fn retry(mut self) {
        self.failed = true;
    }
}

/// A worker that ends without a word, by panic or cancellation, gives its key back as done: the next event retries it.
impl<K: Ord + Hash + Clone> Drop for Item<K> {
    fn drop(&mut self) {
        self.queue.finish(&self.key, self.failed);
    }
}

fn backoff(failures: u32) -> Duration {
    BACKOFF_MIN.saturating_mul(1u32.checked_shl(failures.min(31)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
