//! `hpa_resource`, `hpa_pods`, `hpa_object` and `hpa_external`: replicas for one metric, with the intermediate steps.

use std::collections::BTreeMap;
use std::time::Duration;

use hpa_core::calculator;
use hpa_core::groups::group;
use hpa_core::measure::MetricInputs;
use hpa_core::options::Options;
use hpa_core::pod::{self, Pod};
use hpa_core::quantity::milli;
use hpa_core::request::Reading;
use hpa_core::tolerance::Tolerances;
use hpa_core::{totals, usage};
use k8s_openapi::api::autoscaling::v2::MetricTarget;
use serde::Deserialize;
use serde_json::Value;

use super::hpa::{GroupsCase, ToleranceCase, UsageCase, ValueCase, pods, present, reading, reported, selected};
use super::hpa_spec::target;
use crate::Mismatch;
use crate::compare::{Time, equal, parse};

/// Fields of all four kinds.
#[derive(Deserialize)]
struct Case {
    at: Time,
    #[serde(deserialize_with = "target")]
    target: MetricTarget,
    /// Absent for totals with an AverageValue target.
    #[serde(default)]
    current_replicas: i32,
    #[serde(default, deserialize_with = "pods")]
    pods: Vec<Pod>,
    /// Only for totals with an AverageValue target.
    #[serde(default)]
    status_replicas: i32,
    #[serde(with = "ToleranceCase")]
    tolerance: Tolerances,
    /// Response in `hpa_pods`.
    metrics: Option<Vec<ValueCase>>,
    /// Response in `hpa_object`.
    value: Option<i64>,
    /// Response in `hpa_external`.
    values: Option<Vec<i64>>,
    want: Want,
}

#[derive(Deserialize)]
struct ResourceCase {
    resource: String,
    container: String,
    cpu_initialization_period_seconds: u64,
    initial_readiness_delay_seconds: u64,
    pod_metrics: Option<Vec<UsageCase>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Want {
    error: bool,
    #[serde(rename = "note")]
    _note: Option<String>,
    replicas: Option<i32>,
    utilization: Option<i32>,
    #[serde(default, deserialize_with = "present")]
    usage: Option<Option<i64>>,
    timestamp: Option<Time>,
    metric_values: Option<BTreeMap<String, i64>>,
    groups: Option<GroupsCase>,
    requests: Option<BTreeMap<String, i64>>,
}

/// Result of a calculation, in the parts that `want` names.
#[derive(Default)]
struct Got {
    replicas: i32,
    utilization: Option<i32>,
    usage: i64,
    timestamp: Option<Time>,
}

impl Case {
    fn inputs<'a>(&self, options: &'a Options, pods: &'a [&'a Pod]) -> MetricInputs<'a> {
        MetricInputs {
            now: self.at.0,
            options,
            tolerances: self.tolerance,
            namespace: "",
            spec_replicas: self.current_replicas,
            status_replicas: self.status_replicas,
            pods,
        }
    }

    /// Compares the result; `None` is an error.
    fn compare(&self, got: Option<Got>) -> Result<(), Mismatch> {
        equal("want.error", &self.want.error, &got.is_none())?;
        let Some(got) = got else { return Ok(()) };
        equal("want.replicas", &self.want.replicas, &Some(got.replicas))?;
        equal("want.utilization", &self.want.utilization, &got.utilization)?;
        equal("want.timestamp", &self.want.timestamp, &got.timestamp)?;
        reported("want.usage", self.want.usage, got.usage)
    }
}

/// Returns an amount of the target in thousandths.
fn amount(written: &Option<k8s_openapi::apimachinery::pkg::api::resource::Quantity>) -> Option<i64> {
    written.as_ref().and_then(|written| milli(written).ok())
}

