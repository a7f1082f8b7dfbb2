//! The table of kinds, one file each.

use anyhow::Result as Anyhow;
use serde_json::Value;

use crate::Mismatch;
use crate::suite::{Suite, Target};

mod active_condition;
mod annotations;
mod apply_scale;
mod assign;
mod bucket_owner;
mod capacity;
mod config;
mod decider;
mod hpa;
mod hpa_memory;
mod hpa_normalize;
mod hpa_pods;
mod hpa_reconcile;
mod hpa_resource;
mod hpa_spec;
mod hpa_status;
mod hpa_total;
mod max_window;
mod num_activators;
mod pipeline;
mod reconcile;
mod request_stats;
mod sample_size;
mod scale;
mod spec;
mod subset;
mod window;
mod wire;
mod wire_decode;

/// All kinds this runner knows.
pub const KINDS: &[VectorKind] = &[
    VectorKind { name: "active_condition", expected: WANT, check: Check::Pure(active_condition::check) },
    VectorKind { name: "annotations", expected: WANT, check: Check::Pure(annotations::check) },
    VectorKind { name: "api", expected: WANT, check: Check::Suite(crate::api::open) },
    VectorKind { name: "apply_scale", expected: WANT, check: Check::Pure(apply_scale::check) },
    VectorKind { name: "assign", expected: WANT, check: Check::Pure(assign::check) },
    VectorKind { name: "bucket_owner", expected: WANT, check: Check::Pure(bucket_owner::check) },
    VectorKind { name: "capacity", expected: WANT, check: Check::Pure(capacity::check) },
    VectorKind { name: "config", expected: WANT, check: Check::Pure(config::check) },
    VectorKind { name: "decider", expected: WANT, check: Check::Pure(decider::check) },
    VectorKind { name: "hpa_external", expected: WANT, check: Check::Pure(hpa_total::check_external) },
    VectorKind { name: "hpa_normalize", expected: WANT_AND_DEFAULTED, check: Check::Pure(hpa_normalize::check) },
    VectorKind { name: "hpa_normalize_legacy", expected: WANT, check: Check::Pure(hpa_normalize::check_legacy) },
    VectorKind { name: "hpa_object", expected: WANT, check: Check::Pure(hpa_total::check_object) },
    VectorKind { name: "hpa_pods", expected: WANT, check: Check::Pure(hpa_pods::check) },
    VectorKind { name: "hpa_reconcile", expected: WANT_AND_ADMISSION, check: Check::Pure(hpa_reconcile::check) },
    VectorKind { name: "hpa_resource", expected: WANT, check: Check::Pure(hpa_resource::check) },
    VectorKind { name: "max_window", expected: WANT, check: Check::Pure(max_window::check) },
    VectorKind { name: "num_activators", expected: WANT, check: Check::Pure(num_activators::check) },
    VectorKind { name: "pipeline", expected: WANT, check: Check::Pure(pipeline::check) },
    VectorKind { name: "request_stats", expected: WANT, check: Check::Pure(request_stats::check) },
    VectorKind { name: "sample_size", expected: WANT, check: Check::Pure(sample_size::check) },
    VectorKind { name: "scale", expected: WANT, check: Check::Pure(scale::check) },
    VectorKind { name: "subset", expected: WANT, check: Check::Pure(subset::check) },
    VectorKind { name: "window", expected: WANT, check: Check::Pure(window::check) },
    VectorKind { name: "wire", expected: MESSAGES, check: Check::Pure(wire::check) },
    VectorKind { name: "wire_decode", expected: WANT_AND_MESSAGES, check: Check::Pure(wire_decode::check) },
];

/// Fields whose names begin so hold expectations, in every kind that has no others.
const WANT: &[&str] = &["want"];
/// Frames hold expectations in the fields that they are made of.
const MESSAGES: &[&str] = &["messages"];
/// So do damaged ones, which also say that they are.
const WANT_AND_MESSAGES: &[&str] = &["want", "messages"];
/// What the API server makes of a behavior.
const WANT_AND_DEFAULTED: &[&str] = &["want", "behavior_defaulted"];
/// The same, and whether it would accept the object.
const WANT_AND_ADMISSION: &[&str] = &["want", "behavior_defaulted", "api_valid"];

/// One kind of case.
pub struct VectorKind {
    /// Value of the field `kind`.
    pub name: &'static str,
    /// Beginnings of the names of fields that hold expectations, at any depth; all below such a field is expected too.
    /// The perturbation test works from it.
    pub expected: &'static [&'static str],
    /// How a case is run.
    pub check: Check,
}

/// How the cases of a kind are run.
#[derive(Clone, Copy)]
pub enum Check {
    /// By a call to a core. Nothing is shared between cases.
    Pure(fn(&Value) -> Result<(), Mismatch>),
    /// By something that is started once, at the first case of the kind.
    Suite(fn(&Target) -> Anyhow<Box<dyn Suite>>),
}

/// The kind of that name.
pub fn kind(name: &str) -> Option<&'static VectorKind> {
    KINDS.iter().find(|kind| kind.name == name)
}
