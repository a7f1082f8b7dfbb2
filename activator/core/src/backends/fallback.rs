//! Routing through the Service's cluster IP, where a mesh keeps the pods from being addressed (Knative mode only).
//!
//! # The rule
//!
//! A probe that fails without an answer, or with 502 or 503, may have met a mesh; any other answer cannot have. While
//! no pod is healthy and every pod's last probe may have met one, the cluster IP is probed too, at the same pace. Once
//! that passes, requests go there, as many as the ready pods can run. With mesh mode `enabled` it is always so, and
//! pods are not probed.
//!
//! # Better than Knative
//!
//! There, one success turns pod addressing off for good; a pod that became ready between its own probe and the cluster
//! IP's is enough. Here pods are still asked, once a second, and the first that answers ends the fallback.

use std::time::{Duration, Instant};

use super::Attempt;
use super::schedule::pause;

/// Whether and when the cluster IP may carry requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Never: standalone; mesh mode `disabled`; passthrough load balancing.
    Never,
    /// When pods cannot be addressed: mesh mode `auto`.
    WhenUnaddressable,
    /// Always: mesh mode `enabled`.
    Always,
}

/// Pods are asked so seldom while the cluster IP carries the requests.
pub(super) const PODS_PAUSE: Duration = Duration::from_secs(1);

/// Whether requests take the cluster IP now, or how far the way there is.
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
    /// Carries the requests.
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

    /// Moves on with whether the fallback is wanted now. Answers how long was waited, if a probe is to be sent under
    /// `attempt`.
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

    /// A probe of the cluster IP came back, while so many addresses are eager.
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
