//! Startup, readiness and liveness probes: their schedule and the meaning of their results.
//!
//! Fields have their Kubernetes meaning, with one difference that makes wakes fast. A container that is not ready (or
//! not started) yet is probed at once. It is probed again after a twentieth of the time since the first attempt, at
//! least [`PACE_MIN`] and at most the period. The `failureThreshold` of a startup probe counts elapsed periods instead
//! of attempts, so frequent attempts do not make it fail earlier.
//!
//! `initialDelaySeconds` is respected. [`ProbeState`] gets results and times as arguments; [`check`] makes the
//! attempts.

pub(crate) mod check;

use check::Handler;
use k8s_openapi::api::core::v1::Probe;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Minimum pause between two attempts before the first success.
const PACE_MIN: Duration = Duration::from_millis(1);
/// Minimum pause for probes that start a process per attempt.
const PACE_MIN_EXEC: Duration = Duration::from_millis(10);
/// Interval of events about a container that has never been ready.
const EVENT_INTERVAL: Duration = Duration::from_secs(5);
/// Divisor of the waiting time that gives the pause between two attempts.
const PACE_DIVISOR: u32 = 20;

/// Purpose of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Detects that the container has started; other probes wait for that.
    Startup,
    /// Detects whether the container accepts requests.
    Readiness,
    /// Detects whether the container must be restarted.
    Liveness,
}

/// Result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeOutcome {
    /// The startup probe succeeded.
    Started,
    /// The readiness changed; with the reason of a failure.
    Ready(bool, String),
    /// The container must be restarted, for this reason.
    Dead(String),
    /// An attempt failed without consequences yet; worth an Event.
    Unhealthy(String),
}

/// Parameters of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) purpose: Purpose,
    pub(crate) initial_delay: Duration,
    pub(crate) period: Duration,
    pub(crate) timeout: Duration,
    pub(crate) success_threshold: u32,
    pub(crate) failure_threshold: u32,
    /// True if each attempt starts a process.
    pub(crate) is_exec: bool,
}

