//! Measurements of each revision: windows fed by stats, and by scrapes where pods report when asked.
//!
//! The table's locks are short and belong to one revision each; nothing here is held while somebody is asked over the
//! network, so a slow pod delays its own revision's next sample and nothing else.
//!
//! # Odd cases
//!
//! - A stat about a revision that is not collected here is dropped and counted: its owner may be about to change.
//! - A sleeping revision has nobody to ask, so nothing is: [`scraper`] skips it for the price of a lookup.
//! - Without a scrape target an empty window is zero load; with one it is missing data.

pub mod scraper;

use crate::clock::Clock;
use crate::scale::{Attention, CollectSpec, Collection, CollectionHealth};
use autoscaler_core::decider::{Load, Unknown};
use autoscaler_core::metrics::{Metrics, MetricsSpec, Refused};
use common::RevisionKey;
use common::scaling::ScalingMetric;
use common::stat::Stat;
use common::time::Timestamp;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Measurements of all revisions of this process.
#[derive(Debug)]
pub struct Collector {
    revisions: DashMap<RevisionKey, Arc<Mutex<Collected>>>,
    clock: Clock,
    attention: Attention,
}

#[derive(Debug)]
struct Collected {
    spec: CollectSpec,
    metrics: Metrics,
    health: CollectionHealth,
    /// A scrape is under way.
    scraping: bool,
}

/// What became of a stat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Recorded {
    /// It counts.
    Yes,
    /// Its revision is not collected here.
    Unknown,
    /// It holds something that no honest source sends.
    Refused(Refused),
}

impl Collector {
    /// An empty table. Revisions whose health changes are put on `attention`.
    pub fn new(clock: Clock, attention: Attention) -> Self {
        Self { revisions: DashMap::new(), clock, attention }
    }

    /// Records a stat at its own time, or at `now` if it has none.
    pub fn record(&self, key: &RevisionKey, stat: &Stat, now: Timestamp) -> Recorded {
        let Some(collected) = self.get(key) else { return Recorded::Unknown };
        let recorded = collected.lock().metrics.record(stat, now);
        recorded.map_or_else(Recorded::Refused, |()| Recorded::Yes)
    }

    /// The load of a revision. `attested`: whether silence can be believed.
    ///
    /// # Errors
    /// What is not known; an unknown load changes nothing.
    pub fn load(
        &self,
        key: &RevisionKey,
        metric: ScalingMetric,
        now: Timestamp,
        attested: bool,
    ) -> Result<Load, Unknown> {
        let collected = self.get(key).ok_or(Unknown::NotCollecting)?;
        let mut collected = collected.lock();
        let load = collected.metrics.load(metric, now, attested);
        collected.metrics.release(now);
        load
    }

    /// Starts a scrape: the stable window, unless there is nothing to scrape or the former scrape is still under way.
    fn begin_scrape(&self, key: &RevisionKey) -> Option<Duration> {
        let collected = self.get(key)?;
        let mut collected = collected.lock();
        if collected.spec.scrape_target.is_none() || collected.scraping {
            return None;
        }
        collected.scraping = true;
        Some(collected.spec.stable_window)
    }

    /// Ends a scrape: records what it found, and how it went.
    fn end_scrape(&self, key: &RevisionKey, stat: Option<&Stat>, health: CollectionHealth) {
        let Some(collected) = self.get(key) else { return };
        let mut collected = collected.lock();
        collected.scraping = false;
        let refused = stat.and_then(|stat| collected.metrics.record(stat, self.clock.now()).err());
        let health = refused.map_or(health, |refused| CollectionHealth::Failed(refused.to_string()));
        // Edited meanwhile: the answer belongs to a question that nobody asks any more.
        let health = if collected.spec.scrape_target.is_some() { health } else { CollectionHealth::Healthy };
        let changed = collected.health != health;
        collected.health = health;
        drop(collected);
        if changed {
            self.attention.push(key);
        }
    }

    fn get(&self, key: &RevisionKey) -> Option<Arc<Mutex<Collected>>> {
        self.revisions.get(key).map(|entry| entry.value().clone())
    }

    fn scraped_keys(&self) -> Vec<RevisionKey> {
        let scraped = |collected: &Arc<Mutex<Collected>>| collected.lock().spec.scrape_target.is_some();
        self.revisions.iter().filter(|entry| scraped(entry.value())).map(|entry| entry.key().clone()).collect()
    }
}

