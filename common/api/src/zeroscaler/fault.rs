//! Reason why a workload cannot serve, and its remedy: one value that every surface renders in the same words.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Fault that prevents the workload from serving.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// Reason as one word, for programs; also the reason of Ready.
    pub reason: String,
    /// Description of the fault.
    #[serde(default)]
    pub message: String,
    /// Description of the remedy.
    #[serde(default)]
    pub remedy: String,
    /// Time at which the fault was found.
    pub since: Time,
    /// Versions of this object and of its target for which the fault was found.
    #[serde(default)]
    pub of: String,
}

impl Fault {
    /// Returns fault and remedy in one sentence: the message of Ready.
    pub fn message(&self) -> String {
        format!("{}; {}", self.message, self.remedy)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.reason, self.message, self.remedy)
    }
}
