//! Number of pods, and its resolution with the cluster's defaults.
//!
//! If an object does not set a field, `config-autoscaler` does ([`AutoscalerConfig`]), so these fields have no default
//! in the schema. Objects are validated first ([`super::validation`]), so this module treats only some values that are
//! out of bounds as not set.
//!
//! The load target of one pod is `load.concurrency` or `load.rps`, of which `load.utilization` percent are aimed for.
//! If neither is set, the target is the hard limit, else the cluster's default concurrency.

use super::DurationText;
use common::config::AutoscalerConfig;
use common::scaling::{self, Bounds, BurstCapacity, DeciderSpec, ScalingMetric};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Number of pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scale {
    /// Minimum number of pods; 0: the workload is scaled to zero while it has no traffic. Default: `min-scale` of
    /// config-autoscaler, which is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<i32>,
    /// Maximum number of pods; 0: unlimited. Default: `max-scale` of config-autoscaler, which is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<i32>,
    /// Load target of one pod.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub load: LoadTarget,
    /// Time over which the load is averaged to decide the number of pods. The workload is scaled to zero after this
    /// time without traffic. Whole seconds from 6s to 1h. Default: `stable-window` of config-autoscaler, which is 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<DurationText>,
    /// Weights of the seconds in the window and in the panic window. Linear: all seconds count alike.
    /// WeightedExponential: recent seconds count more, so the number of pods follows a change of the load sooner.
    /// Default: Linear.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub aggregation: Aggregation,
    /// Time for which a higher number of pods is kept after the load has fallen. Whole seconds up to 1h. Default:
    /// `scale-down-delay` of config-autoscaler, which is 0s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_delay: Option<DurationText>,
    /// Longest time for which the last pod is kept while its requests move to the activators. Default:
    /// `scale-to-zero-grace-period` of config-autoscaler, which is 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<DurationText>,
    /// Time for which the last pod is kept after the window. Up to 1h. Default: `scale-to-zero-pod-retention-period` of
    /// config-autoscaler, which is 0s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<DurationText>,
    /// Initial number of pods when this object is created. Default: the workload keeps its current replicas, zero or
    /// not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<i32>,
    /// Number of pods with which the workload wakes. Default: as many as the load requires, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<i32>,
    /// Immediate reaction to short bursts.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub panic: Panic,
    /// Limits of change per decision.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub rates: Rates,
}

/// Load target of one pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadTarget {
    /// Desired concurrent requests per pod, fractions allowed; open connections for tcp. Excludes rps, and must not
    /// exceed the hard limit. Default: the hard limit, else `container-concurrency-target-default` of
    /// config-autoscaler, which is 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<f64>,
    /// Desired requests per second per pod. Excludes concurrency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rps: Option<f64>,
    /// Percentage of the target to aim for, which leaves room while the next pod starts. Default: 70; for concurrency,
    /// `container-concurrency-target-percentage` of config-autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
}

/// Weights of the seconds in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub enum Aggregation {
    /// Recent seconds weigh more.
    WeightedExponential,
    /// All seconds have the same weight. Unknown values of newer versions are read as this.
    #[default]
    #[serde(other)]
    Linear,
}

/// Immediate reaction to short bursts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Panic {
    /// Shorter time over which the load is averaged to detect bursts. Whole seconds, from 1s, not longer than the
    /// window. Default: `panic-window-percentage` of config-autoscaler, which is 10 percent of the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<DurationText>,
    /// Percentage of the ready pods. Once the panic window's load requires this many pods, the number of pods follows
    /// it and does not fall until a window has passed. Default: `panic-threshold-percentage` of config-autoscaler,
    /// which is 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
}

/// Limits of change per decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rates {
    /// Largest growth in one decision, as a multiple of the ready pods; above 1. Default: `max-scale-up-rate` of
    /// config-autoscaler, which is 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<f64>,
    /// Largest reduction in one decision, as a divisor of the ready pods; above 1. Default: `max-scale-down-rate` of
    /// config-autoscaler, which is 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<f64>,
}

