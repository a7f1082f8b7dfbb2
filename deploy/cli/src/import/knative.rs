//! Translates a Knative Service to a Deployment of its latest template and a ZeroScaler, which creates the Service.
//!
//! A Deployment has one version at a time, so traffic splits and tags have no equivalent. The pod gets no queue-proxy:
//! the activator stays in the path.

use super::draft::{Draft, put};
use super::source::Source;
use common::annotations::{self as knative, CLASS_HPA, CLASS_KPA, Key, METRIC_CPU, METRIC_MEMORY, METRIC_RPS};
use common::config::AutoscalerConfig;
use common::golang::{GoDuration, parse_duration};
use common::scaling::Aggregation;
use k8s_openapi::api::core::v1::PodSpec;
use serde::Deserialize;
use serde_json::{Value, json};

const TEMPLATE: &str = "/spec/template/metadata/annotations";

/// Translates a Service of `serving.knative.dev`.
pub(super) fn service(from: &mut Source) -> Vec<Value> {
    let name = from.name.clone();
    let mut draft = Draft::new(from, json!({"kind": "Deployment", "name": name}));
    draft.set("services", json!([{"name": name, "create": true}]));
    scaling(from, &mut draft);
    for (field, path) in [
        ("timeoutSeconds", "timeouts.request"),
        ("responseStartTimeoutSeconds", "timeouts.responseStart"),
        ("idleTimeoutSeconds", "timeouts.idle"),
    ] {
        // In Knative, 0 means no limit.
        let seconds = from.text(&format!("/spec/template/spec/{field}")).filter(|seconds| seconds != "0");
        let duration = seconds.map(|seconds| format!("{seconds}s"));
        if field == "timeoutSeconds" {
            draft.set("wake.timeout", duration.clone()); // Knative's timeout includes the wait for a pod.
        }
        draft.set(path, duration);
    }
    let concurrency = from.number("/spec/template/spec/containerConcurrency");
    draft.set("concurrency", concurrency.filter(|concurrency| *concurrency != json!(0)));
    if from.look("/spec/traffic") == Some(&json!([{"latestRevision": true, "percent": 100}])) {
        from.take("/spec/traffic");
    }
    let why = "a Deployment runs one version: split traffic in the ingress, over one Deployment for each version";
    from.drop_field("/spec/traffic", why);
    from.drop_field("/spec/template/metadata/name", "there are no revisions; a Deployment is updated in place");

    let mut pod = from.take("/spec/template/spec").unwrap_or_else(|| json!({}));
    container(&mut pod);
    let mut labels = from.take_metadata("/spec/template/metadata/labels").unwrap_or_default();
    if labels.get("app").is_some_and(|app| *app != json!(name)) {
        let why = format!("is {name} now: the selector of the Deployment uses it");
        from.note("/spec/template/metadata/labels/app", why);
    }
    labels.insert("app".to_owned(), name.as_str().into());
    let mut deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    });
    progress_deadline(from, &mut deployment);
    for (pointer, path) in [
        ("/metadata/labels", "metadata.labels"),
        ("/metadata/annotations", "metadata.annotations"),
        (TEMPLATE, "spec.template.metadata.annotations"),
    ] {
        put(&mut deployment, path, from.take_metadata(pointer));
    }
    put(&mut deployment, "metadata.namespace", from.namespace.clone());
    let why = "K_SERVICE, K_CONFIGURATION and K_REVISION are not set; set them if the program reads them";
    from.note("/spec/template/spec/containers", why);
    from.note("/metadata/name", "delete the Knative Service before you apply this: both create a Service of that name");
    vec![deployment, draft.finish()]
}

/// Translates the template's annotations on scaling.
fn scaling(from: &mut Source, draft: &mut Draft) {
    let foreign = drop_foreign_class(from);
    for (key, path) in [
        (knative::MIN_SCALE, "scale.min"),
        (knative::MAX_SCALE, "scale.max"),
        (knative::INITIAL_SCALE, "scale.initial"),
        (knative::ACTIVATION_SCALE, "scale.activation"),
        (knative::TARGET_UTILIZATION, "scale.load.utilization"),
        (knative::PANIC_THRESHOLD, "scale.panic.threshold"),
    ] {
        let number = annotation(from, key).and_then(|pointer| from.number(&pointer));
        draft.set(path, number);
    }
    for (key, path) in [
        (knative::WINDOW, "scale.window"),
        (knative::SCALE_DOWN_DELAY, "scale.downDelay"),
        (knative::POD_RETENTION, "scale.retention"),
    ] {
        let text = annotation(from, key).and_then(|pointer| from.text(&pointer));
        draft.set(path, text);
    }
    if let Some(pointer) = annotation(from, knative::PANIC_WINDOW) {
        // A percentage of the window in Knative, a duration here.
        let window = draft.spec["scale"]["window"].as_str().unwrap_or_default().to_owned();
        let percentage = from.text(&pointer).unwrap_or_default();
        let annotations =
            [(knative::WINDOW.name.to_owned(), window), (knative::PANIC_WINDOW.name.to_owned(), percentage)];
        let panic: GoDuration = knative::panic_window(&annotations.into(), &AutoscalerConfig::default());
        draft.set("scale.panic.window", panic.to_string());
    }
    if !foreign {
        metric(from, draft);
    }
    if let Some(pointer) = annotation(from, knative::AGGREGATION) {
        let annotations = [(knative::AGGREGATION.name.to_owned(), from.text(&pointer).unwrap_or_default())];
        if knative::aggregation(&annotations.into()) == Aggregation::WeightedExponential {
            draft.set("scale.aggregation", "WeightedExponential");
        }
    }
    if let Some(pointer) = annotation(from, knative::TARGET_BURST_CAPACITY) {
        from.drop_field(&pointer, "without a queue-proxy in the pods the activators stay in the path");
    }
}

