//! How stats come in, and to whom they go.
//!
//! ```text
//! stat_server ── decode ──┬─ ours ─────────── collector ── poke
//!                         ├─ another's ────── peers ── durable websocket ── its stat_server
//!                         ├─ nobody's yet ─── held, asked again, dropped after 15 s
//!                         └─ attestation ──── attest, and to every peer
//! ```
//!
//! All of it runs in the task that has read the frame, up to the bounded queues of [`peers`]; nothing waits.
//!
//! # Odd cases
//!
//! - A stat that was forwarded to a former owner goes on to its successor, once, and never back
//!   ([`autoscaler_core::forwarding`]). It takes another link than what is first-hand: the handshake says by which hop
//!   everything comes ([`forwarded`]). An older autoscaler of ours takes what comes by the second hop, and drops what
//!   came to it by the first; upstream's does not read the header, and sends on what is not its own.
//! - An attestation is forwarded under two names, the pod's and the address it came from, since an endpoint may be
//!   known by either; a forwarded one comes from the forwarder's address, which says nothing.
//! - An attestation is forwarded only while every bucket's owner is known, and an owner only counts until its lease has
//!   run out as seen from here: a process cut off from the API server neither forwards by a stale view nor vouches for
//!   silence.
//! - Where tokens are demanded, what an activator sends under another pod's name than its own is dropped and counted.
//! - Entries without a stat that are no attestation (another namespace) are skipped, as upstream does.
//! - A stat of a revision that is ours and not measured yet, as after a change of leader, is dropped and counted, and has
//!   the revision reconciled before those that nobody calls for ([`Multiscaler::unknown`]). What is held is told again
//!   with the next second's stat, which counts.

pub mod asking;
pub mod attest;
pub mod counters;
pub mod forwarded;
pub mod peers;
pub mod stat_server;
pub mod unfinished;

#[cfg(test)]
mod tests;

use crate::collect::{Collector, Recorded};
use crate::scale::multiscaler::Multiscaler;
use attest::Attestations;
use autoscaler_core::forwarding::{Forwarded, Route, route};
use bytes::Bytes;
use common::RevisionKey;
use common::stat::{Stat, WireStatMessage};
use common_controller::shares::{Instance, Shares};
use common_runtime::clock::Clock;
use counters::{Dropped, IngestCounters};
use peers::{Local, Peers};
use stat_server::{Origin, Sink};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Longest time that a stat is on its way to who it is forwarded to.
const KEEP_SECS: i64 = peers::KEEP.as_secs() as i64;

/// Records what is ours, forwards what is not.
pub struct Ingest {
    /// Namespace that attestations carry.
    system_namespace: String,
    shares: Shares,
    here: Arc<Here>,
    attestations: Arc<Attestations>,
    peers: Peers,
    clock: Clock,
    counters: IngestCounters,
}

/// What records a stat in this process.
pub struct Here {
    /// Windows.
    pub collector: Arc<Collector>,
    /// Decision loops, for the poke.
    pub multiscaler: Arc<Multiscaler>,
    /// Wall-clock time.
    pub clock: Clock,
    /// What is counted.
    pub counters: IngestCounters,
}

impl Ingest {
    /// Routes by `shares`: to `here`, or to `peers`.
    pub fn new(
        system_namespace: String,
        shares: Shares,
        here: Arc<Here>,
        attestations: Arc<Attestations>,
        peers: Peers,
    ) -> Self {
        let (clock, counters) = (here.clock.clone(), here.counters.clone());
        Self { system_namespace, shares, here, attestations, peers, clock, counters }
    }

    fn stat(&self, message: WireStatMessage, mut stat: Stat, came: Option<&Forwarded<Instance>>) {
        let key = RevisionKey::new(message.namespace.as_str(), message.name.as_str());
        let now = self.clock.now().as_secs();
        if stat.timestamp == 0 {
            stat.timestamp = now;
        } else if came.is_some() {
            // By the clock of who has received it first, which may differ from this one, within the time that it keeps it.
            stat.timestamp = stat.timestamp.clamp(now - KEEP_SECS, now);
        }
        match route(self.shares.owner(&key), came, Duration::ZERO) {
            Route::Record => self.here.record(&key, &stat, &message),
            onward => self.peers.pass(onward, WireStatMessage { stat: Some(stat), ..message }, came.cloned()),
        }
    }

    /// Somebody speaks for another pod than the one it has proven to be. Said at debug: the counter tells of it.
    fn impostor(&self, from: &Origin, speaker: &str) {
        tracing::debug!(peer = %from.ip, pod = from.pod.as_deref(), %speaker, "dropped: not its own");
        self.counters.dropped(Dropped::Impostor, 1);
    }

    fn attestation(&self, message: &WireStatMessage, from: &Origin) {
        if message.namespace != self.system_namespace {
            return;
        }
        let now = Instant::now();
        self.attestations.heard(&message.name, now);
        if from.forwarded.is_none() {
            let address = from.ip.to_canonical().to_string();
            self.attestations.heard(&address, now);
            // Whoever cannot tell where the stats of some bucket belong must not vouch for their absence either: its
            // view of the leases may be stale, and the new owner would hear silence while stats go astray.
            if self.shares.are_settled() {
                self.peers.attest(&self.system_namespace, [&message.name, &address]);
            }
        }
    }
}

impl Sink for Ingest {
    fn frame(&self, frame: Bytes, from: &Origin) -> bool {
        let frame = match common::wire::decode(&frame) {
            Ok(frame) => frame,
            Err(error) => {
                tracing::debug!(peer = %from.ip, %error, "frame dropped");
                return false;
            }
        };
        for mut message in frame.messages {
            let speaker = message.stat.as_ref().map_or(&message.name, |stat| &stat.pod_name);
            if from.pod.as_deref().is_some_and(|pod| pod != speaker) {
                self.impostor(from, speaker);
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

impl Here {
    fn record(&self, key: &RevisionKey, stat: &Stat, message: &WireStatMessage) {
        let trace = message.trace.as_str();
        if let Some(seen) = &message.seen {
            self.collector.seen(key, seen);
        }
        match self.collector.record(key, stat, self.clock.now()) {
            Recorded::Yes => {
                self.counters.recorded();
                self.multiscaler.stat_recorded(key, stat.average_concurrent_requests, trace);
            }
            Recorded::Unknown => {
                self.counters.dropped(Dropped::UnknownRevision, 1);
                self.multiscaler.unknown(key);
            }
            Recorded::Refused(refused) => {
                tracing::debug!(%key, pod = %stat.pod_name, %refused, "stat refused");
                self.counters.dropped(refused.into(), 1);
            }
        }
    }
}

impl Local for Here {
    fn accept(&self, mut message: WireStatMessage) {
        if let Some(stat) = message.stat.take() {
            self.record(&RevisionKey::new(&message.namespace, &message.name), &stat, &message);
        }
    }
}
