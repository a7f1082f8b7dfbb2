//! Table of kinds, with one file per kind.

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
mod hpa_reconcile;
mod hpa_replicas;
mod hpa_spec;
mod hpa_status;
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

/// All kinds that this runner knows.
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
    VectorKind { name: "hpa_external", expected: WANT, check: Check::Pure(hpa_replicas::check_external) },
    VectorKind { name: "hpa_normalize", expected: WANT_AND_DEFAULTED, check: Check::Pure(hpa_normalize::check) },
    VectorKind { name: "hpa_normalize_legacy", expected: WANT, check: Check::Pure(hpa_normalize::check_legacy) },
    VectorKind { name: "hpa_object", expected: WANT, check: Check::Pure(hpa_replicas::check_object) },
    VectorKind { name: "hpa_pods", expected: WANT, check: Check::Pure(hpa_replicas::check_pods) },
    VectorKind { name: "hpa_reconcile", expected: WANT_AND_ADMISSION, check: Check::Pure(hpa_reconcile::check) },
    VectorKind { name: "hpa_resource", expected: WANT, check: Check::Pure(hpa_replicas::check_resource) },
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

/// Prefix of the fields with expectations, in every kind without other ones.
const WANT: &[&str] = &["want"];
/// Frames have their expectations in the fields of their messages.
const MESSAGES: &[&str] = &["messages"];
/// Damaged frames also state that they are damaged.
const WANT_AND_MESSAGES: &[&str] = &["want", "messages"];
/// Behavior after the API server has filled in defaults.
const WANT_AND_DEFAULTED: &[&str] = &["want", "behavior_defaulted"];
/// Behavior after defaults, and whether the API server would accept the object.
const WANT_AND_ADMISSION: &[&str] = &["want", "behavior_defaulted", "api_valid"];

/// Kind of case.
pub struct VectorKind {
    /// Value of the field `kind`.
    pub name: &'static str,
    /// Prefixes of the names of fields with expectations, at any depth. Everything below such a field is expected too.
    /// The perturbation test uses them.
    pub expected: &'static [&'static str],
    /// Function that runs a case.
    pub check: Check,
}

/// Function that runs the cases of a kind.
#[derive(Clone, Copy)]
pub enum Check {
    /// Call to a core. Nothing is shared between cases.
    Pure(fn(&Value) -> Result<(), Mismatch>),
    /// Shared state that is started once, at the first case of the kind.
    Suite(fn(&Target) -> Anyhow<Box<dyn Suite>>),
}

/// Returns the kind with this name.
pub fn kind(name: &str) -> Option<&'static VectorKind> {
    KINDS.iter().find(|kind| kind.name == name)
}
