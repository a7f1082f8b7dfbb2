//! Knative Services.

use super::{Imported, noted, one};
use serde_json::{Value, json};

#[test]
fn a_knative_service_is_translated_field_by_field() {
    let imported = one("
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: hello, labels: {team: a}, annotations: {serving.knative.dev/creator: somebody}}
spec:
  template:
    metadata:
      annotations:
        autoscaling.knative.dev/target: '10'
        autoscaling.knative.dev/minScale: '1'
        autoscaling.knative.dev/window: 100s
        autoscaling.knative.dev/metric-aggregation-algorithm: weighted-exponential
        autoscaling.knative.dev/panic-window-percentage: '25'
        autoscaling.knative.dev/target-burst-capacity: '-1'
        example.com/x: 'y'
    spec:
      containerConcurrency: 50
      timeoutSeconds: 60
      responseStartTimeoutSeconds: 0
      containers:
      - image: hello
        env: [{name: TARGET, value: world}]
        readinessProbe: {httpGet: {path: /ready, port: 0}}
  traffic:
  - {revisionName: hello-00001, percent: 20}
  - {latestRevision: true, percent: 80}
");
    let [deployment, autoscaler] = imported.objects.as_slice() else { panic!("two objects") };
    assert_eq!(deployment["metadata"], json!({"name": "hello", "labels": {"team": "a"}}));
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["ports"], json!([{"name": "http1", "containerPort": 8080}]));
    assert_eq!(container["env"][1], json!({"name": "PORT", "value": "8080"}));
    assert_eq!(container["readinessProbe"]["httpGet"]["port"], 8080);
    assert_eq!(deployment["spec"]["template"]["metadata"]["labels"], json!({"app": "hello"}));
    assert_eq!(deployment["spec"]["template"]["metadata"]["annotations"], json!({"example.com/x": "y"}));
    assert!(deployment["spec"].get("replicas").is_none(), "the autoscaler owns the number");
    let spec = json!({
        "target": {"kind": "Deployment", "name": "hello"}, "services": [{"name": "hello", "create": true}],
        "scale": {
            "min": 1, "window": "100s", "panic": {"window": "25s"}, "load": {"concurrency": 10},
            "aggregation": "WeightedExponential",
        },
        "concurrency": 50, "wake": {"timeout": "60s"}, "timeouts": {"request": "60s"},
    });
    assert_eq!(autoscaler["spec"], spec);
    let fields = [
        "spec.template.metadata.annotations.autoscaling.knative.dev/target-burst-capacity",
        "spec.traffic",
        "spec.template.spec.containers",
        "metadata.name",
    ];
    assert_eq!(noted(&imported), fields);
}

/// Translates a Knative Service whose template has these annotations and labels, in YAML flow style.
fn knative(annotations: &str, labels: &str) -> Imported {
    one(&format!(
        "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {{name: hello}}\nspec:\n  template:\n    \
         metadata: {{annotations: {{{annotations}}}, labels: {{{labels}}}}}\n    spec: {{containers: [{{image: hello}}]}}\n"
    ))
}

/// Returns annotations on scaling with their prefix, in YAML flow style.
fn scaling(annotations: &[&str]) -> String {
    let named: Vec<_> = annotations.iter().map(|annotation| format!("autoscaling.knative.dev/{annotation}")).collect();
    named.join(", ")
}

#[test]
fn a_memory_target_of_class_hpa_is_in_mebibytes() {
    let annotations = ["class: hpa.autoscaling.knative.dev", "metric: memory", "target: '75'"];
    let imported = knative(&scaling(&annotations), "");
    let expected = json!({"name": "memory", "target": {"type": "AverageValue", "averageValue": "75Mi"}});
    assert_eq!(imported.objects[1]["spec"]["metrics"][0]["resource"], expected);
}

/// Goal: a workload that never scales to zero in Knative does not do so here, unless the user removes the minimum
/// scale.
#[test]
fn a_knative_service_of_class_hpa_keeps_a_pod() {
    let field = "spec.template.metadata.annotations.autoscaling.knative.dev/class";
    for (class, min, expected, is_noted) in [
        ("hpa", None, Some(1), true),
        ("hpa", Some(0), Some(1), true),
        ("hpa", Some(1), Some(1), false),
        ("hpa", Some(3), Some(3), false),
        ("kpa", None, None, false),
    ] {
        let min = min.map(|min| format!(", autoscaling.knative.dev/min-scale: '{min}'")).unwrap_or_default();
        let imported = knative(&scaling(&[format!("class: {class}.autoscaling.knative.dev{min}").as_str()]), "");
        let scale = imported.objects[1]["spec"].pointer("/scale/min").and_then(Value::as_i64);
        assert_eq!((scale, noted(&imported).contains(&field)), (expected, is_noted), "{class}{min}");
    }
}

/// Goal: the target of another autoscaler is not mistaken for a concurrency target, and is not dropped silently.
#[test]
fn settings_of_another_autoscalers_class_are_dropped_with_a_note() {
    let annotations =
        ["class: keda.example.com", "metric: queue", "target: '30'", "target-utilization-percentage: '70'"];
    let imported = knative(&scaling(&annotations), "");
    let spec = &imported.objects[1]["spec"];
    assert_eq!((spec.pointer("/scale/load"), spec.get("metrics")), (None, None), "{spec}");
    for annotation in annotations {
        let (name, _) = annotation.split_once(": ").expect("a value");
        let field = format!("spec.template.metadata.annotations.autoscaling.knative.dev/{name}");
        let why = imported.notes.iter().find(|(lost, _)| *lost == field).map(|(_, why)| why.as_str());
        let expected = "only the autoscaler of that class uses it; set spec.scale or spec.metrics";
        assert_eq!(why, Some(expected), "{field}: {:?}", imported.notes);
    }
}

/// Goal: a label that our selector needs is not replaced silently.
#[test]
fn a_replaced_label_of_a_knative_template_is_noted() {
    let field = "spec.template.metadata.labels.app";
    for (labels, is_noted) in [("app: frontend, team: a", true), ("app: hello, team: a", false), ("team: a", false)] {
        let imported = knative("", labels);
        let found = &imported.objects[0]["spec"]["template"]["metadata"]["labels"];
        assert_eq!(*found, json!({"app": "hello", "team": "a"}), "{labels}");
        let why = imported.notes.iter().find(|(lost, _)| lost == field).map(|(_, why)| why.as_str());
        let expected = "is hello now: the selector of the Deployment uses it";
        assert_eq!(why, is_noted.then_some(expected), "{labels}");
    }
}

/// Goal: a malformed pod is copied unchanged, and its error is reported.
#[test]
fn a_malformed_pod_is_reported() {
    for (pod, error) in [
        ("{containers: [{image: a, ports: [8080]}]}", "invalid type: integer `8080`"),
        ("{containers: [app]}", "invalid type: string \"app\""),
        ("{containers: {image: a}}", "invalid type: map"),
        ("app", "invalid type: string \"app\""),
        ("[{image: a}]", "invalid type"),
    ] {
        let text = format!(
            "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {{name: a}}\nspec: {{template: {{spec: {pod}}}}}"
        );
        let imported = one(&text);
        let rejected = imported.notes.iter().find(|(field, _)| field == "the Deployment below");
        assert!(rejected.is_some_and(|(_, why)| why.contains(error)), "{pod}: {:?}", imported.notes);
    }
}
