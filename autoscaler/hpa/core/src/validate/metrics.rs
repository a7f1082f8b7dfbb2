//! Validates `spec.metrics`.

use super::{Violations, reference, segment};
use crate::quantity;
use k8s_openapi::api::autoscaling::v2::{MetricIdentifier, MetricSpec, MetricTarget};

const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
const TARGET_TYPES: [&str; 3] = ["Utilization", "Value", "AverageValue"];

pub(super) fn each(found: &mut Violations, path: &str, metrics: &[MetricSpec]) {
    for (i, metric) in metrics.iter().enumerate() {
        one(found, &format!("{path}[{i}]"), metric);
    }
}

fn one(found: &mut Violations, path: &str, metric: &MetricSpec) {
    if metric.type_.is_empty() {
        found.required(&format!("{path}.type"), "must specify a metric source type");
    }
    if !TYPES.contains(&metric.type_.as_str()) {
        found.unsupported(&format!("{path}.type"), &metric.type_, &TYPES);
    }
    let present = first_source(found, path, metric);
    let mut expected = metric.type_.clone();
    expected.get_mut(..1).map(str::make_ascii_lowercase);
    if !TYPES.contains(&metric.type_.as_str()) {
        found.unsupported(&format!("{path}.type"), &metric.type_, &TYPES); // Upstream reports this twice.
        expected.clear();
    }
    if !expected.is_empty() && !present.contains(&expected.as_str()) {
        found.required(&format!("{path}.{expected}"), "must populate information for the given metric source");
    }
    if present.len() != 1 {
        for name in present.into_iter().filter(|name| *name != expected) {
            found.forbidden(&format!("{path}.{name}"), "must populate the given metric source only");
        }
    }
}

/// Validates the first source that is set. Returns the names of all sources that are set.
fn first_source(found: &mut Violations, path: &str, metric: &MetricSpec) -> Vec<&'static str> {
    let mut present = Vec::new();
    let mut is_first = |name: &'static str| {
        present.push(name);
        present.len() == 1
    };
    if let Some(source) = metric.object.as_ref().filter(|_| is_first("object")) {
        let path = format!("{path}.object");
        reference(found, &format!("{path}.describedObject"), &source.described_object);
        identifier(found, &path, &source.metric);
        target(found, &path, &source.target);
        if source.target.value.is_none() && source.target.average_value.is_none() {
            found.required(&format!("{path}.target.averageValue"), "must set either a target value or averageValue");
        }
    }
    if let Some(source) = metric.external.as_ref().filter(|_| is_first("external")) {
        let path = format!("{path}.external");
        identifier(found, &path, &source.metric);
        target(found, &path, &source.target);
        match (&source.target.value, &source.target.average_value) {
            (None, None) => {
                let detail = "must set either a target value for metric or a per-pod target";
                found.required(&format!("{path}.target.averageValue"), detail);
            }
            (Some(_), Some(_)) => {
                let detail = "may not set both a target value for metric and a per-pod target";
                found.forbidden(&format!("{path}.target.value"), detail);
            }
            _ => {}
        }
    }
    if let Some(source) = metric.pods.as_ref().filter(|_| is_first("pods")) {
        let path = format!("{path}.pods");
        identifier(found, &path, &source.metric);
        target(found, &path, &source.target);
        if source.target.average_value.as_ref().is_none_or(|value| quantity::milli(value).is_ok_and(|milli| milli <= 0))
        {
            found.required(&format!("{path}.target.averageValue"), "must specify a positive target averageValue");
        }
    }
    if let Some(source) = metric.resource.as_ref().filter(|_| is_first("resource")) {
        let path = format!("{path}.resource");
        if source.name.is_empty() {
            found.required(&format!("{path}.name"), "must specify a resource name");
        }
        target(found, &path, &source.target);
        share(found, &path, &source.target);
    }
    if let Some(source) = metric.container_resource.as_ref().filter(|_| is_first("containerResource")) {
        let path = format!("{path}.containerResource");
        container_resource(found, &format!("{path}.name"), &source.name);
        container(found, &format!("{path}.container"), &source.container);
        target(found, &path, &source.target);
        share(found, &path, &source.target);
    }
    present
}

fn identifier(found: &mut Violations, path: &str, metric: &MetricIdentifier) {
    segment(found, &format!("{path}.metric.name"), &metric.name, "must specify a metric name");
}

fn target(found: &mut Violations, path: &str, target: &MetricTarget) {
    let path = format!("{path}.target");
    let kind = target.type_.as_str();
    if kind.is_empty() {
        found.required(&format!("{path}.type"), "must specify a metric target type");
    }
    if !TARGET_TYPES.contains(&kind) {
        found.invalid(&format!("{path}.type"), kind, "must be either Utilization, Value, or AverageValue");
    }
    for (name, value) in [("value", &target.value), ("averageValue", &target.average_value)] {
        if let Some(value) = value {
            found.quantity(&format!("{path}.{name}"), value, |value| !value.is_positive(), "must be positive");
        }
    }
    if let Some(percent) = target.average_utilization.filter(|percent| *percent < 1) {
        found.invalid(&format!("{path}.averageUtilization"), percent, "must be greater than 0");
    }
}

/// Validates the target of a resource: exactly one of its two fields must be set.
fn share(found: &mut Violations, path: &str, target: &MetricTarget) {
    match (target.average_utilization, &target.average_value) {
        (None, None) => {
            let detail = "must set either a target raw value or a target utilization";
            found.required(&format!("{path}.target.averageUtilization"), detail);
        }
        (Some(_), Some(_)) => {
            let detail = "may not set both a target raw value and a target utilization";
            found.forbidden(&format!("{path}.target.averageValue"), detail);
        }
        _ => {}
    }
}

/// Validates a resource that containers can request: a standard one, or one with a domain prefix.
fn container_resource(found: &mut Violations, path: &str, name: &str) {
    let standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if name.is_empty() {
        found.required(path, "must specify a resource name");
    } else if !standard && !name.contains('/') {
        found.invalid(path, name, "must be a standard resource for containers");
    }
}

/// Validates a container name, which is a DNS label.
fn container(found: &mut Violations, path: &str, name: &str) {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() {
        found.required(path, "must specify a container");
    } else if name.len() > 63 {
        found.invalid(path, name, "must be no more than 63 bytes");
    } else if !name.chars().all(plain) || name.starts_with('-') || name.ends_with('-') {
        let detail = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                      start and end with an alphanumeric character";
        found.invalid(path, name, detail);
    }
}
