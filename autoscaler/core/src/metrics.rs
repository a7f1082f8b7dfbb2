//! Load of one revision: a stable and a panic window, each for concurrency and for requests per second.
//!
//! # Recording
//!
//! Each stat adds `concurrency − proxied concurrency` and `requests − proxied requests` to both windows, because
//! activators report the requests that came through them. The differences may be negative, since the two are measured
//! at different moments. The fields themselves may not be negative.
//!
//! Senders of stats may be unauthenticated. Numbers that would corrupt the windows (infinite, not a number, negative,
//! too large for exact sums) are rejected, counted and named. So are time stamps in the future, which would make all
//! later stats "too old".
//!
//! # Reading
//!
//! - Pods are scraped, and the stable window is empty: [`Unknown::NoData`]. Knative returns that a second later.
//!   Exactly one window after the last value, it reads a load of zero that was never measured.
//! - Pods are not scraped (only activators report): an empty window is zero load.
//!
//! An empty panic window reads 0, as in Knative, while the stable one still holds values.
//!
//! # Not here
//!
//! Attestation by activators, and revisions that are not collected at all.

#[cfg(test)]
mod tests;

use std::time::Duration;

use common::scaling::{Aggregation, ScalingMetric};
use common::stat::Stat;
use common::time::Timestamp;

use crate::decider::{Load, Unknown};
use crate::window::Window;

/// Maximum distance of a time stamp into the future. Clocks of well-maintained machines differ by less, and the
/// shortest default panic window (6 s) tolerates it.
pub const FUTURE_MAX: Duration = Duration::from_secs(5);
/// Maximum number of requests, running or arriving, in one stat. Sums of such numbers are still exact to a millionth.
pub const VALUE_MAX: f64 = 1e9;

/// Collection parameters of one revision's load, as in a Metric object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsSpec {
    /// Length of the stable window.
    pub stable_window: Duration,
    /// Length of the panic window.
    pub panic_window: Duration,
    /// Kind of average of the windows.
    pub aggregation: Aggregation,
    /// True if pods are scraped (a scrape target is set). Then an empty window is missing data, not zero load.
    pub scraped: bool,
}

/// Reason why a stat was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RejectedStat {
    /// The value is infinite or not a number.
    #[error("{field} is {value}, not a finite number")]
    NotFinite {
        /// Name of the field on the wire.
        field: &'static str,
        /// Value of the field.
        value: f64,
    },
    /// The value is below zero.
    #[error("{field} is {value}, below 0")]
    Negative {
        /// Name of the field on the wire.
        field: &'static str,
        /// Value of the field.
        value: f64,
    },
    /// The value is above [`VALUE_MAX`].
    #[error("{field} is {value}, above {VALUE_MAX}")]
    TooLarge {
        /// Name of the field on the wire.
        field: &'static str,
        /// Value of the field.
        value: f64,
    },
    /// The time stamp is more than [`FUTURE_MAX`] ahead of the local clock.
    #[error("timestamp {timestamp} is {ahead_secs} s ahead of our clock, more than {} s", FUTURE_MAX.as_secs())]
    Future {
        /// Time stamp in Unix seconds.
        timestamp: i64,
        /// Seconds ahead of the local clock.
        ahead_secs: i64,
    },
}

/// Windows of one revision. See the [module](self).
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Concurrency and requests per second.
    stable: Window<2>,
    panic: Window<2>,
    scraped: bool,
}

impl Metrics {
    /// Creates empty windows.
    pub fn new(spec: &MetricsSpec) -> Self {
        Self {
            stable: Window::new(spec.stable_window, spec.aggregation),
            panic: Window::new(spec.panic_window, spec.aggregation),
            scraped: spec.scraped,
        }
    }

    /// Applies an edited spec. Recorded values stay as far as they fit.
    pub fn update(&mut self, spec: &MetricsSpec, now: Timestamp) {
        self.stable.resize(spec.stable_window, spec.aggregation, now);
        self.panic.resize(spec.panic_window, spec.aggregation, now);
        self.scraped = spec.scraped;
    }

    /// Records a stat at its own time stamp, or at `now` if it has none. A window ignores a stat that is older than
    /// itself.
    ///
    /// # Errors
    /// Reports the problem of the stat; nothing of it is recorded.
    pub fn record(&mut self, stat: &Stat, now: Timestamp) -> Result<(), RejectedStat> {
        check(stat, now)?;
        let at = if stat.timestamp == 0 { now } else { Timestamp::from_secs(stat.timestamp) };
        let values = [
            stat.average_concurrent_requests - stat.average_proxied_concurrent_requests,
            stat.request_count - stat.proxied_request_count,
        ];
        self.stable.record(at, values);
        self.panic.record(at, values);
        Ok(())
    }

    /// Returns the reported load at `now`.
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

    /// Releases memory that is no longer needed after a silence. Cheap; meant for every tick.
    pub fn release(&mut self, now: Timestamp) {
        self.stable.release(now);
        self.panic.release(now);
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
