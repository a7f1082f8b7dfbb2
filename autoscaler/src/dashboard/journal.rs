//! The records of all workloads that this process decides on, and how they are kept up to date.
//!
//! Load, wakes and what activators saw come in as they happen ([`Onlooker`]), into one record under a short lock. In each
//! step of a timeline one look at each decision loop adds the scale ([`Journal::step`]). A workload that somebody else
//! decides on from now on is forgotten here: the new owner begins anew.

use super::record::Record;
use super::record::timeline::{Rates, Timeline};
use crate::scale::Onlooker;
use common::RevisionKey;
use common::stat::{Seen, Stat, WAKES_MAX};
use common::time::Timestamp;
use common_runtime::clock::Clock;
use dashmap::DashMap;
use std::collections::HashSet;
use std::time::Duration;

/// Furthest that a stat's own time is believed to lie from ours.
const ASIDE_MAX: u64 = 5;

/// What a loop looks like at the end of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Pods wanted.
    pub(super) desired: i32,
    /// Pods ready.
    pub(super) ready: i32,
    /// Pods that exist.
    pub(super) actual: i32,
    /// Whether the decider panics.
    pub(super) panicking: bool,
}

/// All records.
pub(super) struct Journal {
    records: DashMap<RevisionKey, Record>,
    clock: Clock,
    /// Nothing is known from before, Unix seconds.
    born: u32,
}

impl Journal {
    /// No records.
    pub(super) fn new(clock: Clock) -> Self {
        let born = seconds(clock.now());
        Self { records: DashMap::new(), clock, born }
    }

    /// Since when anything is known, Unix seconds.
    pub(super) fn born(&self) -> u32 {
        self.born
    }

    /// Looks at a record, if there is one.
    pub(super) fn with<T>(&self, key: &RevisionKey, look: impl FnOnce(&Record) -> T) -> Option<T> {
        self.records.get(key).map(|record| look(&record))
    }

    /// Load over the last seconds.
    pub(super) fn rates(&self, key: &RevisionKey, now: u32) -> Rates {
        let recent = |record: &Record| record.timeline.as_ref().map(|timeline| timeline.recent(now));
        self.with(key, recent).flatten().unwrap_or_default()
    }

    /// A step ends: `standing` of one workload. `would_be` says how many pods there would be, if the object's version is
    /// another than the one that the record goes by.
    pub(super) fn step(
        &self,
        key: &RevisionKey,
        standing: Standing,
        version: u64,
        would_be: impl FnOnce() -> Option<(Option<i32>, Option<i32>)>,
        now: u32,
    ) {
        let mut record = self.records.entry(key.clone()).or_default();
        if record.version != version {
            record.version = version;
            if let Some((found, min)) = would_be() {
                record.saved.would_be(found, min);
            }
        }
        record.saved.look(standing.actual, now);
        let Standing { desired, ready, panicking, .. } = standing;
        if record.timeline.is_none() && (desired > 0 || ready > 0) {
            record.timeline = Some(Box::new(Timeline::default()));
        }
        if let Some(timeline) = &mut record.timeline {
            timeline.step(now, desired, ready, panicking);
            if timeline.is_blank(now) {
                record.timeline = None;
            }
        }
    }

