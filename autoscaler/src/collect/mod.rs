//! Measurements of each revision: windows fed by stats, and by scrapes if its pods serve stats.
//!
//! The table's locks are short, and each belongs to one revision. No lock is held during a network request, so a slow
//! pod delays the next sample of its own revision only.
//!
//! # Edge cases
//!
//! - A stat for a revision that is not collected here is dropped and counted: its owner may be about to change.
//! - A revision without pods has nothing to scrape; [`scraper`] skips it at the cost of a lookup.
//! - Missing endpoints, and Services that keep leading to the same pods, may be transient. They are reported only if
//!   the third consecutive scrape has the same result ([`TRANSIENT_FAILURES_MAX`]). Upstream reports each one, and so
//!   writes a status each second.
//! - Without a scrape target an empty window means zero load; with one it means missing data.

pub mod scraper;

use crate::scale::{CollectSpec, Collection, CollectionHealth, LoadObserver, ObservedPorts, Requests};
use autoscaler_core::decider::{Load, Unknown};
use autoscaler_core::metrics::{Metrics, RejectedStat};
use common::RevisionKey;
use common::scaling::ScalingMetric;
use common::stat::{Observations, Stat};
use common::time::Timestamp;
use common_api::metric_status::CollectionError;
use common_controller::Priority;
use common_runtime::clock::Clock;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// Consecutive scrapes without new data that are tolerated before the Metric reports it.
pub const TRANSIENT_FAILURES_MAX: u32 = 2;

/// Measurements of all revisions of this process.
pub struct Collector {
    revisions: DashMap<RevisionKey, Arc<Mutex<Collected>>>,
    clock: Clock,
    requests: Requests,
    /// Observer of recorded stats and of wakes, once it is set.
    pub(crate) observer: OnceLock<Arc<dyn LoadObserver>>,
    /// Queue of revisions with new observations about their ports.
    ports: OnceLock<Requests>,
}

#[derive(Debug)]
struct Collected {
    spec: CollectSpec,
    metrics: Metrics,
    health: CollectionHealth,
    /// Consecutive scrapes with a possibly transient failure.
    transient_failures: u32,
    /// Set while a scrape is running.
    scraping: bool,
    /// Time until which a mesh is assumed to hide the pods.
    hidden_until: Option<Instant>,
    ports: ObservedPorts,
}

impl Collected {
    /// Records an activator's observations of the ports. Returns whether they changed anything.
    fn observe(&mut self, observations: &Observations) -> bool {
        let before = self.ports.clone();
        if observations.wakes.iter().any(|wake| wake.failed.is_empty()) {
            self.ports.silent.clear();
        }
        let numbers = |ports: &[u32]| ports.iter().filter_map(|port| u16::try_from(*port).ok()).collect::<Vec<_>>();
        self.ports.silent.extend(numbers(&observations.silent));
        self.ports.pod_speaks_first.extend(numbers(&observations.pod_speaks_first));
        self.ports != before
    }

