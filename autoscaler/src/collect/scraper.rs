//! Scrapes the stats of pods, once a second for each revision whose pods serve stats.
//!
//! One task turns a wheel of [`PHASES`] phases; a revision's phase is a hash of its key. Each phase costs one lookup
//! for each of its revisions, and one task for each revision with ready pods. Revisions without pods are not scraped,
//! and no revision has its own timer.
//!
//! # Scraped pods
//!
//! A scrape covers a sample of the ready pods, old ones first (`autoscaler_core::sample`). `config-network` selects
//! the method, live:
//!
//! | `mesh-compatibility-mode` | |
//! |---|---|
//! | `disabled` | the pods at their addresses |
//! | `enabled` | the Service in front of them |
//! | `auto` | the pods; if all of them return 502 or 503, a mesh hides them, and the Service is scraped |
//!
//! With `enable-mesh-pod-addressability` requests to pods carry their Service's name, and `auto` never falls back.
//! After a Service has responded for hidden pods, it is scraped for [`MESH_HOLDS`]; then the pods are tried again
//! (upstream: at the next reconcile of the Metric).
//!
//! # Bounds
//!
//! 3 s for each response, 5 s for a whole sample, [`BODY_MAX`] bytes per response, [`SCRAPES_MAX`] concurrent
//! revisions, one kept connection for each pod, about ten requests to a Service for each sample. Revisions of a phase
//! that get no permit wait for one until the next phase, and then skip this second. Each phase starts at a random
//! revision, so that it is not always the same ones that skip.

mod client;
mod samples;
#[cfg(test)]
mod tests;

use super::{Collector, ScrapeParameters};
use crate::pods::PodIndex;
use crate::scale::CollectionHealth;
use autoscaler_core::sample;
use client::{Http, ScrapeError, Service};
use common::RevisionKey;
use common::config::{MeshMode, NetworkConfig};
use common::time::Timestamp;
use common_api::metric_status::CollectionError;
use common_runtime::resolve::Resolve;
use prometheus_client::metrics::histogram::Histogram;
use samples::Samples;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use client::{BODY_MAX, PORT};

/// Maximum number of revisions scraped at once. With 5 s per revision whose pods hang, it allows 50 such revisions a
/// second.
pub const SCRAPES_MAX: usize = 256;
/// Number of phases of a second over which revisions are spread.
pub const PHASES: usize = 20;
/// Time between two phases.
const STEP: Duration = Duration::from_millis(50);
/// Time for which pods are assumed to be hidden by a mesh.
pub const MESH_HOLDS: Duration = Duration::from_secs(600);

/// Scraper of all revisions. Cheap to clone.
#[derive(Clone)]
pub struct Scraper {
    collector: Arc<Collector>,
    pods: Arc<PodIndex>,
    http: Http,
    cluster_domain: Arc<str>,
    network: watch::Receiver<Arc<NetworkConfig>>,
    permits: Arc<Semaphore>,
    durations: Durations,
}

/// Addresses and start times of pods.
type ScrapeTargets = Vec<(IpAddr, Option<Timestamp>)>;

/// Lookup of the histogram of a revision's scrape durations.
pub type Durations = Arc<dyn Fn(&RevisionKey) -> Option<Histogram> + Send + Sync>;

impl Scraper {
    /// Creates a scraper for the revisions of `collector`. `network` is `config-network`; `resolver` resolves Services
    /// in the cluster's domain; `durations` receives the seconds of each scrape.
    pub fn new(
        collector: Arc<Collector>,
        pods: Arc<PodIndex>,
        resolver: Arc<dyn Resolve>,
        cluster_domain: &str,
        network: watch::Receiver<Arc<NetworkConfig>>,
        durations: Durations,
    ) -> Self {
        let (http, permits) = (Http::new(resolver), Arc::new(Semaphore::new(SCRAPES_MAX)));
        Self { collector, pods, http, cluster_domain: cluster_domain.into(), network, permits, durations }
    }

