//! Request to wake or to sleep once, and its result.

use k8s_openapi::jiff;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Value of [`Request::state`] that wakes the workload.
pub const AWAKE: &str = "Awake";
/// Value of [`Request::state`] that puts the workload to sleep.
pub const ASLEEP: &str = "Asleep";

/// Request for a state, carried out once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Awake: starts pods without traffic; they are removed again after a window without requests. Asleep: ends the
    /// window at once unless a request is in progress; the next request wakes the workload.
    pub state: String,
    /// Time of the request. It is carried out once for each value; another value is a new request. A request that is
    /// ten minutes old when the autoscaler first reads it is not carried out.
    pub at: String,
}

impl Request {
    /// Returns the time of the request, or `None` if it cannot be parsed.
    pub fn at(&self) -> Option<jiff::Timestamp> {
        self.at.parse().ok()
    }
}

/// Result of the last request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestStatus {
    /// Requested state.
    #[serde(default)]
    pub state: String,
    /// Time of the request, as in the spec.
    #[serde(default)]
    pub at: String,
    /// Result: Pending, Done or Kept. Kept: the request was not carried out and nothing changed.
    #[serde(default)]
    pub result: RequestResult,
    /// Reason for Kept, as one word: Expired, Paused, Min, Serving or Metrics.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Description of the reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl RequestStatus {
    /// Reports whether this is the final result of the given request.
    pub fn ends(&self, request: &Request) -> bool {
        self.at == request.at && self.state == request.state && self.result != RequestResult::Pending
    }
}

/// Progress of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RequestResult {
    /// Not carried out yet; it will be as soon as possible.
    #[default]
    Pending,
    /// Carried out.
    Done,
    /// Not carried out, and dropped. Unknown values of newer versions are read as this.
    #[serde(other)]
    Kept,
}
