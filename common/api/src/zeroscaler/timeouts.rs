//! Time limits of an exchange between a client and a pod.

use super::DurationText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Time limits of an exchange. They begin when a pod has the request; `wake.timeout` limits the wait for a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeouts {
    /// Longest duration of an exchange, including bodies, event streams and WebSockets. Not for tcp. 0s: no limit.
    pub request: DurationText,
    /// Longest wait for the first byte of a pod's response. Not for tcp. 0s: no limit.
    pub response_start: DurationText,
    /// Longest idle time of a request and its response; for tcp, of a connection. 0s: no limit.
    pub idle: DurationText,
}

impl Default for Timeouts {
    fn default() -> Self {
        let none = || DurationText::new("0s");
        Self { request: none(), response_start: none(), idle: none() }
    }
}
