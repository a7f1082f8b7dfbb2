//! What is answered without a pod: a page for browsers, a placeholder, answers that wake nobody.
//!
//! Each is for the requests that its [`RequestMatch`] names. What stands here is also the form in which the owner hands it
//! to the activators ([`Answers`], in the status): there every text from a ConfigMap has been read and bounded.

use super::ProbeHeader as Header;
use super::fallback::FallbackStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most bytes of a page, or of a placeholder's body. With all others they stay below what an object may have.
pub const BODY_BYTES_MAX: usize = 32_768;
/// The same of a static answer, of which there may be sixteen.
pub const STATIC_BODY_BYTES_MAX: usize = 16_384;

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
    /// HTML of your own. Of it `{{workload}}`, `{{since}}`, `{{elapsed}}`, `{{typical}}`, `{{retry}}` and `{{state}}`
    /// (waking, or paused; HTML without it is not shown of a paused workload) are replaced, and `{{script}}` by what
    /// replaces the page when the workload is ready, which stands at the end if it is not named. Default: a page that
    /// says all that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<TextSource>,
}

/// A text in a ConfigMap of the same namespace, which has the label `zeroscale.dev/response: "true"`. At most 32768 bytes; 16384 of a static answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TextSource {
    /// Name of the ConfigMap.
    pub config_map: String,
    /// The key in it.
    pub key: String,
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
    /// Body from a ConfigMap. Not together with body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_from: Option<TextSource>,
}

/// What activators answer without a pod, as the owner has resolved it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Answers {
    /// What browsers are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<Page>,
    /// HTML of that page; none: the activator's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_html: Option<String>,
    /// What is answered instead of holding a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placeholder: Option<Placeholder>,
    /// What is answered without waking.
    #[serde(default, rename = "static", skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<StaticAnswer>,
    /// Who answers when the workload does not wake in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackStatus>,
}
