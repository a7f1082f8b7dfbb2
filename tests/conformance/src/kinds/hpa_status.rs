//! An autoscaler's status and events in the format of cases.

use hpa_core::condition::{Condition, ConditionType};
use hpa_core::spec::{Metric, ObjectReference};
use hpa_core::status::{Current, Event, MetricStatus, Status};
use serde::Deserialize;

use super::hpa::{Time, nullable, present};
use super::hpa_spec::ReferenceCase;
use crate::Mismatch;
use crate::compare::equal;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusCase {
    current_replicas: i32,
    desired_replicas: i32,
    #[serde(deserialize_with = "nullable")]
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
    described_object: Option<ReferenceCase>,
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
    pub(super) fn status(&self) -> Result<Status, Mismatch> {
        if !self.current_metrics.is_empty() {
            return Err(Mismatch::Broken("a status to start from that has metrics".into()));
        }
        let condition = |case: &ConditionCase| Condition {
            kind: ConditionType::from(case.r#type.as_str()),
            status: status(&case.status),
            reason: case.reason.clone(),
            message: case.message.clone(),
            last_transition: Some(case.last_transition_time.0),
        };
        Ok(Status {
            current_replicas: self.current_replicas,
            desired_replicas: self.desired_replicas,
            last_scale_time: self.last_scale_time.map(|time| time.0),
            current_metrics: Vec::new(),
            conditions: self.conditions.iter().map(condition).collect(),
            observed_generation: None,
        })
    }

    /// Compares everything except messages.
    pub(super) fn compare(&self, at: &str, got: &Status) -> Result<(), Mismatch> {
        equal(&format!("{at}.current_replicas"), &self.current_replicas, &got.current_replicas)?;
        equal(&format!("{at}.desired_replicas"), &self.desired_replicas, &got.desired_replicas)?;
        equal(&format!("{at}.last_scale_time"), &self.last_scale_time.map(|time| time.0), &got.last_scale_time)?;
        equal(&format!("{at}.conditions: their number"), &self.conditions.len(), &got.conditions.len())?;
        for (i, (wanted, got)) in self.conditions.iter().zip(&got.conditions).enumerate() {
            let at = format!("{at}.conditions[{i}]");
            let wanted = (&*wanted.r#type, &*wanted.status, &*wanted.reason, Some(wanted.last_transition_time.0));
            let status = got.status.map_or("Unknown", |status| if status { "True" } else { "False" });
            equal(&at, &wanted, &(got.kind.as_str(), status, got.reason.as_str(), got.last_transition))?;
        }
        equal(&format!("{at}.current_metrics: their number"), &self.current_metrics.len(), &got.current_metrics.len())?;
        let metrics = self.current_metrics.iter().zip(&got.current_metrics).enumerate();
        metrics.into_iter().try_for_each(|(i, (case, got))| case.compare(&format!("{at}.current_metrics[{i}]"), got))
    }
}

impl MetricCase {
    fn compare(&self, at: &str, got: &MetricStatus) -> Result<(), Mismatch> {
        let shape = Shape::of(got);
        let wanted = (self.r#type.as_str(), self.name.as_deref(), self.container.as_deref(), self.metric.as_deref());
        equal(at, &wanted, &(shape.kind, shape.name, shape.container, shape.metric.map(|m| m.name.as_str())))?;
        let wanted = self.described_object.clone().map(ObjectReference::from);
        equal(&format!("{at}.described_object"), &wanted.as_ref(), &shape.object)?;
        equal(&format!("{at}.value"), &self.value, &shape.current.value)?;
        equal(&format!("{at}.average_utilization"), &self.average_utilization, &shape.current.average_utilization)?;
        let at = format!("{at}.average_value");
        match self.average_value {
            Some(None) => equal(&at, &true, &shape.current.average_value.is_some()),
            wanted => equal(&at, &wanted.flatten(), &shape.current.average_value),
        }
    }
}

#[derive(Default)]
struct Shape<'a> {
    kind: &'static str,
    name: Option<&'a str>,
    container: Option<&'a str>,
    metric: Option<&'a Metric>,
    object: Option<&'a ObjectReference>,
    current: Current,
}

impl<'a> Shape<'a> {
    fn of(status: &'a MetricStatus) -> Self {
        match status {
            MetricStatus::Failed => Self::default(),
            MetricStatus::Resource { name, current } => {
                Self { kind: "Resource", name: Some(name), current: *current, ..Self::default() }
            }
            MetricStatus::ContainerResource { name, container, current } => {
                let (name, container) = (Some(name.as_str()), Some(container.as_str()));
                Self { kind: "ContainerResource", name, container, current: *current, ..Self::default() }
            }
            MetricStatus::Pods { metric, current } => {
                Self { kind: "Pods", metric: Some(metric), current: *current, ..Self::default() }
            }
            MetricStatus::Object { metric, described_object, current } => {
                let (metric, object) = (Some(metric), Some(described_object));
                Self { kind: "Object", metric, object, current: *current, ..Self::default() }
            }
            MetricStatus::External { metric, current } => {
                Self { kind: "External", metric: Some(metric), current: *current, ..Self::default() }
            }
        }
    }
}

fn status(text: &str) -> Option<bool> {
    match text {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

/// Compares events by type and reason.
pub(super) fn compare_events(at: &str, wanted: &[EventCase], got: &[Event]) -> Result<(), Mismatch> {
    let wanted: Vec<_> = wanted.iter().map(|event| (event.r#type.as_str(), event.reason.as_str())).collect();
    let got: Vec<_> = got.iter().map(|e| (if e.warning { "Warning" } else { "Normal" }, e.reason)).collect();
    equal(at, &wanted, &got)
}
