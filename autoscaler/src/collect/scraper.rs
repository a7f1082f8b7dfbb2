//! Asks pods for their stats, once a second for each revision that has a reporter in its pods.
//!
//! One task turns a wheel of [`PHASES`] phases; a revision's phase is a hash of its key. A turn costs a lookup for each
//! revision of the phase, and a task only for one that has ready pods: sleeping revisions are not scraped, and there is
//! no timer for any.
//!
//! # Who is asked
//!
//! A sample of the ready pods, old ones first (`autoscaler_core::sample`). How, `config-network` says, live:
//!
//! | `mesh-compatibility-mode` | |
//! |---|---|
//! | `disabled` | the pods at their addresses |
//! | `enabled` | the Service in front of them |
//! | `auto` | the pods, unless all of them answered 502 or 503: then a mesh hides them, and the Service is asked |
//!
//! With `enable-mesh-pod-addressability` pods are asked in their Service's name, and `auto` never falls back. Once a
//! Service has answered for hidden pods it is asked for [`MESH_HOLDS`]; then the pods are tried again (upstream: at the
//! next reconcile of the Metric).
//!
//! # Bounds
//!
//! 3 s for each answer, 5 s for all of a sample, [`BODY_MAX`] bytes of it, [`SCRAPES_MAX`] revisions at once, one kept
//! connection for each pod, some ten questions to a Service for each sample. Those of a phase that find no place wait
//! for one until the next phase, and then skip a turn; each turn begins elsewhere in the phase, so that it is not
//! always the same ones.

mod client;
mod samples;
#[cfg(test)]
mod tests;

use super::{Collector, Question};
use crate::pods::{PodIndex, ScrapeTarget};
use crate::scale::CollectionHealth;
use autoscaler_core::sample;
use client::{Http, ScrapeError, Service};
use common::RevisionKey;
use common::config::{MeshMode, NetworkConfig};
use common_runtime::resolve::Resolve;
use prometheus_client::metrics::histogram::Histogram;
use samples::Samples;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use client::{BODY_MAX, PORT};

/// Revisions scraped at once: at 5 s for one whose pods hang, enough for 50 such revisions a second.
pub const SCRAPES_MAX: usize = 256;
/// Parts of the second that revisions are spread over.
pub const PHASES: usize = 20;
/// Time between two phases.
const STEP: Duration = Duration::from_millis(50);
/// How long pods are believed to be hidden by a mesh.
pub const MESH_HOLDS: Duration = Duration::from_secs(600);

/// Asks pods for their stats. Cheap to clone.
#[derive(Clone)]
pub struct Scraper {
    collector: Arc<Collector>,
    pods: Arc<PodIndex>,
    http: Http,
    cluster_domain: Arc<str>,
    network: watch::Receiver<Arc<NetworkConfig>>,
    places: Arc<Semaphore>,
    durations: Durations,
}

/// Where the seconds of a revision's scrapes are put, if anywhere.
pub type Durations = Arc<dyn Fn(&RevisionKey) -> Option<Histogram> + Send + Sync>;

impl Scraper {
    /// A scraper for the revisions of `collector`. `network` is `config-network`; `resolver` finds Services in the
    /// cluster's domain; `durations` get the seconds of each scrape.
    pub fn new(
        collector: Arc<Collector>,
        pods: Arc<PodIndex>,
        resolver: Arc<dyn Resolve>,
        cluster_domain: &str,
        network: watch::Receiver<Arc<NetworkConfig>>,
        durations: Durations,
    ) -> Self {
        let (http, places) = (Http::new(resolver), Arc::new(Semaphore::new(SCRAPES_MAX)));
        Self { collector, pods, http, cluster_domain: cluster_domain.into(), network, places, durations }
    }

    /// Scrapes until `shutdown`. Scrapes under way then come to their own end.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut ticks = interval(STEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let tasks = TaskTracker::new();
        // Filled at phase 0, so that the table is walked once a second and not at each step.
        let mut wheel = vec![Vec::new(); PHASES];
        for step in 0.. {
            let phase = step % PHASES;
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
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
            let unknown = CollectionHealth::NoEndpoints("failed to get endpoints".to_owned());
            return self.collector.not_scraped(&key, unknown);
        }
        let targets = self.pods.scrape_targets(&key);
        if targets.is_empty() {
            // Asleep, or starting: nothing to ask, and nothing to complain about.
            return self.collector.not_scraped(&key, CollectionHealth::Healthy);
        }
        // After `until` this takes a place that is free, and waits for none.
        let Ok(Ok(place)) = timeout_at(until, self.places.clone().acquire_owned()).await else {
            tracing::debug!(%key, "skipping a scrape: too many are under way");
            return;
        };
        if let Some(question) = self.collector.begin_scrape(&key) {
            let scraper = self.clone();
            tasks.spawn(async move {
                let _place = place;
                scraper.scrape(&key, targets, question).await;
            });
        }
    }

    async fn scrape(&self, key: &RevisionKey, targets: Vec<ScrapeTarget>, question: Question) {
        let start = Instant::now();
        let population = targets.len();
        let samples = self.sample(key, targets, &question).await;
        if let Some(duration) = (self.durations)(key) {
            duration.observe(start.elapsed().as_secs_f64());
        }
        if let Some(error) = &samples.error {
            let answered = samples.stats.len();
            tracing::debug!(%key, %error, answered, needed = samples.needed, population, "scrape was not complete");
        }
        self.collector.end_scrape(key, sample::combine(&samples.stats, population).as_ref(), health(&samples));
    }

    async fn sample(&self, key: &RevisionKey, targets: Vec<ScrapeTarget>, question: &Question) -> Samples {
        let network = self.network.borrow().clone();
        let host = format!("{}.{}", question.target, key.namespace());
        let service = Service { name: format!("{host}.svc.{}", self.cluster_domain), host };
        let (population, window) = (targets.len(), question.window);
        let addressable = network.mesh_pod_addressability;
        let ask_service = match network.mesh_mode {
            MeshMode::Enabled => true,
            MeshMode::Disabled => false,
            MeshMode::Auto => question.hidden && !addressable,
        };
        if ask_service {
            return samples::from_service(&self.http, &service, population, window).await;
        }
        let pods = targets.into_iter().map(|target| (target.address, target.started));
        let candidates = sample::choose(pods, self.collector.clock.now(), window, &mut rand::rng());
        let direct = samples::from_pods(&self.http, candidates, addressable.then_some(&service)).await;
        if !direct.hidden || addressable || network.mesh_mode != MeshMode::Auto {
            return direct;
        }
        let indirect = samples::from_service(&self.http, &service, population, window).await;
        if !indirect.stats.is_empty() {
            tracing::info!(%key, "a mesh hides the pods; their Service is scraped");
            self.collector.hidden(key);
        }
        indirect
    }
}

/// What a scrape means for the Metric's status: a scrape that told something is healthy, unless a Service kept leading
/// to the same pods.
fn health(samples: &Samples) -> CollectionHealth {
    match &samples.error {
        Some(error) if samples.stats.is_empty() => CollectionHealth::Failed(error.to_string()),
        Some(error @ ScrapeError::Unscraped) if samples.stats.len() < samples.needed => {
            CollectionHealth::DidNotReceiveStat(error.to_string())
        }
        _ => CollectionHealth::Healthy,
    }
}

fn phase_of(key: &RevisionKey) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    usize::try_from(hasher.finish() % PHASES as u64).unwrap_or(0)
}
