//! Each rule, with its field and its words.

use super::*;
use serde_json::json;

/// What is said of an object that is good but for what stands at `pointer`.
fn said(pointer: &str, wrong: Value) -> Vec<String> {
    let mut object = json!({"spec": {
        "scaleTargetRef": {"kind": "Deployment", "name": "a", "apiVersion": "apps/v1"},
        "minReplicas": 1, "maxReplicas": 5,
        "metrics": [{"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
        }}],
        "behavior": {"scaleDown": {"selectPolicy": "Max", "policies": [
            {"type": "Percent", "value": 1000, "periodSeconds": 1800},
        ]}},
    }});
    *object.pointer_mut(pointer).expect(pointer) = wrong;
    let mut causes = Causes::default();
    check(&object, None, &mut causes);
    causes.messages()
}

#[test]
fn bounds_and_target_keep_to_their_rules() {
    assert_eq!(said("/spec/minReplicas", json!(5)), [""; 0]);
    for (pointer, wrong, expected) in [
        (
            "/spec/minReplicas",
            json!(6),
            "spec.maxReplicas: Invalid value: 5: must be greater than or equal to `minReplicas`",
        ),
        ("/spec/minReplicas", json!(-1), "spec.minReplicas: Invalid value: -1: must be greater than or equal to 1"),
        ("/spec/scaleTargetRef/name", json!(""), "spec.scaleTargetRef.name: Required value"),
        ("/spec/scaleTargetRef/kind", json!(".."), "spec.scaleTargetRef.kind: Invalid value: \"..\": may not be '..'"),
        (
            "/spec/scaleTargetRef/name",
            json!("a/b"),
            "spec.scaleTargetRef.name: Invalid value: \"a/b\": may not contain '/'",
        ),
        (
            "/spec/scaleTargetRef/apiVersion",
            json!("v1"),
            "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group",
        ),
        (
            "/spec/scaleTargetRef/apiVersion",
            json!("a/b/c"),
            "spec.scaleTargetRef.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
        ),
    ] {
        assert_eq!(said(pointer, wrong), [expected]);
    }
    let none = said("/spec/maxReplicas", json!(0));
    assert_eq!(none[0], "spec.maxReplicas: Required value: must be set and greater than 0");
    let core = json!({"kind": "ReplicationController", "name": "a", "apiVersion": "v1"});
    assert_eq!(said("/spec/scaleTargetRef", core), [""; 0]);
}

