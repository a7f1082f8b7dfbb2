//! What tests make decisions about.

use super::{Subject, SubjectLabels};
use common::scaling::{Aggregation, BurstCapacity, DeciderSpec, ScalingMetric};
use std::time::Duration;

/// A plain pod's revision under default configuration: the activators are always in the path.
pub(crate) fn subject() -> Subject {
    let spec = DeciderSpec {
        max_scale_up_rate: 1000.0,
        max_scale_down_rate: 2.0,
        metric: ScalingMetric::Concurrency,
        target_value: 70.0,
        total_value: 100.0,
        target_burst_capacity: BurstCapacity::Always,
        activator_capacity: 100.0,
        panic_threshold: 2.0,
        stable_window: Duration::from_secs(60),
        panic_window: Duration::from_secs(6),
        scale_down_delay: Duration::ZERO,
        initial_scale: 1,
        activation_scale: 0,
        reachable: true,
        aggregation: Aggregation::Linear,
    };
    Subject { spec, labels: SubjectLabels::default() }
}
