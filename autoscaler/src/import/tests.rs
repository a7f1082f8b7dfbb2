//! Manifests as people have them, and what becomes of each of their fields.

use super::{Imported, import, render};
use serde_json::{Value, json};

fn one(text: &str) -> Imported {
    let mut all = import(&[("f.yaml".to_owned(), text.to_owned())]).expect("known kinds");
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn lost(imported: &Imported) -> Vec<&str> {
    imported.lost.iter().map(|(field, _)| field.as_str()).collect()
}

#[test]
fn an_http_scaled_object() {
    let imported = one("
apiVersion: http.keda.sh/v1alpha1
kind: HTTPScaledObject
metadata:
  name: xkcd
  namespace: shop
  resourceVersion: '12'
spec:
  hosts: [myhost.com, '*.shop.example.com']
  pathPrefixes: [/api]
  scaleTargetRef: {name: xkcd-app, kind: Deployment, apiVersion: apps/v1, service: xkcd-web, port: 8080}
  replicas: {min: 1, max: 10}
  scaledownPeriod: 120
  scalingMetric:
    requestRate: {granularity: 1s, targetValue: 30, window: 2m}
  timeouts: {conditionWait: 20s, responseHeader: 30s}
  somethingNew: {deep: [1]}
status: {conditions: []}
");
    assert_eq!(
        imported.objects,
        [json!({
            "apiVersion": "autoscaling.internal.knative.dev/v1alpha1", "kind": "PodAutoscaler",
            "metadata": {"name": "xkcd", "namespace": "shop", "annotations": {
                "zeroscale.dev/hosts": "myhost.com,*.shop.example.com",
                "zeroscale.dev/service": "xkcd-web",
                "zeroscale.dev/adopt-service": "true",
                "zeroscale.dev/response-start-timeout": "30s",
                "autoscaling.knative.dev/min-scale": "1",
                "autoscaling.knative.dev/max-scale": "10",
                "autoscaling.knative.dev/scale-to-zero-pod-retention-period": "120s",
                "autoscaling.knative.dev/metric": "rps",
                "autoscaling.knative.dev/target": "30",
                "autoscaling.knative.dev/target-utilization-percentage": "100",
                "autoscaling.knative.dev/window": "2m",
            }},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "xkcd-app"}, "protocolType": "http1"},
        })]
    );
    let fields =
        ["spec.pathPrefixes", "spec.scaleTargetRef.port", "spec.timeouts.conditionWait", "spec.somethingNew.deep[0]"];
    assert_eq!(lost(&imported), fields, "what nobody knows is listed, not dropped");
}

#[test]
fn kedas_defaults_are_written_out() {
    let imported = one("
apiVersion: http.keda.sh/v1alpha1
kind: HTTPScaledObject
metadata: {name: web}
spec: {hosts: [a.example.com], scaleTargetRef: {name: web, service: web, portName: http}, targetPendingRequests: 7}
");
    let annotations = &imported.objects[0]["metadata"]["annotations"];
    let expected = [
        ("max-scale", "100"),
        ("scale-to-zero-pod-retention-period", "300s"),
        ("metric", "concurrency"),
        ("target", "7"),
        ("target-utilization-percentage", "100"),
    ];
    for (key, value) in expected {
        assert_eq!(annotations[format!("autoscaling.knative.dev/{key}")], value, "{key}");
    }
    assert!(annotations.get("zeroscale.dev/service").is_none(), "the Service has the name already");
    assert_eq!(lost(&imported), ["spec.scaleTargetRef.portName"]);
}

#[test]
fn an_interceptor_route_and_the_scaled_object_that_names_it() {
    let imported = one("
apiVersion: http.keda.sh/v1beta1
kind: InterceptorRoute
metadata: {name: api}
spec:
  target: {service: api-svc, port: 80}
  scalingMetric: {concurrency: {targetValue: 20}}
  timeouts: {readiness: 10s, request: 60s, responseHeader: 0s}
  coldStart: {placeholder: {response: {statusCode: 202}}}
  rules:
  - hosts: ['*', api.example.com]
    paths: [{value: /v1}]
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: api-scaler}
spec:
  scaleTargetRef: {name: api-deploy}
  minReplicaCount: 2
  maxReplicaCount: 5
  pollingInterval: 15
  triggers: [{type: external-push, metadata: {scalerAddress: 'keda:9090', interceptorRoute: api}}]
");
    let object = &imported.objects[0];
    assert_eq!(
        object["spec"]["scaleTargetRef"],
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "api-deploy"})
    );
    let annotations = &object["metadata"]["annotations"];
    let expected = [
        ("zeroscale.dev/hosts", "api.example.com"),
        ("zeroscale.dev/service", "api-svc"),
        ("zeroscale.dev/timeout", "60s"),
        ("autoscaling.knative.dev/min-scale", "2"),
        ("autoscaling.knative.dev/max-scale", "5"),
        ("autoscaling.knative.dev/target", "20"),
    ];
    for (key, value) in expected {
        assert_eq!(annotations[key], value, "{key}");
    }
    let fields = [
        "spec.rules[0].paths",
        "spec.hosts",
        "spec.target.port",
        "ScaledObject.spec.pollingInterval",
        "spec.timeouts.readiness",
        "spec.timeouts.responseHeader",
        "spec.coldStart",
    ];
    assert_eq!(lost(&imported), fields);
}

