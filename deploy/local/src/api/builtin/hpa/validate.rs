//! What is refused of a HorizontalPodAutoscaler, in the words of Kubernetes' API server.
//!
//! These rules are the server's own and share nothing with the controller's: a shared rule would hide a shared mistake.
//! Of several sources in one metric only the first is looked into. Whether a target's type names the field that is set
//! is not looked at, as in Kubernetes. The feature gates are Kubernetes 1.36's defaults, so `minReplicas: 0` is refused,
//! except where it is stored already.

use serde_json::Value;

use crate::api::builtin::quantity::Quantity;
use crate::api::causes::Causes;
use crate::api::fields::{number, text};
use crate::api::meta::dns_label;

/// Types of metrics, and the field of each, in the order in which they are looked for.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
const WINDOW_MAX: i64 = 3600;
const PERIOD_MAX: i64 = 1800;

pub(super) fn check(value: &Value, old: Option<&Value>, causes: &mut Causes) {
    let spec = &value["spec"];
    bounds(spec, old, causes);
    let target = &spec["scaleTargetRef"];
    reference("spec.scaleTargetRef", target, causes);
    // An object that was stored with a wrong API version may keep it.
    let stored = |field: &str| old.is_some_and(|old| old["spec"]["scaleTargetRef"].get(field) == target.get(field));
    if !(stored("kind") && stored("apiVersion")) {
        let may_be_core = target["kind"] == "ReplicationController";
        api_version("spec.scaleTargetRef", target, may_be_core, causes);
    }
    let metrics = items(spec, "metrics");
    if spec["minReplicas"] == 0
        && !metrics.iter().any(|metric| metric["type"] == "Object" || metric["type"] == "External")
    {
        let rule = "must specify at least one Object or External metric to support scaling to zero replicas";
        causes.forbidden("spec.metrics", rule);
    }
    for (i, one) in metrics.iter().enumerate() {
        metric(&format!("spec.metrics[{i}]"), one, causes);
    }
    for direction in ["scaleUp", "scaleDown"] {
        if let Some(rules) = spec["behavior"].get(direction) {
            behavior(&format!("spec.behavior.{direction}"), rules, causes);
        }
    }
    for field in ["currentReplicas", "desiredReplicas"] {
        at_least(0, &format!("status.{field}"), &value["status"][field], causes);
    }
}

fn bounds(spec: &Value, old: Option<&Value>, causes: &mut Causes) {
    let was_zero = old.is_some_and(|old| old["spec"]["minReplicas"] == 0);
    at_least(i64::from(!was_zero), "spec.minReplicas", &spec["minReplicas"], causes);
    let max = &spec["maxReplicas"];
    if max.as_i64().unwrap_or(0) == 0 {
        causes.required("spec.maxReplicas", "must be set and greater than 0");
    }
    if max.as_i64().is_some_and(|max| max < 0) {
        causes.invalid("spec.maxReplicas", max, "must be greater than or equal to 1");
    }
    if number(spec, "/minReplicas").is_some_and(|min| max.as_i64().unwrap_or(0) < min) {
        causes.invalid("spec.maxReplicas", max, "must be greater than or equal to `minReplicas`");
    }
}

fn at_least(least: i64, at: &str, count: &Value, causes: &mut Causes) {
    if count.as_i64().is_some_and(|number| number < least) {
        causes.invalid(at, count, &format!("must be greater than or equal to {least}"));
    }
}

fn reference(at: &str, reference: &Value, causes: &mut Causes) {
    for field in ["kind", "name"] {
        segment(&format!("{at}.{field}"), &reference[field], "", causes);
    }
}

fn api_version(at: &str, reference: &Value, may_be_core: bool, causes: &mut Causes) {
    let (at, version) = (format!("{at}.apiVersion"), text(reference, "/apiVersion"));
    if version.matches('/').count() > 1 {
        causes.invalid(at, &version.into(), &format!("unexpected GroupVersion string: {version}"));
    } else if !may_be_core && version.split_once('/').is_none_or(|(group, _)| group.is_empty()) {
        causes.invalid(at, &version.into(), "apiVersion must specify API group");
    }
}

/// A name that becomes a part of a path.
fn segment(at: &str, name: &Value, required: &str, causes: &mut Causes) {
    match name.as_str().unwrap_or_default() {
        "" => causes.required(at, required),
        dots @ ("." | "..") => causes.invalid(at, name, &format!("may not be '{dots}'")),
        text => {
            for part in ["/", "%"].into_iter().filter(|part| text.contains(part)) {
                causes.invalid(at, name, &format!("may not contain '{part}'"));
            }
        }
    }
}

fn metric(at: &str, metric: &Value, causes: &mut Causes) {
    let kind = text(metric, "/type");
    if kind.is_empty() {
        causes.required(format!("{at}.type"), "must specify a metric source type");
    } else if !TYPES.contains(&kind) {
        causes.not_supported(format!("{at}.type"), &kind.into(), &TYPES);
    }
    let present: Vec<&str> =
        SOURCES.iter().map(|(_, field)| *field).filter(|field| metric.get(field).is_some()).collect();
    if let Some(field) = present.first() {
        source(&format!("{at}.{field}"), field, &metric[*field], causes);
    }
    let own = SOURCES.iter().find(|(source, _)| *source == kind).map(|(_, field)| *field);
    if let Some(own) = own.filter(|own| !present.contains(own)) {
        causes.required(format!("{at}.{own}"), "must populate information for the given metric source");
    }
    if present.len() > 1 {
        for other in present.into_iter().filter(|field| Some(*field) != own) {
            causes.forbidden(format!("{at}.{other}"), "must populate the given metric source only");
        }
    }
}