#[test]
fn each_kind_of_metric_has_its_fields() {
    let target = |fields: Value| {
        let mut target = json!({"type": "Value"});
        target.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        target
    };
    let service = json!({"kind": "Service", "name": "s", "apiVersion": "v1"});
    let queue = json!({"name": "q"});
    for (metric, expected) in [
        (json!({"type": ""}), "type: Required value: must specify a metric source type"),
        (
            json!({"type": "Nodes"}),
            "type: Unsupported value: \"Nodes\": supported values: \"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\"",
        ),
        (json!({"type": "Pods"}), "pods: Required value: must populate information for the given metric source"),
        (
            json!({"type": "Pods", "pods": {"metric": queue, "target": target(json!({"averageValue": "1"}))},
                   "resource": {"name": ""}}),
            "resource: Forbidden: must populate the given metric source only",
        ),
        (
            json!({"type": "Pods", "pods": {"metric": queue, "target": target(json!({}))}}),
            "pods.target.averageValue: Required value: must specify a positive target averageValue",
        ),
        (
            json!({"type": "External", "external": {"metric": queue, "target": target(json!({}))}}),
            "external.target.averageValue: Required value: must set either a target value for metric or a per-pod target",
        ),
        (
            json!({"type": "External", "external": {"metric": queue, "target": target(json!({"value": "1", "averageValue": "1"}))}}),
            "external.target.value: Forbidden: may not set both a target value for metric and a per-pod target",
        ),
        (
            json!({"type": "External", "external": {"metric": {"name": ""}, "target": target(json!({"value": "1"}))}}),
            "external.metric.name: Required value: must specify a metric name",
        ),
        (
            json!({"type": "External", "external": {"metric": queue, "target": target(json!({"value": "0"}))}}),
            "external.target.value: Invalid value: \"0\": must be positive",
        ),
        (
            json!({"type": "External", "external": {"metric": queue, "target": {"type": "Any", "value": "1"}}}),
            "external.target.type: Invalid value: \"Any\": must be either Utilization, Value, or AverageValue",
        ),
        (
            json!({"type": "Object", "object": {"describedObject": service, "metric": queue, "target": target(json!({}))}}),
            "object.target.averageValue: Required value: must set either a target value or averageValue",
        ),
        (
            json!({"type": "Resource", "resource": {"name": "cpu", "target": target(json!({"averageUtilization": 0}))}}),
            "resource.target.averageUtilization: Invalid value: 0: must be greater than 0",
        ),
        (
            json!({"type": "Resource", "resource": {"name": "", "target": target(json!({"averageUtilization": 1}))}}),
            "resource.name: Required value: must specify a resource name",
        ),
        (
            json!({"type": "Resource", "resource": {"name": "cpu", "target": target(json!({}))}}),
            "resource.target.averageUtilization: Required value: must set either a target raw value or a target utilization",
        ),
        (
            json!({"type": "Resource", "resource": {"name": "cpu", "target": target(json!({"averageUtilization": 1, "averageValue": "1"}))}}),
            "resource.target.averageValue: Forbidden: may not set both a target raw value and a target utilization",
        ),
        (
            json!({"type": "ContainerResource", "containerResource": {
                "name": "pods", "container": "c", "target": target(json!({"averageUtilization": 1})),
            }}),
            "containerResource.name: Invalid value: \"pods\": must be a standard resource for containers",
        ),
        (
            json!({"type": "ContainerResource", "containerResource": {
                "name": "cpu", "container": "", "target": target(json!({"averageUtilization": 1})),
            }}),
            "containerResource.container: Required value: must specify a container",
        ),
    ] {
        assert_eq!(said("/spec/metrics/0", metric), [format!("spec.metrics[0].{expected}")]);
    }
    let either = json!({"type": "Object", "object": {
        "describedObject": service, "metric": queue, "target": target(json!({"value": "1", "averageValue": "1"})),
    }});
    assert_eq!(said("/spec/metrics/0", either), [""; 0]);
}

#[test]
fn a_behavior_keeps_to_its_ranges() {
    let path = "spec.behavior.scaleDown";
    let policy = json!({"type": "Pods", "value": 1, "periodSeconds": 1});
    for (rules, expected) in [
        (json!({"policies": [policy], "stabilizationWindowSeconds": 3600}), ""),
        (
            json!({"policies": [policy], "stabilizationWindowSeconds": 3601}),
            "stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
        ),
        (
            json!({"policies": [policy], "stabilizationWindowSeconds": -1}),
            "stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to zero",
        ),
        (
            json!({"policies": [policy], "selectPolicy": "Any"}),
            "selectPolicy: Unsupported value: \"Any\": supported values: \"Disabled\", \"Max\", \"Min\"",
        ),
        (json!({"policies": []}), "policies: Required value: must specify at least one Policy"),
        (
            json!({"policies": [{"type": "Nodes", "value": 1, "periodSeconds": 1}]}),
            "policies[0].type: Unsupported value: \"Nodes\": supported values: \"Percent\", \"Pods\"",
        ),
        (
            json!({"policies": [{"type": "Pods", "value": 0, "periodSeconds": 1}]}),
            "policies[0].value: Invalid value: 0: must be greater than zero",
        ),
        (
            json!({"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1801}]}),
            "policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
        ),
        (
            json!({"policies": [policy], "tolerance": "-100m"}),
            "tolerance: Invalid value: \"-100m\": must be greater than or equal to 0",
        ),
    ] {
        let said = said("/spec/behavior/scaleDown", rules);
        assert_eq!(said.join("; "), if expected.is_empty() { String::new() } else { format!("{path}.{expected}") });
    }
}
