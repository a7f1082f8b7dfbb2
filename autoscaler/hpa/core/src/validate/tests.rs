//! Tests of each rule with its path and text.

use super::*;
use crate::defaults::{self, policy};
use common::field::FieldError;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricSource, ExternalMetricSource, HPAScalingRules, HorizontalPodAutoscalerBehavior,
    MetricIdentifier, MetricSpec, MetricTarget, ObjectMetricSource, PodsMetricSource, ResourceMetricSource,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

fn valid_spec() -> HorizontalPodAutoscalerSpec {
    let mut spec = HorizontalPodAutoscalerSpec {
        scale_target_ref: reference("apps/v1", "Deployment", "web"),
        max_replicas: 5,
        ..HorizontalPodAutoscalerSpec::default()
    };
    defaults::fill(&mut spec);
    spec
}

fn reference(api_version: &str, kind: &str, name: &str) -> CrossVersionObjectReference {
    CrossVersionObjectReference { api_version: Some(api_version.into()), kind: kind.into(), name: name.into() }
}

fn quantity(text: &str) -> Option<Quantity> {
    Some(Quantity(text.into()))
}

fn target(kind: &str, value: &str, average_value: &str, average_utilization: Option<i32>) -> MetricTarget {
    let of = |text: &str| if text.is_empty() { None } else { quantity(text) };
    MetricTarget { type_: kind.into(), value: of(value), average_value: of(average_value), average_utilization }
}

fn metric(name: &str) -> MetricIdentifier {
    MetricIdentifier { name: name.into(), selector: None }
}

/// Returns the violations of a valid spec after `change`.
fn violations(gates: Gates, change: impl FnOnce(&mut HorizontalPodAutoscalerSpec)) -> Vec<String> {
    let mut spec = valid_spec();
    change(&mut spec);
    let text = |FieldError { path, message, rule }: &FieldError| match rule.as_str() {
        "" => format!("{path}: {message}"),
        rule => format!("{path}: {message}: {rule}"),
    };
    validate(&spec, gates).iter().map(text).collect()
}

/// Removes the path that all texts begin with.
fn below(path: &str, texts: Vec<String>) -> Vec<String> {
    texts.into_iter().map(|text| text.strip_prefix(path).expect("below the path").to_owned()).collect()
}

/// Returns the violations of a metric, without its path.
fn of_metric(metric: MetricSpec) -> Vec<String> {
    below("spec.metrics[0].", violations(Gates::default(), |spec| spec.metrics = Some(vec![metric])))
}

fn external(target: MetricTarget) -> MetricSpec {
    let external = Some(ExternalMetricSource { metric: metric("queue"), target });
    MetricSpec { type_: "External".into(), external, ..MetricSpec::default() }
}

#[test]
fn a_valid_spec_is_accepted() {
    for behavior in [None, Some(HorizontalPodAutoscalerBehavior::default())] {
        assert_eq!(violations(Gates::default(), |spec| spec.behavior = behavior), [""; 0]);
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
        let got = violations(Gates::default(), |spec| (spec.min_replicas, spec.max_replicas) = (min, max));
        assert_eq!(got, wanted);
    }
}

#[test]
fn zero_replicas_need_the_gate_and_a_metric_without_pods() {
    let zero = |spec: &mut HorizontalPodAutoscalerSpec| spec.min_replicas = Some(0);
    let with_external = |spec: &mut HorizontalPodAutoscalerSpec| {
        zero(spec);
        spec.metrics.get_or_insert_default().push(external(target("Value", "1", "", None)));
    };
    let below = "spec.minReplicas: invalid value: 0: must be greater than or equal to 1";
    let pods = "spec.metrics: forbidden: must specify at least one Object or External metric to support scaling to zero replicas";
    let open = Gates { scale_to_zero: true, ..Gates::default() };
    assert_eq!(violations(Gates::default(), with_external), [below]);
    assert_eq!(violations(Gates::default(), zero), [below, pods]);
    assert_eq!(violations(open, zero), [pods]);
    assert_eq!(violations(open, with_external), [""; 0]);
}

#[test]
fn a_target_needs_a_group_kind_and_name() {
    let of = |reference: CrossVersionObjectReference| {
        below("spec.scaleTargetRef.", violations(Gates::default(), |spec| spec.scale_target_ref = reference))
    };
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
        assert_eq!(of(target.clone()), wanted, "{target:?}");
    }
}

#[test]
fn a_metric_needs_a_type_and_only_the_source_of_that_type() {
    let supported = r#"supported values: "ContainerResource", "External", "Object", "Pods", "Resource""#;
    let unknown = |value: &str| format!("type: unsupported value: {value:?}: {supported}");
    let resource = ResourceMetricSource { name: "cpu".into(), target: target("Utilization", "", "", Some(50)) };
    let pods = PodsMetricSource { metric: metric("qps"), target: target("AverageValue", "", "1", None) };
    let of = |kind: &str, resource: Option<&ResourceMetricSource>, pods: Option<&PodsMetricSource>| {
        let (resource, pods) = (resource.cloned(), pods.cloned());
        of_metric(MetricSpec { type_: kind.into(), resource, pods, ..MetricSpec::default() })
    };
    assert_eq!(of("Resource", Some(&resource), None), [""; 0]);
    assert_eq!(
        of("", Some(&resource), None),
        ["type: required value: must specify a metric source type".to_owned(), unknown(""), unknown(""),]
    );
    assert_eq!(of("Bogus", None, None), [unknown("Bogus"), unknown("Bogus")]);
    let absent = "pods: required value: must populate information for the given metric source";
    assert_eq!(of("Pods", Some(&resource), None), [absent]);
    let surplus = "pods: forbidden: must populate the given metric source only";
    assert_eq!(of("Resource", Some(&resource), Some(&pods)), [surplus]);
    let invalid = ResourceMetricSource::default();
    assert_eq!(of("Resource", Some(&invalid), Some(&pods)), [surplus], "only the first source is validated");
}