impl Scale {
    /// Returns the minimum and maximum number of pods.
    pub fn bounds(&self, config: &AutoscalerConfig) -> Bounds {
        let valid = |number: Option<i32>| number.filter(|number| *number >= 0);
        let max = valid(self.max).unwrap_or(config.max_scale);
        Bounds { min: valid(self.min).unwrap_or(config.min_scale), max: (max != 0).then_some(max) }
    }

    /// Returns the measured quantity.
    pub fn metric(&self) -> ScalingMetric {
        match self.load {
            LoadTarget { rps: Some(_), concurrency: None, .. } => ScalingMetric::Rps,
            _ => ScalingMetric::Concurrency,
        }
    }

    /// Returns the target value and the total value per pod. `limit`: the hard limit, 0: none.
    pub fn targets(&self, config: &AutoscalerConfig, limit: i32) -> (f64, f64) {
        let metric = self.metric();
        let limit = i64::from(limit.max(0));
        let requested = match metric {
            ScalingMetric::Rps => self.load.rps,
            ScalingMetric::Concurrency if limit == 0 => self.load.concurrency,
            ScalingMetric::Concurrency => self.load.concurrency.map(|target| target.min(limit as f64)),
        };
        config.targets(metric, requested, self.load.utilization, limit)
    }

    /// Returns the time over which the load is averaged.
    pub fn window(&self, config: &AutoscalerConfig) -> Duration {
        parse(&self.window).filter(|window| !window.is_zero()).unwrap_or(config.stable_window)
    }

    /// Returns the panic window: at least 1 s, at most the window.
    pub fn panic_window(&self, config: &AutoscalerConfig) -> Duration {
        let window = self.window(config);
        let share = || {
            let seconds = window.as_secs_f64() * config.panic_window_percentage / 100.0;
            Duration::from_secs(seconds.round() as u64) // The cast saturates.
        };
        let requested = parse(&self.panic.window).unwrap_or_else(share);
        requested.min(window).max(Duration::from_secs(1))
    }

    /// Returns the time for which a higher number of pods is kept.
    pub fn down_delay(&self, config: &AutoscalerConfig) -> Duration {
        parse(&self.down_delay).unwrap_or(config.scale_down_delay)
    }

    /// Returns the longest time for which the last pod is kept while the path changes.
    pub fn grace(&self, config: &AutoscalerConfig) -> Duration {
        parse(&self.grace).filter(|grace| !grace.is_zero()).unwrap_or(config.scale_to_zero_grace_period)
    }

    /// Returns the time for which the last pod is kept after the window.
    pub fn retention(&self, config: &AutoscalerConfig) -> Duration {
        parse(&self.retention).unwrap_or(config.scale_to_zero_pod_retention_period)
    }

    /// Returns the initial number of pods; `None`: the workload keeps its replicas.
    pub fn initial(&self) -> Option<i32> {
        self.initial.filter(|number| *number >= 0)
    }

    /// Returns the decider's parameters. `limit`: the hard limit, 0: none. Two parameters are the cluster's values here
    /// and must be adjusted by the caller: `initial` if the object does not set it, and the burst capacity of pods that
    /// have no reporter.
    pub fn decider_spec(&self, config: &AutoscalerConfig, limit: i32) -> DeciderSpec {
        let (target_value, total_value) = self.targets(config, limit);
        let above_one = |rate: Option<f64>| rate.filter(|rate| *rate > 1.0);
        DeciderSpec {
            max_scale_up_rate: above_one(self.rates.up).unwrap_or(config.max_scale_up_rate),
            max_scale_down_rate: above_one(self.rates.down).unwrap_or(config.max_scale_down_rate),
            metric: self.metric(),
            target_value,
            total_value,
            target_burst_capacity: BurstCapacity::from_number(config.target_burst_capacity),
            activator_capacity: config.activator_capacity,
            panic_threshold: self.panic.threshold.unwrap_or(config.panic_threshold_percentage) / 100.0,
            stable_window: self.window(config),
            panic_window: self.panic_window(config),
            scale_down_delay: self.down_delay(config),
            initial_scale: self.initial().unwrap_or(config.initial_scale),
            activation_scale: self.activation.unwrap_or(0),
            aggregation: match self.aggregation {
                Aggregation::WeightedExponential => scaling::Aggregation::WeightedExponential,
                Aggregation::Linear => scaling::Aggregation::Linear,
            },
            reachable: true,
        }
    }
}

