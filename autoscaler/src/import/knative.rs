//! Knative's Service: a Deployment of its latest template, and the PodAutoscaler beside it.
//!
//! There is one version at a time, so traffic splits and tags have no equivalent. The pod gets no queue-proxy: the
//! activator stays in the path.

use super::source::Source;
use super::{Annotations, pod_autoscaler};
use serde_json::{Map, Value, json};

const SCALING: &str = "autoscaling.knative.dev/";
const TEMPLATE: &str = "/spec/template/metadata/annotations";

/// A Service of `serving.knative.dev`.
pub(super) fn service(from: &mut Source) -> Vec<Value> {
    let name = from.text("/metadata/name").unwrap_or_default();
    let namespace = from.text("/metadata/namespace");
    let mut annotations = Annotations::new();
    let keys: Vec<String> =
        from.look(TEMPLATE).and_then(Value::as_object).into_iter().flat_map(Map::keys).cloned().collect();
    for key in keys.into_iter().filter(|key| key.starts_with(SCALING) || key == "serving.knative.dev/progress-deadline")
    {
        if let Some(value) = from.text(&format!("{TEMPLATE}/{}", key.replace('/', "~1"))) {
            annotations.insert(key, value.into());
        }
    }
    for (field, key) in [
        ("timeoutSeconds", "zeroscale.dev/timeout"),
        ("responseStartTimeoutSeconds", "zeroscale.dev/response-start-timeout"),
        ("idleTimeoutSeconds", "zeroscale.dev/idle-timeout"),
    ] {
        // 0 is Knative's way to say: no bound of its own.
        if let Some(seconds) = from.text(&format!("/spec/template/spec/{field}")).filter(|seconds| seconds != "0") {
            annotations.insert(key.into(), format!("{seconds}s").into());
        }
    }
    let concurrency = from.take("/spec/template/spec/containerConcurrency");
    if from.look("/spec/traffic") == Some(&json!([{"latestRevision": true, "percent": 100}])) {
        from.take("/spec/traffic");
    }
    from.lose(
        "/spec/traffic",
        "one version at a time: split traffic in the ingress, over one Deployment for each version",
    );
    from.lose("/spec/template/metadata/name", "there are no revisions; a Deployment rolls");

    let mut pod = from.take("/spec/template/spec").unwrap_or_else(|| json!({}));
    let protocol = container(&mut pod);
    let mut labels = from.take("/spec/template/metadata/labels").unwrap_or_else(|| json!({}));
    labels["app"] = name.as_str().into();
    let mut deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    });
    for (pointer, field) in [("/metadata/labels", "labels"), ("/metadata/annotations", "annotations")] {
        if let Some(value) = from.take(pointer).filter(|value| value.as_object().is_some_and(|map| !map.is_empty())) {
            deployment["metadata"][field] = value;
        }
    }
    if let Some(namespace) = &namespace {
        deployment["metadata"]["namespace"] = namespace.as_str().into();
    }
    from.note(
        "/spec/template/spec/containers",
        "K_SERVICE, K_CONFIGURATION and K_REVISION are not set; set them if the program reads them",
    );
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    let mut autoscaler = pod_autoscaler(&name, namespace, annotations, target);
    autoscaler["spec"]["protocolType"] = protocol.into();
    if let Some(concurrency) = concurrency {
        autoscaler["spec"]["containerConcurrency"] = concurrency;
    }
    vec![deployment, autoscaler]
}

/// Writes out what Knative adds to the container that serves: a port, `PORT`, the port of its probes. Its protocol.
fn container(pod: &mut Value) -> &'static str {
    if pod.get("enableServiceLinks").is_none() {
        pod["enableServiceLinks"] = false.into(); // Knative's default.
    }
    let Some(containers) = pod["containers"].as_array_mut() else { return "http1" };
    let serving =
        containers.iter().position(|c| c["ports"].as_array().is_some_and(|ports| !ports.is_empty())).unwrap_or(0);
    let Some(container) = containers.get_mut(serving) else { return "http1" };
    if container["name"].as_str().unwrap_or_default().is_empty() {
        container["name"] = "user-container".into();
    }
    if container["ports"].as_array().is_none_or(Vec::is_empty) {
        container["ports"] = json!([{"name": "http1", "containerPort": 8080}]);
    }
    let port = container["ports"][0]["containerPort"].as_u64().unwrap_or(8080);
    if container["ports"][0]["name"].as_str().unwrap_or_default().is_empty() {
        container["ports"][0]["name"] = "http1".into();
    }
    let h2c = container["ports"][0]["name"] == "h2c";
    match container["env"].as_array_mut() {
        Some(env) => env.push(json!({"name": "PORT", "value": port.to_string()})),
        None => container["env"] = json!([{"name": "PORT", "value": port.to_string()}]),
    }
    for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
        for action in ["httpGet", "tcpSocket", "grpc"] {
            if let Some(Value::Object(action)) = container.pointer_mut(&format!("/{probe}/{action}"))
                && action.get("port").is_none_or(|port| *port == json!(0))
            {
                action.insert("port".into(), port.into());
            }
        }
    }
    if h2c { "h2c" } else { "http1" }
}
