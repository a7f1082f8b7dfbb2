//! Validation rules of the API server, with its paths and details.
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

use super::options::Gates;
use super::quantity::Quantity;
use super::spec::{self, group};
use common::field::FieldErrors;
use k8s_openapi::api::autoscaling::v2::{CrossVersionObjectReference, HorizontalPodAutoscalerSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

pub use behavior::validate as behavior;
pub use metrics::validate as metrics;

const REQUIRED: &str = "required value";
const FORBIDDEN: &str = "forbidden";

/// Returns every violation of a new spec in upstream's order; empty if the spec is valid.
pub fn validate(spec: &HorizontalPodAutoscalerSpec, gates: Gates) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let min_allowed = i32::from(!gates.scale_to_zero);
    if let Some(min) = spec.min_replicas.filter(|min| *min < min_allowed) {
        errors.invalid_value(min, "spec.minReplicas", format!("must be greater than or equal to {min_allowed}"));
    }
    match spec.max_replicas {
        0 => errors.push(REQUIRED, "spec.maxReplicas", "must be set and greater than 0"),
        max @ ..0 => errors.invalid_value(max, "spec.maxReplicas", "must be greater than or equal to 1"),
        1.. => {}
    }
    if spec.min_replicas.is_some_and(|min| spec.max_replicas < min) {
        errors.invalid_value(spec.max_replicas, "spec.maxReplicas", "must be greater than or equal to `minReplicas`");
    }
    let target = &spec.scale_target_ref;
    reference(&mut errors, "spec.scaleTargetRef", target);
    if group(target) == Ok("") && target.kind != "ReplicationController" {
        let path = "spec.scaleTargetRef.apiVersion";
        invalid_text(&mut errors, version(target), path, "apiVersion must specify API group");
    }
    if spec.min_replicas == Some(0) && !spec::has_pod_independent_metric(spec) {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FORBIDDEN, "spec.metrics", detail);
    }
    metrics(&mut errors, "spec.metrics", spec::metrics(spec));
    if let Some(rules) = &spec.behavior {
        behavior(&mut errors, "spec.behavior", rules);
    }
    errors
}

fn invalid_text(errors: &mut FieldErrors, text: &str, path: &str, detail: impl Into<String>) {
    errors.invalid_value(format_args!("{text:?}"), path, detail);
}

fn unsupported(errors: &mut FieldErrors, value: &str, path: &str, supported: &[&str]) {
    let supported: Vec<_> = supported.iter().map(|name| format!("{name:?}")).collect();
    errors.push(format!("unsupported value: {value:?}"), path, format!("supported values: {}", supported.join(", ")));
}

/// Adds a violation if an amount is not a quantity, or `is_wrong` returns true for it.
fn amount(errors: &mut FieldErrors, amount: &ApiQuantity, path: &str, is_wrong: fn(Quantity) -> bool, detail: &str) {
    match amount.0.parse::<Quantity>() {
        Ok(quantity) if is_wrong(quantity) => invalid_text(errors, &quantity.to_string(), path, detail),
        Ok(_) => {}
        Err(error) => invalid_text(errors, &amount.0, path, error.to_string()),
    }
}

fn reference(errors: &mut FieldErrors, path: &str, reference: &CrossVersionObjectReference) {
    segment(errors, &format!("{path}.kind"), &reference.kind, "");
    segment(errors, &format!("{path}.name"), &reference.name, "");
    if let Err(e) = group(reference) {
        invalid_text(errors, version(reference), &format!("{path}.apiVersion"), e);
    }
}

fn version(reference: &CrossVersionObjectReference) -> &str {
    reference.api_version.as_deref().unwrap_or_default()
}

/// Validates a name that becomes a segment of a path. `required` is the text if it is empty.
fn segment(errors: &mut FieldErrors, path: &str, name: &str, required: &str) {
    if name.is_empty() {
        errors.push(REQUIRED, path, required);
    } else if matches!(name, "." | "..") {
        invalid_text(errors, name, path, format!("may not be '{name}'"));
    } else {
        for part in ["/", "%"].into_iter().filter(|part| name.contains(part)) {
            invalid_text(errors, name, path, format!("may not contain '{part}'"));
        }
    }
}

#[cfg(test)]
mod tests;
