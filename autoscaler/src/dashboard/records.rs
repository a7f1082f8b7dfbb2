//! Records of all workloads that this process owns.
//!
//! Load, wakes and activators' observations arrive as they happen ([`LoadObserver`]), into one record under a short
//! lock. In each step one pass over the decision loops adds a sample of the scale ([`Records::sample`]). When another
//! process takes over a workload, its record is dropped here, and the new owner starts a new one.
//!
//! # Saved pod time
//!
//! Without a ZeroScaler a workload would have its replicas as of adoption, at least one and not fewer than its `min`,
//! which is also what is restored on deletion. Each second counts the pods missing from that number. Additional pods
//! do not count: they served load.

use super::ring::{Rates, Ring, Scale};
use super::wakes::Wakes;
use crate::scale::LoadObserver;
use common::RevisionKey;
use common::stat::{Observations, Stat, WAKES_MAX};
use common::time::Timestamp;
use common_runtime::clock::Clock;
use dashmap::DashMap;
use std::collections::HashSet;
use std::time::Duration;

/// Largest accepted difference between a stat's own time and this clock, in seconds.
const ASIDE_MAX: u64 = 5;

/// Record of one workload: some 300 bytes while it sleeps, 4 KiB more with load in the last ten minutes.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) ring: Ring,
    pub(super) wakes: Wakes,
    /// Version of the object from which `baseline` was taken.
    version: u64,
    /// Pod-seconds saved until `sampled`.
    saved: f64,
    /// Start of counting, Unix seconds; 0: not yet.
    pub(super) since: u32,
    /// Time of the last sample, Unix seconds.
    sampled: u32,
    /// Number of pods that the workload would have without a ZeroScaler.
    baseline: u16,
    /// Number of those pods that are missing now.
    pub(super) missing: u16,
}

impl Record {
    /// Returns the saved pod-seconds until `now`.
    pub(super) fn pod_seconds(&self, now: u32) -> f64 {
        self.saved + f64::from(now.saturating_sub(self.sampled)) * f64::from(self.missing)
    }
}

pub(super) struct Records {
    records: DashMap<RevisionKey, Record>,
    clock: Clock,
}

impl Records {
    pub(super) fn new(clock: Clock) -> Self {
        Self { records: DashMap::new(), clock }
    }

    /// Calls `read` with a record, if there is one.
    pub(super) fn with<T>(&self, key: &RevisionKey, read: impl FnOnce(&Record) -> T) -> Option<T> {
        self.records.get(key).map(|record| read(&record))
    }

    /// Ends a step of one workload. `baseline` returns the number of pods that it would have without a ZeroScaler; it
    /// is called for a new version of the object.
    pub(super) fn sample(
        &self,
        key: &RevisionKey,
        scale: Scale,
        version: u64,
        baseline: impl FnOnce() -> Option<i32>,
        now: u32,
    ) {
        let mut record = self.records.entry(key.clone()).or_default();
        if record.version != version {
            record.version = version;
            if let Some(baseline) = baseline() {
                record.baseline = u16::try_from(baseline.max(1)).unwrap_or(u16::MAX);
            }
        }
        record.saved = record.pod_seconds(now);
        if record.since == 0 {
            record.since = now;
        }
        record.sampled = now;
        record.missing = record.baseline.saturating_sub(u16::try_from(scale.actual.max(0)).unwrap_or(u16::MAX));
        record.ring.sample(now, scale);
    }

    /// Drops the records of workloads that are not in `keys`.
    pub(super) fn retain(&self, keys: &HashSet<RevisionKey>) {
        self.records.retain(|key, _| keys.contains(key));
    }

    /// Returns the time in Unix seconds.
    pub(super) fn now(&self) -> u32 {
        seconds(self.clock.now())
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.clock.now().as_nanos() / 1_000_000
    }
}

impl LoadObserver for Records {
    fn measured(&self, key: &RevisionKey, stat: &Stat) {
        let concurrency = stat.average_concurrent_requests - stat.average_proxied_concurrent_requests;
        let requests = stat.request_count - stat.proxied_request_count;
        if concurrency == 0.0 && requests == 0.0 {
            return;
        }
        let now = self.clock.now().as_secs();
        let at = if stat.timestamp.abs_diff(now) <= ASIDE_MAX { stat.timestamp } else { now };
        let load = Rates { concurrency: concurrency as f32, requests: requests as f32, held: 0 };
        self.records.entry(key.clone()).or_default().ring.add(seconds(Timestamp::from_secs(at)), load);
    }

