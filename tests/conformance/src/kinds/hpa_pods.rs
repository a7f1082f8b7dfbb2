//! `hpa_pods`: replicas for a Pods metric.

use hpa_core::calculator::{self, Situation};
use hpa_core::groups::Judge;
use hpa_core::options::Options;
use hpa_core::request::Reading;
use hpa_core::spec::MetricTarget;
use hpa_core::usage;
use serde::Deserialize;
use serde_json::Value;

use super::hpa::{
    GroupsCase, PodCase, TargetCase, Time, ToleranceCase, ValueCase, answer, nullable, pods, present, reported,
    selected,
};
use crate::Mismatch;
use crate::compare::{equal, parse};

#[derive(Deserialize)]
struct Case {
    at: Time,
    target: TargetCase,
    current_replicas: i32,
    tolerance: ToleranceCase,
    pods: Vec<PodCase>,
    #[serde(deserialize_with = "nullable")]
    metrics: Option<Vec<ValueCase>>,
    want: Want,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Want {
    error: bool,
    #[serde(rename = "note")]
    _note: Option<String>,
    replicas: Option<i32>,
    #[serde(default, deserialize_with = "present")]
    usage: Option<Option<i64>>,
    timestamp: Option<Time>,
    groups: Option<GroupsCase>,
}

/// Runs one case.
pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let want = case.want;
    let pods = pods(case.pods)?;
    let pods = selected(&pods)?;
    let options = Options::default();
    let judge = Judge { now: case.at.0, options: &options, cpu: false };
    let situation = Situation { current: case.current_replicas, tolerances: case.tolerance.into(), pods: &pods };
    let target = MetricTarget::from(case.target).average_value;
    let target = target.ok_or_else(|| Mismatch::Broken("the target has no average value".into()))?;

    let reading = Reading::Pods(answer(case.metrics));
    let Ok(values) = reading.pods() else {
        equal("want.groups", &want.groups.is_some(), &false)?;
        return equal("want.error", &want.error, &true);
    };
    let samples = usage::of_pods(values);
    if let Some(groups) = want.groups {
        groups.compare(&judge.group(&pods, &samples))?;
    }
    let got = calculator::average(&situation, &judge, samples, target.milli());
    equal("want.error", &want.error, &got.is_err())?;
    let Ok(got) = got else { return Ok(()) };
    equal("want.replicas", &want.replicas, &Some(got.replicas))?;
    reported("want.usage", want.usage, got.value)?;
    equal("want.timestamp", &want.timestamp, &values.first().map(|first| Time(first.timestamp)))
}
