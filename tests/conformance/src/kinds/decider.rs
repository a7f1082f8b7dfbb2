//! `decider`: the decider spec that follows from annotations and configuration.
//!
//! A decider spec contains no special numbers and no negative durations, but the vectors do. Those fields are compared
//! as resolved from the annotations, before they become part of the spec.

use common::annotations::{
    bounds, class, decider_spec, metric, panic_window, pod_retention, scale_down_delay, stable_window,
    target_burst_capacity,
};
use common::config::AutoscalerConfig;
use common::scaling::BurstCapacity;
use serde::Deserialize;
use serde_json::{Value, json};

use super::reconcile::{Map, Reachability, config};
use crate::Mismatch;
use crate::compare::{close, equal, parse, tree};

#[derive(Deserialize)]
struct Case {
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

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let config = config(&case.config)?;
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
fn spec(case: &Case, config: &AutoscalerConfig) -> Result<Value, Mismatch> {
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
