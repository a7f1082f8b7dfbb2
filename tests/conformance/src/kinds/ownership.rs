//! `bucket_owner` and `subset`: the ownership hash. `assign` and `capacity`: the pods that an activator uses, and the
//! number of requests that it runs at once.

use activator_core::Activators;
use activator_core::throttler::{self, CapacityInputs};
use common::ownership;
use serde::Deserialize;
use serde_json::Value;

use crate::Mismatch;
use crate::compare::{equal, parse};

#[derive(Deserialize)]
struct OwnerCase {
    buckets: Vec<String>,
    keys: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    key: String,
    want: String,
}

/// Runs one case of `bucket_owner`: the bucket that owns a revision, and so the autoscaler.
pub(super) fn check_owner(case: &Value) -> Result<(), Mismatch> {
    let case: OwnerCase = parse(case)?;
    case.keys.iter().enumerate().try_for_each(|(i, Key { key, want })| {
        let owner = ownership::owner(&case.buckets, key).unwrap_or_default();
        equal(&format!("keys[{i}].want"), want.as_str(), owner)
    })
}

#[derive(Deserialize)]
struct SubsetCase {
    from: Vec<String>,
    n: usize,
    target: String,
    want: Vec<String>,
}

/// Runs one case of `subset`: the activators that carry a revision's traffic.
pub(super) fn check_subset(case: &Value) -> Result<(), Mismatch> {
    let case: SubsetCase = parse(case)?;
    let mut chosen = ownership::subset(&case.from, case.n, &case.target);
    chosen.sort_unstable();
    equal("want", &case.want, &chosen)
}

#[derive(Deserialize)]
struct AssignCase {
    dests: Vec<String>,
    #[serde(rename = "self")]
    index: i64,
    activators: u32,
    want: Option<Vec<String>>,
}

pub(super) fn check_assign(case: &Value) -> Result<(), Mismatch> {
    let case: AssignCase = parse(case)?;
    let activators = match u32::try_from(case.index) {
        Ok(index) => Activators::Known { index, count: case.activators },
        Err(_) => Activators::Unknown,
    };
    let share = throttler::assign(case.dests.len(), activators);
    let got: Vec<String> = share.filter_map(|at| case.dests.get(at).cloned()).collect();
    equal("want", &case.want.unwrap_or_default(), &got)
}

#[derive(Deserialize)]
struct CapacityCase {
    container_concurrency: u32,
    backends: i64,
    assigned_trackers: u32,
    activators: u32,
    want: i64,
}

pub(super) fn check_capacity(case: &Value) -> Result<(), Mismatch> {
    let CapacityCase { container_concurrency, backends, assigned_trackers, activators, want } = parse(case)?;
    let inputs = CapacityInputs { container_concurrency, backends, assigned: assigned_trackers, activators };
    equal("want", &want, &throttler::capacity(inputs))
}
