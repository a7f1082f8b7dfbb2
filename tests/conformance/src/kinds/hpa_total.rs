//! `hpa_object` and `hpa_external`: replicas for one value, or the sum of several.

use hpa_core::calculator::{Situation, ValueAnswer};
use hpa_core::request::Reading;
use hpa_core::spec::MetricTarget;
use hpa_core::tolerance::Tolerances;
use hpa_core::totals;
use serde::Deserialize;
use serde_json::Value;

use super::hpa::{PodCase, TargetCase, ToleranceCase, answer, nullable, pods, present, reported, selected};
use crate::Mismatch;
use crate::compare::{equal, parse};

#[derive(Deserialize)]
struct ObjectCase {
    #[serde(deserialize_with = "nullable")]
    value: Option<i64>,
}

#[derive(Deserialize)]
struct ExternalCase {
    #[serde(deserialize_with = "nullable")]
    values: Option<Vec<i64>>,
}

/// Fields that both kinds share.
#[derive(Deserialize)]
struct Case {
    target: TargetCase,
    /// Set for a Value target.
    #[serde(default)]
    current_replicas: i32,
    #[serde(default)]
    pods: Vec<PodCase>,
    /// Set for an AverageValue target.
    #[serde(default)]
    status_replicas: i32,
    tolerance: ToleranceCase,
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
}

/// Runs one case of `hpa_object`.
pub(super) fn check_object(case: &Value) -> Result<(), Mismatch> {
    let reading = Reading::Object(answer(parse::<ObjectCase>(case)?.value.map(|value| vec![value])));
    let value = reading.object().ok();
    check(case, value, |tolerances, replicas, target| {
        value.map(|value| totals::average_value(tolerances, replicas, value, target))
    })
}

/// Runs one case of `hpa_external`.
pub(super) fn check_external(case: &Value) -> Result<(), Mismatch> {
    let reading = Reading::External(answer(parse::<ExternalCase>(case)?.values));
    let values = reading.external().ok();
    check(case, values.map(totals::sum), |tolerances, replicas, target| {
        values.map(|values| totals::average_of(tolerances, replicas, values, target))
    })
}

/// Runs one case with the total, if there is one, and the calculation for a target of type AverageValue.
fn check(
    case: &Value,
    total: Option<i64>,
    average: impl FnOnce(Tolerances, i32, i64) -> Option<ValueAnswer>,
) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let pods = pods(case.pods)?;
    let pods = selected(&pods)?;
    let tolerances = case.tolerance.into();
    let target = MetricTarget::from(case.target);
    let got = match (target.kind.as_str(), target.value, target.average_value) {
        ("Value", Some(target), _) => total.and_then(|value| {
            let situation = Situation { current: case.current_replicas, tolerances, pods: &pods };
            totals::value(&situation, value, target.milli()).ok()
        }),
        ("AverageValue", _, Some(target)) => average(tolerances, case.status_replicas, target.milli()),
        _ => return Err(Mismatch::Broken("the target says nothing".into())),
    };
    equal("want.error", &case.want.error, &got.is_none())?;
    let Some(got) = got else { return Ok(()) };
    equal("want.replicas", &case.want.replicas, &Some(got.replicas))?;
    reported("want.usage", case.want.usage, got.value)
}
