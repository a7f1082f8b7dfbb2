//! One wake or one sleep that somebody asks for, and what became of it.

use k8s_openapi::jiff;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// [`Request::state`] of a wake.
pub const AWAKE: &str = "Awake";
/// [`Request::state`] of a sleep.
pub const ASLEEP: &str = "Asleep";

/// Asks for a state once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Awake: a pod is wanted, whoever calls; it sleeps again after a window without requests. Asleep: the window ends at
    /// once if nobody is being served; it wakes with the next request.
    pub state: String,
    /// When it was asked for. It is carried out once for each value; another value asks anew. One that is ten minutes old
    /// when it is first seen is not carried out.
    pub at: String,
}

impl Request {
    /// When it was asked for; none: that cannot be read.
    pub fn at(&self) -> Option<jiff::Timestamp> {
        self.at.parse().ok()
    }
}

/// What became of the last request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestStatus {
    /// The state that was asked for.
    #[serde(default)]
    pub state: String,
    /// When it was asked for, as the spec says it.
    #[serde(default)]
    pub at: String,
    /// Pending, Done or Kept; Kept: it was not carried out, and nothing was changed.
    #[serde(default)]
    pub result: RequestResult,
    /// Why it is kept, in one word: Expired, Paused, Min, Serving or Metrics.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The same in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl RequestStatus {
    /// Whether it is about this request, and nothing is to be done about that any more.
    pub fn ends(&self, request: &Request) -> bool {
        self.at == request.at && self.state == request.state && self.result != RequestResult::Pending
    }
}

/// How far a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RequestResult {
    /// It is carried out as soon as it can be.
    #[default]
    Pending,
    /// It has been carried out.
    Done,
    /// It has not been, and is not any more; or a newer version says something else.
    #[serde(other)]
    Kept,
}
