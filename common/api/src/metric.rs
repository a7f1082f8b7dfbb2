//! Metric: what the collector gathers for one revision.

use crate::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the PodAutoscaler reconciler asks for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "autoscaling.internal.knative.dev",
    version = "v1alpha1",
    kind = "Metric",
    plural = "metrics",
    singular = "metric",
    category = "knative-internal",
    category = "autoscaling",
    namespaced,
    status = "MetricStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct MetricSpec {
    /// Stable window in nanoseconds.
    pub stable_window: i64,
    /// Panic window in nanoseconds.
    pub panic_window: i64,
    /// Service whose pods are scraped; empty: none, the activators' stats are all there is.
    pub scrape_target: String,
}

/// What the collector reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricStatus {
    /// The generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready` alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