fn source(at: &str, field: &str, source: &Value, causes: &mut Causes) {
    match field {
        "resource" if text(source, "/name").is_empty() => {
            causes.required(format!("{at}.name"), "must specify a resource name");
        }
        "resource" => {}
        "containerResource" => container_resource(at, source, causes),
        _ => {
            if field == "object" {
                let (at, object) = (format!("{at}.describedObject"), &source["describedObject"]);
                reference(&at, object, causes);
                api_version(&at, object, true, causes);
            }
            segment(&format!("{at}.metric.name"), &source["metric"]["name"], "must specify a metric name", causes);
        }
    }
    target(&format!("{at}.target"), field, &source["target"], causes);
}

fn container_resource(at: &str, source: &Value, causes: &mut Causes) {
    let (name, container) = (text(source, "/name"), text(source, "/container"));
    let standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if name.is_empty() {
        causes.required(format!("{at}.name"), "must specify a resource name");
    } else if !standard && !name.contains('/') {
        causes.invalid(format!("{at}.name"), &name.into(), "must be a standard resource for containers");
    }
    let at = format!("{at}.container");
    if container.is_empty() {
        causes.required(at, "must specify a container");
    } else if !dns_label(container) {
        let rule = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                    and end with an alphanumeric character";
        causes.invalid(at, &container.into(), rule);
    }
}

fn target(at: &str, field: &str, target: &Value, causes: &mut Causes) {
    match text(target, "/type") {
        "Utilization" | "Value" | "AverageValue" => {}
        "" => causes.required(format!("{at}.type"), "must specify a metric target type"),
        other => {
            causes.invalid(format!("{at}.type"), &other.into(), "must be either Utilization, Value, or AverageValue");
        }
    }
    for name in ["value", "averageValue"] {
        if target.get(name).is_some_and(|amount| !Quantity::read(amount).is_some_and(Quantity::is_positive)) {
            causes.invalid(format!("{at}.{name}"), &target[name], "must be positive");
        }
    }
    let percent = &target["averageUtilization"];
    if percent.as_i64().is_some_and(|percent| percent < 1) {
        causes.invalid(format!("{at}.averageUtilization"), percent, "must be greater than 0");
    }
    let [total, average, share] =
        ["value", "averageValue", "averageUtilization"].map(|name| target.get(name).is_some());
    let [at_total, at_average, at_share] =
        ["value", "averageValue", "averageUtilization"].map(|name| format!("{at}.{name}"));
    match field {
        "object" if !total && !average => {
            causes.required(at_average, "must set either a target value or averageValue");
        }
        "external" if !total && !average => {
            causes.required(at_average, "must set either a target value for metric or a per-pod target");
        }
        "external" if total && average => {
            causes.forbidden(at_total, "may not set both a target value for metric and a per-pod target");
        }
        "pods" if !average => causes.required(at_average, "must specify a positive target averageValue"),
        "resource" | "containerResource" if !share && !average => {
            causes.required(at_share, "must set either a target raw value or a target utilization");
        }
        "resource" | "containerResource" if share && average => {
            causes.forbidden(at_average, "may not set both a target raw value and a target utilization");
        }
        _ => {}
    }
}

fn behavior(at: &str, rules: &Value, causes: &mut Causes) {
    let (at_window, window) = (format!("{at}.stabilizationWindowSeconds"), &rules["stabilizationWindowSeconds"]);
    match window.as_i64() {
        Some(..0) => causes.invalid(at_window, window, "must be greater than or equal to zero"),
        Some(seconds) if seconds > WINDOW_MAX => {
            causes.invalid(at_window, window, &format!("must be less than or equal to {WINDOW_MAX}"));
        }
        _ => {}
    }
    one_of(&format!("{at}.selectPolicy"), &rules["selectPolicy"], &["Disabled", "Max", "Min"], causes);
    let policies = items(rules, "policies");
    if policies.is_empty() {
        causes.required(format!("{at}.policies"), "must specify at least one Policy");
    }
    for (i, policy) in policies.iter().enumerate() {
        let at = format!("{at}.policies[{i}]");
        one_of(&format!("{at}.type"), &policy["type"], &["Percent", "Pods"], causes);
        for field in ["value", "periodSeconds"] {
            if policy[field].as_i64().unwrap_or(0) <= 0 {
                causes.invalid(format!("{at}.{field}"), &policy[field], "must be greater than zero");
            }
        }
        if number(policy, "/periodSeconds").is_some_and(|period| period > PERIOD_MAX) {
            let rule = format!("must be less than or equal to {PERIOD_MAX}");
            causes.invalid(format!("{at}.periodSeconds"), &policy["periodSeconds"], &rule);
        }
    }
    if Quantity::read(&rules["tolerance"]).is_some_and(Quantity::is_negative) {
        causes.invalid(format!("{at}.tolerance"), &rules["tolerance"], "must be greater than or equal to 0");
    }
}

fn one_of(at: &str, value: &Value, allowed: &[&str], causes: &mut Causes) {
    if value.as_str().is_some_and(|text| !allowed.contains(&text)) {
        causes.not_supported(at, value, allowed);
    }
}

fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests;
