//! Decides the Active condition of a revision's PodAutoscaler.
//!
//! `min_ready` is [`crate::bounds::min_ready`].
//!
//! | wanted | ready < min_ready | ready ≥ min_ready |
//! |---|---|---|
//! | 0 (or min_ready 0) | inactive | inactive |
//! | more | activating | active |
//! | unknown, inactive so far | inactive | untouched |
//! | unknown otherwise | activating | active |
//!
//! The reason for inactive is `NoTraffic`, or `TimedOut` if the revision was activating until now and needs ready pods
//! at all. In standalone mode `TimedOut` is kept for some minutes or until the next scale from zero, even if this
//! function returns `NoTraffic`. `ScaleTargetInitialized` becomes true permanently once `min_ready` pods are ready and
//! the public Service is known. In that call the table still uses the former `min_ready`.

use std::time::Duration;

/// Active condition, with the time since its last change in any field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Active {
    /// No condition yet: activating, and never timing out.
    Absent,
    /// Activating.
    Unknown(Duration),
    /// Active.
    True(Duration),
    /// Inactive.
    False(Duration),
}

impl Active {
    /// Returns true if the revision is activating.
    pub fn is_activating(self) -> bool {
        matches!(self, Self::Absent | Self::Unknown(_))
    }

    /// Returns true if the revision is inactive.
    pub fn is_inactive(self) -> bool {
        matches!(self, Self::False(_))
    }
}

/// Input of [`decide`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// Scale that [`crate::scale_to_zero`] returned, never below 0; `None` if unknown.
    pub wanted_scale: Option<i32>,
    /// Number of ready pods.
    pub ready: u32,
    /// Number of ready pods that makes the revision active.
    pub min_ready: i32,
    /// True if the status contains the name of the public Service.
    pub service_known: bool,
    /// Current condition.
    pub active: Active,
}

/// Conditions to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveOutcome {
    /// True if `ScaleTargetInitialized` becomes or stays true. It is never reset.
    pub initialized: bool,
    /// Active condition to set; `None` leaves it as it is.
    pub active: Option<ActiveCondition>,
}

/// Active condition to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActiveCondition {
    /// True.
    Active,
    /// Unknown: pods are starting.
    Queued,
    /// False: there is no traffic.
    NoTraffic,
    /// False: no pod became ready in time.
    TimedOut,
}

impl ActiveCondition {
    /// Returns status (`None` means Unknown), reason and message of the condition.
    pub fn parts(self) -> (Option<bool>, &'static str, &'static str) {
        match self {
            Self::Active => (Some(true), "", ""),
            Self::Queued => (None, "Queued", "Requests to the target are being buffered as resources are provisioned."),
            Self::NoTraffic => (Some(false), "NoTraffic", "The target is not receiving traffic."),
            Self::TimedOut => (Some(false), "TimedOut", "The target could not be activated."),
        }
    }
}

/// Returns the conditions to set.
pub fn decide(input: &Input) -> ActiveOutcome {
    let enough = i64::from(input.ready) >= i64::from(input.min_ready);
    let active = if input.wanted_scale == Some(0) || input.min_ready == 0 {
        let timed_out = input.active.is_activating() && input.min_ready > 0;
        Some(if timed_out { ActiveCondition::TimedOut } else { ActiveCondition::NoTraffic })
    } else {
        match (enough, input.wanted_scale.is_some() || !input.active.is_inactive()) {
            (true, true) => Some(ActiveCondition::Active),
            (true, false) => None,
            (false, true) => Some(ActiveCondition::Queued),
            (false, false) => Some(ActiveCondition::NoTraffic),
        }
    };
    ActiveOutcome { initialized: enough && input.service_known, active }
}
