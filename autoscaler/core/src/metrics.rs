//! What is known of one revision's load: a stable and a panic window, each for concurrency and for requests a second.
//!
//! # Recording
//!
//! Each stat adds `concurrency − proxied concurrency` and `requests − proxied requests` to both windows: what came
//! through an activator is reported by the activator itself. The difference may be negative, since the two measure at
//! different moments; the fields themselves may not.
//!
//! Whoever sends stats need not be authenticated. A number that would spoil the windows (infinite, not a number,
//! negative, too large to be summed exactly) and a time stamp in the future (which would make everything after it "too
//! old") are refused, counted, and named.
//!
//! # Reading
//!
//! - Pods are scraped, and nothing lies within the stable window: [`Unknown::NoData`]. Upstream says so a second later,
//!   and at exactly one window after the last value reads a load of zero that nobody measured.
//! - Pods are not scraped (activators alone report): an empty window is zero load.
//!
//! As upstream, a panic window that has fallen silent reads 0 while the stable one still holds values.
//!
//! # Not here
//!
//! Who has to attest, and when; revisions that are not collected at all.

#[cfg(test)]
mod tests;

use std::time::Duration;

use common::scaling::{Aggregation, ScalingMetric};
use common::stat::Stat;
use common::time::Timestamp;

use crate::decider::{Load, Unknown};
use crate::window::Window;

/// Furthest into the future that a time stamp may lie: clocks of well-kept machines differ by less, and the shortest
/// panic window in use by default (6 s) survives it.
pub const FUTURE_MAX: Duration = Duration::from_secs(5);
/// Largest number of requests, running or arriving, that one stat may claim. Sums of such numbers are still exact to a
/// millionth.
pub const VALUE_MAX: f64 = 1e9;

/// How one revision's load is collected; what a Metric object says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsSpec {
    /// Length of the stable window.
    pub stable_window: Duration,
    /// Length of the panic window.
    pub panic_window: Duration,
    /// How the windows average.
    pub aggregation: Aggregation,
    /// Whether pods are scraped (a scrape target is set): then an empty window is missing data, not zero load.
    pub scraped: bool,
}

/// Why a stat was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RejectedStat {
    /// Infinite or not a number.
    #[error("{field} is {value}, not a finite number")]
    NotFinite {
        /// The field, by its name on the wire.
        field: &'static str,
        /// What it held.
        value: f64,
    },
    /// Below zero.
    #[error("{field} is {value}, below 0")]
    Negative {
        /// The field, by its name on the wire.
        field: &'static str,
        /// What it held.
        value: f64,
    },
    /// Above [`VALUE_MAX`].
    #[error("{field} is {value}, above {VALUE_MAX}")]
    TooLarge {
        /// The field, by its name on the wire.
        field: &'static str,
        /// What it held.
        value: f64,
    },
    /// Its time stamp is more than [`FUTURE_MAX`] ahead of our clock.
    #[error("timestamp {timestamp} is {ahead_secs} s ahead of our clock, more than {} s", FUTURE_MAX.as_secs())]
    Future {
        /// Unix seconds.
        timestamp: i64,
        /// How far ahead.
        ahead_secs: i64,
    },
}

impl RejectedStat {
    /// A short name for a metric's label.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotFinite { .. } => "not_finite",
            Self::Negative { .. } => "negative",
            Self::TooLarge { .. } => "too_large",
            Self::Future { .. } => "future",
        }
    }
}

/// The windows of one revision. See the [module](self).
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Concurrency and requests a second.
    stable: Window<2>,
    panic: Window<2>,
    scraped: bool,
    refused: u32,
}

impl Metrics {
    /// Empty windows.
    pub fn new(spec: &MetricsSpec) -> Self {
        Self {
            stable: Window::new(spec.stable_window, spec.aggregation),
            panic: Window::new(spec.panic_window, spec.aggregation),
            scraped: spec.scraped,
            refused: 0,
        }
    }

    /// Follows an edited spec. What was recorded stays, as far as it fits.
    pub fn update(&mut self, spec: &MetricsSpec, now: Timestamp) {
        self.stable.resize(spec.stable_window, spec.aggregation, now);
        self.panic.resize(spec.panic_window, spec.aggregation, now);
        self.scraped = spec.scraped;
    }

    /// Records a stat at its own time stamp, or `now` if it has none. One that is older than a window is ignored by it.
    ///
    /// # Errors
    /// Says what is wrong with the stat; nothing of it was recorded.
    pub fn record(&mut self, stat: &Stat, now: Timestamp) -> Result<(), RejectedStat> {
        if let Err(refused) = check(stat, now) {
            self.refused = self.refused.saturating_add(1);
            return Err(refused);
        }
        let at = if stat.timestamp == 0 { now } else { Timestamp::from_secs(stat.timestamp) };
        let values = [
            stat.average_concurrent_requests - stat.average_proxied_concurrent_requests,
            stat.request_count - stat.proxied_request_count,
        ];
        self.stable.record(at, values);
        self.panic.record(at, values);
        Ok(())
    }

    /// The load at `now`, as far as it was reported.
    ///
    /// # Errors
    /// [`Unknown::NoData`].
    pub fn load(&self, metric: ScalingMetric, now: Timestamp) -> Result<Load, Unknown> {
        if self.scraped && self.stable.is_silent(now) {
            return Err(Unknown::NoData);
        }
        let k = match metric {
            ScalingMetric::Concurrency => 0,
            ScalingMetric::Rps => 1,
        };
        Ok(Load { stable: self.stable.average(now)[k], panic: self.panic.average(now)[k] })
    }

    /// Gives memory back that silence has made useless. Cheap; meant for every tick.
    pub fn release(&mut self, now: Timestamp) {
        self.stable.release(now);
        self.panic.release(now);
    }

    /// How many stats were refused.
    pub fn refused(&self) -> u32 {
        self.refused
    }
}

fn check(stat: &Stat, now: Timestamp) -> Result<(), RejectedStat> {
    let fields = [
        ("average_concurrent_requests", stat.average_concurrent_requests),
        ("average_proxied_concurrent_requests", stat.average_proxied_concurrent_requests),
        ("request_count", stat.request_count),
        ("proxied_request_count", stat.proxied_request_count),
    ];
    for (field, value) in fields {
        if !value.is_finite() {
            return Err(RejectedStat::NotFinite { field, value });
        }
        if value < 0.0 {
            return Err(RejectedStat::Negative { field, value });
        }
        if value > VALUE_MAX {
            return Err(RejectedStat::TooLarge { field, value });
        }
    }
    let ahead_secs = stat.timestamp.saturating_sub(now.as_secs());
    if ahead_secs > FUTURE_MAX.as_secs() as i64 {
        return Err(RejectedStat::Future { timestamp: stat.timestamp, ahead_secs });
    }
    Ok(())
}
