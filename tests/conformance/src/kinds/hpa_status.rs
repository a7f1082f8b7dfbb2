//! An autoscaler's status and events, and the controller's memory of it, in the format of cases.

use hpa_core::memory::{Memory, Recommendation, ScaleEvent};
use hpa_core::quantity::Quantity;
use hpa_core::status::{Event, time, timestamp};
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus, MetricStatus,
};
use serde::Deserialize;
use serde_json::Value;

use super::hpa::present;
use super::hpa_spec::reference;
use crate::Mismatch;
use crate::compare::{Time, equal};

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusCase {
    current_replicas: i32,
    desired_replicas: i32,
    last_scale_time: Option<Time>,
    conditions: Vec<ConditionCase>,
    current_metrics: Vec<MetricCase>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConditionCase {
    r#type: String,
    status: String,
    reason: String,
    #[serde(default)]
    message: String,
    last_transition_time: Time,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricCase {
    r#type: String,
    name: Option<String>,
    container: Option<String>,
    metric: Option<String>,
    described_object: Option<Value>,
    value: Option<i64>,
    /// Null accepts any value.
    #[serde(default, deserialize_with = "present")]
    average_value: Option<Option<i64>>,
    average_utilization: Option<i32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventCase {
    r#type: String,
    reason: String,
    #[serde(rename = "message")]
    _message: Option<String>,
}

impl StatusCase {
    /// Converts the status that is stored before the first step.
    pub(super) fn status(&self) -> Result<HorizontalPodAutoscalerStatus, Mismatch> {
        if !self.current_metrics.is_empty() {
            return Err(Mismatch::Broken("the stored status has metrics".into()));
        }
        let condition = |case: &ConditionCase| HorizontalPodAutoscalerCondition {
            type_: case.r#type.clone(),
            status: case.status.clone(),
            reason: Some(case.reason.clone()),
            message: Some(case.message.clone()),
            last_transition_time: Some(time(case.last_transition_time.0)),
        };
        Ok(HorizontalPodAutoscalerStatus {
            current_replicas: Some(self.current_replicas),
            desired_replicas: self.desired_replicas,
            last_scale_time: self.last_scale_time.map(|at| time(at.0)),
            current_metrics: None,
            conditions: Some(self.conditions.iter().map(condition).collect()),
            observed_generation: None,
        })
    }

    /// Compares everything except messages.
    pub(super) fn compare(&self, at: &str, got: &HorizontalPodAutoscalerStatus) -> Result<(), Mismatch> {
        equal(&format!("{at}.current_replicas"), &Some(self.current_replicas), &got.current_replicas)?;
        equal(&format!("{at}.desired_replicas"), &self.desired_replicas, &got.desired_replicas)?;
        let last_scale_time = got.last_scale_time.as_ref().map(timestamp).map(Time);
        equal(&format!("{at}.last_scale_time"), &self.last_scale_time, &last_scale_time)?;
        let conditions = got.conditions.as_deref().unwrap_or_default();
        equal(&format!("{at}.conditions: their number"), &self.conditions.len(), &conditions.len())?;
        for (i, (wanted, got)) in self.conditions.iter().zip(conditions).enumerate() {
            let at = format!("{at}.conditions[{i}]");
            let wanted = (&*wanted.r#type, &*wanted.status, Some(&*wanted.reason), Some(wanted.last_transition_time));
            let since = got.last_transition_time.as_ref().map(timestamp).map(Time);
            equal(&at, &wanted, &(&*got.type_, &*got.status, got.reason.as_deref(), since))?;
        }
        let metrics = got.current_metrics.as_deref().unwrap_or_default();
        equal(&format!("{at}.current_metrics: their number"), &self.current_metrics.len(), &metrics.len())?;
        let mut metrics = self.current_metrics.iter().zip(metrics).enumerate();
        metrics.try_for_each(|(i, (case, got))| case.compare(&format!("{at}.current_metrics[{i}]"), got))
    }
}

impl MetricCase {
    fn compare(&self, at: &str, got: &MetricStatus) -> Result<(), Mismatch> {
        let fields = serde_json::to_value(got).map_err(|e| Mismatch::Broken(e.to_string()))?;
        // The type, and the field that it names. A failed metric has none.
        let source = fields.as_object().into_iter().flatten().find(|(name, _)| *name != "type").map(|(_, value)| value);
        let source = source.unwrap_or(&Value::Null);
        let text = |value: &'_ Value| value.as_str().map(str::to_owned);
        let wanted = (&self.r#type, &self.name, &self.container, &self.metric);
        let names = (&got.type_, &text(&source["name"]), &text(&source["container"]), &text(&source["metric"]["name"]));
        equal(at, &wanted, &names)?;
        let described = self.described_object.clone().map(reference).transpose()?;
        let object = got.object.as_ref().map(|object| object.described_object.clone());
        equal(&format!("{at}.described_object"), &described, &object)?;
        let current = &source["current"];
        let milli = |value: &Value| value.as_str().and_then(|text| text.parse().ok()).map(Quantity::milli);
        let utilization = current["averageUtilization"].as_i64();
        equal(&format!("{at}.value"), &self.value, &milli(&current["value"]))?;
        equal(&format!("{at}.average_utilization"), &self.average_utilization.map(i64::from), &utilization)?;
        let (at, average) = (format!("{at}.average_value"), milli(&current["averageValue"]));
        match self.average_value {
            Some(None) => equal(&at, &true, &average.is_some()),
            wanted => equal(&at, &wanted.flatten(), &average),
        }
    }
}

/// Compares events by type and reason.
pub(super) fn compare_events(at: &str, wanted: &[EventCase], got: &[Event]) -> Result<(), Mismatch> {
    let wanted: Vec<_> = wanted.iter().map(|event| (event.r#type.as_str(), event.reason.as_str())).collect();
    let got: Vec<_> = got.iter().map(|e| (if e.warning { "Warning" } else { "Normal" }, e.reason)).collect();
    equal(at, &wanted, &got)
}

/// The controller's memory of one autoscaler.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StateCase {
    recommendations: Vec<(i32, Time)>,
    #[serde(default)]
    scale_up_events: Vec<(i32, Time, bool)>,
    #[serde(default)]
    scale_down_events: Vec<(i32, Time, bool)>,
}

impl StateCase {
    pub(super) fn memory(&self) -> Memory {
        let events = |list: &[(i32, Time, bool)]| {
            list.iter().map(|&(change, at, outdated)| ScaleEvent { change, at: at.0, outdated }).collect()
        };
        let recommendations = self.recommendations.iter().map(|&(replicas, at)| Recommendation { replicas, at: at.0 });
        Memory {
            recommendations: recommendations.collect(),
            scale_ups: events(&self.scale_up_events),
            scale_downs: events(&self.scale_down_events),
        }
    }

    pub(super) fn compare(&self, at: &str, got: &Memory) -> Result<(), Mismatch> {
        let wanted = self.memory();
        equal(&format!("{at}.recommendations"), &wanted.recommendations, &got.recommendations)?;
        equal(&format!("{at}.scale_up_events"), &wanted.scale_ups, &got.scale_ups)?;
        equal(&format!("{at}.scale_down_events"), &wanted.scale_downs, &got.scale_downs)
    }
}