/// Translates the progress deadline, for which a Deployment has its own field.
fn progress_deadline(from: &mut Source, deployment: &mut Value) {
    let Some(pointer) = annotation(from, knative::PROGRESS_DEADLINE) else { return };
    let Some(text) = from.text(&pointer) else { return };
    match parse_duration(&text) {
        Ok(time) if time >= GoDuration::ZERO => {
            deployment["spec"]["progressDeadlineSeconds"] = time.to_std().as_secs().into();
        }
        _ => from.note(&pointer, format!("{text:?} is not a duration such as 120s")),
    }
}

/// Drops class, metric and target if the class is not one of Knative's, since only the autoscaler of that class knows
/// their meaning. Returns true in that case.
fn drop_foreign_class(from: &mut Source) -> bool {
    let class = annotation(from, knative::CLASS);
    let class = class.and_then(|pointer| from.look(&pointer)?.as_str().map(str::to_owned));
    if class.is_none_or(|class| [CLASS_KPA, CLASS_HPA].contains(&class.as_str())) {
        return false;
    }
    for key in [knative::CLASS, knative::METRIC, knative::TARGET, knative::TARGET_UTILIZATION] {
        if let Some(pointer) = annotation(from, key) {
            from.drop_field(&pointer, "only the autoscaler of that class uses it; set spec.scale or spec.metrics");
        }
    }
    true
}

/// Translates metric and target of one of Knative's own classes.
fn metric(from: &mut Source, draft: &mut Draft) {
    let class = annotation(from, knative::CLASS);
    let hpa = class.as_ref().and_then(|pointer| from.text(pointer)).is_some_and(|class| class == CLASS_HPA);
    if let Some(pointer) = class.filter(|_| hpa && draft.spec["scale"]["min"].as_i64().is_none_or(|min| min < 1)) {
        draft.set("scale.min", 1);
        from.note(&pointer, "this class never scales to zero, so scale.min is 1; remove it to allow scaling to zero");
    }
    let at = annotation(from, knative::METRIC);
    let metric = at.as_ref().and_then(|pointer| from.text(pointer));
    let metric = metric.unwrap_or_else(|| if hpa { METRIC_CPU } else { knative::METRIC_CONCURRENCY }.to_owned());
    let target = annotation(from, knative::TARGET).and_then(|pointer| from.number(&pointer));
    match (metric.as_str(), target) {
        (METRIC_CPU, percent) if hpa => {
            let percent = percent.and_then(|percent| percent.as_f64()).unwrap_or(80.0).ceil() as i64; // Saturates.
            let target = json!({"type": "Utilization", "averageUtilization": percent});
            draft.set("metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
        }
        (METRIC_MEMORY, Some(mebibytes)) if hpa => {
            let target = json!({"type": "AverageValue", "averageValue": format!("{mebibytes}Mi")});
            draft.set("metrics", json!([{"type": "Resource", "resource": {"name": "memory", "target": target}}]));
        }
        (name, Some(value)) if hpa => {
            let target = json!({"type": "AverageValue", "averageValue": value.to_string()});
            draft.set("metrics", json!([{"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}]));
        }
        (METRIC_RPS, target) => draft.set("scale.load.rps", target.unwrap_or_else(|| 200.into())),
        (knative::METRIC_CONCURRENCY, target) => draft.set("scale.load.concurrency", target),
        (name, target) => {
            let target = target.map_or_else(String::new, |target| format!(" with target {target}"));
            let why = format!("{name}{target} does not decide the number of pods here; use spec.metrics");
            from.note(at.as_deref().unwrap_or(TEMPLATE), why);
        }
    }
}

/// Returns the pointer of a template annotation, in either spelling.
fn annotation(from: &Source, key: Key) -> Option<String> {
    let at = |name: &str| format!("{TEMPLATE}/{}", name.replace('/', "~1"));
    [Some(key.name), key.alias].into_iter().flatten().map(at).find(|pointer| from.look(pointer).is_some())
}

/// Adds Knative's defaults to the serving container: its port, `PORT` and the port of its probes. Leaves a malformed
/// pod as it is; [`super::rejection`] reports it.
fn container(pod: &mut Value) {
    if PodSpec::deserialize(&*pod).is_err() {
        return;
    }
    if pod.get("enableServiceLinks").is_none() {
        pod["enableServiceLinks"] = false.into(); // Knative's default.
    }
    let Some(containers) = pod["containers"].as_array_mut() else { return };
    let serving =
        containers.iter().position(|c| c["ports"].as_array().is_some_and(|ports| !ports.is_empty())).unwrap_or(0);
    let Some(container) = containers.get_mut(serving) else { return };
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
}
