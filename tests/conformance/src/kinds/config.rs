//! `config`: the meaning of a `config-autoscaler` map, or its rejection.

use std::time::Duration;

use common::config::{AutoscalerConfig, TARGET_UTILIZATION_RPS};
use serde::Deserialize;
use serde_json::{Value, json};

use super::reconcile::Map;
use crate::Mismatch;
use crate::compare::{equal, parse, tree};

#[derive(Deserialize)]
struct Case {
    data: Map,
    want_error: bool,
    #[serde(default)]
    want: Value,
}

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
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
