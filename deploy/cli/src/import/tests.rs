//! Realistic manifests and the translation of each of their fields.

mod classes;
mod knative;
mod sablier;

use super::{Imported, import, render};
use serde::Deserialize;
use serde_json::{Value, json};

fn one(text: &str) -> Imported {
    let mut all = import(&[("f.yaml".to_owned(), text.to_owned())]).expect("known kinds");
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// Returns a translated object.
fn zero_scaler(metadata: Value, spec: Value) -> Value {
    json!({"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "metadata": metadata, "spec": spec})
}

/// Returns the fields of the notes.
fn noted(imported: &Imported) -> Vec<&str> {
    imported.notes.iter().map(|(field, _)| field.as_str()).collect()
}

/// Returns a HorizontalPodAutoscaler of Deployment `web` with further fields of metadata and spec, in YAML flow style.
fn hpa(version: &str, metadata: &str, spec: &str) -> String {
    format!(
        "apiVersion: autoscaling/{version}\nkind: HorizontalPodAutoscaler\nmetadata: {{name: web{metadata}}}\nspec: \
         {{scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}, {spec}}}\n"
    )
}

#[test]
fn an_http_scaled_object_is_translated_field_by_field() {
    let imported = one("
apiVersion: http.keda.sh/v1alpha1
kind: HTTPScaledObject
metadata: {name: xkcd, namespace: shop, resourceVersion: '12'}
spec:
  hosts: [myhost.com, '*.shop.example.com']
  pathPrefixes: [/api]
  scaleTargetRef: {name: xkcd-app, kind: Deployment, apiVersion: apps/v1, service: xkcd-web, port: 8080}
  replicas: {min: 1, max: 10}
  scaledownPeriod: 120
  scalingMetric: {requestRate: {granularity: 1s, targetValue: 30, window: 2m}}
  timeouts: {conditionWait: 20s, responseHeader: 30s}
  somethingNew: {deep: [1]}
status: {conditions: []}
");
    let load = json!({"rps": 30, "utilization": 100});
    let spec = json!({
        "target": {"kind": "Deployment", "name": "xkcd-app"}, "services": [{"name": "xkcd-web"}],
        "scale": {"min": 1, "max": 10, "retention": "120s", "window": "2m", "load": load},
        "hosts": ["myhost.com", "*.shop.example.com"],
        "wake": {"timeout": "20s"}, "timeouts": {"responseStart": "30s"},
    });
    let metadata = json!({"name": "xkcd", "namespace": "shop"});
    assert_eq!(imported.objects, [zero_scaler(metadata, spec)]);
    let fields = ["spec.pathPrefixes", "spec.somethingNew.deep[0]"];
    assert_eq!(noted(&imported), fields, "unknown fields are listed, not dropped");
}

#[test]
fn kedas_defaults_are_written_out() {
    let imported = one("
apiVersion: http.keda.sh/v1alpha1
kind: HTTPScaledObject
metadata: {name: web}
spec: {hosts: [a.example.com], scaleTargetRef: {name: web, service: web, portName: http}, targetPendingRequests: 7}
");
    let spec = &imported.objects[0]["spec"];
    assert_eq!(spec["scale"], json!({"max": 100, "retention": "300s", "load": {"concurrency": 7, "utilization": 100}}));
    assert!(spec.get("service").is_none(), "the Service has the target's name");
    assert_eq!(noted(&imported), Vec::<&str>::new(), "each port of the Service is served");
}

#[test]
fn an_interceptor_route_is_translated_with_the_scaled_object_that_names_it() {
    let imported = one("
apiVersion: http.keda.sh/v1beta1
kind: InterceptorRoute
metadata: {name: api}
spec:
  target: {service: api-svc, port: 80}
  scalingMetric: {concurrency: {targetValue: 20}}
  timeouts: {readiness: 10s, request: 60s, responseHeader: 0s}
  coldStart: {placeholder: {response: {statusCode: 202}}}
  rules: [{hosts: ['*', api.example.com], paths: [{value: /v1}]}]
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: api-scaler, labels: {team: a}, annotations: {autoscaling.keda.sh/paused: 'true'}}
spec:
  scaleTargetRef: {name: api-deploy}
  minReplicaCount: 2
  maxReplicaCount: 5
  pollingInterval: 15
  triggers:
  - {type: kafka, metadata: {topic: t}}
  - {type: external-push, metadata: {scalerAddress: 'keda:9090', interceptorRoute: api}}
  - {type: cpu, metricType: Utilization, metadata: {value: '60'}}
");
    let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}});
    let spec = json!({
        "target": {"kind": "Deployment", "name": "api-deploy"}, "services": [{"name": "api-svc"}],
        "scale": {"min": 2, "max": 5, "retention": "300s", "load": {"concurrency": 20, "utilization": 100}},
        "hosts": ["api.example.com"], "timeouts": {"request": "60s"},
        "wake": {"timeout": "10s", "placeholder": {"response": {"status": 202}}},
        "paused": true, "metrics": [{"type": "Resource", "resource": cpu}],
    });
    assert_eq!(imported.objects, [zero_scaler(json!({"name": "api", "labels": {"team": "a"}}), spec)]);
    let fields = [
        "ScaledObject.spec.triggers[0]",
        "ScaledObject.spec.pollingInterval",
        "ScaledObject.spec.triggers[0].metadata.topic",
        "spec.rules[0].paths",
        "spec.hosts",
    ];
    assert_eq!(noted(&imported), fields);
}

/// Goal: routes with the same name in several namespaces are not mixed up, and every ScaledObject is mentioned in the
/// output, even if nothing is made of it.
#[test]
fn a_scaled_object_goes_with_the_route_of_its_own_namespace() {
    let route = |namespace: &str| {
        format!(
            "apiVersion: http.keda.sh/v1beta1\nkind: InterceptorRoute\nmetadata: {{name: api{namespace}}}\n\
             spec: {{target: {{service: svc}}, scalingMetric: {{concurrency: {{targetValue: 9}}}}}}\n"
        )
    };
    let scaled = |name: &str, namespace: &str, target: &str| {
        format!(
            "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {{name: {name}{namespace}}}\n\
             spec: {{scaleTargetRef: {{name: {target}}}, triggers: [{{type: cron}}, {{metadata: {{interceptorRoute: api}}}}]}}\n"
        )
    };
    let (shop, stage, other) = (", namespace: shop", ", namespace: stage", ", namespace: other");
    let documents = [
        route(shop),
        route(stage),
        route(""),
        scaled("a", shop, "of-shop"),
        scaled("b", stage, "of-stage"),
        scaled("c", "", "of-none"),
        scaled("late", shop, "too-late"),
        scaled("stray", other, "of-nobody"),
    ];
    let all = import(&[("f.yaml".to_owned(), documents.join("---\n"))]).expect("known kinds");
    let made: Vec<_> = all
        .iter()
        .flat_map(|imported| &imported.objects)
        .map(|object| (object["metadata"]["namespace"].as_str(), object["spec"]["target"]["name"].as_str()))
        .collect();
    let expected = [(Some("shop"), Some("of-shop")), (Some("stage"), Some("of-stage")), (None, Some("of-none"))];
    assert_eq!(made, expected);
    let field = "spec.triggers[1].metadata.interceptorRoute";
    let empty: Vec<_> = all.iter().filter(|imported| imported.objects.is_empty()).collect();
    assert_eq!(empty.len(), 2, "{empty:?}");
    for (imported, source, why) in [
        (empty[0], "ScaledObject late", "ScaledObject a scales InterceptorRoute api of namespace shop already"),
        (empty[1], "ScaledObject stray", "InterceptorRoute api of namespace other is not among the documents"),
    ] {
        assert_eq!((imported.source.as_str(), noted(imported)), (source, vec![field]));
        assert!(imported.notes[0].1.contains(why), "{:?}", imported.notes);
        let line = format!("# From {source}.\n# Notes:\n#   {field}: {why}");
        assert!(render(&all).expect("YAML").contains(&line), "{line}");
    }
    let text = render(&all).expect("YAML");
    let back: Vec<Value> =
        serde_yaml_ng::Deserializer::from_str(&text).map(|one| Value::deserialize(one).expect("YAML")).collect();
    assert_eq!(back.len(), 3, "documents are objects: {text}");
}

#[test]
fn a_horizontal_pod_autoscaler_is_translated_field_by_field() {
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
    let spec = &imported.objects[0]["spec"];
    assert_eq!((&spec["scale"], &spec["target"]["name"]), (&json!({"min": 2, "max": 8}), &json!("web")));
    assert_eq!(spec["metrics"][0]["resource"]["target"]["averageUtilization"], 60);
    assert_eq!(spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"], 60);
    assert_eq!(noted(&imported), ["spec.minReplicas", "kind", "spec.scaleTargetRef.name"]);
}

/// Goal: Kubernetes' default metric is written out if no metric is set, and not added if others are set. So is the
/// default minimum.
#[test]
fn the_defaults_of_a_horizontal_pod_autoscaler_are_written_out() {
    let cpu = |percent: i32| {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        Some(json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]))
    };
    let annotated = r#", annotations: {autoscaling.alpha.kubernetes.io/metrics: '[{"type": "Resource", "resource":
        {"name": "cpu", "targetAverageUtilization": 50}}]'}"#;
    let rows = [
        ("v2", "", "", cpu(80), true),
        ("v2", "", ", metrics: []", cpu(80), true),
        ("v2", "", ", metrics: null", cpu(80), true),
        ("v1", "", "", cpu(80), true),
        ("v1", "", ", targetCPUUtilizationPercentage: 60", cpu(60), false),
        ("v1", annotated, "", cpu(50), false),
    ];
    for (version, metadata, fields, expected, is_noted) in rows {
        let imported = one(&hpa(version, metadata, &format!("maxReplicas: 3{fields}")));
        let row = format!("{version}{metadata}{fields}");
        let spec = &imported.objects[0]["spec"];
        assert_eq!((spec.get("metrics"), &spec["scale"]["min"]), (expected.as_ref(), &json!(1)), "{row}");
        let notes: Vec<_> = imported.notes.iter().filter(|(field, _)| field == "spec.metrics").collect();
        assert_eq!(notes.len(), usize::from(is_noted), "{row}: {notes:?}");
        assert!(notes.iter().all(|(_, why)| why.contains("cpu at 80 %")), "{row}: {notes:?}");
        assert!(!noted(&imported).iter().any(|field| field.contains("ZeroScaler")), "all fields exist: {row}");
    }
}

