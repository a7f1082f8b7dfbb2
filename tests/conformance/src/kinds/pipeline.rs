//! `pipeline`: decisions from raw stats, which pass through the windows.

use std::time::Duration;

use autoscaler_core::decider::{Decider, Observation};
use autoscaler_core::metrics::{CollectSpec, Metrics};
use common::scaling::{Aggregation, DeciderSpec};
use common::stat::Stat;
use common::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::spec::{Spec, Want};
use crate::Mismatch;
use crate::compare::{nanos, parse};

#[derive(Deserialize)]
struct Case {
    spec: Spec,
    #[serde(deserialize_with = "nanos")]
    start: i64,
    initial_ready: u32,
    panic_window_seconds: f64,
    aggregation_algorithm: String,
    scrape_target: bool,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    #[serde(deserialize_with = "nanos")]
    at: i64,
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

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let aggregation = aggregation(&case.aggregation_algorithm);
    let panic_window = Duration::from_secs_f64(case.panic_window_seconds);
    let spec = case.spec.resolve(DeciderSpec { panic_window, aggregation, ..DeciderSpec::default() })?;
    let mut metrics = Metrics::new(&CollectSpec {
        stable_window: spec.stable_window,
        panic_window: spec.panic_window,
        aggregation,
        scrape_target: case.scrape_target.then(String::new),
    });
    let mut decider = Decider::new(&spec, case.initial_ready, Timestamp::from_nanos(case.start));
    for (i, step) in case.steps.iter().enumerate() {
        let now = Timestamp::from_nanos(step.at);
        for measured in step.stats.iter().flatten() {
            metrics
                .record(&measured.stat(), now)
                .map_err(|refused| Mismatch::Broken(format!("steps[{i}].stats: {refused}")))?;
        }
        if let Some(want) = &step.want {
            let ready = Ok(step.ready.unwrap_or(0));
            let observation = Observation { now, ready, load: metrics.load(spec.metric, now), attested: true };
            want.compare(&format!("steps[{i}].want"), &decider.decide(&spec, &observation))?;
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

/// Parses the annotation. All other values mean linear.
fn aggregation(annotation: &str) -> Aggregation {
    match annotation {
        "weighted-exponential" | "weightedExponential" => Aggregation::WeightedExponential,
        _ => Aggregation::Linear,
    }
}
