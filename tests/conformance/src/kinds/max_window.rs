//! `max_window`: the maximum within the scale-down delay.

use std::time::Duration;

use autoscaler_core::max_window::MaxWindow;
use common::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::Mismatch;
use crate::compare::{equal, nanos, parse};

#[derive(Deserialize)]
struct Case {
    seconds: f64,
    granularity_seconds: u32,
    ops: Vec<Op>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Op {
    #[serde(deserialize_with = "nanos")]
    at: i64,
    record: i32,
    want: i32,
}

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let mut window = MaxWindow::with_granularity(Duration::from_secs_f64(case.seconds), case.granularity_seconds);
    for (i, op) in case.ops.iter().enumerate() {
        let held = window.record(Timestamp::from_nanos(op.at), op.record);
        equal(&format!("ops[{i}].want"), &op.want, &held)?;
    }
    Ok(())
}
