//! Knative Serving's Revision, limited to the fields that a drop-in activator reads. Zeroscale never writes it and has
//! no CRD for it.

use k8s_openapi::api::core::v1::Container;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Traffic settings of a Revision.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "serving.knative.dev", version = "v1", kind = "Revision", namespaced, derive = "PartialEq")]
#[serde(rename_all = "camelCase", default)]
pub struct RevisionSpec {
    /// Maximum number of concurrent requests per pod; absent or 0: no limit.
    pub container_concurrency: Option<i64>,
    /// Longest duration of a request, in seconds.
    pub timeout_seconds: Option<i64>,
    /// Longest wait for the first byte of a response, in seconds.
    pub response_start_timeout_seconds: Option<i64>,
    /// Longest idle time in a response, in seconds.
    pub idle_timeout_seconds: Option<i64>,
    /// User containers.
    pub containers: Vec<Container>,
}
