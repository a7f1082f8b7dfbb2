//! Turns a desired scale into the replicas to request, and removes the last pod safely.
//!
//! The last pod is removed in three steps, each visible in the PodAutoscaler's Active condition:
//!
//! 1. *Active*, nothing desired: one pod is kept until the revision has been active for a stable window. Then the
//!    revision is marked inactive, which moves its path to the activators. No replica is changed.
//! 2. *Inactive*: the activators must be proven to be in the path (an activator responds to a probe of the public
//!    Service).
//! 3. Then the last pod is removed, once one of two conditions holds: the revision has been inactive for both the grace
//!    period and the pod retention; or the path has gone through activators for the grace period and the retention is
//!    over.
//!
//! # Two phases
//!
//! The probe is I/O, so this function only requests it ([`ScaleOutcome::probe`]). The outcome with that request is safe
//! to apply at once: the pod stays. The shell probes in the background and decides again with the [`ProbeResult`], so
//! no worker waits for a socket.
//!
//! # Edge cases
//!
//! - The desired scale is from an earlier decision, and an activator does not report now ([`Input::unattested`]): this
//!   activator may carry requests that arrived since. The last pod stays until all activators report no load again.
//! - Unknown desired scale: nothing changes. A revision that is still activating is treated as if its minimum were
//!   desired, so that a revision that never becomes ready is given up after the activation timeout.
//! - A target burst capacity of −1 keeps activators in the path by itself. Knative does not probe then; standalone mode
//!   does ([`Input::probe_needed`]).
//! - A decider that has taken over ([`Input::warm_up_left`]) does not know the load yet. The scale is not reduced below
//!   the current replicas, except to obey a maximum. The decision is repeated when its window is full. An inactive
//!   revision stays inactive meanwhile and keeps its last pod, and the delay until its removal does not restart.
//! - Each wait for an activation requests the full activation timeout again.
//!
//! # Not here
//!
//! The bounds themselves ([`crate::bounds`]), the condition that is set afterwards ([`crate::active`]), the patch, and
//! the interval of repeated probes.

#[cfg(test)]
pub(crate) mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::active::Active;
use crate::bounds::Bounds;
use crate::engine::BlendedScale;
use crate::path_mode::PathMode;

/// Time added to the progress deadline before an activation is given up.
pub const ACTIVATION_TIMEOUT_BUFFER: Duration = Duration::from_secs(30);
/// Interval of checks while the path already goes through the activators, so that no change of the path triggers one.
pub const PROXY_RECHECK: Duration = Duration::from_secs(3);

/// Input of [`decide`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// Desired scale of the decider; `None` if unknown.
    pub desired: Option<i32>,
    /// Current replicas of the target (from its spec; 1 if absent).
    pub current_replicas: i32,
    /// Limits, including the initial scale ([`with_initial_scale`](crate::bounds::with_initial_scale)).
    pub bounds: Bounds,
    /// True if scale to zero is on.
    pub scale_to_zero: bool,
    /// The Active condition.
    pub active: Active,
    /// Time for which a revision stays active without traffic.
    pub stable_window: Duration,
    /// Maximum time until a revision becomes ready: the progress deadline plus [`ACTIVATION_TIMEOUT_BUFFER`].
    pub activation_timeout: Duration,
    /// Time for which the last pod stays while the path moves.
    pub grace_period: Duration,
    /// Time for which the last pod stays on request; zero for an unreachable revision.
    pub pod_retention: Duration,
    /// Mode in the ServerlessService's spec.
    pub path: PathMode,
    /// Time for which the public endpoints have been activators; zero if they are not.
    pub proxy_for: Duration,
    /// True if the path must be probed.
    pub probe_needed: bool,
    /// Result of the probes since this revision became inactive.
    pub probe: ProbeResult,
    /// Time that the decider's window still needs to fill after a takeover; `None` if it is full.
    pub warm_up_left: Option<Duration>,
    /// True if an activator did not report at the last evaluation: the load has been unknown since.
    pub unattested: bool,
}

/// Result of probing the public Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeResult {
    /// No probe was sent yet.
    #[default]
    NotProbed,
    /// An activator responded.
    InPath,
    /// Another server responded, or none.
    NotInPath,
}

/// Decision. `wanted_scale` and `patch` differ if the last pod is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleOutcome {
    /// Scale to report, and to derive path mode and condition from; `None` if unknown.
    pub wanted_scale: Option<i32>,
    /// Replicas to write; `None` leaves them as they are.
    pub patch: Option<i32>,
    /// Time after which to decide again, whatever happens.
    pub requeue: Option<Duration>,
    /// Request for a probe of the path.
    pub probe: ProbeNeed,
    /// Rule that determined the outcome.
    pub reason: Reason,
}

/// Request for a probe of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeNeed {
    /// No probe is needed.
    None,
    /// A result is needed: probe, then decide again.
    Probe,
    /// The result was negative: probe again once a second, and decide again when it changes.
    Retry,
}

