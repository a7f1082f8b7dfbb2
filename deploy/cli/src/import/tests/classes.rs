//! Fields that are easily lost: switches, old versions, limits, labels.

use super::{hpa, noted, one};
use serde_json::{Value, json};

fn http(fields: &str, metadata: &str) -> super::Imported {
    one(&format!(
        "apiVersion: http.keda.sh/v1alpha1\nkind: HTTPScaledObject\nmetadata: {{name: web{metadata}}}\n\
         spec: {{scaleTargetRef: {{name: web, service: web}}{fields}}}\n"
    ))
}

/// Goal: a maximum of zero pods in the source never becomes an unlimited number here.
#[test]
fn a_maximum_of_zero_does_not_become_unlimited() {
    let of_hpa = one(&hpa("v2", "", "maxReplicas: 0"));
    for (imported, field) in [(http(", replicas: {max: 0}", ""), "spec.replicas.max"), (of_hpa, "spec.maxReplicas")] {
        let spec = &imported.objects[0]["spec"];
        assert_eq!((&spec["scale"]["max"], &spec["paused"]), (&json!(1), &json!(true)), "{field}");
        assert!(noted(&imported).contains(&field), "{field}: {:?}", imported.notes);
    }
}

#[test]
fn annotations_that_pause_and_labels_are_translated() {
    let rows = [
        ("paused: 'true'", json!({"paused": true}), 0),
        ("paused: 'false'", json!({}), 0),
        ("paused: maybe", json!({}), 1),
        ("paused-replicas: '2'", json!({"paused": true}), 1),
        ("paused-scale-in: 'true'", json!({"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}), 1),
        ("paused-scale-out: 'true'", json!({"behavior": {"scaleUp": {"selectPolicy": "Disabled"}}}), 1),
        ("force-activation: 'x'", json!({}), 1),
    ];
    for (annotation, expected, notes) in rows {
        let imported = http("", &format!(", annotations: {{autoscaling.keda.sh/{annotation}}}"));
        let spec = &imported.objects[0]["spec"];
        for field in ["paused", "behavior"] {
            assert_eq!(spec.get(field), expected.get(field), "{annotation}");
        }
        assert_eq!(imported.notes.len(), notes, "{annotation}: {:?}", imported.notes);
    }
    let labels =
        ", labels: {team: a, app.kubernetes.io/managed-by: Helm}, annotations: {a: b, meta.helm.sh/release-name: c}";
    let imported = http("", labels);
    let metadata = json!({"name": "web", "labels": {"team": "a"}, "annotations": {"a": "b"}});
    assert_eq!(imported.objects[0]["metadata"], metadata);
    let tools = ["metadata.annotations.meta.helm.sh/release-name", "metadata.labels.app.kubernetes.io/managed-by"];
    assert_eq!(noted(&imported), tools);
}

#[test]
fn the_target_of_an_early_version_is_a_deployment() {
    let imported = one("
apiVersion: http.keda.sh/v1alpha1
kind: HTTPScaledObject
metadata: {name: web}
spec: {host: a.example.com, scaleTargetRef: {deployment: web-app, service: web, port: 80}}
");
    let spec = &imported.objects[0]["spec"];
    assert_eq!(spec["target"], json!({"kind": "Deployment", "name": "web-app"}));
    assert_eq!((&spec["services"][0]["name"], &spec["hosts"]), (&json!("web"), &json!(["a.example.com"])));
    assert_eq!(noted(&imported), Vec::<&str>::new());
}

/// Goal: idle replicas and minimum replicas are translated, and so are cron triggers.
#[test]
fn idle_replicas_and_cron_triggers_are_translated() {
    let route = "apiVersion: http.keda.sh/v1beta1\nkind: InterceptorRoute\nmetadata: {name: api}\n\
                 spec: {target: {service: api}}\n---\napiVersion: keda.sh/v1alpha1\nkind: ScaledObject\n\
                 metadata: {name: api}\nspec:\n  scaleTargetRef: {name: api}\n  triggers:\n  \
                 - {type: external-push, metadata: {scalerAddress: 'a:1', interceptorRoute: api}}\n";
    let rows = [
        ("  idleReplicaCount: 0\n  minReplicaCount: 3\n", json!(null), json!(3), 1),
        ("  idleReplicaCount: 0\n", json!(null), json!(null), 0),
        ("  idleReplicaCount: 1\n  minReplicaCount: 3\n", json!(1), json!(3), 1),
        ("  minReplicaCount: 3\n", json!(3), json!(null), 0),
    ];
    for (fields, min, activation, notes) in rows {
        let imported = one(&format!("{route}{fields}"));
        let scale = &imported.objects[0]["spec"]["scale"];
        assert_eq!((&scale["min"], &scale["activation"]), (&min, &activation), "{fields}");
        assert_eq!(imported.notes.len(), notes, "{fields}: {:?}", imported.notes);
    }
    let cron = |start: &str, end: &str| {
        let fields = format!("timezone: Europe/Berlin, start: {start}, end: {end}, desiredReplicas: '4'");
        one(&format!("{route}  - {{type: cron, metadata: {{{fields}}}}}\n"))
    };
    let imported = cron("30 8 * * 1-5", "0 18 * * 1-5");
    let schedule = json!([{"cron": "30 8 * * 1-5", "duration": "570m", "min": 4, "timeZone": "Europe/Berlin"}]);
    assert_eq!((&imported.objects[0]["spec"]["schedules"], imported.notes.len()), (&schedule, 0));
    let imported = cron("0 8 1 * *", "0 8 2 * *");
    assert!(imported.objects[0]["spec"].get("schedules").is_none());
    assert_eq!(imported.notes.len(), 5, "the trigger, and each of its fields: {:?}", imported.notes);
}

/// Goal: each form that a metric had before `autoscaling/v2` is converted to that version.
#[test]
fn metrics_of_earlier_versions_are_converted() {
    let rows = [
        (
            r#"{"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}}"#,
            json!({"type": "Resource", "resource": {
                "name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}),
        ),
        (
            r#"{"type": "Pods", "pods": {"metricName": "qps", "selector": {"matchLabels": {"a": "b"}}, "targetAverageValue": 10}}"#,
            json!({"type": "Pods", "pods": {
                "metric": {"name": "qps", "selector": {"matchLabels": {"a": "b"}}},
                "target": {"type": "AverageValue", "averageValue": 10}}}),
        ),
        (
            r#"{"type": "Object", "object": {"target": {"kind": "Queue", "name": "q"}, "metricName": "len", "targetValue": "5"}}"#,
            json!({"type": "Object", "object": {
                "describedObject": {"kind": "Queue", "name": "q"}, "metric": {"name": "len"},
                "target": {"type": "Value", "value": "5"}}}),
        ),
        (
            r#"{"type": "External", "external": {"metricName": "len", "metricSelector": {}, "targetAverageValue": "5"}}"#,
            json!({"type": "External", "external": {
                "metric": {"name": "len", "selector": {}}, "target": {"type": "AverageValue", "averageValue": "5"}}}),
        ),
    ];
    for (old, new) in rows {
        let annotation = format!("annotations: {{autoscaling.alpha.kubernetes.io/metrics: '[{old}]'}}");
        for (version, metadata, metrics) in [
            ("v2beta1", "", format!(", metrics: [{old}]")),
            ("v1", annotation.as_str(), String::new()),
            ("v2", "", format!(", metrics: [{new}]")),
        ] {
            let imported = one(&format!(
                "apiVersion: autoscaling/{version}\nkind: HorizontalPodAutoscaler\nmetadata: {{name: web, {metadata}}}\n\
                 spec: {{scaleTargetRef: {{apiVersion: extensions/v1beta1, kind: Deployment, name: web}}, maxReplicas: 3{metrics}}}\n"
            ));
            let spec = &imported.objects[0]["spec"];
            assert_eq!(
                (&spec["metrics"], &spec["target"]),
                (&json!([new]), &json!({"kind": "Deployment", "name": "web"}))
            );
            assert_eq!(imported.notes.len(), 3, "{version}: {:?}", imported.notes);
        }
    }
}

#[test]
fn an_annotated_behavior_is_translated_and_unknown_fields_are_noted() {
    let behavior = r#"{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":5,"SelectPolicy":"Min","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":60}]}}"#;
    let annotations = format!(", annotations: {{autoscaling.alpha.kubernetes.io/behavior: '{behavior}'}}");
    let imported = one(&hpa("v1", &annotations, "maxReplicas: 3, targetCPUUtilizationPercentage: 50"));
    let expected = json!({"scaleDown": {
        "stabilizationWindowSeconds": 5, "selectPolicy": "Min",
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]}});
    assert_eq!(imported.objects[0]["spec"]["behavior"], expected);
    let imported = one(&hpa("v2", "", "maxReplicas: 3, behavior: {scaleUp: {tolerance: 0.02, speed: 3}}"));
    assert_eq!(imported.objects[0]["spec"]["behavior"], json!({"scaleUp": {"tolerance": 0.02}}));
    assert!(noted(&imported).contains(&"ZeroScaler.spec.behavior.scaleUp.speed"), "{:?}", imported.notes);
}

/// Goal: labels and annotations that only Knative understands are not copied; all others are.
#[test]
fn metadata_that_only_knative_understands_is_not_copied() {
    let imported = one("
apiVersion: serving.knative.dev/v1
kind: Service
metadata:
  name: hello
  labels: {networking.knative.dev/visibility: cluster-local, team: a}
  annotations: {serving.knative.dev/rollout-duration: 380s, note: b}
spec:
  template:
    metadata:
      labels: {serving.knative.dev/x: 'y', tier: web}
      annotations:
        client.knative.dev/nonce: abc
        serving.knative.dev/progress-deadline: 120s
        sidecar.istio.io/inject: 'true'
        autoscaling.knative.dev/metric: cpu
        autoscaling.knative.dev/target: '5'
    spec: {containers: [{image: hello, resources: {limits: {cpu: '1'}}, sparkle: yes}]}
");
    let deployment = &imported.objects[0];
    assert_eq!(deployment["metadata"], json!({"name": "hello", "labels": {"team": "a"}, "annotations": {"note": "b"}}));
    assert_eq!(deployment["spec"]["progressDeadlineSeconds"], 120);
    let template = json!({
        "labels": {"app": "hello", "tier": "web"}, "annotations": {"sidecar.istio.io/inject": "true"}});
    assert_eq!(deployment["spec"]["template"]["metadata"], template);
    let prefix = "spec.template.metadata";
    for field in [
        "metadata.labels.networking.knative.dev/visibility".to_owned(),
        "metadata.annotations.serving.knative.dev/rollout-duration".to_owned(),
        format!("{prefix}.labels.serving.knative.dev/x"),
        format!("{prefix}.annotations.client.knative.dev/nonce"),
        format!("{prefix}.annotations.autoscaling.knative.dev/metric"),
        "Deployment.spec.template.spec.containers[0].sparkle".to_owned(),
    ] {
        assert!(noted(&imported).contains(&field.as_str()), "{field}: {:?}", imported.notes);
    }
    assert_eq!(imported.objects[1]["spec"].get("metrics"), None::<&Value>);
}
