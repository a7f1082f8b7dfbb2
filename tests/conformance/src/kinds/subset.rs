//! `subset`: the activators that carry a revision's traffic.

use common::ownership::subset;
use serde::Deserialize;
use serde_json::Value;

use crate::Mismatch;
use crate::compare::{equal, parse};

#[derive(Deserialize)]
struct Case {
    from: Vec<String>,
    n: usize,
    target: String,
    want: Vec<String>,
}

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let mut chosen = subset(&case.from, case.n, &case.target);
    chosen.sort_unstable();
    equal("want", &case.want, &chosen)
}