impl Spec {
    /// Builds the parameters from the API's fields. Absent fields and zeros have Kubernetes' defaults.
    pub(crate) fn new(purpose: Purpose, probe: &Probe) -> Self {
        let count =
            |n: Option<i32>, default: u32| n.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(default);
        let seconds = |n: Option<i32>, default: u32| Duration::from_secs(u64::from(count(n, default)));
        Self {
            purpose,
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            success_threshold: count(probe.success_threshold, 1),
            failure_threshold: count(probe.failure_threshold, 3),
            is_exec: probe.exec.is_some(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ProbeState {
    spec: Spec,
    /// Due time of the first attempt.
    first: Instant,
    /// True if the container counts as started, ready or alive.
    is_good: bool,
    successes: u32,
    failures: u32,
    /// Time of the last event about a container that has never been ready.
    last_event: Option<Instant>,
}

impl ProbeState {
    /// Starts for a container that has been running since `running`.
    pub(crate) fn new(spec: Spec, running: Instant) -> Self {
        let first = running + spec.initial_delay;
        let is_good = spec.purpose == Purpose::Liveness;
        Self { spec, first, is_good, successes: 0, failures: 0, last_event: None }
    }

    /// Returns the pause after an attempt.
    pub(crate) fn pause(&self, now: Instant) -> Duration {
        if self.is_good {
            return self.spec.period;
        }
        let least = if self.spec.is_exec { PACE_MIN_EXEC } else { PACE_MIN };
        let paced = now.saturating_duration_since(self.first) / PACE_DIVISOR;
        paced.max(least).min(self.spec.period)
    }

    /// Records the result of an attempt. Returns its consequence.
    pub(crate) fn record(&mut self, answer: Result<(), String>, now: Instant) -> Option<ProbeOutcome> {
        match answer {
            Ok(()) => {
                self.failures = 0;
                self.successes = self.successes.saturating_add(1);
                if self.is_good || self.successes < self.spec.success_threshold {
                    return None;
                }
                self.is_good = true;
                match self.spec.purpose {
                    Purpose::Startup => Some(ProbeOutcome::Started),
                    Purpose::Readiness => Some(ProbeOutcome::Ready(true, String::new())),
                    Purpose::Liveness => None,
                }
            }
            Err(reason) => {
                self.successes = 0;
                self.failures = self.failures.saturating_add(1);
                self.failed(reason, now)
            }
        }
    }

    fn failed(&mut self, reason: String, now: Instant) -> Option<ProbeOutcome> {
        let Spec { purpose, period, failure_threshold, .. } = self.spec;
        let message = format!("{purpose:?} probe failed: {reason}");
        let at_threshold = self.failures >= failure_threshold;
        match purpose {
            Purpose::Startup => {
                let patience = period.saturating_mul(failure_threshold);
                let is_late = now.saturating_duration_since(self.first) >= patience;
                is_late.then_some(ProbeOutcome::Dead(message))
            }
            Purpose::Readiness if !self.is_good => {
                // Limit the events, since attempts are frequent.
                let since = now.saturating_duration_since(self.last_event.unwrap_or(self.first));
                (since >= EVENT_INTERVAL).then(|| {
                    self.last_event = Some(now);
                    ProbeOutcome::Unhealthy(message)
                })
            }
            Purpose::Readiness if at_threshold => {
                self.is_good = false;
                self.first = now; // The pauses start again from the minimum.
                Some(ProbeOutcome::Ready(false, message))
            }
            Purpose::Liveness if at_threshold => Some(ProbeOutcome::Dead(message)),
            Purpose::Readiness | Purpose::Liveness => Some(ProbeOutcome::Unhealthy(message)),
        }
    }
}

/// Runs the probe until the receiver is gone or the outcome is final (started, dead).
pub(crate) async fn run(
    spec: Spec,
    handler: Handler,
    running: tokio::time::Instant,
    outcomes: mpsc::Sender<ProbeOutcome>,
) {
    let timeout = spec.timeout;
    let mut state = ProbeState::new(spec, running.into_std());
    tokio::time::sleep_until(tokio::time::Instant::from_std(state.first)).await;
    loop {
        let answer = match tokio::time::timeout(timeout, handler.check()).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no response within {} ms", timeout.as_millis())),
        };
        let now = tokio::time::Instant::now().into_std();
        if let Some(outcome) = state.record(answer, now) {
            let is_final = matches!(outcome, ProbeOutcome::Started | ProbeOutcome::Dead(_));
            if outcomes.send(outcome).await.is_err() || is_final {
                return;
            }
        }
        tokio::time::sleep(state.pause(now)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(purpose: Purpose) -> Spec {
        Spec { period: Duration::from_secs(1), ..Spec::new(purpose, &Probe::default()) }
    }

    #[allow(clippy::disallowed_methods, reason = "any instant will do as an origin")]
    fn epoch() -> Instant {
        Instant::now()
    }

    fn bad() -> Result<(), String> {
        Err("no".into())
    }

    #[test]
    fn the_pause_before_readiness_grows_with_the_wait() {
        let start = epoch();
        let state = ProbeState::new(spec(Purpose::Readiness), start);
        for (waited_ms, pause_ms) in [(0, 1), (10, 1), (100, 5), (1000, 50), (60_000, 1000)] {
            let now = start + Duration::from_millis(waited_ms);
            assert_eq!(state.pause(now), Duration::from_millis(pause_ms), "after {waited_ms} ms");
        }
        let exec = ProbeState::new(Spec { is_exec: true, ..spec(Purpose::Readiness) }, start);
        assert_eq!(exec.pause(start), PACE_MIN_EXEC);
    }

    #[test]
    fn one_success_makes_ready_and_three_failures_make_unready() {
        let now = epoch();
        let mut state = ProbeState::new(spec(Purpose::Readiness), now);
        assert_eq!(state.record(bad(), now), None, "it was not ready anyway");
        assert_eq!(state.record(Ok(()), now), Some(ProbeOutcome::Ready(true, String::new())));
        assert_eq!(state.pause(now), Duration::from_secs(1), "from now on by its period");
        assert!(matches!(state.record(bad(), now), Some(ProbeOutcome::Unhealthy(_))));
        assert!(matches!(state.record(bad(), now), Some(ProbeOutcome::Unhealthy(_))));
        assert!(matches!(state.record(bad(), now), Some(ProbeOutcome::Ready(false, _))));
        assert_eq!(state.record(Ok(()), now), Some(ProbeOutcome::Ready(true, String::new())));
    }

    #[test]
    fn the_success_threshold_counts_consecutive_successes() {
        let now = epoch();
        let mut state = ProbeState::new(Spec { success_threshold: 2, ..spec(Purpose::Readiness) }, now);
        assert_eq!(state.record(Ok(()), now), None);
        assert_eq!(state.record(bad(), now), None);
        assert_eq!(state.record(Ok(()), now), None);
        assert!(matches!(state.record(Ok(()), now), Some(ProbeOutcome::Ready(true, _))));
    }

    #[test]
    fn three_consecutive_failures_require_a_restart() {
        let now = epoch();
        let mut state = ProbeState::new(spec(Purpose::Liveness), now);
        for answer in [bad(), bad(), Ok(()), bad(), bad()] {
            assert!(!matches!(state.record(answer, now), Some(ProbeOutcome::Dead(_))));
        }
        assert!(matches!(state.record(bad(), now), Some(ProbeOutcome::Dead(_))));
    }

    /// Goal: frequent attempts on a starting container do not use up its failure threshold, which counts periods.
    #[test]
    fn the_startup_threshold_counts_periods_instead_of_attempts() {
        let start = epoch();
        let mut state = ProbeState::new(spec(Purpose::Startup), start);
        for millis in 0..2999 {
            assert_eq!(state.record(bad(), start + Duration::from_millis(millis)), None);
        }
        assert!(matches!(state.record(bad(), start + Duration::from_secs(3)), Some(ProbeOutcome::Dead(_))));
    }
}
