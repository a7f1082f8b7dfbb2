//! Validates `spec.metrics`.

use super::{FORBIDDEN, REQUIRED, amount, invalid_text, reference, segment, unsupported};
use crate::quantity;
use common::field::FieldErrors;
use k8s_openapi::api::autoscaling::v2::{MetricIdentifier, MetricSpec, MetricTarget};

const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
const TARGET_TYPES: [&str; 3] = ["Utilization", "Value", "AverageValue"];

/// Adds the violations of a list of metrics, whose path is `path`.
pub fn validate(errors: &mut FieldErrors, path: &str, metrics: &[MetricSpec]) {
    for (i, metric) in metrics.iter().enumerate() {
        validate_one(errors, &format!("{path}[{i}]"), metric);
    }
}

fn validate_one(errors: &mut FieldErrors, path: &str, metric: &MetricSpec) {
    if metric.type_.is_empty() {
        errors.push(REQUIRED, format!("{path}.type"), "must specify a metric source type");
    }
    if !TYPES.contains(&metric.type_.as_str()) {
        unsupported(errors, &metric.type_, &format!("{path}.type"), &TYPES);
    }
    let present = first_source(errors, path, metric);
    let mut expected = metric.type_.clone();
    expected.get_mut(..1).map(str::make_ascii_lowercase);
    if !TYPES.contains(&metric.type_.as_str()) {
        unsupported(errors, &metric.type_, &format!("{path}.type"), &TYPES); // Upstream reports this twice.
        expected.clear();
    }
    if !expected.is_empty() && !present.contains(&expected.as_str()) {
        errors.push(REQUIRED, format!("{path}.{expected}"), "must populate information for the given metric source");
    }
    if present.len() != 1 {
        for name in present.into_iter().filter(|name| *name != expected) {
            errors.push(FORBIDDEN, format!("{path}.{name}"), "must populate the given metric source only");
        }
    }
}

/// Validates the first source that is set. Returns the names of all sources that are set.
fn first_source(errors: &mut FieldErrors, path: &str, metric: &MetricSpec) -> Vec<&'static str> {
    let mut present = Vec::new();
    let mut is_first = |name: &'static str| {
        present.push(name);
        present.len() == 1
    };
    if let Some(source) = metric.object.as_ref().filter(|_| is_first("object")) {
        let path = format!("{path}.object");
        reference(errors, &format!("{path}.describedObject"), &source.described_object);
        identifier(errors, &path, &source.metric);
        target(errors, &path, &source.target);
        if source.target.value.is_none() && source.target.average_value.is_none() {
            let detail = "must set either a target value or averageValue";
            errors.push(REQUIRED, format!("{path}.target.averageValue"), detail);
        }
    }
    if let Some(source) = metric.external.as_ref().filter(|_| is_first("external")) {
        let path = format!("{path}.external");
        identifier(errors, &path, &source.metric);
        target(errors, &path, &source.target);
        let neither = ("averageValue", "must set either a target value for metric or a per-pod target");
        let both = ("value", "may not set both a target value for metric and a per-pod target");
        let is_set = (source.target.value.is_some(), source.target.average_value.is_some());
        exactly_one(errors, &path, is_set, neither, both);
    }
    if let Some(source) = metric.pods.as_ref().filter(|_| is_first("pods")) {
        let path = format!("{path}.pods");
        identifier(errors, &path, &source.metric);
        target(errors, &path, &source.target);
        if source.target.average_value.as_ref().is_none_or(|value| quantity::milli(value).is_ok_and(|milli| milli <= 0))
        {
            errors.push(REQUIRED, format!("{path}.target.averageValue"), "must specify a positive target averageValue");
        }
    }
    if let Some(source) = metric.resource.as_ref().filter(|_| is_first("resource")) {
        let path = format!("{path}.resource");
        if source.name.is_empty() {
            errors.push(REQUIRED, format!("{path}.name"), "must specify a resource name");
        }
        target(errors, &path, &source.target);
        resource_target(errors, &path, &source.target);
    }
    if let Some(source) = metric.container_resource.as_ref().filter(|_| is_first("containerResource")) {
        let path = format!("{path}.containerResource");
        container_resource(errors, &format!("{path}.name"), &source.name);
        container(errors, &format!("{path}.container"), &source.container);
        target(errors, &path, &source.target);
        resource_target(errors, &path, &source.target);
    }
    present
}

fn identifier(errors: &mut FieldErrors, path: &str, metric: &MetricIdentifier) {
    segment(errors, &format!("{path}.metric.name"), &metric.name, "must specify a metric name");
}

fn target(errors: &mut FieldErrors, path: &str, target: &MetricTarget) {
    let path = format!("{path}.target");
    let kind = target.type_.as_str();
    if kind.is_empty() {
        errors.push(REQUIRED, format!("{path}.type"), "must specify a metric target type");
    }
    if !TARGET_TYPES.contains(&kind) {
        invalid_text(errors, kind, &format!("{path}.type"), "must be either Utilization, Value, or AverageValue");
    }
    for (name, value) in [("value", &target.value), ("averageValue", &target.average_value)] {
        if let Some(value) = value {
            amount(errors, value, &format!("{path}.{name}"), |value| value.milli() <= 0, "must be positive");
        }
    }
    if let Some(percent) = target.average_utilization.filter(|percent| *percent < 1) {
        errors.invalid_value(percent, format!("{path}.averageUtilization"), "must be greater than 0");
    }
}

/// Validates that the target of a resource is either an average value or a utilization.
fn resource_target(errors: &mut FieldErrors, path: &str, target: &MetricTarget) {
    let neither = ("averageUtilization", "must set either a target raw value or a target utilization");
    let both = ("averageValue", "may not set both a target raw value and a target utilization");
    let is_set = (target.average_utilization.is_some(), target.average_value.is_some());
    exactly_one(errors, path, is_set, neither, both);
}

/// Adds a violation unless exactly one of two fields of a target is set. `neither` and `both` are its field and text in
/// either case.
fn exactly_one(errors: &mut FieldErrors, path: &str, is_set: (bool, bool), neither: (&str, &str), both: (&str, &str)) {
    match is_set {
        (false, false) => errors.push(REQUIRED, format!("{path}.target.{}", neither.0), neither.1),
        (true, true) => errors.push(FORBIDDEN, format!("{path}.target.{}", both.0), both.1),
        _ => {}
    }
}

/// Validates a resource that containers can request: a standard one, or one with a domain prefix.
fn container_resource(errors: &mut FieldErrors, path: &str, name: &str) {
    let standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if name.is_empty() {
        errors.push(REQUIRED, path, "must specify a resource name");
    } else if !standard && !name.contains('/') {
        invalid_text(errors, name, path, "must be a standard resource for containers");
    }
}

/// Validates a container name, which is a DNS label.
fn container(errors: &mut FieldErrors, path: &str, name: &str) {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() {
        errors.push(REQUIRED, path, "must specify a container");
    } else if name.len() > 63 {
        invalid_text(errors, name, path, "must be no more than 63 bytes");
    } else if !name.chars().all(plain) || name.starts_with('-') || name.ends_with('-') {
        let detail = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                      start and end with an alphanumeric character";
        invalid_text(errors, name, path, detail);
    }
}
