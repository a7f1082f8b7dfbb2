//! Tests of the proposal, name and status of each kind of metric, and of its failures.

use super::*;
use crate::request::request;
use crate::tests::scenario::{bogus, external, metric, object, pod_values, pods_metric, scenario};
use crate::tests::{EVEN, inputs};
use k8s_openapi::serde_json::{Value, from_value, json};

/// Evaluates one metric for two ready pods that request 1000 and use 500 and 700.
fn measured(metric: &MetricSpec, reading: &Reading) -> Result<Proposal, Failure> {
    let pods = scenario((1, 9), 2, Vec::new()).using(&[500, 700]).objects();
    let pods: Vec<&Pod> = pods.iter().collect();
    let options = Options::default();
    measure(&inputs(&options, 2, EVEN, &pods), metric, reading)
}

/// Returns the pods' usage as the API responds.
fn usage() -> Reading {
    Reading::Usage(scenario((1, 9), 2, Vec::new()).using(&[500, 700]).usages())
}

/// Sets the selector of a metric, in the field of its source.
fn selecting(metric: &MetricSpec, field: &str, selector: Value) -> MetricSpec {
    let mut value = json!(metric);
    value[field]["metric"]["selector"] = selector;
    from_value(value).expect("a metric")
}

#[test]
fn each_kind_of_metric_has_a_proposal_and_a_name() {
    let pods = Reading::Pods(pod_values(&[30_000; 2]));
    let one = |total| Reading::Object(vec![total]);
    let all = |values: &[i64]| Reading::External(values.to_vec());
    let cpu = |target: &Value| metric(json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
    let of_container = |target: &Value| {
        let source = json!({"name": "cpu", "container": "app", "target": target});
        metric(json!({"type": "ContainerResource", "containerResource": source}))
    };
    let (percent, average) = (json!({"averageUtilization": 50}), json!({"averageValue": "300m"}));
    for (metric, reading, replicas, name) in [
        (cpu(&percent), usage(), 3, "cpu resource utilization (percentage of request)"),
        (cpu(&average), usage(), 4, "cpu resource"),
        (of_container(&percent), usage(), 3, "cpu container resource utilization (percentage of request)"),
        (of_container(&average), usage(), 4, "cpu resource"),
        (pods_metric(15_000), pods, 4, "pods metric qps"),
        (object("Value", 10_000), one(20_000), 4, "Service metric hits"),
        (object("AverageValue", 10_000), one(40_000), 4, "external metric hits(nil)"),
        (external(0, 10_000), all(&[30_000, 10_000]), 4, "external metric queue(nil)"),
        (external(10_000, 0), all(&[15_000, 5_000]), 4, "external metric queue(nil)"),
    ] {
        let proposal = measured(&metric, &reading).expect("a proposal");
        assert_eq!((proposal.replicas, proposal.name.as_str()), (replicas, name), "{metric:?}");
    }
}

#[test]
fn the_name_of_a_metric_contains_its_selector() {
    let metric = selecting(&external(10_000, 0), "external", json!({"matchLabels": {"verb": "GET"}}));
    let name = measured(&metric, &Reading::External(vec![1])).expect("measured").name;
    let printed = "&LabelSelector{MatchLabels:map[string]string{verb: GET,},MatchExpressions:\
                   []LabelSelectorRequirement{},}";
    assert_eq!(name, format!("external metric queue({printed})"));
}

/// Goal: an invalid selector fails its metric with a reason, and is not sent to the API.
#[test]
fn an_invalid_selector_fails_its_metric() {
    let (one, all) = (Reading::Object(vec![1]), Reading::External(vec![1]));
    for (metric, field, reading, reason, of) in [
        (pods_metric(1_000), "pods", Reading::Pods(Vec::new()), "FailedGetPodsMetric", "pods"),
        (object("Value", 1_000), "object", one, "FailedGetObjectMetric", "object"),
        (external(1_000, 0), "external", all, "FailedGetExternalMetric", "queue external"),
    ] {
        let metric = selecting(&metric, field, json!({"matchExpressions": [{"key": "verb", "operator": "Near"}]}));
        let failure = measured(&metric, &reading).expect_err(reason);
        assert_eq!(failure.reason, reason);
        assert!(failure.inner.contains("\"Near\" is not a valid label selector operator"), "{failure:?}");
        assert!(failure.outer.starts_with(&format!("failed to get {of} metric value: ")), "{failure:?}");
        assert_eq!(request(&metric, ""), None, "{reason}");
    }
}

#[test]
fn a_metric_of_unknown_type_fails() {
    let failure = measured(&bogus(), &Reading::None).expect_err("no such type");
    let text = "unknown metric source type \"Bogus\"".to_owned();
    assert_eq!(failure, Failure { reason: "InvalidMetricSourceType", inner: text.clone(), outer: text });
}
