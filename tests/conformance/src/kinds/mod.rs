//! Table of kinds, with one file per group of kinds.

use anyhow::Result as Anyhow;
use serde_json::Value;

use crate::Mismatch;
use crate::suite::{Suite, Target};

mod config;
mod decisions;
mod hpa;
mod hpa_normalize;
mod hpa_reconcile;
mod hpa_replicas;
mod hpa_spec;
mod hpa_status;
mod ownership;
mod reconcile;
mod stats;
mod window;
mod wire;

/// All kinds that this runner knows.
pub const KINDS: &[VectorKind] = &[
    VectorKind { name: "active_condition", check: Check::Pure(reconcile::check_active) },
    VectorKind { name: "annotations", check: Check::Pure(config::check_annotations) },
    VectorKind { name: "api", check: Check::Suite(crate::api::open) },
    VectorKind { name: "apply_scale", check: Check::Pure(reconcile::check_scale) },
    VectorKind { name: "assign", check: Check::Pure(ownership::check_assign) },
    VectorKind { name: "bucket_owner", check: Check::Pure(ownership::check_owner) },
    VectorKind { name: "capacity", check: Check::Pure(ownership::check_capacity) },
    VectorKind { name: "config", check: Check::Pure(config::check) },
    VectorKind { name: "decider", check: Check::Pure(config::check_decider) },
    VectorKind { name: "hpa_external", check: Check::Pure(hpa_replicas::check_external) },
    VectorKind { name: "hpa_normalize", check: Check::Pure(hpa_normalize::check) },
    VectorKind { name: "hpa_normalize_legacy", check: Check::Pure(hpa_normalize::check_legacy) },
    VectorKind { name: "hpa_object", check: Check::Pure(hpa_replicas::check_object) },
    VectorKind { name: "hpa_pods", check: Check::Pure(hpa_replicas::check_pods) },
    VectorKind { name: "hpa_reconcile", check: Check::Pure(hpa_reconcile::check) },
    VectorKind { name: "hpa_resource", check: Check::Pure(hpa_replicas::check_resource) },
    VectorKind { name: "max_window", check: Check::Pure(window::check_max) },
    VectorKind { name: "num_activators", check: Check::Pure(reconcile::check_activators) },
    VectorKind { name: "pipeline", check: Check::Pure(decisions::check_pipeline) },
    VectorKind { name: "request_stats", check: Check::Pure(stats::check) },
    VectorKind { name: "sample_size", check: Check::Pure(stats::check_sample) },
    VectorKind { name: "scale", check: Check::Pure(decisions::check_scale) },
    VectorKind { name: "subset", check: Check::Pure(ownership::check_subset) },
    VectorKind { name: "window", check: Check::Pure(window::check) },
    VectorKind { name: "wire", check: Check::Pure(wire::check) },
    VectorKind { name: "wire_decode", check: Check::Pure(wire::check_decode) },
];

/// Prefixes of the names of fields with expectations, at any depth. Everything below such a field is expected too.
/// Frames have expectations in the fields of their `messages`. `behavior_defaulted` is a behavior after the API server
/// has filled in defaults, and `api_valid` reports whether the server would accept the object.
pub const EXPECTED: [&str; 4] = ["want", "messages", "behavior_defaulted", "api_valid"];

/// Kind of case.
pub struct VectorKind {
    /// Value of the field `kind`.
    pub name: &'static str,
    /// Function that runs a case.
    pub check: Check,
}

/// Function that runs the cases of a kind.
#[derive(Clone, Copy)]
pub enum Check {
    /// Call to a core. Nothing is shared between cases.
    Pure(fn(&Value) -> Result<(), Mismatch>),
    /// Shared state that is started once, at the first case of the kind.
    Suite(fn(&Target) -> Anyhow<Suite>),
}

/// Returns the kind with this name.
pub fn kind(name: &str) -> Option<&'static VectorKind> {
    KINDS.iter().find(|kind| kind.name == name)
}