impl Collection for Collector {
    fn ensure(&self, key: &RevisionKey, how: CollectSpec) {
        let now = self.clock.now();
        match self.revisions.entry(key.clone()) {
            Entry::Vacant(vacant) => {
                let metrics = Metrics::new(&metrics_spec(&how));
                let health = CollectionHealth::Healthy;
                vacant.insert(Arc::new(Mutex::new(Collected { spec: how, metrics, health, scraping: false })));
            }
            Entry::Occupied(occupied) => {
                let mut collected = occupied.get().lock();
                if collected.spec != how {
                    collected.metrics.update(&metrics_spec(&how), now);
                    if how.scrape_target.is_none() {
                        collected.health = CollectionHealth::Healthy;
                    }
                    collected.spec = how;
                }
            }
        }
    }

    fn health(&self, key: &RevisionKey) -> Option<CollectionHealth> {
        Some(self.get(key)?.lock().health.clone())
    }

    fn remove(&self, key: &RevisionKey) {
        self.revisions.remove(key);
    }
}

fn metrics_spec(how: &CollectSpec) -> MetricsSpec {
    MetricsSpec {
        stable_window: how.stable_window,
        panic_window: how.panic_window,
        aggregation: how.aggregation,
        scraped: how.scrape_target.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::scaling::Aggregation;

    fn spec(scrape_target: Option<&str>) -> CollectSpec {
        CollectSpec {
            stable_window: Duration::from_secs(60),
            panic_window: Duration::from_secs(6),
            aggregation: Aggregation::Linear,
            scrape_target: scrape_target.map(str::to_owned),
        }
    }

    fn stat(concurrency: f64) -> Stat {
        Stat { average_concurrent_requests: concurrency, request_count: concurrency * 2.0, ..Stat::default() }
    }

    /// Goal: stats count for revisions that are collected, and only honest ones; silence is zero only without scraping.
    #[tokio::test(start_paused = true)]
    async fn stats_are_recorded_for_what_is_collected() {
        let clock = Clock::starting_at(Timestamp::from_secs(1_000));
        let collector = Collector::new(clock.clone(), Attention::new());
        let key = RevisionKey::new("ns", "a");
        let load = |attested| collector.load(&key, ScalingMetric::Concurrency, clock.now(), attested);
        assert_eq!(collector.record(&key, &stat(1.0), clock.now()), Recorded::Unknown);
        assert_eq!(load(true), Err(Unknown::NotCollecting));

        collector.ensure(&key, spec(None));
        assert_eq!(load(true), Ok(Load { stable: 0.0, panic: 0.0 }), "activators report all there is");
        assert_eq!(load(false), Err(Unknown::NotAttested));
        assert_eq!(collector.record(&key, &stat(4.0), clock.now()), Recorded::Yes);
        assert_eq!(load(true), Ok(Load { stable: 4.0, panic: 4.0 }));
        assert!(matches!(collector.record(&key, &stat(f64::NAN), clock.now()), Recorded::Refused(_)));

        collector.ensure(&key, spec(Some("a-private")));
        assert_eq!(load(true), Ok(Load { stable: 4.0, panic: 4.0 }), "an edit keeps the windows");
        tokio::time::advance(Duration::from_secs(120)).await;
        assert_eq!(load(true), Err(Unknown::NoData), "pods report, and did not");
        Collection::remove(&collector, &key);
        assert_eq!(collector.record(&key, &stat(1.0), clock.now()), Recorded::Unknown);
    }

    /// Goal: one scrape at a time, its result counts at the time of the answer, and a change of health is told once.
    #[tokio::test(start_paused = true)]
    async fn a_scrape_is_recorded_when_it_ends() {
        let clock = Clock::starting_at(Timestamp::from_secs(1_000));
        let attention = Attention::new();
        let collector = Collector::new(clock.clone(), attention.clone());
        let key = RevisionKey::new("ns", "a");
        collector.ensure(&key, spec(None));
        assert_eq!(collector.begin_scrape(&key), None, "nothing to scrape");
        collector.ensure(&key, spec(Some("a-private")));
        assert_eq!(collector.begin_scrape(&key), Some(Duration::from_secs(60)));
        assert_eq!(collector.begin_scrape(&key), None, "the former one is under way");
        for _ in 0..2 {
            collector.end_scrape(&key, None, CollectionHealth::NoEndpoints("none".into()));
        }
        assert_eq!(attention.try_next(), Some(key.clone()));
        assert_eq!(attention.try_next(), None, "told once");
        assert!(collector.begin_scrape(&key).is_some());
        collector.end_scrape(&key, Some(&stat(3.0)), CollectionHealth::Healthy);
        let load = collector.load(&key, ScalingMetric::Rps, clock.now(), true);
        assert_eq!(load, Ok(Load { stable: 6.0, panic: 6.0 }));
        assert_eq!(collector.health(&key), Some(CollectionHealth::Healthy));
    }
}
