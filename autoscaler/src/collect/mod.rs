//! Measurements of each revision: windows fed by stats, and by scrapes if its pods serve stats.
//!
//! The table's locks are short, and each belongs to one revision. No lock is held during a network request, so a slow
//! pod delays the next sample of its own revision only.
//!
//! # Edge cases
//!
//! - A stat for a revision that is not collected here is dropped and counted: its owner may be about to change.
//! - A revision without pods has nothing to scrape; [`scraper`] skips it after one lookup.
//! - Missing endpoints, and Services that keep leading to the same pods, may be transient. They are reported only at
//!   the third consecutive scrape with such a failure ([`TRANSIENT_FAILURES_MAX`]). Upstream reports each one, and so
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

/// Number of consecutive scrapes with a possibly transient failure that are not reported.
pub const TRANSIENT_FAILURES_MAX: u32 = 2;

/// Measurements of all revisions of this process.
pub struct Collector {
    revisions: DashMap<RevisionKey, Arc<Mutex<Collected>>>,
    clock: Clock,
    requests: Requests,
    /// Observer of recorded stats and of wakes, once it is set.
    pub(crate) observer: OnceLock<Arc<dyn LoadObserver>>,
    /// Queue of revisions with new observations about their ports, once it is set.
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
        let doubtful = matches!(health, Err(CollectionError::NoEndpoints(_) | CollectionError::DidNotReceiveStat(_)));
        self.transient_failures = if doubtful { self.transient_failures.saturating_add(1) } else { 0 };
        let is_changed = self.health != health && !(1..=TRANSIENT_FAILURES_MAX).contains(&self.transient_failures);
        if is_changed {
            self.health = health;
        }
        is_changed
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

    /// Records a stat at its own time, or at `now` if it has none. Returns none if the revision is not collected here.
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
        let is_changed = collected.lock().observe(observations);
        if let Some(queue) = self.ports.get().filter(|_| is_changed) {
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

    /// Records that a mesh hides the pods: for [`scraper::MESH_HOLDS`] only their Service is scraped.
    fn record_mesh(&self, key: &RevisionKey) {
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
        // The spec may have been edited meanwhile, so that nothing is scraped any more.
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

    /// Returns a collector that collects `a` with this scrape target, and its queue.
    fn collector(scrape_target: Option<&str>) -> (Collector, Requests, RevisionKey) {
        let (requests, key) = (Requests::new(), RevisionKey::new("ns", "a"));
        let collector = Collector::new(Clock::starting_at(Timestamp::from_secs(1_000)), requests.clone());
        collector.ensure(&key, spec(scrape_target));
        (collector, requests, key)
    }

    /// Goal: stats are recorded for collected revisions only, unless a value is invalid. Missing stats mean zero load
    /// only if nothing is scraped.
    #[tokio::test(start_paused = true)]
    async fn stats_are_recorded_for_collected_revisions_only() {
        let (collector, _, key) = collector(None);
        let clock = collector.clock.clone();
        let load_of = |key: &RevisionKey| collector.load(key, ScalingMetric::Concurrency, clock.now());
        let (load, other) = (|| load_of(&key), RevisionKey::new("ns", "b"));
        assert_eq!(collector.record(&other, &stat(1.0), clock.now()), None);
        assert_eq!(load_of(&other), Err(Unknown::NotCollecting));

        assert_eq!(load(), Ok(Load { stable: 0.0, panic: 0.0 }), "activators report the whole load");
        assert_eq!(collector.record(&key, &stat(4.0), clock.now()), Some(Ok(())));
        assert_eq!(load(), Ok(Load { stable: 4.0, panic: 4.0 }));
        assert!(matches!(collector.record(&key, &stat(f64::NAN), clock.now()), Some(Err(_))));

        collector.ensure(&key, spec(Some("a-private")));
        assert_eq!(load(), Ok(Load { stable: 4.0, panic: 4.0 }), "an edit keeps the windows");
        tokio::time::advance(Duration::from_secs(120)).await;
        assert_eq!(load(), Err(Unknown::NoData), "no scrape has delivered a stat");
        Collection::remove(&collector, &key);
        assert_eq!(collector.record(&key, &stat(1.0), clock.now()), None);
    }

    /// Goal: one scrape runs at a time, its result counts at the time of the response, and a change of health is
    /// reported once.
    #[tokio::test(start_paused = true)]
    async fn a_scrape_is_recorded_when_it_ends() {
        let (collector, requests, key) = collector(None);
        assert_eq!(collector.begin_scrape(&key), None, "nothing to scrape");
        collector.ensure(&key, spec(Some("a-private")));
        let window = Duration::from_secs(60);
        let parameters = ScrapeParameters { window, target: "a-private".into(), hidden: false };
        assert_eq!(collector.begin_scrape(&key), Some(parameters));
        assert_eq!(collector.begin_scrape(&key), None, "the previous scrape is still running");
        for _ in 0..2 {
            collector.end_scrape(&key, None, Err(CollectionError::Other("no answer".into())));
        }
        assert_eq!(requests.try_next().as_ref().map(common_controller::Item::key), Some(&key));
        assert!(requests.try_next().is_none(), "reported once");
        assert!(collector.begin_scrape(&key).is_some());
        collector.end_scrape(&key, Some(&stat(3.0)), Ok(()));
        let load = collector.load(&key, ScalingMetric::Rps, collector.clock.now());
        assert_eq!(load, Ok(Load { stable: 6.0, panic: 6.0 }));
        assert_eq!(collector.health(&key), Some(Ok(())));
    }

    /// Goal: a possibly transient failure is reported once, when it lasts, and clears at once.
    #[test]
    fn a_possibly_transient_failure_is_reported_if_it_lasts() {
        let (collector, requests, key) = collector(Some("a-private"));
        let failure = || Err(CollectionError::NoEndpoints("failed to get endpoints".into()));
        let is_reported = |health| {
            collector.not_scraped(&key, health);
            requests.try_next().is_some()
        };
        assert!(!is_reported(failure()) && !is_reported(failure()) && !is_reported(Ok(())), "two are tolerated");
        assert!(!is_reported(failure()) && !is_reported(failure()));
        assert_eq!(collector.health(&key), Some(Ok(())));
        assert!(is_reported(failure()), "the third in a row");
        assert!(!is_reported(failure()), "once");
        assert_eq!(collector.health(&key), Some(failure()));
        assert!(is_reported(Ok(())));
    }

    /// Goal: a detected mesh is remembered for a while, and forgotten with an edit.
    #[tokio::test(start_paused = true)]
    async fn a_mesh_is_remembered_for_a_while() {
        let (collector, _, key) = collector(Some("a-private"));
        let hidden = || {
            let parameters = collector.begin_scrape(&key).expect("no scrape is running");
            collector.end_scrape(&key, None, Ok(()));
            parameters.hidden
        };
        assert!(!hidden());
        collector.record_mesh(&key);
        assert!(hidden());
        tokio::time::advance(scraper::MESH_HOLDS).await;
        assert!(!hidden(), "the pods are tried again");
        collector.record_mesh(&key);
        collector.ensure(&key, spec(Some("b-private")));
        assert!(!hidden(), "another Service");
    }
}
