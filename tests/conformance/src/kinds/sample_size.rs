//! `sample_size`: the number of a revision's pods that are scraped.

use autoscaler_core::sample::sample_size;
use serde::Deserialize;
use serde_json::Value;

use crate::Mismatch;
use crate::compare::{equal, parse};

#[derive(Deserialize)]
struct Case {
    /// −1 stands for an unknown count.
    population: i64,
    want: usize,
}

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    equal("want", &case.want, &sample_size(usize::try_from(case.population).unwrap_or(0)))
}
