//! Why a workload cannot serve, and what helps: one value that every surface renders in the same words.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a workload cannot serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// One word for programs: the reason of Ready.
    pub reason: String,
    /// Description of what is wrong.
    #[serde(default)]
    pub message: String,
    /// Description of what helps.
    #[serde(default)]
    pub remedy: String,
    /// Time at which it was found.
    pub since: Time,
    /// The versions of this object and of its target that it was found with.
    #[serde(default)]
    pub of: String,
}

impl Fault {
    /// Returns what is wrong and what helps: the message of Ready.
    pub fn message(&self) -> String {
        format!("{}; {}", self.message, self.remedy)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.reason, self.message, self.remedy)
    }
}
