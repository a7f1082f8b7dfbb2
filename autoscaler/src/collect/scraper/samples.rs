//! As many samples as are needed, from the pods themselves or from their Service.
//!
//! What was answered counts even if somebody did not answer: one bad pod must not blind a small revision. Upstream
//! drops the whole second then. When everybody answers the result is the same.
//!
//! Each way of asking ends after [`SAMPLE_TIMEOUT`], whoever has not answered by then: many pods that hang, one asked
//! in place of the other, must not keep what the others have told from being counted.

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

/// Questions to a Service after which a worker gives up, if the last one told nothing.
const TRIES_MAX: usize = 10;

/// Longest time for one sample: one pod that hangs can be replaced by another, and that is all.
pub(super) const SAMPLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Once some pods have answered, the others have this long: there is a sample each second, and a second without one counts as
/// no load.
const OTHERS_WITHIN: Duration = Duration::from_millis(900);

/// What a scrape has found.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// One for each pod that has answered, as many as are needed at most.
    pub(super) stats: Vec<Stat>,
    /// How many are needed.
    pub(super) needed: usize,
    /// The last thing that went wrong for good.
    pub(super) error: Option<ScrapeError>,
    /// Nobody has told anything, and every failure looked like a mesh that hides the pods.
    pub(super) hidden: bool,
}

/// Asks the pods at their addresses, all that are needed at once. When one does not answer, the next candidate is asked
/// in its place; one that hangs is left out as soon as others have answered ([`OTHERS_WITHIN`]). `through`: see [`Http::pod`].
pub(super) async fn from_pods(http: &Http, candidates: Candidates<IpAddr>, through: Option<&Service>) -> Samples {
    let Candidates { needed, order } = candidates;
    let mut rest = order.into_iter();
    let mut asked: FuturesUnordered<_> = rest.by_ref().take(needed).map(|ip| http.pod(ip, through)).collect();
    let (mut found, mut mesh_like) = (Samples { needed, ..Samples::default() }, true);
    let begun = Instant::now();
    loop {
        let within = if found.stats.is_empty() { SAMPLE_TIMEOUT } else { OTHERS_WITHIN };
        let answer = match timeout_at(begun + within, asked.next()).await {
            Ok(Some(answer)) => answer,
            Ok(None) => break,
            Err(_) => Err(ScrapeError::Late(within)),
        };
        match answer {
            Err(late @ ScrapeError::Late(_)) => {
                mesh_like = false;
                found.error = Some(late);
                break;
            }
            Ok(stat) => found.stats.push(stat),
            Err(failed) => {
                mesh_like &= failed.is_mesh_like();
                found.error = Some(failed);
                asked.extend(rest.next().map(|ip| http.pod(ip, through)));
            }
        }
    }
    found.hidden = mesh_like && found.error.is_some() && found.stats.is_empty();
    found
}

/// Asks the Service in front of `population` pods, again and again, until enough different pods have answered. Those
/// that are up for `window` come first, younger ones fill up.
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

/// Asks until an old pod has answered, or enough young ones have.
async fn work(http: &Http, service: &Service, answers: &Mutex<Answers>) -> Result<(), ScrapeError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let answer = http.service(service).await;
        match answer.and_then(|stat| answers.lock().take(stat)) {
            Ok(Progress::Done) => return Ok(()),
            Ok(Progress::Young) => {}
            Err(error) if tries >= TRIES_MAX => return Err(error),
            Err(_) => {}
        }
    }
}

/// Answers of a Service, each pod's once.
#[derive(Debug, Default)]
struct Answers {
    needed: usize,
    /// Seconds of uptime that make a pod old.
    cutoff: f64,
    seen: HashSet<String>,
    old: Vec<Stat>,
    /// At most `needed`.
    young: Vec<Stat>,
}

enum Progress {
    /// The worker's part is done.
    Done,
    /// It counts if there are not enough old ones; the worker goes on.
    Young,
}

impl Answers {
    fn take(&mut self, stat: Stat) -> Result<Progress, ScrapeError> {
        if !self.seen.insert(stat.pod_name.clone()) {
            return Err(ScrapeError::Unscraped);
        }
        if stat.process_uptime >= self.cutoff {
            self.old.push(stat);
            return Ok(Progress::Done);
        }
        if self.young.len() >= self.needed {
            return Ok(Progress::Done);
        }
        self.young.push(stat);
        Ok(Progress::Young)
    }
}