pub(super) fn check_resource(case: &Value) -> Result<(), Mismatch> {
    let (own, mut case): (ResourceCase, Case) = (parse(case)?, parse(case)?);
    let (resource, container) = (own.resource.as_str(), Some(own.container.as_str()).filter(|c| !c.is_empty()));
    let options = Options {
        cpu_initialization_period: Duration::from_secs(own.cpu_initialization_period_seconds),
        initial_readiness_delay: Duration::from_secs(own.initial_readiness_delay_seconds),
        ..Options::default()
    };
    let pods = selected(&case.pods)?;
    let (inputs, cpu) = (case.inputs(&options, &pods), resource == "cpu");

    let requests = pod::requests(&pods, container, resource).ok();
    let requests: Option<BTreeMap<_, _>> =
        requests.map(|map| map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect());
    equal("want.requests", &case.want.requests, &requests)?;

    let reading = reading(own.pod_metrics, Reading::Usage);
    let Ok(usages) = reading.usage() else {
        equal("want.metric_values", &case.want.metric_values, &None)?;
        equal("want.groups", &case.want.groups.is_some(), &false)?;
        return case.compare(None);
    };
    let samples = usage::resource_samples(usages, container, resource);
    let values = samples.iter().map(|(pod, sample)| ((*pod).to_owned(), sample.value)).collect();
    equal("want.metric_values", &case.want.metric_values, &Some(values))?;
    let groups = case.want.groups.take().ok_or_else(|| Mismatch::Broken("want.groups is missing".into()))?;
    groups.compare(&group(&inputs, cpu, &samples))?;

    let timestamp = usages.first().map(|first| Time(first.timestamp));
    let got = match (amount(&case.target.average_value), case.target.average_utilization) {
        (Some(target), _) => calculator::average(&inputs, cpu, samples, target).map(|answer| Got {
            replicas: answer.replicas,
            usage: answer.value,
            ..Got::default()
        }),
        (None, Some(percent)) => {
            let answer = calculator::utilization(&inputs, samples, (container, resource), percent);
            answer.map(|(replicas, measured)| Got {
                replicas,
                utilization: Some(measured.percent),
                usage: measured.average,
                ..Got::default()
            })
        }
        (None, None) => return Err(Mismatch::Broken("the target has no value".into())),
    };
    case.compare(got.ok().map(|got| Got { timestamp, ..got }))
}

pub(super) fn check_pods(case: &Value) -> Result<(), Mismatch> {
    let mut case: Case = parse(case)?;
    let (pods, options) = (selected(&case.pods)?, Options::default());
    let inputs = case.inputs(&options, &pods);
    let target = amount(&case.target.average_value);
    let target = target.ok_or_else(|| Mismatch::Broken("the target has no average value".into()))?;

    let reading = reading(case.metrics.take(), Reading::Pods);
    let Ok(values) = reading.pods() else {
        equal("want.groups", &case.want.groups.is_some(), &false)?;
        return case.compare(None);
    };
    let samples = usage::pod_samples(values);
    if let Some(groups) = case.want.groups.take() {
        groups.compare(&group(&inputs, false, &samples))?;
    }
    let got = calculator::average(&inputs, false, samples, target);
    let timestamp = values.first().map(|first| Time(first.timestamp));
    let got = got.map(|answer| Got { replicas: answer.replicas, usage: answer.value, timestamp, ..Got::default() });
    case.compare(got.ok())
}

pub(super) fn check_object(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let value = reading(case.value.map(|value| vec![value]), Reading::Object).object().ok();
    check_total(&case, value, |inputs, target| Some(totals::average_value(inputs, value?, target)))
}

pub(super) fn check_external(case: &Value) -> Result<(), Mismatch> {
    let mut case: Case = parse(case)?;
    let reading = reading(case.values.take(), Reading::External);
    let values = reading.external().ok();
    let total = values.map(totals::sum);
    check_total(&case, total, |inputs, target| Some(totals::external_average_value(inputs, values?, target)))
}

/// Runs one case with the total, if there is one, and the calculation for a target of type AverageValue.
fn check_total(
    case: &Case,
    total: Option<i64>,
    average: impl FnOnce(&MetricInputs<'_>, i64) -> Option<calculator::ValueAnswer>,
) -> Result<(), Mismatch> {
    let (pods, target, options) = (selected(&case.pods)?, &case.target, Options::default());
    let inputs = case.inputs(&options, &pods);
    let answer = match (target.type_.as_str(), amount(&target.value), amount(&target.average_value)) {
        ("Value", Some(target), _) => total.and_then(|value| totals::value(&inputs, value, target).ok()),
        ("AverageValue", _, Some(target)) => average(&inputs, target),
        _ => return Err(Mismatch::Broken("the target has no value".into())),
    };
    case.compare(answer.map(|answer| Got { replicas: answer.replicas, usage: answer.value, ..Got::default() }))
}
