//! Knative's conditions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One observed aspect of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type, such as `Ready`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Empty: an error when False; `Warning` and `Info` do not count towards `Ready`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub severity: String,
    /// RFC 3339, whole seconds: when anything but this field last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// One word for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