    /// Sets the health, unless the change may be transient. Returns whether it has changed.
    fn set_health(&mut self, health: CollectionHealth) -> bool {
        let in_doubt = matches!(health, Err(CollectionError::NoEndpoints(_) | CollectionError::DidNotReceiveStat(_)));
        self.transient_failures = if in_doubt { self.transient_failures.saturating_add(1) } else { 0 };
        let news = self.health != health && !(1..=TRANSIENT_FAILURES_MAX).contains(&self.transient_failures);
        if news {
            self.health = health;
        }
        news
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ScrapeParameters {
    /// Length of the stable window.
    window: Duration,
    /// Service in front of the pods.
    target: String,
    /// Set if a mesh is assumed to hide the pods.
    hidden: bool,
}

impl Collector {
    /// Creates an empty table. Revisions whose health changes are added to `requests`.
    pub fn new(clock: Clock, requests: Requests) -> Self {
        Self { revisions: DashMap::new(), clock, requests, observer: OnceLock::new(), ports: OnceLock::new() }
    }

    /// Records a stat at its own time, or at `now` if it has none. Returns `None` if the revision is not collected here.
    pub fn record(&self, key: &RevisionKey, stat: &Stat, now: Timestamp) -> Option<Result<(), RejectedStat>> {
        let collected = self.get(key)?;
        let recorded = collected.lock().metrics.record(stat, now);
        if recorded.is_ok()
            && let Some(observer) = self.observer.get()
        {
            observer.measured(key, stat);
        }
        Some(recorded)
    }

    /// Records further observations of a revision, if it is collected here.
    pub fn record_observations(&self, key: &RevisionKey, observations: &Observations) {
        let Some(collected) = self.get(key) else { return };
        if let Some(observer) = self.observer.get() {
            observer.record_observations(key, observations);
        }
        let is_news = collected.lock().observe(observations);
        if let Some(queue) = self.ports.get().filter(|_| is_news) {
            queue.add(key.clone(), Priority::Normal);
        }
    }

    /// Returns the load of a revision, as far as it was reported.
    ///
    /// # Errors
    /// The reason why the load is unknown; an unknown load changes nothing.
    pub fn load(&self, key: &RevisionKey, metric: ScalingMetric, now: Timestamp) -> Result<Load, Unknown> {
        let collected = self.get(key).ok_or(Unknown::NotCollecting)?;
        let mut collected = collected.lock();
        let load = collected.metrics.load(metric, now);
        collected.metrics.release(now);
        load
    }

    /// Discards the measurements so far.
    pub fn clear(&self, key: &RevisionKey) {
        if let Some(collected) = self.get(key) {
            let mut collected = collected.lock();
            collected.metrics = Metrics::new(&collected.spec);
        }
    }

    /// Starts a scrape, unless there is nothing to scrape or the previous scrape is still running.
    fn begin_scrape(&self, key: &RevisionKey) -> Option<ScrapeParameters> {
        let collected = self.get(key)?;
        let mut collected = collected.lock();
        if collected.scraping {
            return None;
        }
        let target = collected.spec.scrape_target.clone()?;
        collected.scraping = true;
        let hidden = collected.hidden_until.is_some_and(|until| Instant::now() < until);
        Some(ScrapeParameters { window: collected.spec.stable_window, target, hidden })
    }

    /// Records that a mesh hides the pods: for a while their Service is scraped at once.
    fn hidden(&self, key: &RevisionKey) {
        if let Some(collected) = self.get(key) {
            collected.lock().hidden_until = Some(Instant::now() + scraper::MESH_HOLDS);
        }
    }

    /// Records that a scrape was skipped, and the reason.
    fn not_scraped(&self, key: &RevisionKey, health: CollectionHealth) {
        if let Some(collected) = self.get(key)
            && collected.lock().set_health(health)
        {
            self.requests.add(key.clone(), Priority::Normal);
        }
    }

    /// Ends a scrape: records its stat and its health.
    fn end_scrape(&self, key: &RevisionKey, stat: Option<&Stat>, health: CollectionHealth) {
        let Some(collected) = self.get(key) else { return };
        let mut collected = collected.lock();
        collected.scraping = false;
        let refused = stat.and_then(|stat| collected.metrics.record(stat, self.clock.now()).err());
        if let (Some(stat), None, Some(observer)) = (stat, &refused, self.observer.get()) {
            observer.measured(key, stat);
        }
        let health = refused.map_or(health, |refused| Err(CollectionError::Other(refused.to_string())));
        // The spec may have been edited meanwhile: the result then belongs to an outdated question.
        let health = if collected.spec.scrape_target.is_some() { health } else { Ok(()) };
        if collected.set_health(health) {
            self.requests.add(key.clone(), Priority::Normal);
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
            Entry::Vacant(vacant) => drop(vacant.insert(Arc::new(Mutex::new(Collected {
                metrics: Metrics::new(&how),
                spec: how,
                health: Ok(()),
                transient_failures: 0,
                scraping: false,
                hidden_until: None,
                ports: ObservedPorts::default(),
            })))),
            Entry::Occupied(occupied) => {
                let mut collected = occupied.get().lock();
                if collected.spec != how {
                    collected.metrics.update(&how, now);
                    if how.scrape_target.is_none() {
                        collected.set_health(Ok(()));
                    }
                    collected.hidden_until = None;
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

    fn ports(&self, key: &RevisionKey) -> ObservedPorts {
        self.get(key).map(|collected| collected.lock().ports.clone()).unwrap_or_default()
    }

    fn report_ports(&self, queue: Requests) {
        let _ = self.ports.set(queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::fixture::collect_spec;

    fn spec(scrape_target: Option<&str>) -> CollectSpec {
        CollectSpec { scrape_target: scrape_target.map(str::to_owned), ..collect_spec() }
    }

    fn stat(concurrency: f64) -> Stat {
        Stat { average_concurrent_requests: concurrency, request_count: concurrency * 2.0, ..Stat::default() }
    }

    /// Goal: stats are recorded for collected revisions only, and only honest ones; silence is zero only without
    /// scraping.
    #[tokio::test(start_paused = true)]
    async fn stats_are_recorded_for_what_is_collected() {
        let clock = Clock::starting_at(Timestamp::from_secs(1_000));
        let collector = Collector::new(clock.clone(), Requests::new());
        let key = RevisionKey::new("ns", "a");
        let load = || collector.load(&key, ScalingMetric::Concurrency, clock.now());
        assert_eq!(collector.record(&key, &stat(1.0), clock.now()), None);
        assert_eq!(load(), Err(Unknown::NotCollecting));

        collector.ensure(&key, spec(None));
        assert_eq!(load(), Ok(Load { stable: 0.0, panic: 0.0 }), "activators report all there is");
        assert_eq!(collector.record(&key, &stat(4.0), clock.now()), Some(Ok(())));
        assert_eq!(load(), Ok(Load { stable: 4.0, panic: 4.0 }));
        assert!(matches!(collector.record(&key, &stat(f64::NAN), clock.now()), Some(Err(_))));

        collector.ensure(&key, spec(Some("a-private")));
        assert_eq!(load(), Ok(Load { stable: 4.0, panic: 4.0 }), "an edit keeps the windows");
        tokio::time::advance(Duration::from_secs(120)).await;
        assert_eq!(load(), Err(Unknown::NoData), "pods report, and did not");
        Collection::remove(&collector, &key);
        assert_eq!(collector.record(&key, &stat(1.0), clock.now()), None);
    }

    /// Goal: one scrape runs at a time, its result counts at the time of the response, and a change of health is
    /// reported once.
    #[tokio::test(start_paused = true)]
    async fn a_scrape_is_recorded_when_it_ends() {
        let clock = Clock::starting_at(Timestamp::from_secs(1_000));
        let requests = Requests::new();
        let collector = Collector::new(clock.clone(), requests.clone());
        let key = RevisionKey::new("ns", "a");
        collector.ensure(&key, spec(None));
        assert_eq!(collector.begin_scrape(&key), None, "nothing to scrape");
        collector.ensure(&key, spec(Some("a-private")));
        let window = Duration::from_secs(60);
        let question = ScrapeParameters { window, target: "a-private".into(), hidden: false };
        assert_eq!(collector.begin_scrape(&key), Some(question));
        assert_eq!(collector.begin_scrape(&key), None, "the former one is under way");
        for _ in 0..2 {
            collector.end_scrape(&key, None, Err(CollectionError::Other("no answer".into())));
        }
        assert_eq!(requests.try_next().as_ref().map(common_controller::Item::key), Some(&key));
        assert!(requests.try_next().is_none(), "told once");
        assert!(collector.begin_scrape(&key).is_some());
        collector.end_scrape(&key, Some(&stat(3.0)), Ok(()));
        let load = collector.load(&key, ScalingMetric::Rps, clock.now());
        assert_eq!(load, Ok(Load { stable: 6.0, panic: 6.0 }));
        assert_eq!(collector.health(&key), Some(Ok(())));
    }

    /// Goal: a possibly transient failure is reported once, when it lasts, and clears at once.
    #[test]
    fn doubts_are_told_when_they_last() {
        let requests = Requests::new();
        let collector = Collector::new(Clock::starting_at(Timestamp::from_secs(1_000)), requests.clone());
        let key = RevisionKey::new("ns", "a");
        collector.ensure(&key, spec(Some("a-private")));
        let doubt = || Err(CollectionError::NoEndpoints("failed to get endpoints".into()));
        let turn = |health| {
            collector.not_scraped(&key, health);
            requests.try_next().is_some()
        };
        assert!(!turn(doubt()) && !turn(doubt()) && !turn(Ok(())), "two turns are nothing");
        assert!(!turn(doubt()) && !turn(doubt()));
        assert_eq!(collector.health(&key), Some(Ok(())));
        assert!(turn(doubt()), "the third in a row is told");
        assert!(!turn(doubt()), "once");
        assert_eq!(collector.health(&key), Some(doubt()));
        assert!(turn(Ok(())));
    }

    /// Goal: a detected mesh is remembered for a while, and forgotten with an edit.
    #[tokio::test(start_paused = true)]
    async fn a_mesh_is_remembered_for_a_while() {
        let collector = Collector::new(Clock::starting_at(Timestamp::from_secs(1_000)), Requests::new());
        let key = RevisionKey::new("ns", "a");
        collector.ensure(&key, spec(Some("a-private")));
        let hidden = || {
            let question = collector.begin_scrape(&key).expect("nothing under way");
            collector.end_scrape(&key, None, Ok(()));
            question.hidden
        };
        assert!(!hidden());
        collector.hidden(&key);
        assert!(hidden());
        tokio::time::advance(scraper::MESH_HOLDS).await;
        assert!(!hidden(), "tried again");
        collector.hidden(&key);
        collector.ensure(&key, spec(Some("b-private")));
        assert!(!hidden(), "another question");
    }
}
