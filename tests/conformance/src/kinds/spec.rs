//! Decider spec in the format of the vectors; shared by several kinds.

use std::time::Duration;

use common::scaling::{BurstCapacity, DeciderSpec, ScalingMetric};
use serde::Deserialize;

use crate::Mismatch;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Spec {
    max_scale_up_rate: f64,
    max_scale_down_rate: f64,
    scaling_metric: String,
    target_value: f64,
    total_value: f64,
    target_burst_capacity: f64,
    activator_capacity: f64,
    panic_threshold: f64,
    stable_window_seconds: f64,
    scale_down_delay_seconds: f64,
    initial_scale: i32,
    reachable: bool,
    activation_scale: i32,
}

impl Spec {
    /// Converts the spec. `others` contains the fields that the vectors lack: panic window and aggregation.
    pub(super) fn resolve(&self, others: DeciderSpec) -> Result<DeciderSpec, Mismatch> {
        Ok(DeciderSpec {
            max_scale_up_rate: self.max_scale_up_rate,
            max_scale_down_rate: self.max_scale_down_rate,
            metric: match self.scaling_metric.as_str() {
                "concurrency" => ScalingMetric::Concurrency,
                "rps" => ScalingMetric::Rps,
                other => return Err(Mismatch::Broken(format!("scaling_metric {other:?} is unknown"))),
            },
            target_value: self.target_value,
            total_value: self.total_value,
            target_burst_capacity: BurstCapacity::from_number(self.target_burst_capacity),
            activator_capacity: self.activator_capacity,
            panic_threshold: self.panic_threshold,
            stable_window: Duration::from_secs_f64(self.stable_window_seconds),
            scale_down_delay: Duration::from_secs_f64(self.scale_down_delay_seconds),
            initial_scale: self.initial_scale,
            activation_scale: self.activation_scale,
            reachable: self.reachable,
            ..others
        })
    }
}

/// Expected decision of a tick.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Want {
    valid: bool,
    desired_pod_count: Option<i32>,
    excess_burst_capacity: Option<i32>,
}

impl Want {
    /// Compares a decision made at the step called `at`.
    pub(super) fn compare(&self, at: &str, decision: &autoscaler_core::decider::Decision) -> Result<(), Mismatch> {
        use crate::compare::equal;
        let found = decision.as_ref().ok();
        let (desired, excess) = (found.map(|r| r.desired), found.map(|r| r.excess_burst_capacity));
        equal(&format!("{at}.valid"), &self.valid, &found.is_some())?;
        equal(&format!("{at}.desired_pod_count"), &self.desired_pod_count, &desired)?;
        equal(&format!("{at}.excess_burst_capacity"), &self.excess_burst_capacity, &excess)
    }
}
