//! `config` and `annotations`: which of them are valid. `decider`: the decider spec that follows from both.
//!
//! A decider spec contains no special numbers and no negative durations, but the vectors do. Those fields are compared
//! as resolved from the annotations, before they become part of the spec.

use std::collections::BTreeMap;
use std::time::Duration;

use common::annotations::{
    bounds, class, decider_spec, is_valid, metric, panic_window, pod_retention, scale_down_delay, stable_window,
    target_burst_capacity,
};
use common::config::{AutoscalerConfig, TARGET_UTILIZATION_RPS};
use common::scaling::BurstCapacity;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Mismatch;
use crate::compare::{close, equal, parse, tree};

/// Annotations or configuration by name.
pub(super) type Map = BTreeMap<String, String>;

/// Reachability of a revision by routes. Only `Unreachable` means no.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Reachability {
    #[serde(rename = "")]
    Unknown,
    Reachable,
    Unreachable,
}

impl Reachability {
    pub(super) fn is_reachable(self) -> bool {
        self != Self::Unreachable
    }
}

/// Parses a configuration that must be valid.
pub(super) fn valid_config(data: &Map) -> Result<AutoscalerConfig, Mismatch> {
    AutoscalerConfig::from_map(data).map_err(|e| Mismatch::Broken(format!("config: {e}")))
}

#[derive(Deserialize)]
struct ConfigCase {
    data: Map,
    want_error: bool,
    #[serde(default)]
    want: Value,
}

pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: ConfigCase = parse(case)?;
    let config = AutoscalerConfig::from_map(&case.data);
    equal("want_error", &case.want_error, &config.is_err())?;
    tree("want", &case.want, &config.map(|config| upstream(&config)).unwrap_or_default())
}

/// Returns the configuration under Knative's field names.
fn upstream(config: &AutoscalerConfig) -> Value {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    json!({
        "EnableScaleToZero": config.enable_scale_to_zero,
        "ContainerConcurrencyTargetFraction": config.container_concurrency_target_fraction,
        "ContainerConcurrencyTargetDefault": config.container_concurrency_target_default,
        "TargetUtilization": TARGET_UTILIZATION_RPS,
        "RPSTargetDefault": config.rps_target_default,
        "TargetBurstCapacity": config.target_burst_capacity,
        "ActivatorCapacity": config.activator_capacity,
        "AllowZeroInitialScale": config.allow_zero_initial_scale,
        "InitialScale": config.initial_scale,
        "MinScale": config.min_scale,
        "MaxScale": config.max_scale,
        "MaxScaleLimit": config.max_scale_limit,
        "MaxScaleUpRate": config.max_scale_up_rate,
        "MaxScaleDownRate": config.max_scale_down_rate,
        "StableWindow": nanos(config.stable_window),
        "PanicWindowPercentage": config.panic_window_percentage,
        "PanicThresholdPercentage": config.panic_threshold_percentage,
        "ScaleToZeroGracePeriod": nanos(config.scale_to_zero_grace_period),
        "ScaleToZeroPodRetentionPeriod": nanos(config.scale_to_zero_pod_retention_period),
        "ScaleDownDelay": nanos(config.scale_down_delay),
        "PodAutoscalerClass": config.pod_autoscaler_class,
    })
}

#[derive(Deserialize)]
struct AnnotationsCase {
    #[serde(default)]
    annotations: Map,
    #[serde(default)]
    config: Map,
    want_error: bool,
}

pub(super) fn check_annotations(case: &Value) -> Result<(), Mismatch> {
    let case: AnnotationsCase = parse(case)?;
    equal("want_error", &case.want_error, &!is_valid(&case.annotations, &valid_config(&case.config)?))
}

#[derive(Deserialize)]
struct DeciderCase {
    #[serde(default)]
    annotations: Map,
    #[serde(default)]
    config: Map,
    class: String,
    container_concurrency: i64,
    reachability: Reachability,
    want: Value,
    want_bounds: [i32; 2],
    want_panic_window_seconds: f64,
    want_pod_retention_seconds: f64,
}

pub(super) fn check_decider(case: &Value) -> Result<(), Mismatch> {
    let case: DeciderCase = parse(case)?;
    let config = valid_config(&case.config)?;
    equal("class", case.class.as_str(), class(&case.annotations))?;
    tree("want", &case.want, &spec(&case, &config)?)?;
    let bounds = bounds(&case.annotations, &config, case.reachability.is_reachable());
    equal("want_bounds", &case.want_bounds, &[bounds.min, bounds.max.unwrap_or(0)])?;
    let panic = panic_window(&case.annotations, &config);
    close("want_panic_window_seconds", case.want_panic_window_seconds, panic.as_secs_f64())?;
    let retention = pod_retention(&case.annotations, &config);
    close("want_pod_retention_seconds", case.want_pod_retention_seconds, retention.as_secs_f64())
}

/// Returns the spec under the vectors' names.
fn spec(case: &DeciderCase, config: &AutoscalerConfig) -> Result<Value, Mismatch> {
    let annotations = &case.annotations;
    let reachable = case.reachability.is_reachable();
    let spec = decider_spec(annotations, config, case.container_concurrency, reachable);
    let (delay, window) = (scale_down_delay(annotations, config), stable_window(annotations, config));
    let burst = target_burst_capacity(annotations, config);
    equal("the spec's scale-down delay", &delay.to_std(), &spec.scale_down_delay)?;
    equal("the spec's stable window", &window.to_std(), &spec.stable_window)?;
    equal("the spec's burst capacity", &BurstCapacity::from_number(burst), &spec.target_burst_capacity)?;
    Ok(json!({
        "activation_scale": spec.activation_scale,
        "activator_capacity": spec.activator_capacity,
        "initial_scale": spec.initial_scale,
        "max_scale_down_rate": spec.max_scale_down_rate,
        "max_scale_up_rate": spec.max_scale_up_rate,
        "panic_threshold": spec.panic_threshold,
        "reachable": spec.reachable,
        "scale_down_delay_seconds": delay.as_secs_f64(),
        "scaling_metric": metric(annotations),
        "stable_window_seconds": window.as_secs_f64(),
        "target_burst_capacity": burst,
        "target_value": spec.target_value,
        "total_value": spec.total_value,
    }))
}
