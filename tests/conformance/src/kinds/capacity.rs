//! `capacity`: the number of requests that an activator runs at once.

use activator_core::throttler::{self, CapacityInputs};
use serde::Deserialize;
use serde_json::Value;

use crate::Mismatch;
use crate::compare::{equal, parse};

#[derive(Deserialize)]
struct Case {
    container_concurrency: u32,
    backends: i64,
    assigned_trackers: u32,
    activators: u32,
    want: i64,
}

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let got = throttler::capacity(CapacityInputs {
        container_concurrency: case.container_concurrency,
        backends: case.backends,
        assigned: case.assigned_trackers,
        activators: case.activators,
    });
    equal("want", &case.want, &got)
}
