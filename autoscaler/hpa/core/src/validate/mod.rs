//! Validation rules of the API server, with its paths and texts.
//!
//! A spec is validated after [defaulting](super::defaults). All violations are reported at once, except those below a
//! field that is rejected as a whole. If one metric has several sources, only the first is validated, in the order
//! object, external, pods, resource, containerResource.
//!
//! # Not checked, as upstream
//!
//! - The match between a target's type and the field that is set: an Object metric with type `Utilization` and a
//!   `value` is accepted, and fails when it is evaluated.
//! - The selector of a metric.
//! - An upper bound of policies' values (1000 % down) and of tolerances.

mod behavior;
mod metrics;
mod violation;

pub use violation::{Rule, Violation};

use super::options::Gates;
use super::spec::{Behavior, MetricSpec, ObjectReference, Spec};
use violation::Violations;

/// Returns every violation of a spec in upstream's order; empty if the spec is valid.
///
/// `stored_min_was_zero`: the object is updated and its stored `minReplicas` is 0, which may then stay 0 without the
/// gate.
pub fn validate(spec: &Spec, gates: Gates, stored_min_was_zero: bool) -> Vec<Violation> {
    let mut found = Violations::default();
    let least = i32::from(!gates.scale_to_zero && !stored_min_was_zero);
    if let Some(min) = spec.min_replicas.filter(|min| *min < least) {
        found.invalid("spec.minReplicas", min, format!("must be greater than or equal to {least}"));
    }
    match spec.max_replicas {
        0 => found.required("spec.maxReplicas", "must be set and greater than 0"),
        max @ ..0 => found.invalid("spec.maxReplicas", max, "must be greater than or equal to 1"),
        1.. => {}
    }
    if spec.min_replicas.is_some_and(|min| spec.max_replicas < min) {
        found.invalid("spec.maxReplicas", spec.max_replicas, "must be greater than or equal to `minReplicas`");
    }
    reference(&mut found, "spec.scaleTargetRef", &spec.scale_target, Core::OnlyReplicationController);
    metrics::validate(&mut found, "spec.metrics", spec);
    if let Some(behavior) = &spec.behavior {
        behavior::validate(&mut found, "spec.behavior", behavior);
    }
    found.into_inner()
}

/// Returns every violation of a separate list of metrics, with `path` instead of `spec.metrics`.
pub fn metrics(path: &str, metrics: &[MetricSpec]) -> Vec<Violation> {
    let mut found = Violations::default();
    metrics::each(&mut found, path, metrics);
    found.into_inner()
}

/// Returns every violation of a separate behavior, with `path` instead of `spec.behavior`.
pub fn behavior(path: &str, behavior: &Behavior) -> Vec<Violation> {
    let mut found = Violations::default();
    behavior::validate(&mut found, path, behavior);
    found.into_inner()
}

/// Kinds that may be in the core group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Core {
    Anything,
    OnlyReplicationController,
}

fn reference(found: &mut Violations, path: &str, reference: &ObjectReference, core: Core) {
    segment(found, &format!("{path}.kind"), &reference.kind, "");
    segment(found, &format!("{path}.name"), &reference.name, "");
    let path = format!("{path}.apiVersion");
    match reference.group() {
        Err(e) => found.invalid(&path, reference.api_version.as_str(), e),
        Ok("") if core == Core::OnlyReplicationController && reference.kind != "ReplicationController" => {
            found.invalid(&path, reference.api_version.as_str(), "apiVersion must specify API group");
        }
        Ok(_) => {}
    }
}

/// Validates a name that becomes part of a path.
fn segment(found: &mut Violations, path: &str, name: &str, required: &str) {
    if name.is_empty() {
        found.required(path, required);
    } else if matches!(name, "." | "..") {
        found.invalid(path, name, format!("may not be '{name}'"));
    } else {
        for part in ["/", "%"].into_iter().filter(|part| name.contains(part)) {
            found.invalid(path, name, format!("may not contain '{part}'"));
        }
    }
}

#[cfg(test)]
mod tests;
