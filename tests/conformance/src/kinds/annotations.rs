//! `annotations`: whether an admission webhook would reject them.

use common::annotations::is_valid;
use serde::Deserialize;
use serde_json::Value;

use super::reconcile::{Map, config};
use crate::Mismatch;
use crate::compare::{equal, parse};

#[derive(Deserialize)]
struct Case {
    #[serde(default)]
    annotations: Map,
    #[serde(default)]
    config: Map,
    want_error: bool,
}

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let refused = !is_valid(&case.annotations, &config(&case.config)?);
    equal("want_error", &case.want_error, &refused)
}
