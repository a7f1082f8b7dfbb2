//! Tests of each rule with its path and text.

use super::*;
use crate::defaults;
use common::field::FieldError;
use k8s_openapi::serde_json::{Value, from_value, json};

/// Returns the violations of a valid spec whose fields `changes` replaces.
fn violations(gates: Gates, changes: Value) -> Vec<String> {
    let valid = json!({"scaleTargetRef": reference("apps/v1", "Deployment", "web"), "maxReplicas": 5});
    let mut spec: HorizontalPodAutoscalerSpec = from_value(valid).expect("a spec");
    defaults::fill(&mut spec);
    let mut spec = json!(spec);
    for (field, value) in changes.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    let text = |FieldError { path, message, rule }: &FieldError| match rule.as_str() {
        "" => format!("{path}: {message}"),
        rule => format!("{path}: {message}: {rule}"),
    };
    validate(&from_value(spec).expect("a spec"), gates).iter().map(text).collect()
}

fn reference(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name})
}

/// Removes the path that all texts begin with.
fn below(path: &str, texts: Vec<String>) -> Vec<String> {
    texts.into_iter().map(|text| text.strip_prefix(path).expect("below the path").to_owned()).collect()
}

/// Returns the violations of a metric, without its path.
fn of_metric(metric: Value) -> Vec<String> {
    below("spec.metrics[0].", violations(Gates::default(), json!({"metrics": [metric]})))
}

/// Returns a target; empty texts are not set.
fn target(kind: &str, value: &str, average_value: &str, percent: Option<i32>) -> Value {
    let set = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({"type": kind, "value": set(value), "averageValue": set(average_value), "averageUtilization": percent})
}

fn external(target: Value) -> Value {
    json!({"type": "External", "external": {"metric": {"name": "queue"}, "target": target}})
}

#[test]
fn a_valid_spec_is_accepted() {
    for behavior in [Value::Null, json!({})] {
        assert_eq!(violations(Gates::default(), json!({"behavior": behavior})), [""; 0]);
    }
}

#[test]
fn bounds_must_be_in_order() {
    let unset = "spec.maxReplicas: required value: must be set and greater than 0".to_owned();
    let order = |max| format!("spec.maxReplicas: invalid value: {max}: must be greater than or equal to `minReplicas`");
    let negative = |field| format!("spec.{field}: invalid value: -1: must be greater than or equal to 1");
    for (min, max, wanted) in [
        (Some(1), 0, vec![unset, order(0)]),
        (None, -1, vec![negative("maxReplicas")]),
        (Some(7), 5, vec![order(5)]),
        (Some(5), 5, Vec::new()),
        (Some(-1), 5, vec![negative("minReplicas")]),
    ] {
        assert_eq!(violations(Gates::default(), json!({"minReplicas": min, "maxReplicas": max})), wanted);
    }
}

#[test]
fn zero_replicas_need_the_gate_and_a_metric_without_pods() {
    let zero = || json!({"minReplicas": 0});
    let with_external = || json!({"minReplicas": 0, "metrics": [external(target("Value", "1", "", None))]});
    let below = "spec.minReplicas: invalid value: 0: must be greater than or equal to 1";
    let pods = "spec.metrics: forbidden: must specify at least one Object or External metric to support scaling to zero replicas";
    let open = Gates { scale_to_zero: true, ..Gates::default() };
    assert_eq!(violations(Gates::default(), with_external()), [below]);
    assert_eq!(violations(Gates::default(), zero()), [below, pods]);
    assert_eq!(violations(open, zero()), [pods]);
    assert_eq!(violations(open, with_external()), [""; 0]);
}

#[test]
fn a_target_needs_a_group_kind_and_name() {
    for (target, wanted) in [
        (reference("apps/v1", "", ""), &["kind: required value", "name: required value"][..]),
        (reference("apps/v1", "..", "a"), &["kind: invalid value: \"..\": may not be '..'"]),
        (reference("apps/v1", "A", "b/c"), &["name: invalid value: \"b/c\": may not contain '/'"]),
        (reference("apps/v1", "A", "b%"), &["name: invalid value: \"b%\": may not contain '%'"]),
        (
            reference("a/b/c", "A", "b"),
            &["apiVersion: invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"],
        ),
        (reference("v1", "A", "b"), &["apiVersion: invalid value: \"v1\": apiVersion must specify API group"]),
        (reference("v1", "ReplicationController", "b"), &[]),
    ] {
        let got = violations(Gates::default(), json!({"scaleTargetRef": target}));
        assert_eq!(below("spec.scaleTargetRef.", got), wanted, "{target:?}");
    }
}

