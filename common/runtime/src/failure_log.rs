//! Logs failures of an operation that is retried until it succeeds, without a line for each attempt.
//!
//! A single failure is logged at debug. When the operation has failed for five seconds, it is logged once at warn.
//! Further failures are at debug again, until a success, which is logged at info. Some operations do not report success
//! (a watch is silent while nothing happens), so failures that are two minutes apart belong to different runs.

use std::fmt::Display;
use std::time::Duration;
use tokio::time::Instant;

/// Time from the first failure to the warning: a peer that starts or restarts is back by then.
const WARN_AFTER: Duration = Duration::from_secs(5);
/// Pause after which a failure begins a new run; longer than any pause between two attempts.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// Failures of one operation that is retried again and again.
#[derive(Debug)]
pub struct FailureLog {
    operation: String,
    run: Option<Run>,
}

/// Consecutive failures without a success in between.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: Instant,
    last: Instant,
    warned: bool,
}

impl FailureLog {
    /// Creates a log without failures. `operation` names the operation, such as `the binding of pod default/a`.
    pub fn for_operation(operation: impl Into<String>) -> Self {
        Self { operation: operation.into(), run: None }
    }

    /// Records a failure after which the operation is retried.
    pub fn failed(&mut self, error: &impl Display) {
        self.failed_with_remedy(error, None);
    }

    /// Does the same as [`FailureLog::failed`], with a known remedy.
    pub fn failed_with_remedy(&mut self, error: &dyn Display, remedy: Option<&dyn Display>) {
        let remedy = remedy.map(tracing::field::display);
        if self.is_due(Instant::now()) {
            tracing::warn!(
                operation = self.operation, %error, remedy,
                "the operation keeps failing; it is repeated without further warnings until it succeeds"
            );
        } else {
            tracing::debug!(operation = self.operation, %error, remedy, "the operation failed and will be repeated");
        }
    }

    /// Records a success.
    pub fn recovered(&mut self) {
        if self.run.take().is_some_and(|run| run.warned) {
            tracing::info!(operation = self.operation, "the operation succeeds again");
        }
    }

    /// Records a failure and returns true if a warning is due for it: once in each run.
    fn is_due(&mut self, now: Instant) -> bool {
        let current = self.run.filter(|run| now.saturating_duration_since(run.last) < FORGOTTEN_AFTER);
        let mut run = current.unwrap_or(Run { first: now, last: now, warned: false });
        let is_due = !run.warned && now.saturating_duration_since(run.first) >= WARN_AFTER;
        run.last = now;
        run.warned |= is_due;
        self.run = Some(run);
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: one warning for one run of failures. Method: failures at given seconds, and those that cause a warning.
    #[tokio::test]
    async fn a_run_of_failures_causes_one_warning() {
        let start = Instant::now();
        let mut failures = FailureLog::for_operation("a test");
        let mut at = |second| failures.is_due(start + Duration::from_secs(second));
        let warned: Vec<u64> = [0, 1, 4, 5, 6, 60].into_iter().filter(|second| at(*second)).collect();
        assert_eq!(warned, [5], "after five seconds, and then no more");
        assert!(!at(200), "a failure after a long pause begins a new run");
        assert!(at(206));
        failures.recovered();
        assert!(!failures.is_due(start + Duration::from_secs(207)), "so does one after a success");
    }
}
