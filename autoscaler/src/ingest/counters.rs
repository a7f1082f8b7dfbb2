//! Outcomes of connections, frames and stats, as metrics.

use autoscaler_core::metrics::RejectedStat;
use common_runtime::telemetry::{Metrics, catalog};
use prometheus_client::encoding::EncodeLabelValue;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

type ByReason<R> = Family<[(&'static str, R); 1], Counter>;

/// Reason for dropping a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum BadFrame {
    /// Text frame; stats arrive in binary frames.
    NotBinary,
    /// Not a batch of stats: truncated, or something else.
    Undecodable,
    /// More than [`super::stat_server::FRAME_MAX`] bytes. The connection was closed.
    TooLarge,
    /// Forbidden by the WebSocket protocol. The connection was closed.
    Forbidden,
    /// Not complete in time, or too many large frames were incomplete at once. The connection was closed.
    Unfinished,
}

/// Counters of the stat server. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Open WebSocket connections.
    pub connections: Gauge,
    /// Binary frames read.
    pub frames: Counter,
    /// Connections whose TLS handshake failed, or which used no TLS where it is required.
    pub tls_refusals: Counter,
    pub(super) bad_frames: ByReason<BadFrame>,
}

impl Counters {
    /// Creates counters that `metrics` exports.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            connections: metrics.register(catalog::STAT_CONNECTIONS, Gauge::default()),
            frames: metrics.register(catalog::STAT_FRAMES, Counter::default()),
            bad_frames: metrics.register(catalog::STAT_BAD_FRAMES, Family::default()),
            tls_refusals: metrics.register(catalog::STAT_TLS_REFUSALS, Counter::default()),
        }
    }

    /// Counts a dropped frame.
    pub fn bad_frame(&self, reason: BadFrame) {
        self.bad_frames.get_or_create(&[("reason", reason)]).inc();
    }
}

/// Reason for dropping a stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Dropped {
    /// No revision of that name is collected here.
    UnknownRevision,
    /// One of its numbers is infinite or not a number.
    NotFinite,
    /// One of its numbers is negative.
    Negative,
    /// One of its numbers is larger than any pod can observe.
    TooLarge,
    /// Its time stamp is far in the future.
    Future,
    /// Two hops between autoscalers did not lead to its owner.
    Misrouted,
    /// Its owner could not be reached in time, or it had none.
    Expired,
    /// Its owner's queue was full.
    QueueFull,
    /// Its sender has proven to be another pod.
    Impostor,
}

impl From<RejectedStat> for Dropped {
    fn from(refused: RejectedStat) -> Self {
        match refused {
            RejectedStat::NotFinite(..) => Self::NotFinite,
            RejectedStat::Negative(..) => Self::Negative,
            RejectedStat::TooLarge(..) => Self::TooLarge,
            RejectedStat::Future(..) => Self::Future,
        }
    }
}

/// Counters of received stats. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct IngestCounters {
    /// Recorded stats.
    pub recorded: Counter,
    /// Stats that were forwarded to another instance.
    pub forwarded: Counter,
    pub(super) dropped: ByReason<Dropped>,
}

impl IngestCounters {
    /// Creates counters that `metrics` exports.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            recorded: metrics.register(catalog::STATS_RECORDED, Counter::default()),
            forwarded: metrics.register(catalog::STATS_FORWARDED, Counter::default()),
            dropped: metrics.register(catalog::STATS_DROPPED, Family::default()),
        }
    }

    /// Counts dropped stats.
    pub fn dropped(&self, reason: Dropped, count: usize) {
        self.dropped.get_or_create(&[("reason", reason)]).inc_by(count as u64);
    }
}
