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
use super::spec::{self, group};
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerSpec, MetricSpec,
};
use violation::Violations;

/// Returns every violation of a spec in upstream's order; empty if the spec is valid.
///
/// `stored_min_was_zero`: the object is updated and its stored `minReplicas` is 0, which may then stay 0 without the
/// gate.
pub fn validate(spec: &HorizontalPodAutoscalerSpec, gates: Gates, stored_min_was_zero: bool) -> Vec<Violation> {
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
    let target = &spec.scale_target_ref;
    reference(&mut found, "spec.scaleTargetRef", target);
    if group(target) == Ok("") && target.kind != "ReplicationController" {
        found.invalid("spec.scaleTargetRef.apiVersion", version(target), "apiVersion must specify API group");
    }
    if spec.min_replicas == Some(0) && !spec::has_pod_independent_metric(spec) {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        found.forbidden("spec.metrics", detail);
    }
    metrics::each(&mut found, "spec.metrics", spec::metrics(spec));
    if let Some(behavior) = &spec.behavior {
        behavior::validate(&mut found, "spec.behavior", behavior);
    }
    found.0
}

/// Returns every violation of a separate list of metrics, with `path` instead of `spec.metrics`.
pub fn metrics(path: &str, metrics: &[MetricSpec]) -> Vec<Violation> {
    let mut found = Violations::default();
    metrics::each(&mut found, path, metrics);
    found.0
}

/// Returns every violation of a separate behavior, with `path` instead of `spec.behavior`.
pub fn behavior(path: &str, behavior: &HorizontalPodAutoscalerBehavior) -> Vec<Violation> {
    let mut found = Violations::default();
    behavior::validate(&mut found, path, behavior);
    found.0
}

fn reference(found: &mut Violations, path: &str, reference: &CrossVersionObjectReference) {
    segment(found, &format!("{path}.kind"), &reference.kind, "");
    segment(found, &format!("{path}.name"), &reference.name, "");
    if let Err(e) = group(reference) {
        found.invalid(&format!("{path}.apiVersion"), version(reference), e);
    }
}

fn version(reference: &CrossVersionObjectReference) -> &str {
    reference.api_version.as_deref().unwrap_or_default()
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
