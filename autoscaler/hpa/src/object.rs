//! Conversion between `autoscaling/v2` objects and the rules' plain data.
//!
//! An invalid spec is an error that names its field; the API server rejects such specs. Statuses are parsed leniently:
//! an unreadable part counts as absent, because the next reconcile rewrites the status.

use super::pods::timestamp;
use common::time::Timestamp;
use hpa_core::condition::Condition;
use hpa_core::quantity::Quantity;
use hpa_core::spec::Spec;
use hpa_core::status::{MetricStatus, Status, quantity};
use k8s_openapi::api::autoscaling::v2;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use std::fmt;

/// Parses the spec of an object.
///
/// # Errors
/// Returns the field of an invalid quantity.
pub fn spec(written: &v2::HorizontalPodAutoscalerSpec) -> Result<Spec, String> {
    let value = serde_json::to_value(written).map_err(|error| error.to_string())?;
    serde_path_to_error::deserialize(value).map_err(|error| format!("spec.{}: {}", error.path(), error.inner()))
}

/// Parses the status of an object.
pub fn status(written: &v2::HorizontalPodAutoscalerStatus) -> Status {
    let condition = |condition: &v2::HorizontalPodAutoscalerCondition| Condition {
        kind: condition.type_.as_str().into(),
        status: match condition.status.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        },
        reason: condition.reason.clone().unwrap_or_default(),
        message: condition.message.clone().unwrap_or_default(),
        last_transition: condition.last_transition_time.as_ref().map(timestamp),
    };
    Status {
        current_replicas: written.current_replicas.unwrap_or(0),
        desired_replicas: written.desired_replicas,
        last_scale_time: written.last_scale_time.as_ref().map(timestamp),
        current_metrics: written.current_metrics.iter().flatten().map(metric_status).collect(),
        conditions: written.conditions.iter().flatten().map(condition).collect(),
        observed_generation: written.observed_generation,
    }
}

fn metric_status(written: &v2::MetricStatus) -> MetricStatus {
    let field = field_of(&written.type_);
    let source = serde_json::to_value(written).map(|mut written| written[&field].take()).unwrap_or_default();
    serde_json::from_value(json!({field: source})).unwrap_or(MetricStatus::Failed)
}

/// Returns the field name of a type, which starts with a lowercase letter.
fn field_of(kind: &str) -> String {
    kind.chars().take(1).flat_map(char::to_lowercase).chain(kind.chars().skip(1)).collect()
}

/// Converts a status to its API form. A failed metric has an empty type.
pub fn written(status: &Status) -> v2::HorizontalPodAutoscalerStatus {
    let condition = |condition: &Condition| v2::HorizontalPodAutoscalerCondition {
        type_: condition.kind.as_str().to_owned(),
        status: match condition.status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        }
        .to_owned(),
        reason: Some(condition.reason.clone()).filter(|reason| !reason.is_empty()),
        message: Some(condition.message.clone()).filter(|message| !message.is_empty()),
        last_transition_time: condition.last_transition.and_then(time),
    };
    let metrics: Vec<_> = status.current_metrics.iter().map(written_metric).collect();
    v2::HorizontalPodAutoscalerStatus {
        current_replicas: Some(status.current_replicas),
        desired_replicas: status.desired_replicas,
        last_scale_time: status.last_scale_time.and_then(time),
        current_metrics: Some(metrics).filter(|metrics| !metrics.is_empty()),
        conditions: Some(status.conditions.iter().map(condition).collect()),
        observed_generation: status.observed_generation,
    }
}

fn written_metric(status: &MetricStatus) -> v2::MetricStatus {
    let kinds = ["Resource", "ContainerResource", "Pods", "Object", "External"];
    let mut written = serde_json::to_value(status).unwrap_or_default();
    let Some(kind) = kinds.into_iter().find(|kind| written.get(field_of(kind)).is_some()) else {
        return v2::MetricStatus::default(); // The metric failed.
    };
    let source = &mut written[field_of(kind)];
    if source["name"] == "memory" {
        for amount in ["value", "averageValue"] {
            let said = source["current"][amount].as_str().and_then(|text| text.parse::<Quantity>().ok());
            if let Some(said) = said {
                source["current"][amount] = quantity(Some("memory"), said.milli()).to_string().into();
            }
        }
    }
    written["type"] = kind.into();
    serde_json::from_value(written).unwrap_or_default()
}

/// Converts a time to the whole seconds of the API.
fn time(at: Timestamp) -> Option<Time> {
    jiff::Timestamp::from_second(at.as_secs()).ok().map(Time)
}

/// Formats a measurement for users: `cpu 45% (90m a pod)`.
impl fmt::Display for Measurement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, resource, current) = match self.0 {
            MetricStatus::Failed => return f.write_str("failed"),
            MetricStatus::Resource { name, current } => (name.as_str(), Some(name.as_str()), current),
            MetricStatus::ContainerResource { name, container, current } => {
                write!(f, "{container}/")?;
                (name.as_str(), Some(name.as_str()), current)
            }
            MetricStatus::Pods { metric, current }
            | MetricStatus::Object { metric, current, .. }
            | MetricStatus::External { metric, current } => (metric.name.as_str(), None, current),
        };
        f.write_str(name)?;
        if let Some(percent) = current.average_utilization {
            write!(f, " {percent}%")?;
        }
        if let Some(value) = current.value {
            write!(f, " {}", quantity(resource, value))?;
        }
        if let Some(average) = current.average_value {
            write!(f, " {} a pod", quantity(resource, average))?;
        }
        Ok(())
    }
}

/// Measurement that can be displayed.
#[derive(Clone, Copy, Debug)]
pub struct Measurement<'a>(pub &'a MetricStatus);

#[cfg(test)]
mod tests;
