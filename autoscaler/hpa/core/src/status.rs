//! The `status` of an autoscaler, and the events beside it.
//!
//! A pass that has read the scale rebuilds the status; one that could not changes a condition of it and nothing else.
//! Either is written only if it says something else than what is stored. A metric that failed leaves an empty entry in
//! its place.

use common::time::Timestamp;

use super::condition::Condition;
use super::quantity::{Format, Quantity};
use super::spec::ObjectReference;
use serde::{Deserialize, Serialize};

/// What is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `spec.replicas` of the scale.
    pub current_replicas: i32,
    /// Replicas decided on.
    pub desired_replicas: i32,
    /// When this controller last changed the scale.
    pub last_scale_time: Option<Timestamp>,
    /// One for each metric of the spec, in order; empty if metrics were not looked at.
    pub current_metrics: Vec<MetricStatus>,
    /// In the order in which they were first set.
    pub conditions: Vec<Condition>,
    /// Never set by this controller. What others have put there goes when the status is rebuilt.
    pub observed_generation: Option<i64>,
}

/// What a metric measured. Written, it is what the API has in the field of its type.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum MetricStatus {
    /// It failed.
    Failed,
    /// A resource of the pods.
    Resource {
        /// Like `cpu`.
        name: String,
        /// Measured.
        current: Current,
    },
    /// A resource of one container of the pods.
    ContainerResource {
        /// Like `cpu`.
        name: String,
        /// The container's name.
        container: String,
        /// Measured.
        current: Current,
    },
    /// A custom metric of the pods.
    Pods {
        /// The metric.
        metric: super::spec::Metric,
        /// Measured.
        current: Current,
    },
    /// A custom metric of an object.
    Object {
        /// The metric.
        metric: super::spec::Metric,
        /// The object.
        described_object: ObjectReference,
        /// Measured.
        current: Current,
    },
    /// An external metric.
    External {
        /// The metric.
        metric: super::spec::Metric,
        /// Measured.
        current: Current,
    },
}

/// A measured value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Current {
    /// In total, in thousandths.
    #[serde(with = "amount", skip_serializing_if = "Option::is_none")]
    pub value: Option<i64>,
    /// For each pod, in thousandths.
    #[serde(with = "amount", skip_serializing_if = "Option::is_none")]
    pub average_value: Option<i64>,
    /// Percent of the requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_utilization: Option<i32>,
}

impl Current {
    /// A total.
    pub fn total(value: i64) -> Self {
        Self { value: Some(value), ..Self::default() }
    }

    /// An average.
    pub fn average(value: i64) -> Self {
        Self { average_value: Some(value), ..Self::default() }
    }
}

/// Thousandths as the quantity that they are.
mod amount {
    use super::{Deserialize, Quantity, Serialize, quantity};

    pub(super) fn serialize<S: serde::Serializer>(milli: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
        milli.map(|milli| quantity(None, milli).to_string()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
        Ok(Option::<Quantity>::deserialize(deserializer)?.map(Quantity::milli))
    }
}

/// A measured amount as it is written: memory in powers of 1024, all else in powers of 1000.
pub fn quantity(resource: Option<&str>, milli: i64) -> Quantity {
    Quantity::from_milli(milli, if resource == Some("memory") { Format::Binary } else { Format::Decimal })
}

/// An event about the autoscaler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether it is of type Warning; otherwise Normal.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Event {
    /// All is well.
    pub fn normal(reason: &'static str, message: String) -> Self {
        Self { warning: false, reason, message }
    }

    /// All is not well.
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