    /// Scrapes until `shutdown`. Running scrapes then finish by themselves.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut ticks = interval(STEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let tasks = TaskTracker::new();
        // Filled at phase 0, so that the table is walked once a second and not at each step.
        let mut wheel = vec![Vec::new(); PHASES];
        for step in 0.. {
            let phase = step % PHASES;
            if shutdown.run_until_cancelled(ticks.tick()).await.is_none() {
                return;
            }
            if phase == 0 {
                for key in self.collector.scraped_keys() {
                    wheel[phase_of(&key)].push(key);
                }
            }
            let mut due = std::mem::take(&mut wheel[phase]);
            if !due.is_empty() {
                let first = rand::random_range(0..due.len());
                due.rotate_left(first);
            }
            let next = Instant::now() + STEP;
            for key in due {
                self.begin(key, next, &tasks).await;
            }
        }
    }

    async fn begin(&self, key: RevisionKey, until: Instant, tasks: &TaskTracker) {
        if self.pods.ready(&key).is_err() {
            let unknown = Err(CollectionError::NoEndpoints("failed to get endpoints".to_owned()));
            return self.collector.not_scraped(&key, unknown);
        }
        let targets = self.pods.scrape_targets(&key);
        if targets.is_empty() {
            // No pods yet, or none any more: nothing to scrape, and no failure.
            return self.collector.not_scraped(&key, Ok(()));
        }
        // After `until` this only takes a free permit and does not wait.
        let Ok(Ok(permit)) = timeout_at(until, self.permits.clone().acquire_owned()).await else {
            tracing::debug!(%key, "the scrape was skipped, because too many scrapes are in progress");
            return;
        };
        if let Some(parameters) = self.collector.begin_scrape(&key) {
            let scraper = self.clone();
            tasks.spawn(async move {
                let _permit = permit;
                scraper.scrape(&key, targets, parameters).await;
            });
        }
    }

    async fn scrape(&self, key: &RevisionKey, targets: ScrapeTargets, parameters: ScrapeParameters) {
        let start = Instant::now();
        let population = targets.len();
        let samples = self.sample(key, targets, &parameters).await;
        if let Some(duration) = (self.durations)(key) {
            duration.observe(start.elapsed().as_secs_f64());
        }
        if let Some(error) = &samples.error {
            let answered = samples.stats.len();
            tracing::debug!(%key, %error, answered, needed = samples.needed, population, "the scrape is incomplete");
        }
        self.collector.end_scrape(key, sample::combine(&samples.stats, population).as_ref(), health(&samples));
    }

    async fn sample(&self, key: &RevisionKey, targets: ScrapeTargets, parameters: &ScrapeParameters) -> Samples {
        let network = self.network.borrow().clone();
        let host = format!("{}.{}", parameters.target, key.namespace());
        let service = Service { name: format!("{host}.svc.{}", self.cluster_domain), host };
        let (population, window) = (targets.len(), parameters.window);
        let addressable = network.mesh_pod_addressability;
        let uses_service = match network.mesh_mode {
            MeshMode::Enabled => true,
            MeshMode::Disabled => false,
            MeshMode::Auto => parameters.hidden && !addressable,
        };
        if uses_service {
            return samples::from_service(&self.http, &service, population, window).await;
        }
        let candidates = sample::choose(targets, self.collector.clock.now(), window, &mut rand::rng());
        let direct = samples::from_pods(&self.http, candidates, addressable.then_some(&service)).await;
        if !direct.hidden || addressable || network.mesh_mode != MeshMode::Auto {
            return direct;
        }
        let indirect = samples::from_service(&self.http, &service, population, window).await;
        if !indirect.stats.is_empty() {
            tracing::info!(%key, "a service mesh hides the pods, so their Service is scraped");
            self.collector.record_mesh(key);
        }
        indirect
    }
}

/// Returns the health of a scrape for the Metric's status. A scrape with some stats is healthy, unless a Service kept
/// leading to the same pods.
fn health(samples: &Samples) -> CollectionHealth {
    match &samples.error {
        Some(error) if samples.stats.is_empty() => Err(CollectionError::Other(error.to_string())),
        Some(error @ ScrapeError::Unscraped) if samples.stats.len() < samples.needed => {
            Err(CollectionError::DidNotReceiveStat(error.to_string()))
        }
        _ => Ok(()),
    }
}

fn phase_of(key: &RevisionKey) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    usize::try_from(hasher.finish() % PHASES as u64).unwrap_or(0)
}
