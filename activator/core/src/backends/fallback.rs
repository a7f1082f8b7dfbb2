//! Routing through the Service's cluster IP, if a mesh keeps the pods from being addressed (Knative mode only).
//!
//! # The rule
//!
//! A probe that fails without a response, or with 502 or 503, may have failed because of a mesh; any other response
//! rules that out. While no pod is healthy and the last probe of every pod may have failed because of a mesh, the
//! cluster IP is probed too, at the same pace. Once that probe passes, requests go to the cluster IP, as many as the
//! ready pods can run. With mesh mode `enabled` this always applies, and pods are not probed.
//!
//! # Better than Knative
//!
//! In Knative one success disables pod addressing permanently. A pod that becomes ready between its own probe and the
//! probe of the cluster IP is enough to cause that. Here pods are still probed once a second, and the first one that
//! passes ends the fallback.

use std::time::{Duration, Instant};

use super::Attempt;
use super::schedule::pause;

/// Condition under which the cluster IP may carry requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Never: standalone, mesh mode `disabled`, or passthrough load balancing.
    Never,
    /// If pods cannot be addressed: mesh mode `auto`.
    WhenUnaddressable,
    /// Always: mesh mode `enabled`.
    Always,
}

/// Interval between probes of a pod while the cluster IP carries the requests.
pub(super) const POD_PAUSE: Duration = Duration::from_secs(1);

/// Progress of the fallback to the cluster IP.
#[derive(Debug, Default)]
pub(super) enum FallbackState {
    #[default]
    Off,
    Probing {
        attempt: Attempt,
        since: Instant,
    },
    Waiting {
        due: Instant,
        since: Instant,
    },
    /// The cluster IP carries the requests.
    On,
}

impl FallbackState {
    pub(super) fn is_on(&self) -> bool {
        matches!(self, Self::On)
    }

    pub(super) fn due(&self) -> Option<Instant> {
        match self {
            Self::Waiting { due, .. } => Some(*due),
            _ => None,
        }
    }

    /// Makes one step, given whether the fallback is `wanted` now. Returns the time waited so far if a probe must be
    /// sent under `attempt`.
    pub(super) fn step(&mut self, wanted: bool, attempt: Attempt, now: Instant) -> Option<Duration> {
        match *self {
            // (Probing | Waiting) => Off
            Self::Probing { .. } | Self::Waiting { .. } if !wanted => *self = Self::Off,
            // Off => Probing
            Self::Off if wanted => {
                *self = Self::Probing { attempt, since: now };
                return Some(Duration::ZERO);
            }
            // Waiting => Probing
            Self::Waiting { due, since } if due <= now => {
                *self = Self::Probing { attempt, since };
                return Some(now.saturating_duration_since(since));
            }
            _ => {}
        }
        None
    }

    /// Handles the result of a probe of the cluster IP. `sharers` is the number of eager addresses.
    pub(super) fn probed(&mut self, attempt: Attempt, passed: bool, now: Instant, sharers: usize) {
        // Probing => (On | Waiting)
        if let Self::Probing { attempt: last, since } = *self
            && last == attempt
        {
            let due = now + pause(now.saturating_duration_since(since), sharers);
            *self = if passed { Self::On } else { Self::Waiting { due, since } };
        }
    }
}
