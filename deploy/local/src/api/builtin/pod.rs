//! Pods, Deployments and similar workloads, and HorizontalPodAutoscalers.

use crate::api::fields::{child, default, items, number, object, text};
use crate::api::status::Causes;
use serde_json::{Map, Value, json};

pub(super) fn prepare_pod(value: &mut Value, old: Option<&Value>) {
    let Some(spec) = value.get_mut("spec").map(object) else { return };
    prepare_spec(spec);
    if old.is_none() {
        value["status"] = json!({"phase": "Pending", "qosClass": qos(&value["spec"])});
    }
}

/// Sets defaults of a pod spec that depend on several of its fields.
fn prepare_spec(spec: &mut Map<String, Value>) {
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(|container| prepare_container(object(container)));
    }
}

fn prepare_container(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let tag = image.rsplit('/').next().unwrap_or_default().split_once(':').map_or("latest", |(_, tag)| tag);
    let policy = if tag == "latest" && !image.contains('@') { "Always" } else { "IfNotPresent" };
    default(container, "imagePullPolicy", policy);
    let resources = child(container, "resources");
    if let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() {
        let requests = child(resources, "requests");
        limits.iter().for_each(|(name, amount)| default(requests, name, amount.clone()));
    }
}

/// Returns the QoS class of a pod: all limits set and equal to requests, some set, or none.
fn qos(spec: &Value) -> &'static str {
    let amounts: Vec<_> = items(spec, "/containers")
        .iter()
        .map(|container| &container["resources"])
        .flat_map(|used| ["cpu", "memory"].map(|name| (used["limits"].get(name), used["requests"].get(name))))
        .collect();
    match () {
        () if amounts.iter().all(|amounts| *amounts == (None, None)) => "BestEffort",
        () if amounts.iter().all(|(limit, request)| limit.is_some() && limit == request) => "Guaranteed",
        () => "Burstable",
    }
}

pub(super) fn validate_pod(value: &Value, old: Option<&Value>, causes: &mut Causes) {
    let Some(old) = old else { return };
    // Images, the deadline and tolerations may change; other changes need a new pod.
    let fixed = |value: &Value| {
        let mut spec = value["spec"].clone();
        let fields = object(&mut spec);
        for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
            fields.remove(key);
        }
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            for container in fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                object(container).remove("image");
            }
        }
        spec
    };
    if fixed(value) != fixed(old) {
        causes.forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing tolerations)",
        );
    }
}

pub(super) fn prepare_workload(value: &mut Value) {
    if let Some(spec) = value.pointer_mut("/spec/template/spec").map(object) {
        prepare_spec(spec);
    }
}

pub(super) fn prepare_deployment(value: &mut Value) {
    prepare_workload(value);
    if let Some(strategy) = value.pointer_mut("/spec/strategy").map(object)
        && strategy["type"] == "RollingUpdate"
    {
        let rolling = child(strategy, "rollingUpdate");
        default(rolling, "maxUnavailable", "25%");
        default(rolling, "maxSurge", "25%");
    }
}

/// Checks that the selector matches the template's labels.
pub(super) fn validate_workload(value: &Value, causes: &mut Causes) {
    let spec = &value["spec"];
    let selector = &spec["selector"];
    let terms = |key: &str| selector.get(key).is_some_and(|terms| *terms != json!({}) && *terms != json!([]));
    let labels = &spec["template"]["metadata"]["labels"];
    let is_empty = !terms("matchLabels") && !terms("matchExpressions");
    if is_empty {
        causes.required("spec.selector", "");
    }
    let mut matched = selector["matchLabels"].as_object().into_iter().flatten();
    if is_empty || !matched.all(|(key, value)| labels.get(key) == Some(value)) {
        causes.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`");
    }
}

/// Validates a HorizontalPodAutoscaler of `autoscaling/v2`. Its controller reports errors of metrics and policies in
/// the status.
pub(super) fn validate_autoscaler(value: &Value, causes: &mut Causes) {
    let max = number(value, "/spec/maxReplicas").unwrap_or(0);
    if number(value, "/spec/minReplicas").is_some_and(|min| min > max) {
        causes.invalid("spec.maxReplicas", &max.into(), "must be greater than or equal to `minReplicas`");
    }
    let target = &value["spec"]["scaleTargetRef"];
    if target["kind"] != "ReplicationController" && !text(target, "/apiVersion").contains('/') {
        let field = "spec.scaleTargetRef.apiVersion";
        causes.invalid(field, &target["apiVersion"], "apiVersion must specify API group");
    }
}
