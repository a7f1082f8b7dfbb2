//! `window`: averages of recorded values, across resizes. `max_window`: the maximum within the scale-down delay.

use std::time::Duration;

use autoscaler_core::max_window::MaxWindow;
use autoscaler_core::window::Window;
use common::scaling::Aggregation;
use serde::Deserialize;
use serde_json::Value;

use crate::Mismatch;
use crate::compare::{Time, close, equal, parse};

#[derive(Deserialize)]
struct Case {
    algorithm: String,
    seconds: f64,
    granularity_seconds: u32,
    ops: Vec<Op>,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
enum Op {
    Record { at: Time, value: f64 },
    Average { at: Time, want: f64, want_empty: bool },
    Resize { at: Time, seconds: f64 },
}

pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let aggregation = match case.algorithm.as_str() {
        "linear" => Aggregation::Linear,
        "weighted_exponential" => Aggregation::WeightedExponential,
        other => return Err(Mismatch::Broken(format!("algorithm {other:?} is unknown"))),
    };
    let length = Duration::from_secs_f64(case.seconds);
    let mut window = Window::<1>::with_granularity(length, aggregation, case.granularity_seconds);
    for (i, op) in case.ops.iter().enumerate() {
        match op {
            Op::Record { at, value } => window.record(at.0, [*value]),
            Op::Average { at, want, want_empty } => {
                close(&format!("ops[{i}].want"), *want, window.average(at.0)[0])?;
                equal(&format!("ops[{i}].want_empty"), want_empty, &window.is_empty(at.0))?;
            }
            Op::Resize { at, seconds } => window.resize(Duration::from_secs_f64(*seconds), aggregation, at.0),
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct MaxCase {
    seconds: f64,
    granularity_seconds: u32,
    ops: Vec<MaxOp>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MaxOp {
    at: Time,
    record: i32,
    want: i32,
}

pub(super) fn check_max(case: &Value) -> Result<(), Mismatch> {
    let case: MaxCase = parse(case)?;
    let mut window = MaxWindow::with_granularity(Duration::from_secs_f64(case.seconds), case.granularity_seconds);
    let mut ops = case.ops.iter().enumerate();
    ops.try_for_each(|(i, op)| equal(&format!("ops[{i}].want"), &op.want, &window.record(op.at.0, op.record)))
}
