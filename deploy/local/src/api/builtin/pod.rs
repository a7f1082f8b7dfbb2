//! Pods, and the pod templates of workloads.

use serde_json::{Map, Value, json};

use crate::api::causes::Causes;
use crate::api::fields::{child, default, items, object};

pub(super) fn prepare_pod(value: &mut Value, old: Option<&Value>) {
    let Some(spec) = value.get_mut("spec").map(object) else { return };
    prepare_spec(spec);
    if old.is_none() {
        value["status"] = json!({"phase": "Pending", "qosClass": qos(&value["spec"])});
    }
}

/// Sets defaults of a pod spec that depend on several of its fields.
pub(super) fn prepare_spec(spec: &mut Map<String, Value>) {
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
