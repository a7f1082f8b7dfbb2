//! Probes whether an activator is in the path, through the public Service itself, before the last pod is removed.
//!
//! The probe is `GET http://SERVICE.NAMESPACE.svc.DOMAIN:80//healthz` (81 for h2c in a Knative install), over a
//! connection of its own, with the headers to which activators respond with their name. A queue-proxy responds with
//! 400, a plain pod with any response: both mean that requests still reach the pods.
//!
//! # Never blocks a worker
//!
//! [`Prober::proof`] returns the latest result. On request, a task probes at once and then each second, until an
//! activator responds or [`ROUND`] is over. Each probe is bounded by [`PROBE_TIMEOUT`], and concurrent probes by
//! [`AT_ONCE_MAX`]. When the round ends, the revision is reconciled again. A revision has one round at a time.
//!
//! # Validity of a proof
//!
//! A positive proof is valid for [`PROOF_HOLDS`]: longer than the reconcile that it triggers, shorter than the time in
//! which a path could move back unnoticed. A negative proof is valid as long as its round, which keeps probing.

use autoscaler_core::scale_to_zero::ProbeResult;
use bytes::Bytes;
use common::RevisionKey as Key;
use common_controller::{Priority, WorkQueue};
use common_runtime::exchange::exchange;
use common_runtime::resolve::Resolve;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Longest duration of one probe, including name resolution.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time from the start of one probe to the start of the next.
const PROBE_PERIOD: Duration = Duration::from_secs(1);
/// Duration of a round before the revision is reconciled again.
const ROUND: Duration = Duration::from_secs(45);
/// Validity of a positive proof.
const PROOF_HOLDS: Duration = Duration::from_secs(5);
/// Maximum concurrent probes of the process. Limits the sockets if many revisions fall asleep at once.
const AT_ONCE_MAX: usize = 64;
/// Maximum length of a response body. An activator's is nine bytes.
const BODY_LENGTH_MAX: usize = 1024;

pub(crate) const USER_AGENT: &str = "Knative-Autoscaling-Probe";
/// Header that activators look for.
pub(crate) const PROBE_HEADER: &str = "K-Network-Probe";
/// Value of that header, and the activators' response.
pub(crate) const ACTIVATOR: &str = "activator";

/// Destination of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeTarget {
    pub(crate) host: String,
    pub(crate) port: u16,
}

pub(crate) struct Prober {
    resolver: Arc<dyn Resolve>,
    rounds: Mutex<HashMap<Key, Round>>,
    in_flight: Semaphore,
    shutdown: CancellationToken,
    /// Receives each revision whose round is over.
    queue: WorkQueue<Key>,
}

struct Round {
    target: ProbeTarget,
    state: RoundState,
    /// Ends with the round's entry.
    _task: AbortOnDropHandle<()>,
}

enum RoundState {
    Running(ProbeResult),
    /// An activator responded at this time.
    Proven(Instant),
}

impl Prober {
    /// Creates a prober that adds each revision whose round is over to `queue`.
    pub(crate) fn new(resolver: Arc<dyn Resolve>, shutdown: CancellationToken, queue: WorkQueue<Key>) -> Self {
        let in_flight = Semaphore::new(AT_ONCE_MAX);
        Self { resolver, rounds: Mutex::default(), in_flight, shutdown, queue }
    }

    /// Returns the latest result about the path to `target`.
    pub(crate) fn proof(&self, key: &Key, target: &ProbeTarget) -> ProbeResult {
        match self.rounds.lock().get(key).filter(|round| round.target == *target).map(|round| &round.state) {
            Some(RoundState::Running(result)) => *result,
            Some(RoundState::Proven(at)) if at.elapsed() < PROOF_HOLDS => ProbeResult::InPath,
            _ => ProbeResult::NotProbed,
        }
    }

    /// Starts a round, unless one is running for this target.
    pub(crate) fn start_round(self: &Arc<Self>, key: &Key, target: ProbeTarget) {
        let mut rounds = self.rounds.lock();
        let is_running = |round: &Round| round.target == target && matches!(round.state, RoundState::Running(_));
        if rounds.get(key).is_some_and(is_running) {
            return;
        }
        let round = self.clone().round(key.clone(), target.clone());
        let _task = AbortOnDropHandle::new(tokio::spawn(round));
        rounds.insert(key.clone(), Round { target, state: RoundState::Running(ProbeResult::NotProbed), _task });
    }

    /// Discards a revision's proof, because it is gone, and ends its round.
    pub(crate) fn forget(&self, key: &Key) {
        self.rounds.lock().remove(key);
    }

    async fn round(self: Arc<Self>, key: Key, target: ProbeTarget) {
        let end = Instant::now() + ROUND;
        loop {
            let started = Instant::now();
            let Some(proven) = self.shutdown.run_until_cancelled(self.probe(&target)).await else { return };
            let is_over = proven || Instant::now() >= end;
            match self.rounds.lock().entry(key.clone()) {
                Entry::Occupied(mut entry) if proven => entry.get_mut().state = RoundState::Proven(Instant::now()),
                Entry::Occupied(entry) if is_over => drop(entry.remove()),
                Entry::Occupied(mut entry) => entry.get_mut().state = RoundState::Running(ProbeResult::NotInPath),
                Entry::Vacant(_) => return, // Forgotten.
            }
            if is_over {
                return self.queue.add(key, Priority::Normal);
            }
            tokio::time::sleep_until(started + PROBE_PERIOD).await;
        }
    }

    async fn probe(&self, target: &ProbeTarget) -> bool {
        let Ok(_permit) = self.in_flight.acquire().await else { return false };
        let sent = tokio::time::timeout(PROBE_TIMEOUT, send(&*self.resolver, target)).await;
        let sent = sent.unwrap_or_else(|_| Err(anyhow::anyhow!("it did not respond in time")));
        sent.unwrap_or_else(|error| {
            tracing::debug!(host = %target.host, %error, "the public Service could not be probed");
            false
        })
    }
}

async fn send(resolver: &dyn Resolve, target: &ProbeTarget) -> anyhow::Result<bool> {
    let addresses = resolver.resolve(&target.host, target.port).await?;
    // Use a new connection each time. A kept one could still lead to a pod that has left the endpoints.
    let stream = TcpStream::connect(&addresses[..]).await?;
    let request = Request::get("//healthz")
        .header(header::HOST, format!("{}:{}", target.host, target.port))
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::CONNECTION, "close")
        .header(PROBE_HEADER, ACTIVATOR)
        .body(Empty::<Bytes>::new())?;
    let proven = exchange(stream, request, async |response| {
        let status = response.status();
        let body = Limited::new(response.into_body(), BODY_LENGTH_MAX).collect().await;
        body.map(|body| body.to_bytes() == ACTIVATOR.as_bytes() && status == StatusCode::OK)
    });
    proven.await?.map_err(|error| anyhow::anyhow!(error))
}

#[cfg(test)]
mod tests;
