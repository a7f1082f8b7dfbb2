//! `spec` of an `autoscaling/v2` HorizontalPodAutoscaler as plain data.
//!
//! The shape is that of the API, so every spec that a user can write can be parsed and [validated](super::validate); if
//! an invalid spec is reconciled, it fails as it does upstream. Hence a metric's `kind` and a policy's name are text,
//! and the sources of a metric are all optional. [`MetricSpec::source`] interprets them for the rules.
//!
//! The spec is parsed from the API's JSON or YAML. An unknown field is an error: objects stored by an API server have
//! none, and a manifest written by hand must not be applied in part.

use serde::{Deserialize, Serialize};

use super::quantity::Quantity;
use common::labels::LabelSelector;

/// Spec of an autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Spec {
    /// Object to scale.
    #[serde(rename = "scaleTargetRef")]
    pub scale_target: ObjectReference,
    /// Minimum number of replicas; unset: 1.
    pub min_replicas: Option<i32>,
    /// Maximum number of replicas.
    pub max_replicas: i32,
    /// Metrics; the largest proposal wins.
    pub metrics: Vec<MetricSpec>,
    /// Stabilization and rate limits; if unset see [`super::behavior`].
    pub behavior: Option<Behavior>,
}

impl Spec {
    /// Returns the minimum number of replicas, by default 1.
    pub fn min(&self) -> i32 {
        self.min_replicas.unwrap_or(1)
    }

    /// Reports whether some metric needs no pods: one of type `Object` or `External`.
    pub fn has_pod_independent_metric(&self) -> bool {
        self.metrics.iter().any(|metric| matches!(metric.kind.as_str(), "Object" | "External"))
    }
}

/// Reference to an object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ObjectReference {
    /// `group/version`, or `version` alone for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Kind, such as `Deployment`.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

impl ObjectReference {
    /// Returns the API group; empty is the core group.
    ///
    /// # Errors
    /// Returns an error if the version has more than one slash.
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

/// Entry of `metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MetricSpec {
    /// `Resource`, `ContainerResource`, `Pods`, `Object` or `External`. The API calls this `type`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Source for type `Resource`.
    pub resource: Option<ResourceSource>,
    /// Source for type `ContainerResource`.
    pub container_resource: Option<ContainerResourceSource>,
    /// Source for type `Pods`.
    pub pods: Option<PodsSource>,
    /// Source for type `Object`.
    pub object: Option<ObjectSource>,
    /// Source for type `External`.
    pub external: Option<ExternalSource>,
}

/// Source from which a metric is computed.
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
    /// Unknown type, or a type whose field is absent. Validation rejects both.
    Unknown,
}

impl MetricSpec {
    /// Returns the source in the field that `kind` names.
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

/// Resource of the pods, summed over their containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ResourceSource {
    /// Resource name, such as `cpu`.
    pub name: String,
    /// Target: `averageUtilization` or `averageValue`.
    pub target: MetricTarget,
}

/// Resource of one container of each pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ContainerResourceSource {
    /// Resource name, such as `cpu`.
    pub name: String,
    /// Name of the container.
    pub container: String,
    /// Target: `averageUtilization` or `averageValue`.
    pub target: MetricTarget,
}

/// Custom metric of the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PodsSource {
    /// Identifier of the metric.
    pub metric: Metric,
    /// Target: `averageValue`.
    pub target: MetricTarget,
}

/// Custom metric of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ObjectSource {
    /// Described object.
    pub described_object: ObjectReference,
    /// Identifier of the metric.
    pub metric: Metric,
    /// Target: `value` or `averageValue`, selected by its type.
    pub target: MetricTarget,
}

/// External metric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ExternalSource {
    /// Identifier of the metric.
    pub metric: Metric,
    /// Target: `value` or `averageValue`.
    pub target: MetricTarget,
}

/// Identifier of a metric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Metric {
    /// Name of the metric.
    pub name: String,
    /// Selector of its series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// Target of a metric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MetricTarget {
    /// Type: `Utilization`, `Value` or `AverageValue`. The API calls this `type`. It has an effect only in `Object`
    /// metrics.
    #[serde(rename = "type")]
    pub kind: String,
    /// Target total.
    pub value: Option<Quantity>,
    /// Target average per pod.
    pub average_value: Option<Quantity>,
    /// Target percentage of the request.
    pub average_utilization: Option<i32>,
}

/// Stabilization and rate limits in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Behavior {
    /// Rules of scale-ups.
    pub scale_up: Option<ScalingRules>,
    /// Rules of scale-downs.
    pub scale_down: Option<ScalingRules>,
}

/// Stabilization and rate limits in one direction. [Defaulting](super::defaults) sets unset fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ScalingRules {
    /// Length of the stabilization window in seconds.
    pub stabilization_window_seconds: Option<i32>,
    /// Choice among the policies: `Max`, `Min` or `Disabled`.
    pub select_policy: Option<String>,
    /// Rate limits.
    pub policies: Option<Vec<Policy>>,
    /// Replacement of the controller's tolerance.
    pub tolerance: Option<Quantity>,
}

/// Maximum change within a period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Policy {
    /// Type: `Pods` or `Percent`. The API calls this `type`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Number of pods, or percentage of the replicas at the start of the period.
    pub value: i32,
    /// Length of the period in seconds.
    pub period_seconds: i32,
}

impl Policy {
    /// Builds a policy.
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