#[test]
fn a_metric_needs_a_type_and_only_the_source_of_that_type() {
    let supported = r#"supported values: "ContainerResource", "External", "Object", "Pods", "Resource""#;
    let unknown = |value: &str| format!("type: unsupported value: {value:?}: {supported}");
    let resource = json!({"name": "cpu", "target": target("Utilization", "", "", Some(50))});
    let pods = json!({"metric": {"name": "qps"}, "target": target("AverageValue", "", "1", None)});
    assert_eq!(of_metric(json!({"type": "Resource", "resource": resource})), [""; 0]);
    let untyped = "type: required value: must specify a metric source type".to_owned();
    assert_eq!(of_metric(json!({"resource": resource})), [untyped, unknown(""), unknown("")]);
    assert_eq!(of_metric(json!({"type": "Bogus"})), [unknown("Bogus"), unknown("Bogus")]);
    let absent = "pods: required value: must populate information for the given metric source";
    assert_eq!(of_metric(json!({"type": "Pods", "resource": resource})), [absent]);
    let surplus = "pods: forbidden: must populate the given metric source only";
    for resource in [&resource, &json!({})] {
        let both = of_metric(json!({"type": "Resource", "resource": resource, "pods": pods}));
        assert_eq!(both, [surplus], "only the first source is validated");
    }
}

#[test]
fn a_resource_needs_a_name_and_one_target() {
    let of = |name: &str, target: Value| {
        of_metric(json!({"type": "Resource", "resource": {"name": name, "target": target}}))
    };
    let got = of("", target("AverageValue", "", "1", None));
    assert_eq!(got.first().map(String::as_str), Some("resource.name: required value: must specify a resource name"));
    let no_quantity = "many".parse::<Quantity>().expect_err("no quantity");
    let types = "must be either Utilization, Value, or AverageValue";
    let neither = "must set either a target raw value or a target utilization";
    let both = "may not set both a target raw value and a target utilization";
    for (target, wanted) in [
        (target("", "", "1", None), "type: required value: must specify a metric target type"),
        (target("Many", "", "1", None), &format!("type: invalid value: \"Many\": {types}")),
        (target("Value", "", "0", None), "averageValue: invalid value: \"0\": must be positive"),
        (target("Value", "many", "1", None), &format!("value: invalid value: \"many\": {no_quantity}")),
        (target("Value", "-1n", "1", None), "value: invalid value: \"-1n\": must be positive"),
        (target("AverageValue", "1n", "-1m", None), "averageValue: invalid value: \"-1m\": must be positive"),
        (target("Utilization", "", "", Some(0)), "averageUtilization: invalid value: 0: must be greater than 0"),
        (target("Utilization", "", "", None), &format!("averageUtilization: required value: {neither}")),
        (target("Utilization", "", "1", Some(1)), &format!("averageValue: forbidden: {both}")),
    ] {
        let got = below("resource.target.", of("cpu", target));
        assert_eq!(got.first().map(String::as_str), Some(wanted), "{got:?}");
    }
}

#[test]
fn a_container_resource_needs_a_requestable_resource_and_a_container() {
    let of = |name: &str, container: &str| {
        let source = json!({"name": name, "container": container, "target": target("Utilization", "", "", Some(50))});
        of_metric(json!({"type": "ContainerResource", "containerResource": source}))
    };
    for (name, container, wanted) in [
        ("cpu", "app", ""),
        ("example.com/gpu", "app", ""),
        ("", "app", "containerResource.name: required value: must specify a resource name"),
        ("pods", "app", "containerResource.name: invalid value: \"pods\": must be a standard resource for containers"),
        ("cpu", "", "containerResource.container: required value: must specify a container"),
    ] {
        assert_eq!(of(name, container).join("; "), wanted);
    }
    for container in ["App", "my_app", "-app", "app-", "app.web"] {
        let refused = of("cpu", container).join("; ");
        let start = format!("containerResource.container: invalid value: {container:?}: a lowercase RFC 1123");
        assert!(refused.starts_with(&start), "{refused}");
    }
    assert_eq!(of("cpu", "my-4pp"), [""; 0]);
    let long = |length| of("cpu", &"a".repeat(length)).join("; ");
    assert_eq!(long(63), "");
    assert!(long(64).ends_with("must be no more than 63 bytes"), "{}", long(64));
}

