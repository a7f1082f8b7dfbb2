//! Which keys wait to be reconciled, which are at it, and which wait out a delay.
//!
//! A key is handed out to one worker at a time. If it becomes dirty meanwhile it is handed out again afterwards, once,
//! however often it was marked. A key that fails is delayed by [`RETRY_MIN`], doubling up to [`RETRY_MAX`]; success
//! forgets the failures. There is no periodic resync: what is not marked is not looked at.
//!
//! The number of entries is bounded by the number of objects in the cluster; no event is queued twice.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// First delay after a failure: long enough for the watch to bring what a conflict was about.
const RETRY_MIN: Duration = Duration::from_millis(5);
/// Longest delay after failures.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// A work queue of keys. Time is an argument.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    waiting: VecDeque<T>,
    /// What is in `waiting`.
    queued: HashSet<T>,
    running: HashSet<T>,
    /// Running and marked again.
    dirty: HashSet<T>,
    delayed: BTreeMap<(Instant, u64), T>,
    failures: HashMap<T, u32>,
    serial: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            queued: HashSet::new(),
            running: HashSet::new(),
            dirty: HashSet::new(),
            delayed: BTreeMap::new(),
            failures: HashMap::new(),
            serial: 0,
        }
    }
}

impl<T: Clone + Eq + Hash> Queue<T> {
    /// Marks `key`: it will be handed out (again).
    pub(crate) fn mark(&mut self, key: T) {
        if self.running.contains(&key) {
            self.dirty.insert(key);
        } else if self.queued.insert(key.clone()) {
            self.waiting.push_back(key);
        }
    }

    /// Marks `key` at a later time. Several such times may stand side by side.
    pub(crate) fn mark_at(&mut self, key: T, at: Instant) {
        self.serial += 1;
        self.delayed.insert((at, self.serial), key);
    }

    /// Hands out the next key; the caller owes a [`Queue::done`].
    pub(crate) fn next(&mut self, now: Instant) -> Option<T> {
        while let Some(entry) = self.delayed.first_entry().filter(|entry| entry.key().0 <= now) {
            let key = entry.remove();
            self.mark(key);
        }
        let key = self.waiting.pop_front()?;
        self.queued.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    /// When the next delayed key is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((at, _), _)| *at)
    }

    /// Gives a key back.
    pub(crate) fn done(&mut self, key: T, succeeded: bool, now: Instant) {
        self.running.remove(&key);
        if succeeded {
            self.failures.remove(&key);
        } else {
            let failures = self.failures.entry(key.clone()).or_insert(0);
            let delay = RETRY_MIN.saturating_mul(1 << (*failures).min(16)).min(RETRY_MAX);
            *failures += 1;
            self.mark_at(key.clone(), now + delay);
        }
        if self.dirty.remove(&key) {
            self.mark(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods, reason = "any instant will do as an origin")]
    fn epoch() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_key_runs_once_at_a_time_and_once_more_if_marked_meanwhile() {
        let (mut queue, now) = (Queue::default(), epoch());
        queue.mark("a");
        queue.mark("a");
        assert_eq!(queue.next(now), Some("a"));
        queue.mark("a");
        queue.mark("a");
        assert_eq!(queue.next(now), None, "never two at once");
        queue.done("a", true, now);
        assert_eq!(queue.next(now), Some("a"));
        queue.done("a", true, now);
        assert_eq!(queue.next(now), None);
    }

    #[test]
    fn failures_back_off_and_success_forgets_them() {
        let (mut queue, now) = (Queue::default(), epoch());
        for delay_ms in [5, 10, 20] {
            queue.mark("a");
            assert_eq!(queue.next(now), Some("a"));
            queue.done("a", false, now);
            assert_eq!(queue.due(), Some(now + Duration::from_millis(delay_ms)));
            assert_eq!(queue.next(now), None);
            assert_eq!(queue.next(now + Duration::from_millis(delay_ms)), Some("a"));
            queue.done("a", true, now);
            queue.failures.insert("a", (delay_ms / 5).trailing_zeros() + 1);
        }
    }
}
