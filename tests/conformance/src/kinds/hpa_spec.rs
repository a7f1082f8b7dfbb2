//! An autoscaler's spec in the format of cases.

use std::collections::BTreeMap;

use common::labels::{Expression, LabelSelector};
use hpa_core::spec::{
    ContainerResourceSource, ExternalSource, Metric, MetricSpec, ObjectReference, ObjectSource, PodsSource,
    ResourceSource, Spec,
};
use serde::Deserialize;

use super::hpa::{TargetCase, nullable};
use super::hpa_memory::{BehaviorCase, defaulted};
use crate::Mismatch;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HpaCase {
    pub(super) namespace: String,
    pub(super) name: String,
    scale_target: ReferenceCase,
    #[serde(deserialize_with = "nullable")]
    min_replicas: Option<i32>,
    max_replicas: i32,
    metrics: Vec<MetricCase>,
    #[serde(deserialize_with = "nullable")]
    behavior: Option<BehaviorCase>,
    #[serde(deserialize_with = "nullable")]
    behavior_defaulted: Option<BehaviorCase>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReferenceCase {
    api_version: String,
    kind: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
enum MetricCase {
    Resource { name: String, target: TargetCase },
    ContainerResource { name: String, container: String, target: TargetCase },
    Pods { metric: String, selector: Option<SelectorCase>, target: TargetCase },
    Object { metric: String, selector: Option<SelectorCase>, described_object: ReferenceCase, target: TargetCase },
    External { metric: String, selector: Option<SelectorCase>, target: TargetCase },
    Bogus,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SelectorCase {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<ExpressionCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpressionCase {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl From<ReferenceCase> for ObjectReference {
    fn from(case: ReferenceCase) -> Self {
        Self { api_version: case.api_version, kind: case.kind, name: case.name }
    }
}

impl From<SelectorCase> for LabelSelector {
    fn from(case: SelectorCase) -> Self {
        let expression = |e: ExpressionCase| Expression { key: e.key, operator: e.operator, values: e.values };
        Self {
            match_labels: case.match_labels,
            match_expressions: case.match_expressions.into_iter().map(expression).collect(),
        }
    }
}

impl From<MetricCase> for MetricSpec {
    fn from(case: MetricCase) -> Self {
        let metric = |name, selector: Option<SelectorCase>| Metric { name, selector: selector.map(Into::into) };
        let of = |kind: &str| Self { kind: kind.to_owned(), ..Self::default() };
        match case {
            MetricCase::Resource { name, target } => {
                Self { resource: Some(ResourceSource { name, target: target.into() }), ..of("Resource") }
            }
            MetricCase::ContainerResource { name, container, target } => {
                let source = ContainerResourceSource { name, container, target: target.into() };
                Self { container_resource: Some(source), ..of("ContainerResource") }
            }
            MetricCase::Pods { metric: name, selector, target } => {
                let source = PodsSource { metric: metric(name, selector), target: target.into() };
                Self { pods: Some(source), ..of("Pods") }
            }
            MetricCase::Object { metric: name, selector, described_object, target } => {
                let (metric, described_object) = (metric(name, selector), described_object.into());
                let source = ObjectSource { described_object, metric, target: target.into() };
                Self { object: Some(source), ..of("Object") }
            }
            MetricCase::External { metric: name, selector, target } => {
                let source = ExternalSource { metric: metric(name, selector), target: target.into() };
                Self { external: Some(source), ..of("External") }
            }
            MetricCase::Bogus => of("Bogus"),
        }
    }
}

impl HpaCase {
    /// Returns the spec, after filling in and comparing the defaults of its behavior.
    pub(super) fn spec(self) -> Result<Spec, Mismatch> {
        Ok(Spec {
            scale_target: self.scale_target.into(),
            min_replicas: self.min_replicas,
            max_replicas: self.max_replicas,
            metrics: self.metrics.into_iter().map(Into::into).collect(),
            behavior: defaulted(self.behavior, self.behavior_defaulted)?,
        })
    }
}
