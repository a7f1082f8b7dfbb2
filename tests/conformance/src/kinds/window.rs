//! `window`: averages of recorded values, across resizes.

use std::time::Duration;

use autoscaler_core::window::Window;
use common::scaling::Aggregation;
use common::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::Mismatch;
use crate::compare::{close, equal, nanos, parse};

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
    Record {
        #[serde(deserialize_with = "nanos")]
        at: i64,
        value: f64,
    },
    Average {
        #[serde(deserialize_with = "nanos")]
        at: i64,
        want: f64,
        want_empty: bool,
    },
    Resize {
        #[serde(deserialize_with = "nanos")]
        at: i64,
        seconds: f64,
    },
}

/// Runs one case.
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
            Op::Record { at, value } => window.record(Timestamp::from_nanos(*at), [*value]),
            Op::Average { at, want, want_empty } => {
                let at = Timestamp::from_nanos(*at);
                close(&format!("ops[{i}].want"), *want, window.average(at)[0])?;
                equal(&format!("ops[{i}].want_empty"), want_empty, &window.is_empty(at))?;
            }
            Op::Resize { at, seconds } => {
                window.resize(Duration::from_secs_f64(*seconds), aggregation, Timestamp::from_nanos(*at));
            }
        }
    }
    Ok(())
}
