//! `scale`: decisions from averages. `pipeline`: decisions from raw stats, which pass through the windows.

use std::time::Duration;

use autoscaler_core::decider::{Decider, Decision, Load, Observation, Unknown};
use autoscaler_core::metrics::{CollectSpec, Metrics};
use common::scaling::{Aggregation, BurstCapacity, DeciderSpec, ScalingMetric};
use common::stat::Stat;
use serde::Deserialize;
use serde_json::Value;

use crate::Mismatch;
use crate::compare::{Time, equal, parse};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
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
    fn resolve(&self, others: DeciderSpec) -> Result<DeciderSpec, Mismatch> {
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
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Want {
    valid: bool,
    desired_pod_count: Option<i32>,
    excess_burst_capacity: Option<i32>,
}

impl Want {
    /// Compares the decision of a step.
    fn compare(&self, step: usize, decision: &Decision) -> Result<(), Mismatch> {
        let at = |field: &str| format!("steps[{step}].want.{field}");
        let found = decision.as_ref().ok();
        equal(&at("valid"), &self.valid, &found.is_some())?;
        equal(&at("desired_pod_count"), &self.desired_pod_count, &found.map(|r| r.desired))?;
        let excess = found.map(|r| r.excess_burst_capacity);
        equal(&at("excess_burst_capacity"), &self.excess_burst_capacity, &excess)
    }
}

#[derive(Deserialize)]
struct ScaleCase {
    spec: Spec,
    start: Time,
    initial_ready: u32,
    steps: Vec<ScaleStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScaleStep {
    at: Time,
    ready: u32,
    stable: f64,
    panic: f64,
    error: bool,
    /// Spec that replaces the former one from here on.
    spec: Option<Spec>,
    want: Want,
}

pub(super) fn check_scale(case: &Value) -> Result<(), Mismatch> {
    let case: ScaleCase = parse(case)?;
    // The decider does not use the length of the panic window, since its caller averages.
    let resolve = |spec: &Spec| spec.resolve(DeciderSpec::default());
    let mut spec = resolve(&case.spec)?;
    let mut decider = Decider::new(&spec, case.initial_ready, case.start.0);
    for (i, step) in case.steps.iter().enumerate() {
        if let Some(replacement) = &step.spec {
            spec = resolve(replacement)?;
        }
        let load = Load { stable: step.stable, panic: step.panic };
        let load = if step.error { Err(Unknown::NoData) } else { Ok(load) };
        let observation = Observation { now: step.at.0, ready: Ok(step.ready), load, attested: true };
        step.want.compare(i, &decider.decide(&spec, &observation))?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct PipelineCase {
    spec: Spec,
    start: Time,
    initial_ready: u32,
    panic_window_seconds: f64,
    aggregation_algorithm: String,
    scrape_target: bool,
    steps: Vec<PipelineStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PipelineStep {
    at: Time,
    stats: Option<Vec<Measured>>,
    ready: Option<u32>,
    want: Option<Want>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    average_concurrent_requests: f64,
    average_proxied_concurrent_requests: f64,
    request_count: f64,
    proxied_request_count: f64,
}

pub(super) fn check_pipeline(case: &Value) -> Result<(), Mismatch> {
    let case: PipelineCase = parse(case)?;
    let aggregation = match case.aggregation_algorithm.as_str() {
        "weighted-exponential" | "weightedExponential" => Aggregation::WeightedExponential,
        _ => Aggregation::Linear,
    };
    let panic_window = Duration::from_secs_f64(case.panic_window_seconds);
    let spec = case.spec.resolve(DeciderSpec { panic_window, aggregation, ..DeciderSpec::default() })?;
    let mut metrics = Metrics::new(&CollectSpec {
        stable_window: spec.stable_window,
        panic_window: spec.panic_window,
        aggregation,
        scrape_target: case.scrape_target.then(String::new),
    });
    let mut decider = Decider::new(&spec, case.initial_ready, case.start.0);
    for (i, step) in case.steps.iter().enumerate() {
        let now = step.at.0;
        for measured in step.stats.iter().flatten() {
            let refused = metrics.record(&measured.stat(), now);
            refused.map_err(|refused| Mismatch::Broken(format!("steps[{i}].stats: {refused}")))?;
        }
        if let Some(want) = &step.want {
            let ready = Ok(step.ready.unwrap_or(0));
            let observation = Observation { now, ready, load: metrics.load(spec.metric, now), attested: true };
            want.compare(i, &decider.decide(&spec, &observation))?;
            metrics.release(now);
        }
    }
    Ok(())
}

impl Measured {
    fn stat(&self) -> Stat {
        Stat {
            average_concurrent_requests: self.average_concurrent_requests,
            average_proxied_concurrent_requests: self.average_proxied_concurrent_requests,
            request_count: self.request_count,
            proxied_request_count: self.proxied_request_count,
            ..Stat::default()
        }
    }
}
