//! The latest decision as the reconciler sees it, when the reconciler is notified, and when a stat must not wait for a
//! tick.
//!
//! # Notifications
//!
//! The reconciler is notified of a decision only if the desired scale changed, or the *sign* of the excess burst capacity (0
//! counts as positive). The capacity itself is stored with every decision.
//!
//! # Poke
//!
//! A stat that shows traffic makes an evaluation due at once if the desired scale is 0. That is the way from zero.
//! Where the target is known to have no replicas, an unknown desired scale is poked too (standalone): otherwise the
//! very first request after a restart would wait for a tick.

#[cfg(test)]
mod tests;

use common::scaling::{BurstCapacity, DeciderSpec};

use crate::decider::Decision;

/// What was decided last for one revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleStatus {
    /// Desired pods; none before the first valid decision.
    pub desired: Option<i32>,
    /// Spare requests beyond the target burst capacity.
    pub excess_burst_capacity: i32,
}

impl ScaleStatus {
    /// Before any decision: nothing desired, and a burst capacity as if the initial scale were ready.
    pub fn initial(spec: &DeciderSpec) -> Self {
        let excess_burst_capacity = match spec.target_burst_capacity {
            BurstCapacity::Always => -1,
            BurstCapacity::AtZeroOnly => 0,
            // Truncated toward zero, unlike a decision's.
            BurstCapacity::Limited(burst) => (f64::from(spec.initial_scale) * spec.total_value - burst) as i32,
        };
        Self { desired: None, excess_burst_capacity }
    }

    /// A target that standalone finds with so many replicas: at none, none are desired, and the first stat wakes it.
    pub fn adopted(spec: &DeciderSpec, replicas: i32) -> Self {
        Self { desired: (replicas == 0).then_some(0), ..Self::initial(spec) }
    }

    /// Takes a decision over. Whether the reconciler must be notified.
    #[must_use]
    pub fn apply(&mut self, decision: &Decision) -> bool {
        let Some(recommendation) = decision.recommendation() else { return false };
        let before = std::mem::replace(
            self,
            Self { desired: Some(recommendation.desired), excess_burst_capacity: recommendation.excess_burst_capacity },
        );
        before.desired != self.desired || !same_sign(before.excess_burst_capacity, self.excess_burst_capacity)
    }

    /// Whether a stat with this concurrency makes an evaluation due at once. `target_is_empty`: the target is known to
    /// have no replicas (standalone; the drop-in says false).
    pub fn wakes(&self, average_concurrency: f64, target_is_empty: bool) -> bool {
        average_concurrency != 0.0
            && match self.desired {
                Some(desired) => desired == 0,
                None => target_is_empty,
            }
    }
}

/// 0 counts as positive.
fn same_sign(a: i32, b: i32) -> bool {
    (a >= 0) == (b >= 0)
}
