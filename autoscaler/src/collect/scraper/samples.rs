//! Collects the required number of samples, from the pods themselves or from their Service.
//!
//! The received stats count even if some pods do not respond, so that one bad pod does not leave a small revision
//! without data. Upstream drops the whole second in that case. If all pods respond, the result is the same.
//!
//! Each method ends after [`SAMPLE_TIMEOUT`]. Otherwise many hanging pods, requested one after the other, would delay
//! the received stats.

use super::client::{Http, ScrapeError, Service};
use autoscaler_core::sample::{self, Candidates};
use common::stat::Stat;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Number of requests to a Service after which a worker gives up, if the last one returned nothing new.
const TRIES_MAX: usize = 10;

/// Deadline of one sample: enough time to replace one hanging pod by another.
pub(super) const SAMPLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit, from the start, once some pods have responded. There is a sample each second, and a second without one
/// counts as no load.
const OTHERS_WITHIN: Duration = Duration::from_millis(900);

/// Result of a scrape.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// One stat for each pod that responded, at most `needed`.
    pub(super) stats: Vec<Stat>,
    /// Required number of stats.
    pub(super) needed: usize,
    /// Last permanent failure.
    pub(super) error: Option<ScrapeError>,
    /// Set if no pod returned a stat, and every failure looked like a mesh that hides the pods.
    pub(super) hidden: bool,
}

/// Requests the stats of the pods at their addresses, all needed ones at once. If a pod fails, the next candidate is
/// requested in its place. Pods that hang are left out soon after others have responded ([`OTHERS_WITHIN`]).
/// `through`: see [`Http::pod`].
pub(super) async fn from_pods(http: &Http, candidates: Candidates<IpAddr>, through: Option<&Service>) -> Samples {
    let Candidates { needed, order } = candidates;
    let mut rest = order.into_iter();
    let mut requests: FuturesUnordered<_> = rest.by_ref().take(needed).map(|ip| http.pod(ip, through)).collect();
    let (mut found, mut mesh_like) = (Samples { needed, ..Samples::default() }, true);
    let begun = Instant::now();
    loop {
        let within = if found.stats.is_empty() { SAMPLE_TIMEOUT } else { OTHERS_WITHIN };
        let answer = match timeout_at(begun + within, requests.next()).await {
            Ok(Some(answer)) => answer,
            Ok(None) => break,
            Err(_) => {
                (mesh_like, found.error) = (false, Some(ScrapeError::Late(within)));
                break;
            }
        };
        match answer {
            Ok(stat) => found.stats.push(stat),
            Err(failed) => {
                mesh_like &= failed.is_mesh_like();
                found.error = Some(failed);
                requests.extend(rest.next().map(|ip| http.pod(ip, through)));
            }
        }
    }
    found.hidden = mesh_like && found.error.is_some() && found.stats.is_empty();
    found
}

/// Requests the Service in front of `population` pods repeatedly, until enough different pods have responded. Pods
/// that have run for `window` come first; younger ones fill the remaining places.
pub(super) async fn from_service(http: &Http, service: &Service, population: usize, window: Duration) -> Samples {
    let needed = sample::sample_size(population);
    let answers = Mutex::new(Answers { needed, cutoff: window.as_secs_f64(), ..Answers::default() });
    let mut workers: FuturesUnordered<_> = (0..needed).map(|_| work(http, service, &answers)).collect();
    let mut error = None;
    let all = async {
        while let Some(outcome) = workers.next().await {
            error = outcome.err().or(error.take());
        }
    };
    if timeout(SAMPLE_TIMEOUT, all).await.is_err() {
        error = Some(ScrapeError::Late(SAMPLE_TIMEOUT));
    }
    drop(workers);
    let Answers { old: mut stats, young, .. } = answers.into_inner();
    stats.extend(young);
    stats.truncate(needed);
    Samples { stats, needed, error, hidden: false }
}

/// Sends requests until an old pod has responded, or enough young ones have.
async fn work(http: &Http, service: &Service, answers: &Mutex<Answers>) -> Result<(), ScrapeError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let answer = http.service(service).await;
        match answer.and_then(|stat| answers.lock().take(stat)) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) if tries >= TRIES_MAX => return Err(error),
            Err(_) => {}
        }
    }
}

/// Responses of a Service, one for each pod.
#[derive(Debug, Default)]
struct Answers {
    needed: usize,
    /// Uptime in seconds from which a pod counts as old.
    cutoff: f64,
    /// Names of the pods that have responded.
    pods: HashSet<String>,
    old: Vec<Stat>,
    /// At most `needed`.
    young: Vec<Stat>,
}

impl Answers {
    /// Records a response. Returns whether the worker is finished; a young pod counts only if there are not enough old
    /// ones.
    fn take(&mut self, stat: Stat) -> Result<bool, ScrapeError> {
        if !self.pods.insert(stat.pod_name.clone()) {
            return Err(ScrapeError::Unscraped);
        }
        if stat.process_uptime >= self.cutoff {
            self.old.push(stat);
            return Ok(true);
        }
        if self.young.len() >= self.needed {
            return Ok(true);
        }
        self.young.push(stat);
        Ok(false)
    }
}
