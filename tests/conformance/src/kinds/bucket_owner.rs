//! `bucket_owner`: the bucket that owns a revision, and so the autoscaler.

use common::ownership::owner;
use serde::Deserialize;
use serde_json::Value;

use crate::Mismatch;
use crate::compare::{equal, parse};

#[derive(Deserialize)]
struct Case {
    buckets: Vec<String>,
    keys: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    key: String,
    want: String,
}

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    case.keys.iter().enumerate().try_for_each(|(i, Key { key, want })| {
        equal(&format!("keys[{i}].want"), want.as_str(), owner(&case.buckets, key).unwrap_or_default())
    })
}
