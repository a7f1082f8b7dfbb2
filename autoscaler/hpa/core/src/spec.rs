//! Reads the `spec` of an `autoscaling/v2` HorizontalPodAutoscaler.
//!
//! The rules use the API's types, so every spec that a user can write can be [validated](super::validate). If an invalid
//! spec is reconciled, the reconcile fails as upstream's does.

use common::labels::{Expression, LabelSelector};
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricSource, CrossVersionObjectReference, ExternalMetricSource, HorizontalPodAutoscalerSpec,
    MetricIdentifier, MetricSpec, ObjectMetricSource, PodsMetricSource, ResourceMetricSource,
};

/// Returns the minimum number of replicas, by default 1.
pub fn min_replicas(spec: &HorizontalPodAutoscalerSpec) -> i32 {
    spec.min_replicas.unwrap_or(1)
}

/// Returns the metrics of a spec; the largest proposal wins.
pub fn metrics(spec: &HorizontalPodAutoscalerSpec) -> &[MetricSpec] {
    spec.metrics.as_deref().unwrap_or_default()
}

/// Reports whether some metric needs no pods, which is true of the types `Object` and `External`.
pub fn has_pod_independent_metric(spec: &HorizontalPodAutoscalerSpec) -> bool {
    metrics(spec).iter().any(|metric| matches!(metric.type_.as_str(), "Object" | "External"))
}

/// Returns the API group of a reference; empty for the core group. Fails if the version has more than one slash.
pub fn group(reference: &CrossVersionObjectReference) -> Result<&str, String> {
    let whole = reference.api_version.as_deref().unwrap_or_default();
    match whole.split_once('/') {
        None | Some(("", "")) => Ok(""),
        Some((_, version)) if version.contains('/') => Err(format!("unexpected GroupVersion string: {whole}")),
        Some((group, _)) => Ok(group),
    }
}

/// Source from which a metric is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source<'a> {
    /// A resource of the pods, summed over their containers.
    Resource(&'a ResourceMetricSource),
    /// A resource of one container of the pods.
    ContainerResource(&'a ContainerResourceMetricSource),
    /// A metric of the pods.
    Pods(&'a PodsMetricSource),
    /// A metric of one object.
    Object(&'a ObjectMetricSource),
    /// A metric of something outside the cluster.
    External(&'a ExternalMetricSource),
    /// Unknown type, or a type whose field is absent. Validation rejects both.
    Unknown,
}

impl<'a> From<&'a MetricSpec> for Source<'a> {
    /// Returns the source in the field that the type names.
    fn from(metric: &'a MetricSpec) -> Self {
        let source = match metric.type_.as_str() {
            "Resource" => metric.resource.as_ref().map(Source::Resource),
            "ContainerResource" => metric.container_resource.as_ref().map(Source::ContainerResource),
            "Pods" => metric.pods.as_ref().map(Source::Pods),
            "Object" => metric.object.as_ref().map(Source::Object),
            "External" => metric.external.as_ref().map(Source::External),
            _ => None,
        };
        source.unwrap_or(Source::Unknown)
    }
}

/// Returns the selector of a metric's series, if it has one.
pub fn selector(metric: &MetricIdentifier) -> Option<LabelSelector> {
    let selector = metric.selector.as_ref()?;
    let expressions = selector.match_expressions.iter().flatten().map(|expression| Expression {
        key: expression.key.clone(),
        operator: expression.operator.clone(),
        values: expression.values.clone().unwrap_or_default(),
    });
    let match_labels = selector.match_labels.clone().unwrap_or_default();
    Some(LabelSelector { match_labels, match_expressions: expressions.collect() })
}

/// Formats the [`selector`] of a metric for the metrics APIs; empty if everything is selected. Fails if the selector is
/// malformed.
pub fn selector_text(metric: &MetricIdentifier) -> Result<String, String> {
    selector(metric).map_or_else(|| Ok(String::new()), |selector| selector.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::scenario::metric;
    use k8s_openapi::serde_json::json;

    #[test]
    fn the_group_is_the_part_before_the_only_slash() {
        let malformed = Err("unexpected GroupVersion string: a/b/c".to_owned());
        for (api_version, expected) in [
            ("apps/v1", Ok("apps")),
            ("v1", Ok("")),
            ("", Ok("")),
            ("/", Ok("")),
            ("/v1", Ok("")),
            ("a/b/c", malformed),
        ] {
            let api_version = Some(api_version.to_owned());
            let reference = CrossVersionObjectReference { api_version, ..CrossVersionObjectReference::default() };
            assert_eq!(group(&reference), expected, "{reference:?}");
        }
    }

    #[test]
    fn the_type_selects_the_source_even_if_other_sources_are_set() {
        let of = |kind: &str| metric(json!({"type": kind, "resource": {}, "containerResource": {}}));
        assert_eq!(Source::from(&of("Pods")), Source::Unknown);
        assert!(matches!(Source::from(&of("Resource")), Source::Resource(_)));
        assert!(matches!(Source::from(&of("ContainerResource")), Source::ContainerResource(_)));
    }
}
