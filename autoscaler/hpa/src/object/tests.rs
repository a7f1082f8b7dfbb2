//! Tests with objects as users write them and as they are stored.

use super::*;
use hpa_core::spec::Policy;
use serde_json::Value;

fn spec_of(value: Value) -> Result<Spec, String> {
    spec(&serde_json::from_value(value).expect("a spec of the API"))
}

#[test]
fn a_spec_with_every_kind_of_metric_is_read() {
    let target = json!({"type": "AverageValue", "averageValue": "1500m"});
    let metric = json!({"name": "qps", "selector": {
        "matchLabels": {"verb": "GET"}, "matchExpressions": [{"key": "path", "operator": "In", "values": ["/b", "/a"]}],
    }});
    let spec = spec_of(json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2, "maxReplicas": 9,
        "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}},
            {"type": "ContainerResource", "containerResource": {"name": "memory", "container": "app", "target": target}},
            {"type": "Pods", "pods": {"metric": metric, "target": target}},
            {"type": "Object", "object": {
                "describedObject": {"kind": "Namespace", "name": "x"}, "metric": {"name": "hits"},
                "target": {"type": "Value", "value": "2k"},
            }},
            {"type": "External", "external": {"metric": {"name": "q"}, "target": target}},
        ],
        "behavior": {"scaleDown": {
            "stabilizationWindowSeconds": 60, "selectPolicy": "Min", "tolerance": "0.05",
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
        }},
    }))
    .expect("readable");
    assert_eq!((spec.min_replicas, spec.max_replicas, spec.metrics.len()), (Some(2), 9, 5));
    let pods = spec.metrics[2].pods.as_ref().expect("a pods metric");
    assert_eq!(pods.target.average_value.map(Quantity::milli), Some(1500));
    let text = pods.metric.selector.as_ref().expect("a selector").text();
    assert_eq!(text.as_deref(), Ok("path in (/a,/b),verb=GET"));
    let object = spec.metrics[3].object.as_ref().expect("an object metric");
    assert_eq!((object.described_object.api_version.as_str(), object.target.kind.as_str()), ("", "Value"));
    let behavior = spec.behavior.expect("a behavior");
    assert_eq!(behavior.scale_up, None);
    let down = behavior.scale_down.expect("downwards");
    assert_eq!(down.policies, Some(vec![Policy::new("Pods", 4, 15)]));
    assert_eq!(down.tolerance, "50m".parse().ok());
}

#[test]
fn a_quantity_that_cannot_be_read_is_named() {
    let error = spec_of(json!({
        "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 9,
        "metrics": [{"type": "External", "external": {
            "metric": {"name": "q"}, "target": {"type": "Value", "value": "many"},
        }}],
    }))
    .expect_err("unreadable");
    assert!(error.starts_with("spec.metrics[0].external.target.value: \"many\" is no quantity"), "{error}");
}

/// Goal: a written status is read back unchanged, so that an unchanged status is not written again.
#[test]
fn a_status_comes_back_as_it_was_written() {
    let stored = json!({
        "currentReplicas": 3, "desiredReplicas": 4, "lastScaleTime": "2023-11-14T22:13:20Z", "observedGeneration": 2,
        "currentMetrics": [
            {"type": "Resource", "resource": {"name": "memory", "current": {"averageValue": "128Mi", "averageUtilization": 50}}},
            {"type": ""},
            {"type": "ContainerResource", "containerResource": {
                "name": "cpu", "container": "app", "current": {"averageValue": "250m"},
            }},
            {"type": "Pods", "pods": {"metric": {"name": "qps", "selector": {"matchLabels": {"a": "b"}}}, "current": {"averageValue": "20k"}}},
            {"type": "Object", "object": {
                "metric": {"name": "hits"}, "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"},
                "current": {"value": "7"},
            }},
            {"type": "External", "external": {"metric": {"name": "q"}, "current": {"value": "-1500m"}}},
        ],
        "conditions": [
            {"type": "AbleToScale", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2023-11-14T22:13:20Z"},
            {"type": "Mine", "status": "Unknown"},
        ],
    });
    let read = status(&serde_json::from_value(stored.clone()).expect("a status"));
    assert_eq!(serde_json::to_value(written(&read)).expect("serialisable"), stored);
    let shown: Vec<_> = read.current_metrics.iter().map(|metric| Measurement(metric).to_string()).collect();
    assert_eq!(
        shown,
        ["memory 50% 128Mi a pod", "failed", "app/cpu 250m a pod", "qps 20k a pod", "hits 7", "q -1500m"]
    );
}

#[test]
fn an_empty_status_is_one_of_nothing() {
    let none = status(&v2::HorizontalPodAutoscalerStatus::default());
    assert_eq!(none, Status::default());
    let value = serde_json::to_value(written(&none)).expect("serialisable");
    assert_eq!(value, json!({"currentReplicas": 0, "desiredReplicas": 0, "conditions": []}));
}
