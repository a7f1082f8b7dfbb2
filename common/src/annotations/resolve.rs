//! Resolves the parameters of one revision: the annotation, else the configuration.
//!
//! # The target
//!
//! [`AutoscalerConfig::targets`] defines the rule. Any metric except `rps` is treated as concurrency. For the metric
//! `concurrency`, the annotation `target` cannot exceed a hard limit.
//!
//! # Edge cases
//!
//! Values out of range are used if they parse. Negative delays and windows become zero in a [`DeciderSpec`], where they
//! mean the same. The functions here that return a [`GoDuration`] keep the sign. Any negative target burst capacity
//! keeps activators in the path, like -1.

use super::{
    ACTIVATION_SCALE, AGGREGATION, Annotations, INITIAL_SCALE, MAX_SCALE, METRIC_CONCURRENCY, METRIC_RPS, MIN_SCALE,
    PANIC_THRESHOLD, PANIC_WINDOW, POD_RETENTION, PROGRESS_DEADLINE, SCALE_DOWN_DELAY, TARGET, TARGET_BURST_CAPACITY,
    TARGET_UTILIZATION, WINDOW, metric,
};
use crate::config::{AutoscalerConfig, DeploymentConfig};
use crate::golang::GoDuration;
use crate::scaling::{Aggregation, Bounds, BurstCapacity, DeciderSpec, ScalingMetric};

