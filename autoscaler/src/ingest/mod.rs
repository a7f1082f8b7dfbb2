//! Reception and routing of stats.
//!
//! ```text
//! stat_server ── decode ──┬─ owned here ────── collector ── poke
//!                         ├─ owned by a peer ─ peers ── durable websocket ── its stat_server
//!                         ├─ no owner yet ──── held, routed again, dropped after 15 s
//!                         └─ attestation ───── record, and send to every peer
//! ```
//!
//! All of it runs in the task that read the frame, up to the bounded queues of [`peers`]; nothing waits.
//!
//! # Edge cases
//!
//! - A stat that was forwarded to a former owner is forwarded to its successor, once, and never back
//!   ([`autoscaler_core::forwarding`]). Forwarded stats use a separate connection, because the hop is declared once per
//!   connection in the handshake ([`forwarded`]). An older Zeroscale autoscaler records second-hop stats, and drops
//!   first-hop stats of workloads that it does not own. Knative's autoscaler ignores the header and forwards what it
//!   does not own.
//! - An attestation is forwarded under two names, the pod's and its source address, because an endpoint may be known
//!   by either. The source address of a forwarded attestation is the forwarder's and is not used.
//! - An attestation is forwarded only while every bucket's owner is known, and an owner counts only until its lease
//!   expires by the local clock. A process that is cut off from the API server therefore neither forwards by stale
//!   ownership nor attests silence.
//! - If tokens are required, stats that an activator sends under another pod's name are dropped and counted.
//! - Entries without a stat that are no attestation (another namespace) are skipped, as upstream does.
//! - A stat for an owned revision that is not measured yet, as after a change of leader, is dropped and counted. It
//!   causes the revision to be reconciled before revisions without traffic ([`Multiscaler::request_unmeasured`]). Held
//!   requests are reported again in the next second's stat, which is recorded.

pub mod attest;
pub mod counters;
pub mod forwarded;
pub mod incomplete_frames;
pub mod peers;
pub mod queries;
pub mod stat_server;

#[cfg(test)]
mod tests;

use crate::collect::Collector;
use crate::scale::multiscaler::Multiscaler;
use attest::Attestations;
use autoscaler_core::forwarding::{Forwarded, Route, route};
use bytes::Bytes;
use common::RevisionKey;
use common::stat::{Stat, WireStatMessage};
use common_controller::shares::{Instance, Shares};
use common_runtime::clock::Clock;
use counters::{Dropped, IngestCounters};
use peers::Peers;
use stat_server::{Origin, Sink};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Longest time for which a stat is kept before it is forwarded.
const KEEP_SECS: i64 = peers::KEEP.as_secs() as i64;

/// Router of stats: records stats of owned revisions, and forwards the others.
pub struct Ingest {
    /// Namespace that attestations carry.
    pub(crate) system_namespace: String,
    pub(crate) shares: Shares,
    pub(crate) local: Arc<LocalRecorder>,
    pub(crate) attestations: Arc<Attestations>,
    pub(crate) peers: Arc<Peers>,
}

/// Local recorder of stats.
pub struct LocalRecorder {
    /// Measurement windows.
    pub collector: Arc<Collector>,
    /// Decision loops, for the poke.
    pub multiscaler: Arc<Multiscaler>,
    /// Wall-clock time.
    pub clock: Clock,
    /// Counters of received stats.
    pub counters: IngestCounters,
}

impl Ingest {
    fn stat(&self, message: WireStatMessage, mut stat: Stat, forwarded: Option<&Forwarded<Instance>>) {
        let key = RevisionKey::new(message.namespace.as_str(), message.name.as_str());
        let now = self.local.clock.now().as_secs();
        if stat.timestamp == 0 {
            stat.timestamp = now;
        } else if forwarded.is_some() {
            // The time stamp is by the clock of the first receiver, which may differ from this one. The stat was
            // delayed by at most `KEEP_SECS`.
            stat.timestamp = stat.timestamp.clamp(now - KEEP_SECS, now);
        }
        match route(self.shares.owner(&key), forwarded, Duration::ZERO) {
            Route::Record => self.local.record(&key, &stat, &message),
            onward => self.peers.execute(onward, WireStatMessage { stat: Some(stat), ..message }, forwarded.cloned()),
        }
    }

    fn attestation(&self, message: &WireStatMessage, from: &Origin) {
        if message.namespace != self.system_namespace {
            return;
        }
        let now = Instant::now();
        self.attestations.record(&message.name, now);
        if from.forwarded.is_none() {
            let address = from.ip.to_canonical().to_string();
            self.attestations.record(&address, now);
            // A process that does not know every bucket's owner must not attest silence either. Its view of the leases
            // may be stale, and the new owner would trust the silence while stats go to the wrong instance.
            if self.shares.are_settled() {
                self.peers.attest(&self.system_namespace, [&message.name, &address]);
            }
        }
    }
}

impl Sink for Ingest {
    fn frame(&self, frame: Bytes, from: &Origin) -> bool {
        let Ok(frame) = common::wire::decode(&frame).inspect_err(
            |error| tracing::debug!(peer = %from.ip, %error, "a frame that cannot be decoded was dropped"),
        ) else {
            return false;
        };
        for mut message in frame.messages {
            let sender = message.stat.as_ref().map_or(&message.name, |stat| &stat.pod_name);
            if from.pod.as_deref().is_some_and(|pod| pod != sender) {
                // At debug level only, because a counter exists.
                tracing::debug!(peer = %from.ip, pod = from.pod.as_deref(), %sender, "a message in the name of another pod was dropped");
                self.local.counters.dropped(Dropped::Impostor, 1);
                continue;
            }
            match message.stat.take() {
                Some(stat) => self.stat(message, stat, from.forwarded.as_ref()),
                None => self.attestation(&message, from),
            }
        }
        true
    }

    fn owns_bucket(&self, name: &str) -> bool {
        self.shares.owns_bucket(name)
    }
}

impl LocalRecorder {
    fn record(&self, key: &RevisionKey, stat: &Stat, message: &WireStatMessage) {
        let trace = message.trace.as_str();
        if let Some(observations) = &message.observations {
            self.collector.record_observations(key, observations);
        }
        match self.collector.record(key, stat, self.clock.now()) {
            Some(Ok(())) => {
                self.counters.recorded.inc();
                self.multiscaler.stat_recorded(key, stat.average_concurrent_requests, trace);
            }
            None => {
                self.counters.dropped(Dropped::UnknownRevision, 1);
                self.multiscaler.request_unmeasured(key);
            }
            Some(Err(refused)) => {
                tracing::debug!(%key, pod = %stat.pod_name, %refused, "a stat with an invalid value was dropped");
                self.counters.dropped(refused.into(), 1);
            }
        }
    }

    /// Records a stat whose owner turned out to be this process.
    pub fn accept(&self, mut message: WireStatMessage) {
        if let Some(stat) = message.stat.take() {
            self.record(&RevisionKey::new(&message.namespace, &message.name), &stat, &message);
        }
    }
}