#[test]
fn a_resource_needs_a_name_and_one_target() {
    let of = |name: &str, target: MetricTarget| {
        let resource = Some(ResourceMetricSource { name: name.into(), target });
        of_metric(MetricSpec { type_: "Resource".into(), resource, ..MetricSpec::default() })
    };
    let got = of("", target("AverageValue", "", "1", None));
    assert_eq!(got.first().map(String::as_str), Some("resource.name: required value: must specify a resource name"));
    let no_quantity = "many".parse::<crate::quantity::Quantity>().expect_err("no quantity");
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
        let (name, container) = (name.to_owned(), container.to_owned());
        let target = target("Utilization", "", "", Some(50));
        let container_resource = Some(ContainerResourceMetricSource { name, container, target });
        of_metric(MetricSpec { type_: "ContainerResource".into(), container_resource, ..MetricSpec::default() })
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
    let name = "metric.name: required value: must specify a metric name";
    let pods = |name: &str, target| {
        let pods = Some(PodsMetricSource { metric: metric(name), target });
        of_metric(MetricSpec { type_: "Pods".into(), pods, ..MetricSpec::default() })
    };
    assert_eq!(pods("", target("AverageValue", "", "1", None)), [format!("pods.{name}")]);
    let average = "pods.target.averageValue: required value: must specify a positive target averageValue";
    assert_eq!(pods("qps", target("AverageValue", "1", "", None)), [average]);

    let object = |described_object, name: &str, target| {
        let object = Some(ObjectMetricSource { described_object, metric: metric(name), target });
        of_metric(MetricSpec { type_: "Object".into(), object, ..MetricSpec::default() })
    };
    let service = reference("v1", "Service", "web");
    assert_eq!(object(service.clone(), "hits", target("Value", "1", "1", None)), [""; 0], "both are allowed");
    assert_eq!(object(service.clone(), "hits", target("Utilization", "1", "", None)), [""; 0], "fails when evaluated");
    let neither = "object.target.averageValue: required value: must set either a target value or averageValue";
    assert_eq!(object(service, "hits", target("Value", "", "", None)), [neither]);
    let kind = "object.describedObject.kind: required value";
    assert_eq!(object(reference("", "", "web"), "hits", target("Value", "1", "", None)), [kind], "no group is needed");

    let neither =
        "external.target.averageValue: required value: must set either a target value for metric or a per-pod target";
    assert_eq!(of_metric(external(target("Value", "", "", None))), [neither]);
    let both = "external.target.value: forbidden: may not set both a target value for metric and a per-pod target";
    assert_eq!(of_metric(external(target("Value", "1", "1", None))), [both]);
}

#[test]
fn a_behavior_must_stay_within_its_ranges() {
    let of = |rules: HPAScalingRules| {
        let behavior = HorizontalPodAutoscalerBehavior { scale_up: None, scale_down: Some(rules) };
        below("spec.behavior.scaleDown.", violations(Gates::default(), |spec| spec.behavior = Some(behavior)))
    };
    let policies = || Some(vec![policy("Percent", 1000, 1800)]);
    let rules = || HPAScalingRules { policies: policies(), ..HPAScalingRules::default() };
    let window = |seconds| HPAScalingRules { stabilization_window_seconds: Some(seconds), ..rules() };
    let limit = |kind, value, period| HPAScalingRules { policies: Some(vec![policy(kind, value, period)]), ..rules() };
    let tolerance = |text| HPAScalingRules { tolerance: quantity(text), ..rules() };
    let unknown_select = HPAScalingRules { select_policy: Some("Any".into()), ..rules() };
    let no_policy = HPAScalingRules { policies: Some(Vec::new()), ..rules() };
    let window_path = "stabilizationWindowSeconds: invalid value";
    let period_path = "policies[0].periodSeconds: invalid value";
    for (rules, wanted) in [
        (rules(), ""),
        (window(3600), ""),
        (window(-1), &format!("{window_path}: -1: must be greater than or equal to zero")),
        (window(3601), &format!("{window_path}: 3601: must be less than or equal to 3600")),
        (unknown_select, r#"selectPolicy: unsupported value: "Any": supported values: "Disabled", "Max", "Min""#),
        (no_policy, "policies: required value: must specify at least one Policy"),
        (limit("Nodes", 1, 1), r#"policies[0].type: unsupported value: "Nodes": supported values: "Percent", "Pods""#),
        (limit("Pods", 0, 1), "policies[0].value: invalid value: 0: must be greater than zero"),
        (limit("Pods", 1, 0), &format!("{period_path}: 0: must be greater than zero")),
        (limit("Pods", 1, 1801), &format!("{period_path}: 1801: must be less than or equal to 1800")),
        (tolerance("-0.1"), "tolerance: invalid value: \"-100m\": must be greater than or equal to 0"),
        (tolerance("7"), ""),
    ] {
        assert_eq!(of(rules).join("; "), wanted);
    }
}
