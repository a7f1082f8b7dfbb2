//! `status` of an autoscaler, and its events.
//!
//! A reconcile that has read the scale rebuilds the status. A reconcile that could not read it changes only one
//! condition. The status is written only if it differs from the stored one. A failed metric leaves an empty entry in
//! its place.

use common::time::Timestamp;

use super::condition::Condition;
use super::quantity::{Format, Quantity};
use super::spec::ObjectReference;
use serde::{Deserialize, Serialize};

/// Status to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `spec.replicas` of the scale.
    pub current_replicas: i32,
    /// Desired replicas.
    pub desired_replicas: i32,
    /// Time of this controller's last change of the scale.
    pub last_scale_time: Option<Timestamp>,
    /// Status of each metric in the spec, in order; empty if the metrics were not evaluated.
    pub current_metrics: Vec<MetricStatus>,
    /// Conditions, in the order in which they were first set.
    pub conditions: Vec<Condition>,
    /// Never set by this controller. A value set by another client is removed when the status is rebuilt.
    pub observed_generation: Option<i64>,
}

/// Measurement of a metric. Its serialized form is the API's field for its type.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum MetricStatus {
    /// The metric failed.
    Failed,
    /// A resource of the pods.
    Resource {
        /// Resource name, such as `cpu`.
        name: String,
        /// Measured value.
        current: Current,
    },
    /// A resource of one container of the pods.
    ContainerResource {
        /// Resource name, such as `cpu`.
        name: String,
        /// Name of the container.
        container: String,
        /// Measured value.
        current: Current,
    },
    /// A custom metric of the pods.
    Pods {
        /// Identifier of the metric.
        metric: super::spec::Metric,
        /// Measured value.
        current: Current,
    },
    /// A custom metric of an object.
    Object {
        /// Identifier of the metric.
        metric: super::spec::Metric,
        /// Described object.
        described_object: ObjectReference,
        /// Measured value.
        current: Current,
    },
    /// An external metric.
    External {
        /// Identifier of the metric.
        metric: super::spec::Metric,
        /// Measured value.
        current: Current,
    },
}

/// Measured value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Current {
    /// Total, in thousandths.
    #[serde(with = "amount", skip_serializing_if = "Option::is_none")]
    pub value: Option<i64>,
    /// Average per pod, in thousandths.
    #[serde(with = "amount", skip_serializing_if = "Option::is_none")]
    pub average_value: Option<i64>,
    /// Percentage of the requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_utilization: Option<i32>,
}

impl Current {
    /// Returns a measured total.
    pub fn total(value: i64) -> Self {
        Self { value: Some(value), ..Self::default() }
    }

    /// Returns a measured average.
    pub fn average(value: i64) -> Self {
        Self { average_value: Some(value), ..Self::default() }
    }
}

/// Serializes thousandths as a quantity.
mod amount {
    use super::{Deserialize, Quantity, Serialize, quantity};

    pub(super) fn serialize<S: serde::Serializer>(milli: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
        milli.map(|milli| quantity(None, milli).to_string()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
        Ok(Option::<Quantity>::deserialize(deserializer)?.map(Quantity::milli))
    }
}

/// Returns a measured amount as a quantity: memory in powers of 1024, other resources in powers of 1000.
pub fn quantity(resource: Option<&str>, milli: i64) -> Quantity {
    Quantity::from_milli(milli, if resource == Some("memory") { Format::Binary } else { Format::Decimal })
}

/// Event about the autoscaler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Set for type Warning; otherwise the type is Normal.
    pub warning: bool,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// Message for users.
    pub message: String,
}

impl Event {
    /// Returns an event of type Normal.
    pub fn normal(reason: &'static str, message: String) -> Self {
        Self { warning: false, reason, message }
    }

    /// Returns an event of type Warning.
    pub fn warning(reason: &'static str, message: String) -> Self {
        Self { warning: true, reason, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_the_reference_says() {
        for (resource, milli, text) in [
            (Some("memory"), 1000, "1"),
            (Some("memory"), 1_000_000, "1k"),
            (Some("cpu"), 100, "100m"),
            (Some("cpu"), 500, "500m"),
            (Some("cpu"), 1, "1m"),
            (Some("example.com/gpu"), 1000, "1"),
            (None, 20_000_000, "20k"),
        ] {
            assert_eq!(quantity(resource, milli).to_string(), text, "{resource:?}");
        }
    }
}
