//! Asks pods for their stats, once a second for each revision that has a reporter in its pods.
//!
//! One task turns a wheel of [`PHASES`] phases; a revision's phase is a hash of its key. A turn costs a lookup for each
//! revision of the phase, and a task only for one that has ready pods: sleeping revisions are not scraped, and there is
//! no timer for any.
//!
//! # Who is asked
//!
//! A sample of the ready pods, old ones first (`autoscaler_core::sample`), directly at port 9090, all at once. When one
//! does not answer, the next candidate is asked in its place. Unlike upstream, what was answered counts even if somebody
//! did not: one bad pod must not blind a small revision. When everybody answers the result is the same.
//!
//! # Bounds
//!
//! 3 s for each answer, 336 bytes of it ([`BODY_MAX`]), [`SCRAPES_MAX`] revisions at once (others skip a turn), one kept
//! connection for each pod.
//!
//! # Not here
//!
//! Scraping through the Service where a mesh hides the pods (`mesh-compatibility-mode`), and
//! `enable-mesh-pod-addressability`.

#[cfg(test)]
mod tests;

use super::Collector;
use crate::pods::{PodIndex, ScrapeTarget};
use crate::scale::CollectionHealth;
use autoscaler_core::sample;
use bytes::Bytes;
use common::RevisionKey;
use common::stat::Stat;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::{Request, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use prometheus_client::metrics::histogram::Histogram;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Where a queue-proxy serves its stat.
pub const PORT: u16 = 9090;
/// Bytes of an answer that are read: six numbers, a name of 256 bytes and some.
pub const BODY_MAX: usize = 336;
/// Revisions scraped at once: at 3 s for a pod that does not answer, enough for 80 such revisions a second.
pub const SCRAPES_MAX: usize = 256;
/// Parts of the second that revisions are spread over.
pub const PHASES: usize = 20;
/// Time between two phases.
const STEP: Duration = Duration::from_millis(50);
/// Time for one pod's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Kept connections are closed when they were not used for so long.
const IDLE: Duration = Duration::from_secs(90);
/// Read buffer of a kept connection. An answer's head takes some 150 bytes.
const READ_BUFFER: usize = 2048;
/// The media type that an answer must have.
const PROTOBUF: &str = "application/protobuf";

/// Asks pods for their stats. Cheap to clone.
#[derive(Clone)]
pub struct Scraper {
    collector: Arc<Collector>,
    pods: Arc<PodIndex>,
    http: Client<HttpConnector, Empty<Bytes>>,
    port: u16,
    places: Arc<Semaphore>,
    duration: Histogram,
}

/// Why a pod's stat could not be had.
#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    #[error("GET request for URL \"{0}\" returned HTTP status {1}")]
    Status(String, u16),
    #[error("{0} answered with the unsupported metric type {1:?}")]
    Type(String, String),
    #[error("{0}: {1}")]
    Transport(String, String),
    #[error("{0}: unmarshalling failed: {1}")]
    Decode(String, common::wire::DecodeError),
}

impl Scraper {
    /// A scraper for the revisions of `collector`. `duration` gets the seconds of each scrape.
    pub fn new(collector: Arc<Collector>, pods: Arc<PodIndex>, duration: Histogram) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(ANSWER_TIMEOUT));
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(IDLE)
            .http1_read_buf_exact_size(READ_BUFFER)
            .build(connector);
        Self { collector, pods, http, port: PORT, places: Arc::new(Semaphore::new(SCRAPES_MAX)), duration }
    }

    /// Scrapes until `shutdown`. Scrapes under way then are dropped.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut ticks = interval(STEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let tasks = TaskTracker::new();
        // Filled at phase 0, so that the table is walked once a second and not at each step.
        let mut wheel = vec![Vec::new(); PHASES];
        for phase in (0..PHASES).cycle() {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
            }
            if phase == 0 {
                for key in self.collector.scraped_keys() {
                    wheel[phase_of(&key)].push(key);
                }
            }
            for key in std::mem::take(&mut wheel[phase]) {
                self.begin(key, &tasks);
            }
        }
    }

    fn begin(&self, key: RevisionKey, tasks: &TaskTracker) {
        let targets = self.pods.scrape_targets(&key);
        if targets.is_empty() {
            return; // Asleep, or starting: nothing to ask, and nothing to complain about.
        }
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            tracing::debug!(%key, "skipping a scrape: too many are under way");
            return;
        };
        if let Some(window) = self.collector.begin_scrape(&key) {
            let scraper = self.clone();
            tasks.spawn(async move {
                let _place = place;
                scraper.scrape(&key, targets, window).await;
            });
        }
    }

    async fn scrape(&self, key: &RevisionKey, targets: Vec<ScrapeTarget>, window: Duration) {
        let start = Instant::now();
        let population = targets.len();
        let (stats, error) = self.sample(targets, window).await;
        self.duration.observe(start.elapsed().as_secs_f64());
        let health = match &error {
            Some(error) if stats.is_empty() => CollectionHealth::Failed(error.to_string()),
            _ => CollectionHealth::Healthy,
        };
        if let Some(error) = error {
            tracing::debug!(%key, %error, answered = stats.len(), population, "scrape was not complete");
        }
        self.collector.end_scrape(key, sample::combine(&stats, population).as_ref(), health);
    }

    /// Stats of as many pods as are needed, as far as they can be had, and the last thing that went wrong.
    async fn sample(&self, targets: Vec<ScrapeTarget>, window: Duration) -> (Vec<Stat>, Option<ScrapeError>) {
        let now = self.collector.clock.now();
        let pods = targets.into_iter().map(|target| (target.address, target.started));
        let candidates = sample::choose(pods, now, window, &mut rand::rng());
        let mut rest = candidates.order.into_iter();
        let mut asked: FuturesUnordered<_> = rest.by_ref().take(candidates.needed).map(|ip| self.ask(ip)).collect();
        let (mut stats, mut error) = (Vec::with_capacity(candidates.needed), None);
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(stat) => stats.push(stat),
                Err(failed) => {
                    error = Some(failed);
                    asked.extend(rest.next().map(|ip| self.ask(ip)));
                }
            }
        }
        (stats, error)
    }

    async fn ask(&self, ip: IpAddr) -> Result<Stat, ScrapeError> {
        let url = format!("http://{}/metrics", SocketAddr::new(ip, self.port));
        let transport = |error: String| ScrapeError::Transport(url.clone(), error);
        let request = Request::get(&url)
            .header(header::ACCEPT, PROTOBUF)
            .body(Empty::new())
            .map_err(|error| transport(error.to_string()))?;
        let exchange = async {
            let response = self.http.request(request).await.map_err(|error| transport(error.to_string()))?;
            if !response.status().is_success() {
                return Err(ScrapeError::Status(url.clone(), response.status().as_u16()));
            }
            let media_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            if media_type != Some(PROTOBUF) {
                return Err(ScrapeError::Type(url.clone(), media_type.unwrap_or_default().to_owned()));
            }
            let body = Limited::new(response.into_body(), BODY_MAX).collect().await;
            let body = body.map_err(|error| transport(error.to_string()))?.to_bytes();
            common::wire::decode_stat(&body).map_err(|error| ScrapeError::Decode(url.clone(), error))
        };
        timeout(ANSWER_TIMEOUT, exchange).await.unwrap_or_else(|_| Err(transport("no answer in time".to_owned())))
    }
}

fn phase_of(key: &RevisionKey) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    usize::try_from(hasher.finish() % PHASES as u64).unwrap_or(0)
}
