//! `assign`: the pods of a revision that an activator uses.

use activator_core::Activators;
use activator_core::throttler;
use serde::Deserialize;
use serde_json::Value;

use crate::Mismatch;
use crate::compare::{equal, parse};

#[derive(Deserialize)]
struct Case {
    dests: Vec<String>,
    #[serde(rename = "self")]
    index: i64,
    activators: u32,
    want: Option<Vec<String>>,
}

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let activators = match u32::try_from(case.index) {
        Ok(index) => Activators::Known { index, count: case.activators },
        Err(_) => Activators::Unknown,
    };
    let share = throttler::assign(case.dests.len(), activators);
    let got: Vec<String> = share.filter_map(|at| case.dests.get(at).cloned()).collect();
    equal("want", &case.want.unwrap_or_default(), &got)
}