/// Goal: the examples in KEDA's documentation of responses without a pod are translated.
#[test]
fn placeholders_and_static_routes_are_translated() {
    let route = |fields: &str| {
        one(&format!(
            "apiVersion: http.keda.sh/v1beta1\nkind: InterceptorRoute\nmetadata: {{name: my-app}}\nspec:\n  \
             target: {{service: my-app, port: 8080}}\n  scalingMetric: {{concurrency: {{targetValue: 100}}}}\n{fields}"
        ))
    };
    let all = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    let rows = [
        (
            "  coldStart: {placeholder: {response: {body: '<h1>Loading...</h1>', headers: {Content-Type: text/html, Refresh: '5'}, \
             statusCode: 503}}}",
            json!({"placeholder": {"response": {
                "status": 503, "body": "<h1>Loading...</h1>",
                "headers": [{"name": "Content-Type", "value": "text/html"}, {"name": "Refresh", "value": "5"}],
            }}}),
            0,
        ),
        (
            "  coldStart: {placeholder: {response: {bodyFromConfigMap: {name: placeholder-page, key: index.html}}}}",
            json!({"placeholder": {"response": {}}}),
            1,
        ),
        (
            "  staticRoutes: [{rules: [{paths: [{value: /healthz}]}], response: {statusCode: 200, body: OK}}]",
            json!({"static": [{
                "match": {"paths": ["/healthz", "/healthz/*"], "methods": all}, "response": {"status": 200, "body": "OK"},
            }]}),
            0,
        ),
        (
            "  staticRoutes:\n  - rules: [{paths: [{value: /}]}, {headers: [{name: X-Probe}], hosts: [a.example.com]}]\n    \
             response: {statusCode: 503, body: closed}\n    responseMode: Always",
            json!({"static": [
                {"match": {"paths": ["/*"], "methods": all}, "response": {"status": 503, "body": "closed"}, "answer": "Always"},
                {
                    "match": {"headers": [{"name": "X-Probe"}], "methods": all},
                    "response": {"status": 503, "body": "closed"}, "answer": "Always",
                },
            ]}),
            1,
        ),
    ];
    for (fields, expected, notes) in rows {
        let imported = route(fields);
        assert_eq!(imported.objects[0]["spec"]["wake"], expected, "{fields}");
        let noted = noted(&imported);
        let is_of_wake = |field: &&&str| field.starts_with("spec.coldStart") || field.starts_with("spec.static");
        assert_eq!(noted.iter().filter(is_of_wake).count(), notes, "{fields}: {noted:?}");
        assert!(!noted.iter().any(|field| field.contains("ZeroScaler")), "all fields exist: {fields}");
    }
}

