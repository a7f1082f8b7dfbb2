//! `hpa_resource`: replicas for a Resource or ContainerResource metric, with the intermediate steps.

use std::collections::BTreeMap;
use std::time::Duration;

use hpa_core::calculator::{self, Situation};
use hpa_core::groups::Judge;
use hpa_core::options::Options;
use hpa_core::pod;
use hpa_core::request::Reading;
use hpa_core::spec::MetricTarget;
use hpa_core::usage;
use serde::Deserialize;
use serde_json::Value;

use super::hpa::{
    GroupsCase, PodCase, TargetCase, Time, ToleranceCase, UsageCase, answer, nullable, pods, present, reported,
    selected,
};
use crate::Mismatch;
use crate::compare::{equal, parse};

#[derive(Deserialize)]
struct Case {
    at: Time,
    resource: String,
    container: String,
    target: TargetCase,
    current_replicas: i32,
    tolerance: ToleranceCase,
    cpu_initialization_period_seconds: u64,
    initial_readiness_delay_seconds: u64,
    pods: Vec<PodCase>,
    #[serde(deserialize_with = "nullable")]
    pod_metrics: Option<Vec<UsageCase>>,
    want: Want,
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
    #[serde(deserialize_with = "nullable")]
    metric_values: Option<BTreeMap<String, i64>>,
    groups: Option<GroupsCase>,
    #[serde(deserialize_with = "nullable")]
    requests: Option<BTreeMap<String, i64>>,
}

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let want = case.want;
    let pods = pods(case.pods)?;
    let pods = selected(&pods)?;
    let (resource, container) = (case.resource.as_str(), Some(case.container.as_str()).filter(|c| !c.is_empty()));
    let options = Options {
        cpu_initialization_period: Duration::from_secs(case.cpu_initialization_period_seconds),
        initial_readiness_delay: Duration::from_secs(case.initial_readiness_delay_seconds),
        ..Options::default()
    };
    let judge = Judge { now: case.at.0, options: &options, cpu: resource == "cpu" };
    let situation = Situation { current: case.current_replicas, tolerances: case.tolerance.into(), pods: &pods };

    let requests = pod::requests(&pods, container, resource).ok();
    let requests: Option<BTreeMap<_, _>> =
        requests.map(|map| map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect());
    equal("want.requests", &want.requests, &requests)?;

    let reading = Reading::Usage(answer(case.pod_metrics));
    let Ok(usages) = reading.usage() else {
        equal("want.metric_values", &want.metric_values, &None)?;
        equal("want.groups", &want.groups.is_some(), &false)?;
        return equal("want.error", &want.error, &true);
    };
    let samples = usage::of_resource(usages, container, resource);
    let values = samples.iter().map(|(pod, sample)| ((*pod).to_owned(), sample.value)).collect();
    equal("want.metric_values", &want.metric_values, &Some(values))?;
    let groups = want.groups.ok_or_else(|| Mismatch::Broken("want.groups is missing".into()))?;
    groups.compare(&judge.group(&pods, &samples))?;

    let target = MetricTarget::from(case.target);
    let got = match (target.average_value, target.average_utilization) {
        (Some(target), _) => {
            let answer = calculator::average(&situation, &judge, samples, target.milli());
            answer.map(|answer| (answer.replicas, None, answer.value))
        }
        (None, Some(percent)) => {
            let answer = calculator::utilization(&situation, &judge, samples, (container, resource), percent);
            answer.map(|answer| (answer.replicas, Some(answer.percent), answer.average))
        }
        (None, None) => return Err(Mismatch::Broken("the target says nothing".into())),
    };
    equal("want.error", &want.error, &got.is_err())?;
    let Ok((replicas, percent, average)) = got else { return Ok(()) };
    equal("want.replicas", &want.replicas, &Some(replicas))?;
    equal("want.utilization", &want.utilization, &percent)?;
    reported("want.usage", want.usage, average)?;
    equal("want.timestamp", &want.timestamp, &usage::measured_at(usages).map(Time))
}
