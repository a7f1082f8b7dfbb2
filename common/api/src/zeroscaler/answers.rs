//! Responses that need no pod: a page for browsers, a placeholder, and static responses that do not wake the workload.
//!
//! Each applies to the requests that its [`RequestMatch`] selects. All texts are part of the object. Activators read
//! them from the spec in force ([`Answers`]).

use super::fallback::FallbackStatus;
use common::backend::ProbeHeader as Header;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Maximum number of characters of a page or a response body. With this limit an object with a page, a placeholder and
/// sixteen static responses, plus the same in the status's spec in force, still fits into etcd.
pub const BODY_LENGTH_MAX: usize = 32_768;

/// Conditions on a request. An empty condition matches every request. A request must satisfy all conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestMatch {
    /// Paths; one must match. `/robots.txt` matches only that path, `/assets/*` every path that begins with `/assets/`.
    /// Default: all paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Methods; one must match. Default: GET and HEAD for static, GET for page, otherwise all methods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Media types; the request's Accept header must name one of them. `*/*` in that header names none. Default: all
    /// requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accept: Vec<String>,
    /// Headers; the request must have all of them, with the given value if there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderMatch>,
}

/// Header that a request must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeaderMatch {
    /// Name of the header.
    pub name: String,
    /// Exact value. Default: any value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Page for browsers while the workload starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// Browser requests that get the page. Requests of programs and of scripts in a page are held in any case.
    #[serde(default, rename = "match", skip_serializing_if = "super::is_default")]
    pub matching: RequestMatch,
    /// Your own HTML. `{{workload}}`, `{{since}}`, `{{elapsed}}`, `{{typical}}`, `{{retry}}`, `{{cause}}` and
    /// `{{state}}` (waking or paused) are replaced. HTML without `{{state}}` is not shown for a paused workload.
    /// `{{script}}` is replaced by the script that reloads the page when the workload is ready; without it, the script
    /// is appended. Default: the cluster's page, `html` of the ConfigMap config-page, else a built-in page.
    #[serde(default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
}

/// Reads a text. A stored value of another type, which a former definition allowed, is read as `None`: one object must
/// never make a list unreadable.
fn text<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    Ok(Value::deserialize(value)?.as_str().map(str::to_owned))
}

/// Response that is sent at once, instead of holding a request, while the workload starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placeholder {
    /// Requests that get the response. A page takes precedence.
    #[serde(default, rename = "match", skip_serializing_if = "super::is_default")]
    pub matching: RequestMatch,
    /// The response. Default status: 503, with Retry-After.
    pub response: FixedResponse,
}

/// Response that does not wake the workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticResponse {
    /// Requests that get the response. If several entries match, the first one counts.
    #[serde(default, rename = "match", skip_serializing_if = "super::is_default")]
    pub matching: RequestMatch,
    /// The response. Default status: 200.
    pub response: FixedResponse,
    /// WhileAsleep: ready pods respond themselves. Always: pods never get these requests.
    #[serde(default)]
    pub answer: AnswerMode,
    /// Counts these requests as load if pods respond to them, so they keep the workload awake.
    #[serde(default)]
    pub keeps_awake: bool,
}

/// Time at which a static response is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AnswerMode {
    /// Always.
    Always,
    /// While no pod is ready. Unknown values of newer versions are read as this.
    #[default]
    #[serde(other)]
    WhileAsleep,
}

/// A fixed response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FixedResponse {
    /// Status code, from 200 to 599.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// Headers. The activator sets the headers that frame a message, such as Content-Length.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<Header>,
    /// Body. Content-Type is text/plain unless a header sets it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
}

/// Responses that activators send without a pod: those of `spec.wake`, and the resolved fallback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Page for browsers.
    pub page: Option<Page>,
    /// Response instead of holding a request.
    pub placeholder: Option<Placeholder>,
    /// Responses that do not wake the workload.
    pub fixed: Vec<StaticResponse>,
    /// Service that responds if the workload does not start in time.
    pub fallback: Option<FallbackStatus>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    /// Goal: a page that is a reference to a ConfigMap, which a former definition allowed, makes no list unreadable.
    #[test]
    fn a_page_that_is_not_a_text_is_read_as_none() {
        for (html, expected) in [(json!("<p>"), Some("<p>")), (json!({"configMap": "a", "key": "b"}), None)] {
            let page: Page = from_value(json!({"html": html})).expect("readable");
            assert_eq!(page.html.as_deref(), expected);
        }
    }
}