/// Reason for an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// The desired scale is unknown.
    Unknown,
    /// The desired scale applies unchanged.
    Desired,
    /// The desired scale applies, and comes from a metric.
    Metrics,
    /// A metric failed, so the current scale stays.
    MetricFailed,
    /// The desired scale, limited by the bounds.
    Bounds,
    /// Not reduced because the decider has just taken over.
    Warming,
    /// Scale to zero is off: one pod stays.
    ScaleToZeroDisabled,
    /// Waiting for the first ready pods.
    Activating,
    /// No pod became ready in time.
    ActivationTimedOut,
    /// Not active for a stable window yet: one pod stays.
    ActiveRecently,
    /// Idle for a stable window: the revision becomes inactive and keeps its last pod.
    Idle,
    /// The last pod stays while an activator does not report.
    #[serde(rename = "unheard")]
    Unattested,
    /// The last pod stays until activators are proven to be in the path.
    ProbePending,
    /// The last pod stays on request.
    PodRetention,
    /// The last pod stays until the path has moved.
    GracePeriod,
    /// The last pod is removed.
    Zero,
    /// Nothing changes while the workload is paused.
    Paused,
    /// An operator has requested a wake.
    WakeRequested,
    /// An operator has requested a sleep.
    SleepRequested,
}

impl Reason {
    /// Returns the reason, refined if the desired scale combines load and metrics: a metric determined it, or failed.
    pub fn refined_by(self, blended: &BlendedScale) -> Self {
        match self {
            Self::Desired if blended.held => Self::MetricFailed,
            Self::Desired if blended.measured => Self::Metrics,
            other => other,
        }
    }

    /// Returns a text for an operator about a change to `to` replicas, with the `desired` scale.
    pub fn explain_change(self, desired: Option<i32>, to: i32) -> &'static str {
        match self {
            Self::Bounds if desired.is_none_or(|desired| desired < to) => "the minimum requires it",
            Self::Bounds => "the maximum limits it",
            other => other.explain(),
        }
    }

    /// Returns a text for an operator.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Unknown => "the load is not known",
            Self::Desired => "the load requires it",
            Self::Metrics => "a metric requires it",
            Self::MetricFailed => "a metric cannot be measured, so the replicas are not reduced",
            Self::Bounds => "the load requires it, within the minimum and the maximum",
            Self::Warming => "the load has not been measured for long enough to scale down",
            Self::ScaleToZeroDisabled => "scale to zero is disabled",
            Self::Activating => "waiting for the first ready pods",
            Self::ActivationTimedOut => "no pod became ready within the progress deadline",
            Self::ActiveRecently => "idle, but not yet for a whole stable window",
            Self::Idle => "idle",
            Self::Unattested => "idle when last known; an activator that does not report may still have requests",
            Self::ProbePending => "idle; the last pod stays until activators are certain to receive new requests",
            Self::PodRetention => "idle; the last pod stays for the retention period",
            Self::GracePeriod => "idle; the last pod stays until new requests go to the activators",
            Self::Zero => "idle",
            Self::Paused => "paused: the autoscaler changes neither the replicas nor the destinations of the Services",
            Self::WakeRequested => "an operator requested it",
            Self::SleepRequested => "an operator requested scale to zero",
        }
    }
}

/// Applies the rule. See the [module](self).
pub fn decide(input: &Input) -> ScaleOutcome {
    let desired = match input.desired {
        None if !input.active.is_activating() => return hold(None, Reason::Unknown, None),
        desired => desired,
    };
    if input.warm_up_left.is_some() && is_leaving(input) {
        return hold(Some(0), Reason::Warming, input.warm_up_left);
    }
    let floored = desired.map(|d| if input.warm_up_left.is_some() { d.max(input.current_replicas) } else { d });
    // Bounds below zero occur only in unchecked annotations, and mean zero.
    let bounded = input.bounds.clamp(floored.unwrap_or(-1)).max(0);
    if bounded != 0 {
        return if floored != desired && floored == Some(bounded) {
            ScaleOutcome { requeue: input.warm_up_left, ..apply(input, bounded, Reason::Warming) }
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
            ScaleOutcome { requeue: Some(left), ..apply(input, 1, Reason::ActiveRecently) }
        }
        Active::True(_) => {
            let recheck = (input.path == PathMode::Proxy).then_some(PROXY_RECHECK);
            hold(Some(0), Reason::Idle, recheck)
        }
        Active::False(inactive) => last_pod(input, inactive),
    }
}

/// Returns true if an inactive revision desires no pods, and its remaining replicas are within its bounds.
fn is_leaving(input: &Input) -> bool {
    let (current, bounds) = (input.current_replicas, input.bounds);
    let is_inactive = matches!(input.active, Active::False(_)) && input.desired == Some(0);
    is_inactive && input.scale_to_zero && bounds.clamp(0) <= 0 && current > 0 && bounds.clamp(current) == current
}

/// Applies steps 2 and 3.
fn last_pod(input: &Input, inactive: Duration) -> ScaleOutcome {
    if input.unattested && input.current_replicas > 0 {
        return hold(Some(0), Reason::Unattested, None);
    }
    if input.probe_needed && input.probe != ProbeResult::InPath {
        let probe = if input.probe == ProbeResult::NotProbed { ProbeNeed::Probe } else { ProbeNeed::Retry };
        return ScaleOutcome { probe, ..hold(Some(0), Reason::ProbePending, None) };
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

/// Writes `scale` unless it is already set.
fn apply(input: &Input, scale: i32, reason: Reason) -> ScaleOutcome {
    let patch = (scale != input.current_replicas).then_some(scale);
    ScaleOutcome { wanted_scale: Some(scale), patch, requeue: None, probe: ProbeNeed::None, reason }
}

/// Leaves the replicas as they are.
fn hold(wanted_scale: Option<i32>, reason: Reason, requeue: Option<Duration>) -> ScaleOutcome {
    ScaleOutcome { wanted_scale, patch: None, requeue, probe: ProbeNeed::None, reason }
}
