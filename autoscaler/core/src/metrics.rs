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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectSpec {
    /// Length of the stable window, whole seconds.
    pub stable_window: Duration,
    /// Length of the panic window, whole seconds.
    pub panic_window: Duration,
    /// Kind of average of the windows.
    pub aggregation: Aggregation,
    /// Service whose pods report on port 9090 when scraped; an empty window is then missing data, not zero load. `None`
    /// means that only activators report.
    pub scrape_target: Option<String>,
}

/// Reason why a stat was not recorded, with the name of the field on the wire and its value.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RejectedStat {
    /// The value is infinite or not a number.
    #[error("{0} is {1}, not a finite number")]
    NotFinite(&'static str, f64),
    /// The value is below zero.
    #[error("{0} is {1}, below 0")]
    Negative(&'static str, f64),
    /// The value is above [`VALUE_MAX`].
    #[error("{0} is {1}, above {VALUE_MAX}")]
    TooLarge(&'static str, f64),
    /// The time stamp, in Unix seconds, is more than [`FUTURE_MAX`] ahead of the local clock: by this many seconds.
    #[error("timestamp {0} is {1} s ahead of our clock, more than {max} s", max = FUTURE_MAX.as_secs())]
    Future(i64, i64),
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
    pub fn new(spec: &CollectSpec) -> Self {
        Self {
            stable: Window::new(spec.stable_window, spec.aggregation),
            panic: Window::new(spec.panic_window, spec.aggregation),
            scraped: spec.scrape_target.is_some(),
        }
    }

    /// Applies an edited spec. Recorded values stay as far as they fit.
    pub fn update(&mut self, spec: &CollectSpec, now: Timestamp) {
        self.stable.resize(spec.stable_window, spec.aggregation, now);
        self.panic.resize(spec.panic_window, spec.aggregation, now);
        self.scraped = spec.scrape_target.is_some();
    }

    /// Records a stat at its own time stamp, or at `now` if it has none. A window ignores a stat that is older than
    /// itself. Fails with the problem of the stat; nothing of it is recorded.
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

    /// Returns the reported load at `now`. Fails with [`Unknown::NoData`].
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
        match value {
            _ if !value.is_finite() => return Err(RejectedStat::NotFinite(field, value)),
            _ if value < 0.0 => return Err(RejectedStat::Negative(field, value)),
            _ if value > VALUE_MAX => return Err(RejectedStat::TooLarge(field, value)),
            _ => {}
        }
    }
    let ahead_secs = stat.timestamp.saturating_sub(now.as_secs());
    if ahead_secs > FUTURE_MAX.as_secs() as i64 {
        return Err(RejectedStat::Future(stat.timestamp, ahead_secs));
    }
    Ok(())
}