/// Goal: KEDA's fallbacks are translated in the form of each version, with their delay.
#[test]
fn fallbacks_are_translated() {
    let scaled = "apiVersion: http.keda.sh/v1alpha1\nkind: HTTPScaledObject\nmetadata: {name: a}\n\
                  spec: {hosts: [a.example.com], scaleTargetRef: {name: a, service: a, port: 80}, ";
    let route = "apiVersion: http.keda.sh/v1beta1\nkind: InterceptorRoute\nmetadata: {name: a}\n\
                 spec: {target: {service: a, port: 80}, scalingMetric: {concurrency: {targetValue: 9}}, ";
    let to_b = |port: Value, after: &str| json!({"service": "b", "port": port, "after": after});
    let named = "coldStart: {fallback: {service: {name: b, portName: web}}}, timeouts: {readiness: 5s}";
    let both_times =
        "coldStartTimeoutFailoverRef: {service: b, portName: web, timeoutSeconds: 5}, timeouts: {conditionWait: 9s}";
    let rows = [
        (scaled, "coldStartTimeoutFailoverRef: {service: b, port: 8080}", to_b(json!(8080), "30s"), ""),
        (scaled, both_times, to_b(json!("web"), "5s"), "spec.timeouts.conditionWait"),
        (scaled, "timeouts: {conditionWait: 9s}", Value::Null, ""),
        (route, "coldStart: {fallback: {service: b, port: 8080}}", to_b(json!(8080), "30s"), ""),
        (route, named, to_b(json!("web"), "5s"), ""),
        (route, "coldStart: {fallback: {service: b, port: 1}}, timeouts: {readiness: 0s}", to_b(json!(1), "30s"), ""),
        (route, "timeouts: {readiness: 5s}", Value::Null, ""),
    ];
    for (head, fields, expected, noted_field) in rows {
        let imported = one(&format!("{head}{fields}}}\n"));
        let fallback = imported.objects[0]["spec"].pointer("/wake/fallback").cloned().unwrap_or_default();
        assert_eq!(fallback, expected, "{fields}");
        let all = noted(&imported);
        assert!(noted_field.is_empty() || all.contains(&noted_field), "{fields}: {all:?}");
        assert!(!all.iter().any(|field| field.contains("ollback") || field.contains("Failover")), "{fields}: {all:?}");
        assert!(!all.iter().any(|field| field.contains("ZeroScaler")), "all fields exist: {fields}");
    }
}

