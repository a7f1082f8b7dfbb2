//! Resolves the parameters of one revision: the annotation, else the configuration.
//!
//! # The target
//!
//! [`AutoscalerConfig::targets`] defines the rule. Any metric except `rps` is treated as concurrency. For the metric
//! `concurrency`, the annotation `target` cannot exceed a hard limit.
//!
//! # Edge cases
//!
//! Values out of range are used if they parse. Negative delays and windows become zero in a [`DeciderSpec`], which has
//! the same effect. The functions here that return a [`GoDuration`] keep the sign. Any negative target burst capacity
//! keeps activators in the path, like -1.

use super::{
    ACTIVATION_SCALE, AGGREGATION, Annotations, INITIAL_SCALE, MAX_SCALE, METRIC_CONCURRENCY, METRIC_RPS, MIN_SCALE,
    PANIC_THRESHOLD, PANIC_WINDOW, POD_RETENTION, PROGRESS_DEADLINE, SCALE_DOWN_DELAY, TARGET, TARGET_BURST_CAPACITY,
    TARGET_UTILIZATION, WINDOW, metric,
};
use crate::config::{AutoscalerConfig, DeploymentConfig};
use crate::golang::GoDuration;
use crate::scaling::{Aggregation, Bounds, BurstCapacity, DeciderSpec, ScalingMetric};

impl Default for DeciderSpec {
    /// Returns the parameters of a revision without annotations under a configuration without settings. Parameters that
    /// only one front end sets are off.
    fn default() -> Self {
        decider_spec(&Annotations::new(), &AutoscalerConfig::default(), 0, true)
    }
}

/// Returns all parameters of a decider.
///
/// `limit` is the hard limit of one pod, 0: none. `reachable` is false only if it is known that no route leads to the
/// revision.
pub fn decider_spec(annotations: &Annotations, config: &AutoscalerConfig, limit: i64, reachable: bool) -> DeciderSpec {
    let (target_value, total_value) = targets(annotations, config, limit);
    DeciderSpec {
        max_scale_up_rate: config.max_scale_up_rate,
        max_scale_down_rate: config.max_scale_down_rate,
        metric: if metric(annotations) == METRIC_RPS { ScalingMetric::Rps } else { ScalingMetric::Concurrency },
        target_value,
        total_value,
        target_burst_capacity: BurstCapacity::from_number(target_burst_capacity(annotations, config)),
        activator_capacity: config.activator_capacity,
        panic_threshold: PANIC_THRESHOLD.float(annotations).unwrap_or(config.panic_threshold_percentage) / 100.0,
        stable_window: stable_window(annotations, config).to_std(),
        panic_window: panic_window(annotations, config).to_std(),
        scale_down_delay: scale_down_delay(annotations, config).to_std(),
        initial_scale: initial_scale(annotations, config),
        activation_scale: ACTIVATION_SCALE.int32(annotations).unwrap_or(0),
        reachable,
        aggregation: aggregation(annotations),
    }
}

/// Returns the target value and the total value per pod.
pub fn targets(annotations: &Annotations, config: &AutoscalerConfig, container_concurrency: i64) -> (f64, f64) {
    let metric = metric(annotations);
    let capped = metric == METRIC_CONCURRENCY && container_concurrency != 0;
    let requested = TARGET.float(annotations);
    let requested = requested.map(|target| if capped { target.min(container_concurrency as f64) } else { target });
    let load = if metric == METRIC_RPS { ScalingMetric::Rps } else { ScalingMetric::Concurrency };
    config.targets(load, requested, TARGET_UTILIZATION.float(annotations), container_concurrency)
}

/// Returns the minimum and maximum scale. The minimum is 0 for a revision that no route leads to.
pub fn bounds(annotations: &Annotations, config: &AutoscalerConfig, reachable: bool) -> Bounds {
    let min = MIN_SCALE.int32(annotations).unwrap_or(config.min_scale);
    let max = MAX_SCALE.int32(annotations).unwrap_or(config.max_scale);
    Bounds { min: if reachable { min } else { 0 }, max: (max != 0).then_some(max) }
}