    fn record_observations(&self, key: &RevisionKey, observations: &Observations) {
        let mut record = self.records.entry(key.clone()).or_default();
        if observations.held > 0 {
            record.ring.add(self.now(), Rates { held: observations.held, ..Rates::default() });
        }
        for wake in observations.wakes.iter().take(WAKES_MAX) {
            record.wakes.record(wake, self.now_ms());
        }
    }

    fn woken(&self, key: &RevisionKey, took: Duration) {
        self.records.entry(key.clone()).or_default().wakes.scaled(self.now_ms(), took);
    }
}

fn seconds(at: Timestamp) -> u32 {
    u32::try_from(at.as_secs().max(0)).unwrap_or(u32::MAX)
}

/// Formats a time in whole seconds, as in Kubernetes objects.
pub(super) fn time(secs: i64) -> String {
    jiff::Timestamp::from_second(secs).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::super::ring::{SAMPLES_MAX, STEP};
    use super::*;
    use common::stat::ObservedWake;

    fn records() -> (Records, RevisionKey) {
        (Records::new(Clock::starting_at(Timestamp::from_secs(1_000_000))), RevisionKey::new("ns", "app"))
    }

    fn stat(concurrency: f64, timestamp: i64) -> Stat {
        Stat { average_concurrent_requests: concurrency, request_count: 2.0, timestamp, ..Stat::default() }
    }

    /// Goal: a sleeping workload has no samples. A busy one has, and drops them when they contain only zeros.
    #[tokio::test(start_paused = true)]
    async fn a_sleeping_workload_has_no_samples() {
        let (records, key) = records();
        let sample = |scale: Scale| records.sample(&key, scale, 1, || None, records.now());
        let has_samples = || records.with(&key, |record| !record.ring.samples.is_empty());
        records.measured(&key, &stat(0.0, 0));
        sample(Scale::default());
        records.measured(&key, &Stat::default());
        let separate = (0..99).map(|n| ObservedWake { ended_ms_ago: 10_000 * (99 - n), ..ObservedWake::default() });
        let observations = Observations { held: 3, wakes: separate.collect(), ..Observations::default() };
        records.record_observations(&key, &observations);
        assert_eq!(records.with(&key, |record| record.ring.rates(records.now()).held), Some(3));
        let wakes = records.with(&key, |record| record.wakes.last.len());
        assert_eq!(wakes, Some(WAKES_MAX), "the maximum of one report");
        for step in 0..=SAMPLES_MAX {
            tokio::time::advance(Duration::from_secs(STEP.into())).await;
            sample(Scale::default());
            assert_eq!(has_samples(), Some(step < SAMPLES_MAX), "step {step}");
        }
        sample(Scale { desired: 1, ready: 1, actual: 1, panicking: false });
        assert_eq!(has_samples(), Some(true));
        records.retain(&HashSet::new());
        assert_eq!(has_samples(), None);
    }

    /// Goal: a stat counts in its own second, unless its clock is wrong.
    #[tokio::test(start_paused = true)]
    async fn stats_count_in_their_own_second() {
        let (records, key) = records();
        for timestamp in [999_999, 0, i64::MIN] {
            records.measured(&key, &stat(5.0, timestamp));
        }
        let rates = |now| records.with(&key, |record| record.ring.rates(now)).expect("a record");
        assert_eq!((rates(1_000_001).concurrency, rates(1_000_001).requests), (3.0, 1.2));
        assert_eq!(rates(1_000_000).concurrency, 1.0, "one second has passed");
    }

    /// Goal: each second counts the missing pods, and no additional ones; the object is read once for each version.
    #[tokio::test(start_paused = true)]
    async fn missing_pods_are_counted_by_the_second() {
        let (records, key) = records();
        let mut read = 0;
        let saved = |now| records.with(&key, |record| record.pod_seconds(now)).expect("a record");
        for (at, version, found, actual, expected) in [
            (100, 1, 2, 0, 0.0),
            (110, 1, 7, 1, 20.0),
            (120, 1, 7, 5, 30.0),
            (200, 2, 0, 2, 30.0),
            (300, 2, 0, 0, 30.0),
        ] {
            let baseline = || {
                read += 1;
                Some(found)
            };
            records.sample(&key, Scale { actual, ..Scale::default() }, version, baseline, at);
            assert_eq!(saved(at), expected, "at {at}");
        }
        assert_eq!((saved(310), read), (40.0, 2), "ten seconds more, with a baseline of at least one pod");
        records.sample(&key, Scale::default(), 2, || None, 305);
        assert_eq!(saved(310), 40.0, "no second counts twice");
        assert_eq!(records.with(&key, |record| (record.since, record.missing)), Some((100, 1)));
    }
}
