//! From a desired scale to the replicas to ask for, and the careful way to none.
//!
//! The last pod leaves in three steps, each seen in the PodAutoscaler's Active condition:
//!
//! 1. *Active*, nothing desired: one pod is kept until the revision has been active for a stable window. Then it is
//!    marked inactive, which moves its path to the activators; no replica is touched.
//! 2. *Inactive*: the activators must be proven to be in the path (a probe of the public Service that an activator
//!    answers).
//! 3. Then the last pod goes: once the revision has been inactive for the grace period and the pod retention, or the
//!    path has led through activators for the grace period and the retention is over.
//!
//! # Two phases
//!
//! The probe is I/O, so the rule only asks for it ([`Outcome::probe`]). The outcome that asks is safe to act upon at
//! once: the pod stays. The shell probes in the background and decides again with the [`ProbeResult`]; no worker waits for
//! a socket.
//!
//! # Odd cases
//!
//! - What is desired was decided a while ago, and an activator cannot be heard now ([`Input::unheard`]): it may carry
//!   requests that came since. The last pod stays until all were heard again, and nothing was.
//! - Unknown desired scale: nothing changes. A revision that is still activating counts it as its minimum, so that one
//!   that never becomes ready is given up after the activation timeout.
//! - A target burst capacity of −1 keeps activators in the path by itself: upstream does not probe then. Standalone
//!   does ([`Input::probe_needed`]).
//! - A decider that took over (`warming`) does not know the load yet: the scale is not reduced below the present
//!   replicas, except to obey a maximum. When its window is full we look again. A revision that was inactive stays so
//!   meanwhile, and its last pod with it: the time until that goes is not begun anew.
//! - The activation timeout is armed anew, in full, each time it is waited for.
//!
//! # Not here
//!
//! The bounds themselves ([`crate::bounds`]), the condition that is set afterwards ([`crate::active`]), the patch, and
//! the pace of repeated probes.

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::active::Active;
use crate::bounds::Bounds;
use crate::engine::Answer;
use crate::path_mode::PathMode;

/// Added to the progress deadline before an activation is given up.
pub const ACTIVATION_TIMEOUT_BUFFER: Duration = Duration::from_secs(30);
/// Look again after so long if the path already leads through the activators and so will not change.
pub const PROXY_RECHECK: Duration = Duration::from_secs(3);

/// What the rule depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// The decider's; none: unknown.
    pub desired: Option<i32>,
    /// Replicas that the target has now (its spec's; 1 if it does not say).
    pub current_replicas: i32,
    /// Limits, initial scale included ([`with_initial_scale`](crate::bounds::with_initial_scale)).
    pub bounds: Bounds,
    /// Whether scale to zero is on.
    pub scale_to_zero: bool,
    /// The Active condition.
    pub active: Active,
    /// How long a revision stays active without traffic.
    pub stable_window: Duration,
    /// How long it may take to become ready: the progress deadline and [`ACTIVATION_TIMEOUT_BUFFER`].
    pub activation_timeout: Duration,
    /// How long the last pod stays while the path moves.
    pub grace_period: Duration,
    /// How long the last pod stays on request; zero for an unreachable revision.
    pub pod_retention: Duration,
    /// The ServerlessService's mode, as its spec says.
    pub path: PathMode,
    /// For how long the public endpoints have been activators; zero if they are not.
    pub proxy_for: Duration,
    /// Whether the path has to be probed.
    pub probe_needed: bool,
    /// What a probe has found since this revision became inactive.
    pub probe: ProbeResult,
    /// How long the decider's window still needs to fill after a takeover.
    pub warm_in: Option<Duration>,
    /// An activator that should have been heard at the last evaluation was not: the load has been unknown since.
    pub unheard: bool,
}

/// What a probe of the public Service found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeResult {
    /// None was sent yet.
    #[default]
    NotAsked,
    /// An activator answered.
    InPath,
    /// Something else answered, or nothing.
    NotInPath,
}