#[test]
fn pods_object_and_external_metrics_need_a_name_and_a_target() {
    let pods = |name: &str, target: Value| {
        of_metric(json!({"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}))
    };
    let unnamed = "pods.metric.name: required value: must specify a metric name";
    assert_eq!(pods("", target("AverageValue", "", "1", None)), [unnamed]);
    let average = "pods.target.averageValue: required value: must specify a positive target averageValue";
    assert_eq!(pods("qps", target("AverageValue", "1", "", None)), [average]);

    let object = |described: Value, target: Value| {
        let source = json!({"describedObject": described, "metric": {"name": "hits"}, "target": target});
        of_metric(json!({"type": "Object", "object": source}))
    };
    let service = || reference("v1", "Service", "web");
    let both = target("Value", "1", "1", None);
    assert_eq!(object(service(), both.clone()), [""; 0], "both are allowed");
    assert_eq!(object(service(), target("Utilization", "1", "", None)), [""; 0], "fails when evaluated");
    let neither = "object.target.averageValue: required value: must set either a target value or averageValue";
    assert_eq!(object(service(), target("Value", "", "", None)), [neither]);
    let kind = "object.describedObject.kind: required value";
    assert_eq!(object(reference("", "", "web"), both.clone()), [kind], "no group is needed");

    let neither =
        "external.target.averageValue: required value: must set either a target value for metric or a per-pod target";
    assert_eq!(of_metric(external(target("Value", "", "", None))), [neither]);
    let text = "external.target.value: forbidden: may not set both a target value for metric and a per-pod target";
    assert_eq!(of_metric(external(both)), [text]);
}

#[test]
fn a_behavior_must_stay_within_its_ranges() {
    let valid = json!([{"type": "Percent", "value": 1000, "periodSeconds": 1800}]);
    let with = |field: &str, value: Value| {
        let mut rules = json!({"policies": valid});
        rules[field] = value;
        let got = violations(Gates::default(), json!({"behavior": {"scaleDown": rules}}));
        below("spec.behavior.scaleDown.", got).join("; ")
    };
    let window = |seconds: i32| with("stabilizationWindowSeconds", json!(seconds));
    let limit = |kind: &str, value: i32, period: i32| {
        with("policies", json!([{"type": kind, "value": value, "periodSeconds": period}]))
    };
    let window_path = "stabilizationWindowSeconds: invalid value";
    let period_path = "policies[0].periodSeconds: invalid value";
    for (got, wanted) in [
        (with("policies", valid.clone()), ""),
        (window(3600), ""),
        (window(-1), &format!("{window_path}: -1: must be greater than or equal to zero")),
        (window(3601), &format!("{window_path}: 3601: must be less than or equal to 3600")),
        (
            with("selectPolicy", json!("Any")),
            r#"selectPolicy: unsupported value: "Any": supported values: "Disabled", "Max", "Min""#,
        ),
        (with("policies", json!([])), "policies: required value: must specify at least one Policy"),
        (limit("Nodes", 1, 1), r#"policies[0].type: unsupported value: "Nodes": supported values: "Percent", "Pods""#),
        (limit("Pods", 0, 1), "policies[0].value: invalid value: 0: must be greater than zero"),
        (limit("Pods", 1, 0), &format!("{period_path}: 0: must be greater than zero")),
        (limit("Pods", 1, 1801), &format!("{period_path}: 1801: must be less than or equal to 1800")),
        (with("tolerance", json!("-0.1")), "tolerance: invalid value: \"-100m\": must be greater than or equal to 0"),
        (with("tolerance", json!("7")), ""),
    ] {
        assert_eq!(got, wanted);
    }
}