fn parse(text: &Option<DurationText>) -> Option<Duration> {
    text.as_ref().and_then(DurationText::get)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::annotations::{self, Annotations};

    fn scale(yaml: &str) -> Scale {
        serde_yaml_ng::from_str(yaml).expect(yaml)
    }

    #[test]
    fn equivalent_objects_and_annotations_give_the_same_spec() {
        let config = AutoscalerConfig { stable_window: Duration::from_secs(40), ..AutoscalerConfig::default() };
        let rows = [
            ("{}", 0, ""),
            ("{}", 7, ""),
            ("{load: {concurrency: 0.5}}", 0, "target=0.5"),
            ("{load: {concurrency: 9, utilization: 50}}", 10, "target=9 target-utilization-percentage=50"),
            ("{load: {rps: 30}}", 10, "metric=rps target=30"),
            ("{load: {rps: 30, utilization: 100}}", 0, "metric=rps target=30 target-utilization-percentage=100"),
            ("{window: 90s}", 0, "window=90s"),
            ("{downDelay: 1m, activation: 3}", 0, "scale-down-delay=1m activation-scale=3"),
            ("{panic: {threshold: 400}}", 0, "panic-threshold-percentage=400"),
            ("{window: 25s, panic: {window: 3s}}", 0, "window=25s panic-window-percentage=10"),
            ("{initial: 2}", 0, "initial-scale=2"),
            ("{aggregation: WeightedExponential}", 0, "metric-aggregation-algorithm=weighted-exponential"),
            ("{aggregation: Linear}", 0, "metric-aggregation-algorithm=linear"),
        ];
        for (yaml, limit, pairs) in rows {
            let pairs = pairs.split_whitespace().filter_map(|pair| pair.split_once('='));
            let key = |name: &str| format!("autoscaling.knative.dev/{name}");
            let annotations: Annotations = pairs.map(|(name, value)| (key(name), value.to_owned())).collect();
            let expected = annotations::decider_spec(&annotations, &config, i64::from(limit), true);
            assert_eq!(scale(yaml).decider_spec(&config, limit), expected, "{yaml}");
        }
    }

    #[test]
    fn unset_and_unreadable_fields_have_the_clusters_defaults() {
        let config = AutoscalerConfig { min_scale: 1, max_scale: 9, ..AutoscalerConfig::default() };
        let rows = [
            ("{}", (1, Some(9))),
            ("{min: 0, max: 0}", (0, None)),
            ("{max: 3}", (1, Some(3))),
            ("{min: -1}", (1, Some(9))),
        ];
        for (yaml, (min, max)) in rows {
            assert_eq!(scale(yaml).bounds(&config), Bounds { min, max }, "{yaml}");
        }
        let set = "{grace: 1500ms, retention: 2m}";
        let wrong = "{grace: soon, retention: -1s, window: x, downDelay: 1d, panic: {window: y}}";
        for (yaml, grace, retention) in [("{}", 30_000, 0), (set, 1500, 120_000), (wrong, 30_000, 0)] {
            let (scale, millis) = (scale(yaml), Duration::from_millis);
            assert_eq!((scale.grace(&config), scale.retention(&config)), (millis(grace), millis(retention)), "{yaml}");
        }
        assert_eq!(scale(wrong).decider_spec(&config, 0), Scale::default().decider_spec(&config, 0));
    }

    #[test]
    fn a_panic_window_is_never_longer_than_the_window() {
        let config = AutoscalerConfig { panic_window_percentage: 100.0, ..AutoscalerConfig::default() };
        for (yaml, seconds) in [("{}", 60), ("{window: 6s, panic: {window: 20s}}", 6), ("{panic: {window: 0s}}", 1)] {
            assert_eq!(scale(yaml).panic_window(&config), Duration::from_secs(seconds), "{yaml}");
        }
    }
}
