//! What became of connections, frames and stats, as metrics.

use autoscaler_core::metrics::RejectedStat;
use common_runtime::telemetry::{Metrics, catalog};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// Why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum BadFrame {
    /// Text; stats come in binary frames.
    NotBinary,
    /// No batch of stats: truncated, or something else.
    Undecodable,
    /// More than [`super::stat_server::FRAME_MAX`] bytes. Its connection was closed.
    TooLarge,
    /// The WebSocket protocol forbids it. Its connection was closed.
    Forbidden,
    /// Its end did not come in time, or too many were as large and had none. Its connection was closed.
    Unfinished,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FrameReason {
    reason: BadFrame,
}

/// Counters of the stat server. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Open WebSocket connections.
    pub connections: Gauge,
    /// Binary frames read.
    pub frames: Counter,
    /// Connections that could not agree on TLS, or wanted none where it is demanded.
    pub tls_refusals: Counter,
    bad_frames: Family<FrameReason, Counter>,
}

impl Counters {
    /// Counters that `metrics` shows.
    pub fn new(metrics: &Metrics) -> Self {
        let counters = Self::default();
        let Self { connections, frames, tls_refusals, bad_frames } = counters.clone();
        metrics.register(catalog::STAT_CONNECTIONS, connections);
        metrics.register(catalog::STAT_FRAMES, frames);
        metrics.register(catalog::STAT_BAD_FRAMES, bad_frames);
        metrics.register(catalog::STAT_TLS_REFUSALS, tls_refusals);
        counters
    }

    /// One more frame was dropped.
    pub fn bad_frame(&self, reason: BadFrame) {
        self.bad_frames.get_or_create(&FrameReason { reason }).inc();
    }

    /// How many frames were dropped for this reason.
    pub fn bad_frames(&self, reason: BadFrame) -> u64 {
        self.bad_frames.get_or_create(&FrameReason { reason }).get()
    }
}

/// Why a stat was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Dropped {
    /// No revision of that name is collected here.
    UnknownRevision,
    /// One of its numbers is infinite or none at all.
    NotFinite,
    /// One of its numbers is below zero.
    Negative,
    /// One of its numbers is beyond anything that a pod can see.
    TooLarge,
    /// Its time stamp is far ahead.
    Future,
    /// Two hops between autoscalers have not brought it to its owner.
    Misrouted,
    /// Its owner could not be reached in time, or there was none.
    Expired,
    /// Too many waited for its owner.
    QueueFull,
    /// Its sender has proven to be another pod.
    Impostor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: Dropped,
}

impl From<RejectedStat> for Dropped {
    fn from(refused: RejectedStat) -> Self {
        match refused {
            RejectedStat::NotFinite { .. } => Self::NotFinite,
            RejectedStat::Negative { .. } => Self::Negative,
            RejectedStat::TooLarge { .. } => Self::TooLarge,
            RejectedStat::Future { .. } => Self::Future,
        }
    }
}

/// Counters of the way in. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct IngestCounters {
    recorded: Counter,
    forwarded: Counter,
    dropped: Family<Reason, Counter>,
}

impl IngestCounters {
    /// Counters that `metrics` shows.
    pub fn new(metrics: &Metrics) -> Self {
        let counters = Self::default();
        let Self { recorded, forwarded, dropped } = counters.clone();
        metrics.register(catalog::STATS_RECORDED, recorded);
        metrics.register(catalog::STATS_FORWARDED, forwarded);
        metrics.register(catalog::STATS_DROPPED, dropped);
        counters
    }

    /// One more was recorded.
    pub fn recorded(&self) {
        self.recorded.inc();
    }

    /// So many more were handed to another instance.
    pub fn forwarded(&self, count: usize) {
        self.forwarded.inc_by(count as u64);
    }

    /// So many more were dropped.
    pub fn dropped(&self, reason: Dropped, count: usize) {
        self.dropped.get_or_create(&Reason { reason }).inc_by(count as u64);
    }

    /// How many were recorded, and forwarded.
    pub fn totals(&self) -> (u64, u64) {
        (self.recorded.get(), self.forwarded.get())
    }

    /// How many were dropped for this reason.
    pub fn dropped_total(&self, reason: Dropped) -> u64 {
        self.dropped.get_or_create(&Reason { reason }).get()
    }
}
