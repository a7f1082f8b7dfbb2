//! `scale`: decisions from averages.

use autoscaler_core::decider::{Decider, Load, Observation, Unknown};
use common::scaling::DeciderSpec;
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
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    #[serde(deserialize_with = "nanos")]
    at: i64,
    ready: u32,
    stable: f64,
    panic: f64,
    error: bool,
    /// Spec that replaces the former one from here on.
    spec: Option<Spec>,
    want: Want,
}

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    // The decider does not use the length of the panic window, since its caller averages.
    let resolve = |spec: &Spec| spec.resolve(DeciderSpec::default());
    let mut spec = resolve(&case.spec)?;
    let mut decider = Decider::new(&spec, case.initial_ready, Timestamp::from_nanos(case.start));
    for (i, step) in case.steps.iter().enumerate() {
        if let Some(replacement) = &step.spec {
            spec = resolve(replacement)?;
        }
        let load = Load { stable: step.stable, panic: step.panic };
        let observation = Observation {
            now: Timestamp::from_nanos(step.at),
            ready: Ok(step.ready),
            load: if step.error { Err(Unknown::NoData) } else { Ok(load) },
            attested: true,
        };
        step.want.compare(&format!("steps[{i}].want"), &decider.decide(&spec, &observation))?;
    }
    Ok(())
}
