//! What a user writes: the `spec` of an `autoscaling/v2` HorizontalPodAutoscaler, as plain data.
//!
//! The shape is the API's, so that every spec that can be written can be held, [validated](super::validate) and, if it
//! is reconciled all the same, fail as it does upstream. Hence a metric's `kind` is text, its sources are all optional,
//! and a policy's name is text. [`MetricSpec::source`] is where the rules read it.
//!
//! It is read from the API's JSON or YAML as it is written there. A field that there is not is an error: what an API
//! server has stored has none, and what a person writes by hand should not be half believed.

use serde::{Deserialize, Serialize};

use super::quantity::Quantity;
use common::labels::LabelSelector;

/// The spec of an autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Spec {
    /// What is scaled.
    #[serde(rename = "scaleTargetRef")]
    pub scale_target: ObjectReference,
    /// Fewest replicas; none: 1.
    pub min_replicas: Option<i32>,
    /// Most replicas.
    pub max_replicas: i32,
    /// What decides. The largest answer wins.
    pub metrics: Vec<MetricSpec>,
    /// Stabilization and rate limits; none: see [`super::behavior`].
    pub behavior: Option<Behavior>,
}

impl Spec {
    /// Fewest replicas, 1 if the spec does not say.
    pub fn min(&self) -> i32 {
        self.min_replicas.unwrap_or(1)
    }

    /// Whether some metric can be measured without pods: one of type `Object` or `External`.
    pub fn has_pod_independent_metric(&self) -> bool {
        self.metrics.iter().any(|metric| matches!(metric.kind.as_str(), "Object" | "External"))
    }
}

/// An object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ObjectReference {
    /// `group/version`, or `version` alone for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Like `Deployment`.
    pub kind: String,
    /// The object's name.
    pub name: String,
}

impl ObjectReference {
    /// The API group; empty is the core group.
    ///
    /// # Errors
    /// More than one slash.
    pub fn group(&self) -> Result<&str, String> {
        match (self.api_version.split_once('/'), self.api_version.as_str()) {
            (None, _) | (_, "/") => Ok(""),
            (Some((_, version)), whole) if version.contains('/') => {
                Err(format!("unexpected GroupVersion string: {whole}"))
            }
            (Some((group, _)), _) => Ok(group),
        }
    }
}

/// One entry of `metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MetricSpec {
    /// `Resource`, `ContainerResource`, `Pods`, `Object` or `External`. The API calls this `type`.
    #[serde(rename = "type")]
    pub kind: String,
    /// For `Resource`.
    pub resource: Option<ResourceSource>,
    /// For `ContainerResource`.
    pub container_resource: Option<ContainerResourceSource>,
    /// For `Pods`.
    pub pods: Option<PodsSource>,
    /// For `Object`.
    pub object: Option<ObjectSource>,
    /// For `External`.
    pub external: Option<ExternalSource>,
}

/// What a metric is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// A resource of the pods.
    Resource(&'a ResourceSource),
    /// A resource of one container of the pods.
    ContainerResource(&'a ContainerResourceSource),
    /// A metric of the pods.
    Pods(&'a PodsSource),
    /// A metric of one object.
    Object(&'a ObjectSource),
    /// A metric of something outside the cluster.
    External(&'a ExternalSource),
    /// A type that does not exist, or whose field is absent. Validation admits neither.
    Unknown,
}

impl MetricSpec {
    /// The field that `kind` names.
    pub fn source(&self) -> Source<'_> {
        let found = match self.kind.as_str() {
            "Resource" => self.resource.as_ref().map(Source::Resource),
            "ContainerResource" => self.container_resource.as_ref().map(Source::ContainerResource),
            "Pods" => self.pods.as_ref().map(Source::Pods),
            "Object" => self.object.as_ref().map(Source::Object),
            "External" => self.external.as_ref().map(Source::External),
            _ => None,
        };
        found.unwrap_or(Source::Unknown)
    }
}

/// A resource of the pods, summed over their containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ResourceSource {
    /// Like `cpu`.
    pub name: String,
    /// `averageUtilization` or `averageValue`.
    pub target: MetricTarget,
}

/// A resource of one container of each pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ContainerResourceSource {
    /// Like `cpu`.
    pub name: String,
    /// The container's name.
    pub container: String,
    /// `averageUtilization` or `averageValue`.
    pub target: MetricTarget,
}

/// A custom metric of the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PodsSource {
    /// Which.
    pub metric: Metric,
    /// `averageValue`.
    pub target: MetricTarget,
}

