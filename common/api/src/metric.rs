//! Metric: the collector's measurements for one revision.

use crate::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Windows and scrape target that the PodAutoscaler reconciler requests.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "autoscaling.internal.knative.dev",
    version = "v1alpha1",
    kind = "Metric",
    plural = "metrics",
    singular = "metric",
    category = "knative-internal",
    category = "autoscaling",
    label("knative.dev/crd-install", "true"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
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
    /// Service whose pods are scraped; empty: none, only the stats of activators are used.
    pub scrape_target: String,
}

/// Result that the collector reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricStatus {
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions; only `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
