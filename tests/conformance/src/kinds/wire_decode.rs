//! `wire_decode`: frames that another encoder could send, including damaged ones.

use common::wire::decode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::wire::{bytes, fields};
use crate::Mismatch;
use crate::compare::{equal, parse, tree};

#[derive(Deserialize)]
struct Case {
    hex: String,
    want_error: bool,
    #[serde(default)]
    messages: Value,
}

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let frame = decode(&bytes(&case.hex)?);
    equal("want_error", &case.want_error, &frame.is_err())?;
    let messages: Vec<Value> = frame
        .iter()
        .flat_map(|frame| &frame.messages)
        .map(|entry| json!({"namespace": entry.namespace, "name": entry.name, "stat": entry.stat.as_ref().map(fields)}))
        .collect();
    tree("messages", &case.messages, &Value::from(messages))
}