/// Goal: the output of `kubectl get -o yaml` for several objects is accepted unchanged.
#[test]
fn the_items_of_a_list_are_translated_one_by_one() {
    let item = |name: &str| {
        let spec = format!("{{scaleTargetRef: {{kind: Deployment, name: {name}}}, maxReplicas: 3}}");
        format!(
            "{{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {{name: {name}}}, spec: {spec}}}"
        )
    };
    let list =
        |items: &str| format!("{{apiVersion: v1, kind: List, metadata: {{resourceVersion: ''}}, items: [{items}]}}");
    let text = list(&format!("{}, {}", item("a"), item("b")));
    let all = import(&[("f.yaml".to_owned(), text)]).expect("known kinds");
    let sources: Vec<_> = all.iter().map(|imported| imported.source.as_str()).collect();
    assert_eq!(sources, ["HorizontalPodAutoscaler a", "HorizontalPodAutoscaler b"]);
    assert!(import(&[("f.yaml".to_owned(), list(""))]).expect("a List").is_empty());
    let of_a_kind = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscalerList\nitems:\n\
                     - {metadata: {name: a}, spec: {maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: a}}}\n";
    assert_eq!(one(of_a_kind).objects.len(), 1, "an item need not name its kind");
}

#[test]
fn invalid_yaml_is_reported_with_file_and_document() {
    let error = import(&[("f.yaml".into(), "a: [".into())]).expect_err("no YAML").to_string();
    assert!(error.contains("f.yaml, document 1: invalid YAML"), "{error}");
}

