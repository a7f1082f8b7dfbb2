//! What became of stats, as metrics.

use common_runtime::telemetry::Metrics;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// Why a stat was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Dropped {
    /// No revision of that name is collected here.
    UnknownRevision,
    /// Its numbers or its time stamp cannot be honest.
    Refused,
    /// Another instance forwarded it here, and we do not own it either.
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
        metrics.register("zeroscale_stats_recorded", "Stats that count in a window of this process", recorded);
        metrics.register("zeroscale_stats_forwarded", "Stats sent on to the instance that owns them", forwarded);
        metrics.register("zeroscale_stats_dropped", "Stats that count nowhere, by reason", dropped);
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
