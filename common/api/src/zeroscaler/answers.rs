//! Responses that need no pod: a page for browsers, a placeholder, responses that wake nobody.
//!
//! Each is for the requests that its [`RequestMatch`] names. All texts are part of the object; activators read them from
//! the spec in force ([`Answers`]).

use super::ProbeHeader as Header;
use super::fallback::FallbackStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Most characters of a page, or of the body of a response. An object with a page, a placeholder and sixteen static
/// responses of this length, and the same in the version in force of its status, still fits into etcd.
pub const BODY_LENGTH_MAX: usize = 32_768;

/// Which requests are meant. What is not said matches everything; what is said has to match in each of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestMatch {
    /// One of these paths: `/robots.txt` is that path alone, `/assets/*` is whatever begins with `/assets/`. None: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// One of these methods. None: all that make sense, which is GET and HEAD for static, GET for page, else any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// One of these media types is named in the request's Accept, by itself: `*/*` there names none. None: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accept: Vec<String>,
    /// Each of these headers is there; with this value, if one is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderMatch>,
}

/// A header that a request has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeaderMatch {
    /// Name.
    pub name: String,
    /// Value, to the letter. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// What a browser is shown while the workload wakes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// Which of the browsers' requests; those of programs and of scripts in a page are held in any case.
    #[serde(default, rename = "match", skip_serializing_if = "super::is_default")]
    pub matching: RequestMatch,
    /// HTML of your own. Of it `{{workload}}`, `{{since}}`, `{{elapsed}}`, `{{typical}}`, `{{retry}}`, `{{cause}}` and
    /// `{{state}}` (waking, or paused; HTML without it is not shown of a paused workload) are replaced, and `{{script}}` by
    /// what replaces the page when the workload is ready, which stands at the end if it is not named. Default: the
    /// cluster's page, `html` of the ConfigMap config-page; without that a page that says all of this.
    #[serde(default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
}

/// Reads a text. A stored value of another type, as a former definition had it, is read as none: one object must never
/// keep a list from being read.
fn text<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(value)? {
        Value::String(text) => Some(text),
        _ => None,
    })
}

/// What is answered at once, instead of holding a request, while the workload wakes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placeholder {
    /// Which requests. Those that a page is for get that.
    #[serde(default, rename = "match", skip_serializing_if = "super::is_default")]
    pub matching: RequestMatch,
    /// The answer. Default status: 503, with Retry-After.
    pub response: FixedResponse,
}

/// An answer that wakes nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticAnswer {
    /// Which requests. Of several entries the first that matches answers.
    #[serde(default, rename = "match", skip_serializing_if = "super::is_default")]
    pub matching: RequestMatch,
    /// The answer. Default status: 200.
    pub response: FixedResponse,
    /// WhileAsleep: pods that are ready answer themselves. Always: they are never asked.
    #[serde(default)]
    pub answer: AnswerMode,
    /// Whether requests that pods answer themselves count as load, and so keep the workload awake.
    #[serde(default)]
    pub keeps_awake: bool,
}

/// When a static answer is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AnswerMode {
    /// Always.
    Always,
    /// While no pod is ready. What a newer version may have written is read as this.
    #[default]
    #[serde(other)]
    WhileAsleep,
}

/// A response that stands written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FixedResponse {
    /// Status, from 200 to 599.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// Headers. Those that frame a message, such as Content-Length, are the activator's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<Header>,
    /// Body. Content-Type is text/plain unless a header says otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
}

/// Responses that activators send without a pod: those of `spec.wake`, and the fallback that the owner has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Page for browsers.
    pub page: Option<Page>,
    /// Response in place of holding a request.
    pub placeholder: Option<Placeholder>,
    /// Responses that wake nobody.
    pub fixed: Vec<StaticAnswer>,
    /// Service that answers if the workload does not wake in time.
    pub fallback: Option<FallbackStatus>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    /// Goal: one object whose page is a reference to a ConfigMap, as a former definition had it, keeps no list from being
    /// read.
    #[test]
    fn a_page_that_is_no_text_is_read_as_none() {
        for (html, expected) in [(json!("<p>"), Some("<p>")), (json!({"configMap": "a", "key": "b"}), None)] {
            let page: Page = from_value(json!({"html": html})).expect("readable");
            assert_eq!(page.html.as_deref(), expected);
        }
    }
}
