//! `autoscaling/v2` objects and the rules' plain data, both ways.
//!
//! A spec that cannot be read is an error that names its field; the API server lets none in. Statuses are read
//! leniently (what cannot be read is as good as absent) because the next pass rewrites them.

use super::pods::timestamp;
use common::labels::{Expression, LabelSelector};
use common::time::Timestamp;
use hpa_core::condition::Condition;
use hpa_core::quantity::Quantity;
use hpa_core::spec::{Metric, ObjectReference, Spec};
use hpa_core::status::{Current, MetricStatus, Status, quantity};
use k8s_openapi::api::autoscaling::v2;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector as Selector, LabelSelectorRequirement, Time};
use std::fmt;

/// The spec of an object.
///
/// # Errors
/// A quantity cannot be read; names the field.
pub fn spec(written: &v2::HorizontalPodAutoscalerSpec) -> Result<Spec, String> {
    let value = serde_json::to_value(written).map_err(|error| error.to_string())?;
    serde_path_to_error::deserialize(value).map_err(|error| format!("spec.{}: {}", error.path(), error.inner()))
}

fn reference(written: &v2::CrossVersionObjectReference) -> ObjectReference {
    ObjectReference {
        api_version: written.api_version.clone().unwrap_or_default(),
        kind: written.kind.clone(),
        name: written.name.clone(),
    }
}

fn metric(written: &v2::MetricIdentifier) -> Metric {
    let expression = |e: &LabelSelectorRequirement| Expression {
        key: e.key.clone(),
        operator: e.operator.clone(),
        values: e.values.clone().unwrap_or_default(),
    };
    let selector = |selector: &Selector| LabelSelector {
        match_labels: selector.match_labels.clone().unwrap_or_default(),
        match_expressions: selector.match_expressions.iter().flatten().map(expression).collect(),
    };
    Metric { name: written.name.clone(), selector: written.selector.as_ref().map(selector) }
}

/// The status of an object.
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
    let read = |quantity: Option<&Written>| Some(quantity?.0.parse::<Quantity>().ok()?.milli());
    let current = |value: &v2::MetricValueStatus| Current {
        value: read(value.value.as_ref()),
        average_value: read(value.average_value.as_ref()),
        average_utilization: value.average_utilization,
    };
    let found = match written.type_.as_str() {
        "Resource" => written
            .resource
            .as_ref()
            .map(|s| MetricStatus::Resource { name: s.name.clone(), current: current(&s.current) }),
        "ContainerResource" => written.container_resource.as_ref().map(|s| MetricStatus::ContainerResource {
            name: s.name.clone(),
            container: s.container.clone(),
            current: current(&s.current),
        }),
        "Pods" => written
            .pods
            .as_ref()
            .map(|s| MetricStatus::Pods { metric: metric(&s.metric), current: current(&s.current) }),
        "Object" => written.object.as_ref().map(|s| MetricStatus::Object {
            metric: metric(&s.metric),
            described_object: reference(&s.described_object),
            current: current(&s.current),
        }),
        "External" => written
            .external
            .as_ref()
            .map(|s| MetricStatus::External { metric: metric(&s.metric), current: current(&s.current) }),
        _ => None,
    };
    found.unwrap_or(MetricStatus::Failed)
}

/// A status as it is written. A metric that failed has an empty type.
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
    let current = |resource: Option<&str>, current: &Current| {
        let amount = |milli: i64| Written(quantity(resource, milli).to_string());
        v2::MetricValueStatus {
            value: current.value.map(amount),
            average_value: current.average_value.map(amount),
            average_utilization: current.average_utilization,
        }
    };
    let mut written = v2::MetricStatus { type_: kind(status).to_owned(), ..v2::MetricStatus::default() };
    match status {
        MetricStatus::Failed => {}
        MetricStatus::Resource { name, current: c } => {
            let current = current(Some(name), c);
            written.resource = Some(v2::ResourceMetricStatus { name: name.clone(), current });
        }
        MetricStatus::ContainerResource { name, container, current: c } => {
            let (name, container, current) = (name.clone(), container.clone(), current(Some(name), c));
            written.container_resource = Some(v2::ContainerResourceMetricStatus { name, container, current });
        }
        MetricStatus::Pods { metric, current: c } => {
            let metric = written_identifier(metric);
            written.pods = Some(v2::PodsMetricStatus { metric, current: current(None, c) });
        }
        MetricStatus::Object { metric, described_object, current: c } => {
            let described_object = v2::CrossVersionObjectReference {
                api_version: Some(described_object.api_version.clone()).filter(|version| !version.is_empty()),
                kind: described_object.kind.clone(),
                name: described_object.name.clone(),
            };
            let metric = written_identifier(metric);
            written.object = Some(v2::ObjectMetricStatus { metric, described_object, current: current(None, c) });
        }
        MetricStatus::External { metric, current: c } => {
            let metric = written_identifier(metric);
            written.external = Some(v2::ExternalMetricStatus { metric, current: current(None, c) });
        }
    }
    written
}

fn kind(status: &MetricStatus) -> &'static str {
    match status {
        MetricStatus::Failed => "",
        MetricStatus::Resource { .. } => "Resource",
        MetricStatus::ContainerResource { .. } => "ContainerResource",
        MetricStatus::Pods { .. } => "Pods",
        MetricStatus::Object { .. } => "Object",
        MetricStatus::External { .. } => "External",
    }
}

fn written_identifier(metric: &Metric) -> v2::MetricIdentifier {
    let expression = |e: &Expression| LabelSelectorRequirement {
        key: e.key.clone(),
        operator: e.operator.clone(),
        values: Some(e.values.clone()).filter(|values| !values.is_empty()),
    };
    let selector = |selector: &LabelSelector| Selector {
        match_labels: Some(selector.match_labels.clone()).filter(|labels| !labels.is_empty()),
        match_expressions: Some(selector.match_expressions.iter().map(expression).collect())
            .filter(|list: &Vec<_>| !list.is_empty()),
    };
    v2::MetricIdentifier { name: metric.name.clone(), selector: metric.selector.as_ref().map(selector) }
}

/// Times of the API are whole seconds.
fn time(at: Timestamp) -> Option<Time> {
    jiff::Timestamp::from_second(at.as_secs()).ok().map(Time)
}

/// What a metric measured, for people: `cpu 45% (90m a pod)`.
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

/// A measurement that can be displayed.
#[derive(Clone, Copy, Debug)]
pub struct Measurement<'a>(pub &'a MetricStatus);

#[cfg(test)]
mod tests;
