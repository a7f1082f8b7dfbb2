//! Tests of the proposal, name and status of each kind of metric, and of its failures.

use super::*;
use crate::request::{Request, request};
use crate::tests::inputs;
use crate::tests::scenario::{Scenario, bogus, cpu, external, object, pods_metric, quantity, scenario};
use k8s_openapi::api::autoscaling::v2::ContainerResourceMetricSource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

const EVEN: Tolerances = Tolerances { up: 0.1, down: 0.1 };

/// Evaluates one metric for two ready pods that request 1000 and use 500 and 700.
fn measured(metric: &MetricSpec, reading: &Reading) -> Result<Proposal, Failure> {
    let pods = scenario((1, 9), 2, Vec::new()).using(&[500, 700]).objects();
    let pods: Vec<&Pod> = pods.iter().collect();
    let options = Options::default();
    measure(&inputs(&options, 2, EVEN, &pods), metric, reading)
}

/// Returns the pods' usage as the API responds.
fn usage() -> Reading {
    scenario((1, 9), 2, Vec::new()).using(&[500, 700]).read(Some(Request::Usage { selector: String::new() }))
}

/// Returns `cpu` with a target average value.
fn cpu_value(milli: i64) -> MetricSpec {
    let mut metric = cpu(0);
    if let Some(resource) = &mut metric.resource {
        resource.target = MetricTarget { average_value: quantity(milli), ..MetricTarget::default() };
    }
    metric
}

fn of_container(metric: MetricSpec) -> MetricSpec {
    let source = metric.resource.expect("a resource metric");
    let source = ContainerResourceMetricSource { name: source.name, container: "app".into(), target: source.target };
    MetricSpec { type_: "ContainerResource".into(), container_resource: Some(source), ..MetricSpec::default() }
}

fn invalid_selector() -> LabelSelector {
    let expression = LabelSelectorRequirement { key: "verb".into(), operator: "Near".into(), values: None };
    LabelSelector { match_expressions: Some(vec![expression]), ..LabelSelector::default() }
}

#[test]
fn each_kind_of_metric_has_a_proposal_and_a_name() {
    let pods = scenario((1, 9), 2, Vec::new());
    let pods = Scenario { values: Ok(vec![30_000; 2]), ..pods };
    let (metric, selector, metric_selector) = Default::default();
    let pods = pods.read(Some(Request::Pods { metric, selector, metric_selector }));
    let one = |total| Reading::Object(vec![total]);
    let all = |values: &[i64]| Reading::External(values.to_vec());
    for (metric, reading, replicas, name) in [
        (cpu(50), usage(), 3, "cpu resource utilization (percentage of request)"),
        (cpu_value(300), usage(), 4, "cpu resource"),
        (of_container(cpu(50)), usage(), 3, "cpu container resource utilization (percentage of request)"),
        (of_container(cpu_value(300)), usage(), 4, "cpu resource"),
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
    let mut metric = external(10_000, 0);
    let source = metric.external.as_mut().expect("an external metric");
    let labels = [("verb".to_owned(), "GET".to_owned())].into();
    source.metric.selector = Some(LabelSelector { match_labels: Some(labels), ..LabelSelector::default() });
    let name = measured(&metric, &Reading::External(vec![1])).expect("measured").name;
    let printed = "&LabelSelector{MatchLabels:map[string]string{verb: GET,},MatchExpressions:\
                   []LabelSelectorRequirement{},}";
    assert_eq!(name, format!("external metric queue({printed})"));
}

/// Goal: an invalid selector fails its metric with a reason, and is not sent to the API.
#[test]
fn an_invalid_selector_fails_its_metric() {
    let (mut pods, mut object, mut external) = (pods_metric(1_000), object("Value", 1_000), external(1_000, 0));
    pods.pods.as_mut().expect("set").metric.selector = Some(invalid_selector());
    object.object.as_mut().expect("set").metric.selector = Some(invalid_selector());
    external.external.as_mut().expect("set").metric.selector = Some(invalid_selector());
    let (one, all) = (Reading::Object(vec![1]), Reading::External(vec![1]));
    for (metric, reading, reason, outer) in [
        (pods, Reading::Pods(Vec::new()), "FailedGetPodsMetric", "failed to get pods metric value: "),
        (object, one, "FailedGetObjectMetric", "failed to get object metric value: "),
        (external, all, "FailedGetExternalMetric", "failed to get queue external metric value: "),
    ] {
        let failure = measured(&metric, &reading).expect_err(reason);
        assert_eq!(failure.reason, reason);
        assert!(failure.inner.contains("\"Near\" is not a valid label selector operator"), "{failure:?}");
        assert!(failure.outer.starts_with(outer), "{failure:?}");
        assert_eq!(request(&metric, ""), None, "{reason}");
    }
}

#[test]
fn a_metric_of_unknown_type_fails() {
    let failure = measured(&bogus(), &Reading::None).expect_err("no such type");
    let text = "unknown metric source type \"Bogus\"".to_owned();
    assert_eq!(failure, Failure { reason: "InvalidMetricSourceType", inner: text.clone(), outer: text });
}
