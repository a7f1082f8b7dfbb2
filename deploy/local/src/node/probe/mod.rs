//! Startup, readiness and liveness probes: when to ask, and what the answers mean.
//!
//! Fields mean what they mean in Kubernetes, with two differences that make waking fast:
//!
//! - A container that is not ready (or not started) yet is asked at once, and again after a twentieth of the time that
//!   it has been waited for, at least [`PACE_MIN`] and at most the period. Failures for `failureThreshold` of a startup
//!   probe are counted in periods gone by, not in answers, so this does not shorten its patience.
//! - The pod annotation [`PERIOD_ANNOTATION`] replaces `periodSeconds` of all probes of the pod, in milliseconds.
//!
//! `initialDelaySeconds` is honoured. Answers and clocks are arguments here; asking is [`check`].

pub(crate) mod check;

use check::Handler;
use k8s_openapi::api::core::v1::Probe;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Pod annotation: the period of all probes in milliseconds, from 1 to 3 600 000.
pub const PERIOD_ANNOTATION: &str = "local.zeroscale.dev/probe-period-ms";
/// Shortest pause between two attempts while waiting for a first success.
const PACE_MIN: Duration = Duration::from_millis(1);
/// The same for probes that start a process each time.
const PACE_MIN_EXEC: Duration = Duration::from_millis(10);
/// Time between two events that tell of a container which has never been ready.
const TELLS_EVERY: Duration = Duration::from_secs(5);
/// While waiting, the pause is the time waited divided by this.
const PACE_DIVISOR: u32 = 20;

/// What a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The container has come up; other probes wait for it.
    Startup,
    /// It takes requests.
    Readiness,
    /// It must be restarted if it fails.
    Liveness,
}

/// What came of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeOutcome {
    /// The startup probe succeeded.
    Started,
    /// The readiness probe changed its mind.
    Ready(bool, String),
    /// The container must be restarted, for this reason.
    Dead(String),
    /// A failure that changes nothing yet but is worth an Event.
    Unhealthy(String),
}

/// A probe's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) purpose: Purpose,
    pub(crate) initial_delay: Duration,
    pub(crate) period: Duration,
    pub(crate) timeout: Duration,
    pub(crate) success_threshold: u32,
    pub(crate) failure_threshold: u32,
    /// Starts a process for each attempt.
    pub(crate) is_exec: bool,
}

impl Spec {
    /// From the API's fields; absent ones and zeros have Kubernetes' defaults.
    pub(crate) fn new(purpose: Purpose, probe: &Probe, period: Option<Duration>) -> Self {
        let count =
            |n: Option<i32>, default: u32| n.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(default);
        let seconds = |n: Option<i32>, default: u32| Duration::from_secs(u64::from(count(n, default)));
        Self {
            purpose,
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: period.unwrap_or_else(|| seconds(probe.period_seconds, 10)),
            timeout: seconds(probe.timeout_seconds, 1),
            success_threshold: count(probe.success_threshold, 1),
            failure_threshold: count(probe.failure_threshold, 3),
            is_exec: probe.exec.is_some(),
        }
    }
}

