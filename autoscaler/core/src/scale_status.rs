//! Latest decision for the reconciler, and the conditions for notifying the reconciler and for evaluating before the
//! next tick.
//!
//! # Notifications
//!
//! The reconciler is notified of a decision only if the desired scale changed, or the *sign* of the excess burst
//! capacity (0 counts as positive), or if the last pod may go or the path may move from now on. The capacity itself is
//! stored with every decision.
//!
//! # Poke
//!
//! A stat that shows traffic makes an evaluation due at once if the desired scale is 0. This makes scale from zero
//! fast. If the target is known to have no replicas, an unknown desired scale is poked too (standalone): otherwise the
//! very first request after a restart would wait for a tick.

#[cfg(test)]
mod tests;

use common::scaling::{BurstCapacity, DeciderSpec};
use std::time::Duration;

use crate::decider::Decision;

/// Latest decision for one revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleStatus {
    /// Desired pods before bounds; `None` before the first valid decision.
    pub desired: Option<i32>,
    /// Spare requests beyond the target burst capacity; negative keeps the activators in the path.
    pub excess_burst_capacity: i32,
    /// Time until the stable window is full after a takeover; `None` if it is full. Until then a new owner may scale
    /// up, but neither scales down nor changes the path mode.
    pub warm_up_left: Option<Duration>,
    /// True if the last evaluation lacked the attestation of a ready activator. The last pod then stays.
    pub unattested: bool,
}

impl ScaleStatus {
    /// Returns the status before any decision: no desired scale, and the burst capacity of a ready initial scale.
    pub fn initial(spec: &DeciderSpec) -> Self {
        let excess_burst_capacity = match spec.target_burst_capacity {
            BurstCapacity::Always => -1,
            BurstCapacity::AtZeroOnly => 0,
            // Truncated toward zero, unlike the value of a decision.
            BurstCapacity::Limited(burst) => (f64::from(spec.initial_scale) * spec.total_value - burst) as i32,
        };
        Self { desired: None, excess_burst_capacity, warm_up_left: None, unattested: false }
    }

    /// Returns the status of a target that standalone finds with this many replicas. With none, the desired scale is 0,
    /// so that the first stat wakes it.
    pub fn adopted(spec: &DeciderSpec, replicas: i32) -> Self {
        Self { desired: (replicas == 0).then_some(0), ..Self::initial(spec) }
    }

    /// Returns the status of a revision that another process has scaled before.
    pub fn taken_over(spec: &DeciderSpec) -> Self {
        Self { warm_up_left: Some(spec.stable_window), ..Self::initial(spec) }
    }

    /// Stores a decision of an evaluation that had all attestations if `attested` is true. Returns true if the
    /// reconciler must be notified.
    #[must_use]
    pub fn apply(&mut self, decision: &Decision, attested: bool) -> bool {
        let before = *self;
        self.unattested = !attested;
        if let Ok(recommendation) = decision {
            self.desired = Some(recommendation.desired);
            self.excess_burst_capacity = recommendation.excess_burst_capacity;
            self.warm_up_left = recommendation.warm_up_left;
        }
        let is_changed =
            before.desired != self.desired || !same_sign(before.excess_burst_capacity, self.excess_burst_capacity);
        let is_warmed_up = before.warm_up_left.is_some() && self.warm_up_left.is_none();
        // A last pod that was kept because an attestation was missing may go now.
        let may_leave = before.unattested && attested && self.desired == Some(0);
        is_changed || is_warmed_up || may_leave
    }

    /// Returns true if a stat with this concurrency makes an evaluation due at once. `target_is_empty` is true if the
    /// target is known to have no replicas (standalone; always false in Knative mode).
    pub fn wakes(&self, average_concurrency: f64, target_is_empty: bool) -> bool {
        average_concurrency != 0.0
            && match self.desired {
                Some(desired) => desired == 0,
                None => target_is_empty,
            }
    }
}

/// Reports whether two numbers have the same sign. 0 counts as positive.
fn same_sign(a: i32, b: i32) -> bool {
    (a >= 0) == (b >= 0)
}