#[test]
fn a_horizontal_pod_autoscaler_of_both_versions() {
    let imported = one("
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 8
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]
  behavior: {scaleDown: {stabilizationWindowSeconds: 60}}
");
    let annotations = &imported.objects[0]["metadata"]["annotations"];
    assert_eq!(annotations["autoscaling.knative.dev/min-scale"], "2");
    assert_eq!(annotations["autoscaling.knative.dev/max-scale"], "8");
    let yaml =
        |key: &str| -> Value { serde_yaml_ng::from_str(annotations[key].as_str().expect("text")).expect("YAML") };
    assert_eq!(yaml("zeroscale.dev/metrics")[0]["resource"]["target"]["averageUtilization"], 60);
    assert_eq!(yaml("zeroscale.dev/behavior")["scaleDown"]["stabilizationWindowSeconds"], 60);
    assert_eq!(lost(&imported), ["spec.minReplicas", "kind"]);

    let first = one("
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, maxReplicas: 3, targetCPUUtilizationPercentage: 80}
");
    let metrics =
        first.objects[0]["metadata"]["annotations"]["zeroscale.dev/metrics"].as_str().expect("metrics").to_owned();
    let metrics: Value = serde_yaml_ng::from_str(&metrics).expect("YAML");
    assert_eq!(metrics[0]["resource"]["target"]["averageUtilization"], 80);
}

#[test]
fn a_knative_service() {
    let imported = one("
apiVersion: serving.knative.dev/v1
kind: Service
metadata:
  name: hello
  labels: {team: a}
  annotations: {serving.knative.dev/creator: somebody}
spec:
  template:
    metadata:
      annotations: {autoscaling.knative.dev/target: '10', autoscaling.knative.dev/min-scale: '1', example.com/x: 'y'}
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
    assert!(deployment["spec"].get("replicas").is_none(), "the autoscaler owns the number");
    assert_eq!(autoscaler["spec"]["containerConcurrency"], 50);
    assert_eq!(
        autoscaler["metadata"]["annotations"],
        json!({
            "autoscaling.knative.dev/target": "10", "autoscaling.knative.dev/min-scale": "1", "zeroscale.dev/timeout": "60s",
        })
    );
    let fields = ["spec.traffic", "spec.template.spec.containers", "spec.template.metadata.annotations.example.com/x"];
    assert_eq!(lost(&imported), fields);
}

#[test]
fn what_ours_would_refuse_is_said_at_once() {
    let imported = one("
apiVersion: http.keda.sh/v1alpha1
kind: HTTPScaledObject
metadata: {name: web}
spec:
  scaleTargetRef: {name: web, service: web}
  scalingMetric: {requestRate: {targetValue: 1, window: 2s}}
");
    let (field, why) = imported.lost.last().expect("a refusal");
    assert!(field.contains("PodAutoscaler") && why.contains("autoscaling.knative.dev/window"), "{field}: {why}");
}

#[test]
fn what_is_not_known_is_refused_by_file_and_document() {
    let rows = [
        ("a: [", "f.yaml, document 1: no YAML"),
        ("kind: Pod\napiVersion: v1\nmetadata: {name: a}\n", "f.yaml, document 1: Pod of v1 is not known"),
        ("kind: HTTPScaledObject\napiVersion: http.keda.sh/v1alpha1\n", "metadata.name"),
    ];
    for (text, expected) in rows {
        let error = import(&[("f.yaml".into(), text.into())]).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Goal: the text can be applied as it is. Method: it parses back to the same objects, comments aside.
#[test]
fn the_text_holds_the_objects_and_the_list() {
    let text = "apiVersion: http.keda.sh/v1alpha1\nkind: HTTPScaledObject\nmetadata: {name: web}\n\
                spec: {scaleTargetRef: {name: web, service: web, port: 80}}\n";
    let all = import(&[("f.yaml".into(), text.into())]).expect("known");
    let text = render(&all).expect("YAML");
    assert!(text.contains("# From HTTPScaledObject web.\n# No equivalent:\n#   spec.scaleTargetRef.port: "), "{text}");
    let back: Value = serde_yaml_ng::from_str(text.trim_start_matches("---\n")).expect("YAML");
    assert_eq!(back, all[0].objects[0]);
}