/// Goal: an object of another kind, or without a name, is listed, and does not prevent the translation of others.
#[test]
fn unknown_objects_are_listed_and_not_translated() {
    let known = hpa("v2", "", "maxReplicas: 3");
    for (other, source, why) in [
        (
            "{kind: Pod, apiVersion: v1, metadata: {name: a}, spec: {x: 1}}\n",
            "Pod a",
            "kind: Pod of v1 is not translated",
        ),
        ("{metadata: {name: a}}\n", " a", "kind: an object without kind or apiVersion is not translated"),
        (
            "kind: HTTPScaledObject\napiVersion: http.keda.sh/v1alpha1\n",
            "f.yaml, document 1, HTTPScaledObject",
            "metadata.name: must be set",
        ),
        ("[1]\n", "f.yaml, document 1, ", "metadata.name: must be set"),
    ] {
        let all = import(&[("f.yaml".into(), format!("{other}---\n{known}"))]).expect(other);
        let text = render(&all).expect("YAML");
        assert_eq!((all.len(), all[0].source.as_str(), all[1].objects.len()), (2, source, 1), "{other}");
        assert!(text.starts_with(&format!("# From {source}.\n# Notes:\n#   {why}")), "{text}");
    }
}

/// Goal: notes stay within comments, even for several validation errors at once and unusual characters in the manifest.
/// Method: the output parses back to the same objects.
#[test]
fn notes_stay_within_their_comments() {
    let scaled = "apiVersion: http.keda.sh/v1alpha1\nkind: HTTPScaledObject\nmetadata: {name: web}\nspec:\n  \
                  scaleTargetRef: {name: web, service: web}\n  scaledownPeriod: 7200\n  \
                  scalingMetric: {requestRate: {targetValue: 1, window: 2s}}\n";
    let (window, retention) = ("2s: spec.scale.window", "7200s: spec.scale.retention");
    let unknown = scaled.replace("scaledownPeriod: 7200", r#"unknown: "a\u2028b""#);
    let hours = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, labels: {sablier.enable: 'true'}, \
                 annotations: {sablier.running-hours: \"x\\ny: [\"}}\n";
    for (text, notes) in [
        (scaled, vec![window, retention]),
        (unknown.as_str(), vec![window, r#"spec.unknown: "a b""#]),
        (hours, vec!["sablier.running-hours: x; y: [ cannot be parsed"]),
    ] {
        let imported = one(text);
        let text = render(std::slice::from_ref(&imported)).expect("YAML");
        let back: Vec<Value> = serde_yaml_ng::Deserializer::from_str(&text)
            .map(|one| Value::deserialize(one).unwrap_or_else(|error| panic!("{error}: {text}")))
            .collect();
        assert_eq!(back, imported.objects, "{text}");
        for part in notes {
            assert!(text.lines().any(|line| line.starts_with("#   ") && line.contains(part)), "{part}: {text}");
        }
    }
}