/// What to do. `want` and `patch` differ where the last pod is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The scale to report and to choose path mode and condition by; none: unknown.
    pub want: Option<i32>,
    /// Replicas to write; none: leave them.
    pub patch: Option<i32>,
    /// Look again after so long, whatever happens.
    pub requeue: Option<Duration>,
    /// Whether to probe the path.
    pub probe: ProbeNeed,
    /// Which rule this came from.
    pub reason: Reason,
}

/// Whether the shell has to probe the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeNeed {
    /// No.
    None,
    /// The rule needs a verdict: probe, then decide again.
    Ask,
    /// The verdict was bad: probe again, once a second, and decide again when it turns.
    Retry,
}

/// Why an outcome is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// The desired scale is unknown.
    Unknown,
    /// The desired scale, as it is.
    Desired,
    /// The desired scale, and it is a metric's.
    Metrics,
    /// A metric failed, so what there is stays.
    MetricFailed,
    /// The desired scale, cut or raised to the bounds.
    Bounds,
    /// Not reduced, since the decider has just taken over.
    Warming,
    /// Scale to zero is off: one pod stays.
    ScaleToZeroDisabled,
    /// Waiting for the first ready pods.
    Activating,
    /// No pod became ready in time.
    ActivationTimedOut,
    /// Not active for a stable window yet: one pod stays.
    ActiveRecently,
    /// Idle for a stable window: becomes inactive, the last pod still there.
    Idle,
    /// The last pod stays while an activator cannot be heard.
    Unheard,
    /// The last pod waits for proof that activators are in the path.
    ProbePending,
    /// The last pod stays on request.
    PodRetention,
    /// The last pod waits for the path to have moved.
    GracePeriod,
    /// The last pod goes.
    Zero,
    /// Nothing is changed while it is paused.
    Paused,
    /// An operator has asked for a wake.
    WakeRequested,
    /// An operator has asked for a sleep.
    SleepRequested,
}

impl Reason {
    /// The same, where a wish was made of load and metrics: whose it was.
    pub fn of_answer(self, answer: &Answer) -> Self {
        match self {
            Self::Desired if answer.held => Self::MetricFailed,
            Self::Desired if answer.measured => Self::Metrics,
            other => other,
        }
    }

    /// Words for an operator, of a change to `to` replicas where `desired` were asked for.
    pub fn explain_change(self, desired: Option<i32>, to: i32) -> &'static str {
        match self {
            Self::Bounds if desired.is_none_or(|desired| desired < to) => "the least that it may have",
            Self::Bounds => "the most that it may have",
            other => other.explain(),
        }
    }

    /// Words for an operator.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Unknown => "the load is not known",
            Self::Desired => "the load asks for it",
            Self::Metrics => "a metric asks for it",
            Self::MetricFailed => "a metric cannot be measured, so nothing is taken away",
            Self::Bounds => "the load asks for it, within its least and its most",
            Self::Warming => "the load is not known well enough to scale down",
            Self::ScaleToZeroDisabled => "scale to zero is disabled",
            Self::Activating => "waiting for the first ready pods",
            Self::ActivationTimedOut => "no pod became ready within the progress deadline",
            Self::ActiveRecently => "idle, but not for a stable window yet",
            Self::Idle => "idle",
            Self::Unheard => "idle when last known; an activator that cannot be heard may carry requests",
            Self::ProbePending => "idle; the last pod stays until activators are known to take new requests",
            Self::PodRetention => "idle; the last pod is retained",
            Self::GracePeriod => "idle; the last pod stays until new requests go to the activators",
            Self::Zero => "idle",
            Self::Paused => "paused: the replicas stay as they are, and so does where the Service leads",
            Self::WakeRequested => "an operator has asked for it",
            Self::SleepRequested => "an operator has asked it to sleep",
        }
    }
}