/// A custom metric of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ObjectSource {
    /// The object.
    pub described_object: ObjectReference,
    /// Which.
    pub metric: Metric,
    /// `value` or `averageValue`, as its type says.
    pub target: MetricTarget,
}

/// An external metric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ExternalSource {
    /// Which.
    pub metric: Metric,
    /// `value` or `averageValue`.
    pub target: MetricTarget,
}

/// Names a metric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// Which of its series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// What a metric should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MetricTarget {
    /// `Utilization`, `Value` or `AverageValue`. The API calls this `type`. Only `Object` metrics are governed by it.
    #[serde(rename = "type")]
    pub kind: String,
    /// In total.
    pub value: Option<Quantity>,
    /// For each pod.
    pub average_value: Option<Quantity>,
    /// Percent of the request.
    pub average_utilization: Option<i32>,
}

/// Stabilization and rate limits, both ways.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Behavior {
    /// Upwards.
    pub scale_up: Option<ScalingRules>,
    /// Downwards.
    pub scale_down: Option<ScalingRules>,
}

/// Stabilization and rate limits, one way. What is none is for [defaulting](super::defaults) to fill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ScalingRules {
    /// Seconds of recommendations that count.
    pub stabilization_window_seconds: Option<i32>,
    /// `Max`, `Min` or `Disabled`: which policy wins.
    pub select_policy: Option<String>,
    /// How fast.
    pub policies: Option<Vec<Policy>>,
    /// In place of the controller's tolerance.
    pub tolerance: Option<Quantity>,
}

/// How much may change in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Policy {
    /// `Pods` or `Percent`. The API calls this `type`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Pods, or percent of the replicas at the start of the period.
    pub value: i32,
    /// The period's length in seconds.
    pub period_seconds: i32,
}

impl Policy {
    /// A policy.
    pub fn new(kind: &str, value: i32, period_seconds: i32) -> Self {
        Self { kind: kind.to_owned(), value, period_seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_what_stands_before_the_only_slash() {
        for (api_version, group) in
            [("apps/v1", Ok("apps")), ("v1", Ok("")), ("", Ok("")), ("/", Ok("")), ("/v1", Ok(""))]
        {
            let reference = ObjectReference { api_version: api_version.into(), ..ObjectReference::default() };
            assert_eq!(reference.group(), group, "{api_version}");
        }
        let reference = ObjectReference { api_version: "a/b/c".into(), ..ObjectReference::default() };
        assert_eq!(reference.group(), Err("unexpected GroupVersion string: a/b/c".into()));
    }

    #[test]
    fn a_source_is_what_the_type_names_even_if_others_are_set() {
        let metric =
            MetricSpec { kind: "Pods".into(), resource: Some(ResourceSource::default()), ..MetricSpec::default() };
        assert_eq!(metric.source(), Source::Unknown);
        let metric = MetricSpec { kind: "Resource".into(), pods: Some(PodsSource::default()), ..metric };
        assert!(matches!(metric.source(), Source::Resource(_)));
        let container_resource = Some(ContainerResourceSource::default());
        let metric = MetricSpec { kind: "ContainerResource".into(), container_resource, ..metric };
        assert!(matches!(metric.source(), Source::ContainerResource(_)));
    }
}
