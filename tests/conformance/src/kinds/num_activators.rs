//! `num_activators`: the number of activators in a revision's path.

use autoscaler_core::num_activators::num_activators;
use common::scaling::BurstCapacity;
use serde::Deserialize;
use serde_json::Value;

use crate::Mismatch;
use crate::compare::{equal, parse};

#[derive(Deserialize)]
struct Case {
    ready: u32,
    total_value: f64,
    target_burst_capacity: f64,
    activator_capacity: f64,
    want: i32,
}

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let burst = BurstCapacity::from_number(case.target_burst_capacity);
    equal("want", &case.want, &num_activators(case.ready, case.total_value, burst, case.activator_capacity))
}