/// Returns the initial scale: the annotation, unless it is 0 and the cluster forbids that.
pub fn initial_scale(annotations: &Annotations, config: &AutoscalerConfig) -> i32 {
    INITIAL_SCALE
        .int32(annotations)
        .filter(|&scale| scale != 0 || config.allow_zero_initial_scale)
        .unwrap_or(config.initial_scale)
}

/// Returns the target burst capacity as written: -1 for unlimited.
pub fn target_burst_capacity(annotations: &Annotations, config: &AutoscalerConfig) -> f64 {
    TARGET_BURST_CAPACITY.float(annotations).unwrap_or(config.target_burst_capacity)
}

/// Returns the stable window.
pub fn stable_window(annotations: &Annotations, config: &AutoscalerConfig) -> GoDuration {
    WINDOW.duration(annotations).unwrap_or(config.stable_window.into())
}

/// Returns the panic window: its percentage of the stable window, rounded to a whole second (half away from zero), at
/// least 1 s.
pub fn panic_window(annotations: &Annotations, config: &AutoscalerConfig) -> GoDuration {
    let percentage = PANIC_WINDOW.float(annotations).unwrap_or(config.panic_window_percentage);
    let nanos = stable_window(annotations, config).as_nanos() as f64 * percentage / 100.0;
    let second = GoDuration::SECOND.as_nanos();
    let whole_seconds = (nanos.trunc() / second as f64).round() as i64; // The cast saturates.
    GoDuration::from_secs(whole_seconds).max(GoDuration::SECOND)
}

/// Returns the time for which a higher decision holds.
pub fn scale_down_delay(annotations: &Annotations, config: &AutoscalerConfig) -> GoDuration {
    SCALE_DOWN_DELAY.duration(annotations).unwrap_or(config.scale_down_delay.into())
}

/// Returns the time for which the last pod is retained. It does not depend on reachability.
pub fn pod_retention(annotations: &Annotations, config: &AutoscalerConfig) -> GoDuration {
    POD_RETENTION.duration(annotations).unwrap_or(config.scale_to_zero_pod_retention_period.into())
}

/// Returns the time in which activation must succeed.
pub fn progress_deadline(annotations: &Annotations, config: &DeploymentConfig) -> GoDuration {
    PROGRESS_DEADLINE.duration(annotations).unwrap_or(config.progress_deadline.into())
}

/// Returns the averaging method of the windows.
pub fn aggregation(annotations: &Annotations) -> Aggregation {
    match AGGREGATION.text(annotations) {
        Some("weighted-exponential" | "weightedExponential") => Aggregation::WeightedExponential,
        _ => Aggregation::Linear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::map;

    /// Recorded vectors (kind `decider`) cover the other parameters, targets, bounds and windows.
    #[test]
    fn initial_scale_aggregation_delay_and_progress_deadline_are_resolved() {
        let strict = AutoscalerConfig::default();
        let lax = AutoscalerConfig { allow_zero_initial_scale: true, ..strict.clone() };
        let initial = |scale: &str, config| initial_scale(&map(&[(INITIAL_SCALE.name, scale)]), config);
        assert_eq!((initial("0", &strict), initial("0", &lax)), (1, 0), "zero must be allowed");
        assert_eq!((initial("2", &strict), initial("3000000000", &strict)), (2, 1));

        let aggregation = "autoscaling.knative.dev/metricAggregationAlgorithm";
        let annotations = map(&[(SCALE_DOWN_DELAY.name, "-1s"), (aggregation, "weightedExponential")]);
        let spec = decider_spec(&annotations, &strict, 0, true);
        assert!(spec.scale_down_delay.is_zero());
        assert_eq!(spec.aggregation, Aggregation::WeightedExponential);

        let deadline = |name, value| progress_deadline(&map(&[(name, value)]), &DeploymentConfig::default());
        let lookalike = "autoscaling.knative.dev/progress-deadline";
        assert_eq!(deadline(lookalike, "1s"), GoDuration::from_secs(600), "it has one prefix only");
        assert_eq!(deadline(PROGRESS_DEADLINE.name, "0s"), GoDuration::ZERO);
        assert_eq!(deadline(PROGRESS_DEADLINE.name, "x"), GoDuration::from_secs(600));
    }
}
