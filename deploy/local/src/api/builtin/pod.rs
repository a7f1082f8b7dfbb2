//! Pods, and the pod template that workloads carry.

use serde_json::{Map, Value, json};

use super::columns as print;
use super::quantity::Quantity;
use crate::api::causes::Causes;
use crate::api::fields::{child, default, object};
use crate::api::resource::{Generation, Rules};

pub(super) const POD: Rules = Rules {
    generation: Generation::Spec,
    status: true,
    returns_deleted: true,
    prepare: prepare_pod,
    validate: validate_pod,
    fields: &[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ],
    subresources: &[
        ("binding", "Binding", &["create"]),
        ("eviction", "Eviction", &["create"]),
        ("log", "Pod", &["get"]),
    ],
    printer: Some(&print::POD),
    ..Rules::PLAIN
};

fn prepare_pod(value: &mut Value, old: Option<&Value>) {
    let Some(spec) = value.get_mut("spec").map(object) else { return };
    default(spec, "enableServiceLinks", true);
    prepare_spec(spec);
    if old.is_none() {
        value["status"] = json!({"phase": "Pending", "qosClass": qos(&value["spec"])});
    }
}

/// Defaults of a pod's spec, wherever it stands.
pub(super) fn prepare_spec(spec: &mut Map<String, Value>) {
    for (key, value) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
    ] {
        default(spec, key, value);
    }
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(|container| prepare_container(object(container)));
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        let volume = object(volume);
        for source in ["configMap", "secret", "projected", "downwardAPI"] {
            if let Some(source) = volume.get_mut(source).filter(|source| source.is_object()) {
                default(object(source), "defaultMode", 420);
            }
        }
    }
}

fn prepare_container(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let tag = image.rsplit('/').next().unwrap_or_default().split_once(':').map_or("latest", |(_, tag)| tag);
    let policy = if tag == "latest" && !image.contains('@') { "Always" } else { "IfNotPresent" };
    default(container, "imagePullPolicy", policy);
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    let resources = child(container, "resources");
    for key in ["limits", "requests"] {
        for amount in resources.get_mut(key).and_then(Value::as_object_mut).into_iter().flatten() {
            if let Some(shortest) = Quantity::read(amount.1) {
                *amount.1 = shortest.to_string().into();
            }
        }
    }
    if let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() {
        let requests = child(resources, "requests");
        limits.iter().for_each(|(name, amount)| default(requests, name, amount.clone()));
    }
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        default(object(port), "protocol", "TCP");
    }
    for variable in container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            default(object(field), "apiVersion", "v1");
        }
    }
    for name in ["readinessProbe", "livenessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(name).filter(|probe| probe.is_object()).map(object) else { continue };
        for (key, value) in
            [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
        {
            if probe.get(key).is_some_and(|value| *value == 0) {
                probe.remove(key);
            }
            default(probe, key, value);
        }
        prepare_http(probe.get_mut("httpGet"));
        if let Some(grpc) = probe.get_mut("grpc").filter(|grpc| grpc.is_object()) {
            default(object(grpc), "service", "");
        }
    }
    for hook in ["postStart", "preStop"] {
        prepare_http(container.get_mut("lifecycle").and_then(|hooks| hooks.pointer_mut(&format!("/{hook}/httpGet"))));
    }
}

fn prepare_http(action: Option<&mut Value>) {
    if let Some(action) = action.filter(|action| action.is_object()).map(object) {
        if action.get("path").is_some_and(|path| path == "") {
            action.remove("path");
        }
        default(action, "path", "/");
        default(action, "scheme", "HTTP");
    }
}

/// The class by which a pod is evicted: all limits set and equal to requests, some set, or none.
fn qos(spec: &Value) -> &'static str {
    let containers: Vec<&Value> = spec["containers"].as_array().into_iter().flatten().collect();
    let amount = |container: &Value, kind: &str, name: &str| container["resources"][kind].get(name).cloned();
    let some = |container: &&Value| {
        ["cpu", "memory"]
            .iter()
            .any(|name| amount(container, "limits", name).is_some() || amount(container, "requests", name).is_some())
    };
    let all = |container: &&Value| {
        ["cpu", "memory"].iter().all(|name| {
            let limit = amount(container, "limits", name);
            limit.is_some() && limit == amount(container, "requests", name)
        })
    };
    match () {
        () if !containers.iter().any(some) => "BestEffort",
        () if containers.iter().all(all) => "Guaranteed",
        () => "Burstable",
    }
}

fn validate_pod(value: &Value, old: Option<&Value>, causes: &mut Causes) {
    validate_spec(&value["spec"], "spec", causes);
    let Some(old) = old else { return };
    // Images, the deadline and tolerations may change; for the rest a pod is replaced.
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

/// Rules of a pod's spec, wherever it stands.
pub(super) fn validate_spec(spec: &Value, path: &str, causes: &mut Causes) {
    let containers = spec["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if containers.is_empty() {
        causes.required(format!("{path}.containers"), "");
    }
    let mut names = Vec::new();
    for (list, containers) in [
        ("containers", containers),
        ("initContainers", spec["initContainers"].as_array().map(Vec::as_slice).unwrap_or_default()),
    ] {
        for (index, container) in containers.iter().enumerate() {
            let at = format!("{path}.{list}[{index}]");
            match container["name"].as_str().unwrap_or_default() {
                "" => causes.required(format!("{at}.name"), ""),
                name if names.contains(&name) => causes.duplicate(format!("{at}.name"), &name.into()),
                name if !crate::api::meta::dns_label(name) => {
                    causes.invalid(format!("{at}.name"), &name.into(), "a DNS label is expected");
                }
                name => names.push(name),
            }
            if container["image"].as_str().unwrap_or_default().is_empty() {
                causes.required(format!("{at}.image"), "");
            }
            for (port_index, port) in container["ports"].as_array().into_iter().flatten().enumerate() {
                if !(1..=65535).contains(&port["containerPort"].as_i64().unwrap_or(0)) {
                    let field = format!("{at}.ports[{port_index}].containerPort");
                    causes.invalid(field, &port["containerPort"], "must be between 1 and 65535, inclusive");
                }
            }
        }
    }
    let allowed = ["Always", "OnFailure", "Never"];
    if !allowed.contains(&spec["restartPolicy"].as_str().unwrap_or_default()) {
        causes.not_supported(format!("{path}.restartPolicy"), &spec["restartPolicy"], &allowed);
    }
}