    /// Forgets whoever is not among `kept`.
    pub(super) fn retain(&self, kept: &HashSet<RevisionKey>) {
        self.records.retain(|key, _| kept.contains(key));
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl Onlooker for Journal {
    fn measured(&self, key: &RevisionKey, stat: &Stat) {
        let concurrency = stat.average_concurrent_requests - stat.average_proxied_concurrent_requests;
        let requests = stat.request_count - stat.proxied_request_count;
        if concurrency == 0.0 && requests == 0.0 {
            return;
        }
        let now = self.now().as_secs();
        let at = if stat.timestamp.abs_diff(now) <= ASIDE_MAX { stat.timestamp } else { now };
        let at = seconds(Timestamp::from_secs(at));
        let mut record = self.records.entry(key.clone()).or_default();
        record.timeline.get_or_insert_default().measured(at, concurrency as f32, requests as f32);
    }

    fn seen(&self, key: &RevisionKey, seen: &Seen) {
        let now = self.now();
        let mut record = self.records.entry(key.clone()).or_default();
        if seen.held > 0 {
            record.timeline.get_or_insert_default().held(seconds(now), seen.held);
        }
        for wake in seen.wakes.iter().take(WAKES_MAX) {
            record.wakes.get_or_insert_default().seen(wake, millis(now));
        }
    }

    fn woken(&self, key: &RevisionKey, took: Duration) {
        let now = self.now();
        let mut record = self.records.entry(key.clone()).or_default();
        record.wakes.get_or_insert_default().scaled(millis(now), took);
    }
}

/// Unix seconds, for as long as a record needs them.
pub(super) fn seconds(at: Timestamp) -> u32 {
    u32::try_from(at.as_secs().max(0)).unwrap_or(u32::MAX)
}

fn millis(at: Timestamp) -> i64 {
    at.as_nanos() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::super::record::timeline::{POINTS_MAX, STEP};
    use super::*;
    use common::stat::SeenWake;

    fn journal() -> (Journal, RevisionKey) {
        (Journal::new(Clock::starting_at(Timestamp::from_secs(1_000_000))), RevisionKey::new("ns", "app"))
    }

    fn stat(concurrency: f64, timestamp: i64) -> Stat {
        Stat { average_concurrent_requests: concurrency, request_count: 2.0, timestamp, ..Stat::default() }
    }

    const ASLEEP: Standing = Standing { desired: 0, ready: 0, actual: 0, panicking: false };

    /// Goal: a sleeper has no timeline, a busy one has, and gives it back when nothing of it is left to be shown.
    #[tokio::test(start_paused = true)]
    async fn what_sleeps_costs_next_to_nothing() {
        let (journal, key) = journal();
        let now = || seconds(journal.now());
        let has_timeline = || journal.with(&key, |record| record.timeline.is_some());
        journal.measured(&key, &stat(0.0, 0).clone());
        journal.step(&key, ASLEEP, 1, || None, now());
        journal.measured(&key, &Stat::default());
        let apart = (0..99).map(|n| SeenWake { ended_ms_ago: 10_000 * (99 - n), ..SeenWake::default() });
        journal.seen(&key, &Seen { held: 3, wakes: apart.collect(), ..Seen::default() });
        assert_eq!(journal.rates(&key, now()).held, 3);
        let wakes = journal.with(&key, |record| record.wakes.as_ref().map(|wakes| wakes.iter().count()));
        assert_eq!(wakes, Some(Some(WAKES_MAX)), "no more than one report may hold");
        for _ in 0..=POINTS_MAX + 1 {
            assert_eq!(has_timeline(), Some(true));
            tokio::time::advance(Duration::from_secs(STEP.into())).await;
            journal.step(&key, ASLEEP, 1, || None, now());
        }
        assert_eq!(has_timeline(), Some(false));
        let awake = Standing { desired: 1, ready: 1, actual: 1, panicking: false };
        journal.step(&key, awake, 1, || None, now());
        assert_eq!(has_timeline(), Some(true));
        journal.retain(&HashSet::new());
        assert_eq!(has_timeline(), None);
    }

    /// Goal: a stat counts in its own second, unless its clock is wrong.
    #[tokio::test(start_paused = true)]
    async fn stats_count_in_their_own_second() {
        let (journal, key) = journal();
        for timestamp in [999_999, 0, i64::MIN] {
            journal.measured(&key, &stat(5.0, timestamp));
        }
        let rates = journal.rates(&key, 1_000_001);
        assert_eq!((rates.concurrency, rates.requests), (3.0, 1.2));
        assert_eq!(journal.rates(&key, 1_000_000).concurrency, 1.0, "one second has passed");
    }

    /// Goal: the object is read again when it is another, and what would be is saved from then on.
    #[tokio::test(start_paused = true)]
    async fn an_object_is_read_when_it_has_changed() {
        let (journal, key) = journal();
        let mut read = 0;
        for (version, found) in [(1, 1), (1, 7), (2, 3)] {
            let would_be = || {
                read += 1;
                Some((Some(found), None))
            };
            journal.step(&key, ASLEEP, version, would_be, seconds(journal.now()));
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        assert_eq!(read, 2);
        let saved = journal.with(&key, |record| record.saved.pod_seconds(seconds(journal.now())));
        assert_eq!(saved, Some(10.0 + 10.0 + 30.0));
    }
}
