//! Revision of Knative Serving, as far as a drop-in activator reads it. Never written, and no CRD of ours.

use k8s_openapi::api::core::v1::Container;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The part of a Revision that concerns its traffic.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "serving.knative.dev", version = "v1", kind = "Revision", namespaced, derive = "PartialEq")]
#[serde(rename_all = "camelCase")]
pub struct RevisionSpec {
    /// Requests that one pod may run at once; absent or 0: no limit.
    #[serde(default)]
    pub container_concurrency: Option<i64>,
    /// Longest duration of a request, seconds.
    #[serde(default)]
    pub timeout_seconds: Option<i64>,
    /// Longest wait for the first byte of a response, seconds.
    #[serde(default)]
    pub response_start_timeout_seconds: Option<i64>,
    /// Longest silence in a response, seconds.
    #[serde(default)]
    pub idle_timeout_seconds: Option<i64>,
    /// User containers.
    #[serde(default)]
    pub containers: Vec<Container>,
}