/// Returns all parameters of a decider.
///
/// `container_concurrency` is the hard limit of one pod, 0: none. `reachable` is false only if it is known that no
/// route leads to the revision.
pub fn decider_spec(
    annotations: &Annotations,
    config: &AutoscalerConfig,
    container_concurrency: i64,
    reachable: bool,
) -> DeciderSpec {
    let (target_value, total_value) = targets(annotations, config, container_concurrency);
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
    let said = TARGET.float(annotations);
    let said = said.map(|target| if capped { target.min(container_concurrency as f64) } else { target });
    let load = if metric == METRIC_RPS { ScalingMetric::Rps } else { ScalingMetric::Concurrency };
    config.targets(load, said, TARGET_UTILIZATION.float(annotations), container_concurrency)
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

fn aggregation(annotations: &Annotations) -> Aggregation {
    match AGGREGATION.text(annotations) {
        Some("weighted-exponential" | "weightedExponential") => Aggregation::WeightedExponential,
        _ => Aggregation::Linear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::map;

    const UTILIZATION: &str = TARGET_UTILIZATION.name;

    /// Goal: without annotations and settings, a revision has the default parameters.
    #[test]
    fn a_revision_that_says_nothing_has_the_default_parameters() {
        let spec = decider_spec(&Annotations::new(), &AutoscalerConfig::default(), 0, true);
        assert_eq!(spec, DeciderSpec::default());
    }

    #[test]
    fn targets_follow_the_table() {
        let rps = ("autoscaling.knative.dev/metric", "rps");
        let target = |value| (TARGET.name, value);
        // Fraction, default concurrency, container concurrency, annotations; target, total.
        type Row<'a> = (f64, f64, i64, &'a [(&'a str, &'a str)], f64, f64);
        let rows: [Row<'_>; 20] = [
            (1.0, 100.0, 0, &[], 100.0, 100.0),
            (0.8, 100.0, 0, &[], 80.0, 100.0),
            (0.7, 100.0, 0, &[], 70.0, 100.0),
            (0.3, 2.0, 0, &[], 0.6, 2.0),
            (0.8, 100.0, 12, &[(UTILIZATION, "75")], 9.0, 12.0),
            (0.8, 100.0, 10, &[], 8.0, 10.0),
            (0.8, 100.0, 1, &[], 0.8, 1.0),
            (1.0, 100.0, 1, &[], 1.0, 1.0),
            (0.001, 100.0, 0, &[target("1")], 0.01, 1.0),
            (0.75, 100.0, 0, &[target("10")], 7.5, 10.0),
            (1.0, 100.0, 10, &[target("1")], 1.0, 1.0),
            (1.0, 100.0, 1, &[target("10")], 1.0, 1.0), // Clipped to the hard limit.
            (1.0, 100.0, 0, &[target("500")], 500.0, 500.0),
            (0.8, 100.0, 120, &[], 96.0, 120.0),
            (0.8, 100.0, 1, &[rps], 140.0, 200.0),
            (0.8, 100.0, 0, &[rps, target("1")], 0.7, 1.0),
            (0.8, 100.0, 0, &[rps, target("300")], 210.0, 300.0),
            (0.8, 100.0, 0, &[rps, (UTILIZATION, "75")], 150.0, 200.0),
            (0.8, 100.0, 1, &[rps, target("300")], 210.0, 300.0), // The hard limit does not apply to rates.
            // Nor does it apply to other metrics.
            (0.8, 100.0, 1, &[("autoscaling.knative.dev/metric", "cpu"), target("10")], 8.0, 10.0),
        ];
        for (index, (fraction, default, limit, annotations, target, total)) in rows.into_iter().enumerate() {
            let config = AutoscalerConfig {
                container_concurrency_target_fraction: fraction,
                container_concurrency_target_default: default,
                ..AutoscalerConfig::default()
            };
            let resolved = targets(&map(annotations), &config, limit);
            let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
            assert!(close(resolved.0, target) && close(resolved.1, total), "row {index}: {resolved:?}");
        }
    }

    #[test]
    fn panic_windows_are_whole_seconds_and_at_least_one() {
        let rows = [
            ("60s", "10", 6),
            ("10s", "10", 1),
            ("10m", "10", 60),
            ("60s", "50", 30),
            ("60s", "51", 31), // 30.6
            ("6s", "10", 1),   // 0.6
            ("15s", "10", 2),  // 1.5: half away from zero.
            ("25s", "10", 3),  // 2.5
            ("40s", "1", 1),   // 0.4
            ("60s", "x", 6),   // Malformed: the cluster's 10 %.
            ("-60s", "50", 1),
        ];
        for (window, percentage, seconds) in rows {
            let annotations = map(&[(WINDOW.name, window), (PANIC_WINDOW.name, percentage)]);
            let panic = panic_window(&annotations, &AutoscalerConfig::default());
            assert_eq!(panic, GoDuration::from_secs(seconds), "{window} {percentage}");
        }
    }

    #[test]
    fn an_initial_scale_of_zero_needs_leave() {
        let strict = AutoscalerConfig::default();
        let lax = AutoscalerConfig { allow_zero_initial_scale: true, ..strict.clone() };
        let zero = map(&[(INITIAL_SCALE.name, "0")]);
        assert_eq!((initial_scale(&zero, &strict), initial_scale(&zero, &lax)), (1, 0));
        assert_eq!(initial_scale(&map(&[(INITIAL_SCALE.name, "2")]), &strict), 2);
        assert_eq!(initial_scale(&map(&[(INITIAL_SCALE.name, "3000000000")]), &strict), 1);
    }

    #[test]
    fn bounds_come_from_annotation_then_config() {
        let config = |min_scale, max_scale| AutoscalerConfig { min_scale, max_scale, ..AutoscalerConfig::default() };
        let (min, max) = (MIN_SCALE.name, MAX_SCALE.name);
        let both = map(&[(min, "1"), (max, "100")]);
        assert_eq!(bounds(&both, &config(0, 0), true), Bounds { min: 1, max: Some(100) });
        assert_eq!(bounds(&both, &config(0, 0), false), Bounds { min: 0, max: Some(100) });
        let junk = map(&[(min, "ham"), (max, "sandwich")]);
        assert_eq!(bounds(&junk, &config(0, 0), true), Bounds { min: 0, max: None });
        assert_eq!(bounds(&map(&[(min, "1")]), &config(0, 10), true), Bounds { min: 1, max: Some(10) });
        assert_eq!(bounds(&map(&[(max, "5")]), &config(0, 10), true), Bounds { min: 0, max: Some(5) });
        assert_eq!(bounds(&map(&[(max, "0")]), &config(0, 10), true), Bounds { min: 0, max: None });
        assert_eq!(bounds(&map(&[]), &config(2, 0), false), Bounds { min: 0, max: None });
    }

    /// Goal: annotations override the cluster's threshold and burst capacity, and set delay and reachability in a spec.
    #[test]
    fn annotations_beat_the_cluster_in_a_spec() {
        let config = AutoscalerConfig { target_burst_capacity: 63.0, ..AutoscalerConfig::default() };
        let annotations = map(&[
            (PANIC_THRESHOLD.name, "400"),
            (TARGET_BURST_CAPACITY.name, "-1"),
            (SCALE_DOWN_DELAY.name, "10m"),
            (ACTIVATION_SCALE.name, "5"),
            ("autoscaling.knative.dev/metricAggregationAlgorithm", "weightedExponential"),
        ]);
        let spec = decider_spec(&annotations, &config, 0, true);
        assert_eq!(spec.panic_threshold, 4.0);
        assert_eq!(spec.target_burst_capacity, BurstCapacity::Always);
        assert_eq!(spec.scale_down_delay.as_secs(), 600);
        assert_eq!(spec.activation_scale, 5);
        assert_eq!(spec.aggregation, Aggregation::WeightedExponential);
        let plain = decider_spec(&map(&[]), &config, 0, false);
        assert_eq!((plain.panic_threshold, plain.reachable), (2.0, false));
        assert_eq!(plain.target_burst_capacity, BurstCapacity::Limited(63.0));
        let negative = decider_spec(&map(&[(SCALE_DOWN_DELAY.name, "-1s")]), &config, 0, true);
        assert!(negative.scale_down_delay.is_zero());
    }

    #[test]
    fn the_progress_deadline_has_one_prefix_only() {
        let config = DeploymentConfig::default();
        let lookalike = map(&[("autoscaling.knative.dev/progress-deadline", "1s")]);
        assert_eq!(progress_deadline(&lookalike, &config), GoDuration::from_secs(600));
        let zero = map(&[(PROGRESS_DEADLINE.name, "0s")]);
        assert_eq!(progress_deadline(&zero, &config), GoDuration::ZERO);
        assert_eq!(progress_deadline(&map(&[(PROGRESS_DEADLINE.name, "x")]), &config), GoDuration::from_secs(600));
    }
}
