//! Bounds of an exchange between a client and a pod.

use super::DurationText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

const NO_LIMIT: &str = "0s";

/// Bounds of an exchange, from when a pod has the request. The wait for a pod does not count: `wake.timeout` bounds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeouts {
    /// Longest duration of an exchange, bodies, event streams and WebSockets included. Not for tcp. 0s: no limit.
    pub request: DurationText,
    /// Longest wait for the first byte of a pod's response. Not for tcp. 0s: no limit.
    pub response_start: DurationText,
    /// Longest silence in a request and its response; for tcp, on a connection. 0s: no limit.
    pub idle: DurationText,
}

impl Default for Timeouts {
    fn default() -> Self {
        let none = || DurationText::new(NO_LIMIT);
        Self { request: none(), response_start: none(), idle: none() }
    }
}

impl Timeouts {
    /// Longest duration of an exchange; none: no limit.
    pub fn request(&self) -> Option<Duration> {
        limit(&self.request)
    }

    /// Longest wait for the first byte of a response; none: no limit.
    pub fn response_start(&self) -> Option<Duration> {
        limit(&self.response_start)
    }

    /// Longest silence; none: no limit.
    pub fn idle(&self) -> Option<Duration> {
        limit(&self.idle)
    }
}

fn limit(text: &DurationText) -> Option<Duration> {
    text.get().filter(|limit| !limit.is_zero())
}