/// The rule. See the [module](self).
pub fn decide(input: &Input) -> Outcome {
    let desired = match input.desired {
        None if !input.active.is_activating() => return hold(None, Reason::Unknown, None),
        desired => desired,
    };
    if input.warm_in.is_some() && is_leaving(input) {
        return hold(Some(0), Reason::Warming, input.warm_in);
    }
    let warm = desired.map(|d| if input.warm_in.is_some() { d.max(input.current_replicas) } else { d });
    // Bounds below zero, which only unchecked annotations hold, ask for nothing.
    let bounded = input.bounds.clamp(warm.unwrap_or(-1)).max(0);
    if bounded != 0 {
        return if warm != desired && warm == Some(bounded) {
            Outcome { requeue: input.warm_in, ..apply(input, bounded, Reason::Warming) }
        } else {
            apply(input, bounded, if desired == Some(bounded) { Reason::Desired } else { Reason::Bounds })
        };
    }
    if !input.scale_to_zero {
        return apply(input, 1, Reason::ScaleToZeroDisabled);
    }
    match input.active {
        Active::Absent => hold(None, Reason::Activating, Some(input.activation_timeout)),
        Active::Unknown(activating) if activating > input.activation_timeout => {
            apply(input, 0, Reason::ActivationTimedOut)
        }
        Active::Unknown(_) => hold(None, Reason::Activating, Some(input.activation_timeout)),
        Active::True(active) if active < input.stable_window => {
            let left = input.stable_window - active;
            Outcome { requeue: Some(left), ..apply(input, 1, Reason::ActiveRecently) }
        }
        Active::True(_) => {
            let recheck = (input.path == PathMode::Proxy).then_some(PROXY_RECHECK);
            hold(Some(0), Reason::Idle, recheck)
        }
        Active::False(inactive) => last_pod(input, inactive),
    }
}

/// Whether nothing is asked of an inactive revision, and what it still has is within its bounds.
fn is_leaving(input: &Input) -> bool {
    let (current, bounds) = (input.current_replicas, input.bounds);
    let is_inactive = matches!(input.active, Active::False(_)) && input.desired == Some(0);
    is_inactive && input.scale_to_zero && bounds.clamp(0) <= 0 && current > 0 && bounds.clamp(current) == current
}

/// Steps 2 and 3.
fn last_pod(input: &Input, inactive: Duration) -> Outcome {
    if input.unheard && input.current_replicas > 0 {
        return hold(Some(0), Reason::Unheard, None);
    }
    if input.probe_needed && input.probe != ProbeResult::InPath {
        let probe = if input.probe == ProbeResult::NotAsked { ProbeNeed::Ask } else { ProbeNeed::Retry };
        return Outcome { probe, ..hold(Some(0), Reason::ProbePending, None) };
    }
    let retention_left = input.pod_retention.saturating_sub(inactive);
    let grace_left = input.grace_period.saturating_sub(input.proxy_for);
    if inactive >= input.grace_period.max(input.pod_retention) {
        apply(input, 0, Reason::Zero)
    } else if !retention_left.is_zero() {
        hold(Some(0), Reason::PodRetention, Some(retention_left))
    } else if grace_left.is_zero() {
        apply(input, 0, Reason::Zero)
    } else {
        hold(Some(0), Reason::GracePeriod, Some(grace_left))
    }
}

/// Writes `scale`, unless it is there already.
fn apply(input: &Input, scale: i32, reason: Reason) -> Outcome {
    let patch = (scale != input.current_replicas).then_some(scale);
    Outcome { want: Some(scale), patch, requeue: None, probe: ProbeNeed::None, reason }
}

/// Leaves the replicas alone.
fn hold(want: Option<i32>, reason: Reason, requeue: Option<Duration>) -> Outcome {
    Outcome { want, patch: None, requeue, probe: ProbeNeed::None, reason }
}