/// Reads [`PERIOD_ANNOTATION`].
///
/// # Errors
/// It is not a number of milliseconds within bounds.
pub(crate) fn period(annotation: Option<&str>) -> Result<Option<Duration>, String> {
    let Some(text) = annotation else { return Ok(None) };
    match text.parse::<u64>() {
        Ok(millis @ 1..=3_600_000) => Ok(Some(Duration::from_millis(millis))),
        _ => {
            Err(format!("annotation {PERIOD_ANNOTATION} = {text:?} must be a number of milliseconds from 1 to 3600000"))
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    spec: Spec,
    /// When the first attempt was due.
    first: Instant,
    /// Whether the last outcome was good.
    is_good: bool,
    successes: u32,
    failures: u32,
    /// Time at which it was last told that a container has never been ready.
    told: Option<Instant>,
}

impl State {
    /// For a container that runs since `running`.
    pub(crate) fn new(spec: Spec, running: Instant) -> Self {
        let first = running + spec.initial_delay;
        let is_good = spec.purpose == Purpose::Liveness;
        Self { spec, first, is_good, successes: 0, failures: 0, told: None }
    }

    /// When the first attempt is due.
    pub(crate) fn first(&self) -> Instant {
        self.first
    }

    /// How long to pause after an attempt.
    pub(crate) fn pause(&self, now: Instant) -> Duration {
        if self.is_good {
            return self.spec.period;
        }
        let least = if self.spec.is_exec { PACE_MIN_EXEC } else { PACE_MIN };
        let paced = now.saturating_duration_since(self.first) / PACE_DIVISOR;
        paced.max(least).min(self.spec.period)
    }

    /// Takes in an answer; what follows from it.
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
        let is_over = self.failures >= self.spec.failure_threshold;
        match self.spec.purpose {
            Purpose::Startup if self.is_good => None,
            Purpose::Startup => {
                let patience = self.spec.period.saturating_mul(self.spec.failure_threshold);
                let is_over = now.saturating_duration_since(self.first) >= patience;
                is_over.then(|| ProbeOutcome::Dead(format!("Startup probe failed: {reason}")))
            }
            Purpose::Readiness if self.is_good && is_over => {
                self.is_good = false;
                self.first = now; // From here on it is waited for anew.
                Some(ProbeOutcome::Ready(false, format!("Readiness probe failed: {reason}")))
            }
            Purpose::Readiness if self.is_good => {
                Some(ProbeOutcome::Unhealthy(format!("Readiness probe failed: {reason}")))
            }
            Purpose::Readiness => {
                // Asked as often as it is, it would say little else.
                let since = now.saturating_duration_since(self.told.unwrap_or(self.first));
                (since >= TELLS_EVERY).then(|| {
                    self.told = Some(now);
                    ProbeOutcome::Unhealthy(format!("Readiness probe failed: {reason}"))
                })
            }
            Purpose::Liveness if is_over => Some(ProbeOutcome::Dead(format!("Liveness probe failed: {reason}"))),
            Purpose::Liveness => Some(ProbeOutcome::Unhealthy(format!("Liveness probe failed: {reason}"))),
        }
    }
}

/// Probes until the receiver is gone or the outcome is final (started, dead).
pub(crate) async fn run(
    spec: Spec,
    handler: Handler,
    running: tokio::time::Instant,
    outcomes: mpsc::Sender<ProbeOutcome>,
) {
    let timeout = spec.timeout;
    let mut state = State::new(spec, running.into_std());
    tokio::time::sleep_until(tokio::time::Instant::from_std(state.first())).await;
    loop {
        let answer = match tokio::time::timeout(timeout, handler.check()).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} ms", timeout.as_millis())),
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
        Spec { period: Duration::from_secs(1), ..Spec::new(purpose, &Probe::default(), None) }
    }

    #[allow(clippy::disallowed_methods, reason = "any instant will do as an origin")]
    fn epoch() -> Instant {
        Instant::now()
    }

    fn bad() -> Result<(), String> {
        Err("no".into())
    }

    #[test]
    fn a_container_not_ready_yet_is_asked_in_proportion_to_the_wait() {
        let start = epoch();
        let state = State::new(spec(Purpose::Readiness), start);
        for (waited_ms, pause_ms) in [(0, 1), (10, 1), (100, 5), (1000, 50), (60_000, 1000)] {
            let now = start + Duration::from_millis(waited_ms);
            assert_eq!(state.pause(now), Duration::from_millis(pause_ms), "after {waited_ms} ms");
        }
        let exec = State::new(Spec { is_exec: true, ..spec(Purpose::Readiness) }, start);
        assert_eq!(exec.pause(start), PACE_MIN_EXEC);
    }

    #[test]
    fn readiness_comes_with_one_success_and_goes_with_three_failures() {
        let now = epoch();
        let mut state = State::new(spec(Purpose::Readiness), now);
        assert_eq!(state.record(bad(), now), None, "it was not ready anyway");
        assert_eq!(state.record(Ok(()), now), Some(ProbeOutcome::Ready(true, String::new())));
        assert_eq!(state.pause(now), Duration::from_secs(1), "from now on by its period");
        assert!(matches!(state.record(bad(), now), Some(ProbeOutcome::Unhealthy(_))));
        assert!(matches!(state.record(bad(), now), Some(ProbeOutcome::Unhealthy(_))));
        assert!(matches!(state.record(bad(), now), Some(ProbeOutcome::Ready(false, _))));
        assert_eq!(state.record(Ok(()), now), Some(ProbeOutcome::Ready(true, String::new())));
    }

    #[test]
    fn success_threshold_counts_successes_in_a_row() {
        let now = epoch();
        let mut state = State::new(Spec { success_threshold: 2, ..spec(Purpose::Readiness) }, now);
        assert_eq!(state.record(Ok(()), now), None);
        assert_eq!(state.record(bad(), now), None);
        assert_eq!(state.record(Ok(()), now), None);
        assert!(matches!(state.record(Ok(()), now), Some(ProbeOutcome::Ready(true, _))));
    }

    #[test]
    fn three_failures_in_a_row_are_death() {
        let now = epoch();
        let mut state = State::new(spec(Purpose::Liveness), now);
        for answer in [bad(), bad(), Ok(()), bad(), bad()] {
            assert!(!matches!(state.record(answer, now), Some(ProbeOutcome::Dead(_))));
        }
        assert!(matches!(state.record(bad(), now), Some(ProbeOutcome::Dead(_))));
    }

    /// Goal: asking a starting container often does not use up its patience, which is in periods.
    #[test]
    fn startup_patience_is_periods_not_attempts() {
        let start = epoch();
        let mut state = State::new(spec(Purpose::Startup), start);
        for millis in 0..2999 {
            assert_eq!(state.record(bad(), start + Duration::from_millis(millis)), None);
        }
        assert!(matches!(state.record(bad(), start + Duration::from_secs(3)), Some(ProbeOutcome::Dead(_))));
    }

    #[test]
    fn the_period_annotation_is_checked() {
        assert_eq!(period(Some("50")), Ok(Some(Duration::from_millis(50))));
        assert_eq!(period(None), Ok(None));
        for text in ["0", "x", "-1", "3600001", "1.5"] {
            assert!(period(Some(text)).expect_err("refused").contains(text));
        }
    }
}
