//! Texts for failed responses of the API server, which appear in conditions and events.
//!
//! A `Status` object contains its own text. Any other response, such as the plain text of an unknown path, gets the
//! text of Kubernetes' own clients, with verb and resource of the request. The body of such a response is quoted if it
//! is text, up to [`UNSTRUCTURED_MAX`] bytes; otherwise it is `unknown`.

use common::golang::quote;
use http::StatusCode;
use serde::Deserialize;

/// Maximum quoted length of a response that is not a `Status`.
const UNSTRUCTURED_MAX: usize = 2048;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// HTTP status; `None` if there was no usable response.
    pub(super) code: Option<u16>,
    /// Message for users.
    pub(super) message: String,
}

impl Failure {
    /// Returns a failure that this client detected: there is no usable response.
    pub(super) fn client(message: impl Into<String>) -> Self {
        Self { code: None, message: message.into() }
    }

    /// Reports whether the requested object does not exist.
    pub(super) fn is_absent(&self) -> bool {
        self.code == Some(404)
    }
}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        failure.message
    }
}

#[derive(Deserialize)]
struct Status {
    kind: String,
    #[serde(default)]
    message: String,
}

/// Returns the failure in a response with this media type. A response without a media type may be JSON or text.
/// `operation` is the request for the text: verb, resource with group, and name. It may be empty.
pub(super) fn failure(code: StatusCode, media: &str, body: &[u8], operation: &str) -> Failure {
    let is_json = matches!(media, "" | "application/json");
    let status = if is_json { serde_json::from_slice::<Status>(body).ok() } else { None };
    let message = match status.filter(|status| status.kind == "Status" && !status.message.is_empty()) {
        Some(status) => status.message,
        None => generic(code, quoted_body(media, body), operation),
    };
    Failure { code: Some(code.as_u16()), message }
}

/// Returns the quoted body of a response that is not a `Status`.
fn quoted_body<'a>(media: &str, body: &'a [u8]) -> &'a [u8] {
    let is_text = media.is_empty() || media.starts_with("text/");
    if is_text { body[..body.len().min(UNSTRUCTURED_MAX)].trim_ascii() } else { b"unknown" }
}

fn generic(code: StatusCode, body: &[u8], operation: &str) -> String {
    let formatted;
    let text = match code.as_u16() {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        406 if matches!(body, b"" | b"unknown") => {
            "the server was unable to respond with a content type that the client supports"
        }
        403 | 406 | 415 => {
            formatted = String::from_utf8_lossy(body).into_owned();
            &formatted
        }
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        410 => "the server reported that the requested resource is gone",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => {
            formatted = format!("an error on the server ({}) has prevented the request from succeeding", quote(body));
            &formatted
        }
        other => {
            formatted =
                format!("the server responded with the status code {other} but did not return more information");
            &formatted
        }
    };
    if operation.is_empty() { text.to_owned() } else { format!("{text} ({operation})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: &str = "get pods.metrics.k8s.io";

    /// Rows: (status, media type, body) -> text for users.
    #[test]
    fn failures_have_the_texts_of_kubernetes_clients() {
        let status = r#"{"kind":"Status","code":404,"message":"deployments.apps \"web\" not found"}"#;
        let (not_found, on_the_server) = ("the server could not find the requested resource", |body: &str| {
            format!("an error on the server ({body}) has prevented the request from succeeding")
        });
        for (code, media, body, message) in [
            (404, "text/plain", "404 page not found\n", not_found),
            (404, "text/plain", status, not_found),
            (503, "", "", "the server is currently unable to handle the request"),
            (500, "", "", &on_the_server("\"\"")),
            (502, "text/html", " bad\n\x1bgateway\n", &on_the_server(r#""bad\n\x1bgateway""#)),
            (502, "application/json", "bad gateway", &on_the_server("\"unknown\"")),
            (403, "text/plain", "go away", "go away"),
            (403, "application/json", "go away", "unknown"),
            (415, "text/plain", "speak JSON", "speak JSON"),
            (406, "text/plain", "speak JSON", "speak JSON"),
            (406, "", "", "the server was unable to respond with a content type that the client supports"),
            (418, "", "", "the server responded with the status code 418 but did not return more information"),
        ] {
            let code = StatusCode::from_u16(code).expect("a status");
            let expected = format!("{message} (get pods.metrics.k8s.io)");
            assert_eq!(failure(code, media, body.as_bytes(), PODS).message, expected, "{media}");
        }
        for media in ["", "application/json"] {
            let failure = failure(StatusCode::NOT_FOUND, media, status.as_bytes(), PODS);
            assert_eq!(failure.message, "deployments.apps \"web\" not found");
        }
        let failure = failure(StatusCode::NOT_FOUND, "", b"", "get pods.custom.metrics.k8s.io *");
        assert!(failure.message.ends_with("(get pods.custom.metrics.k8s.io *)"), "{}", failure.message);
        assert!(failure.is_absent());
    }

    #[test]
    fn a_long_response_is_truncated() {
        let long = "é".repeat(3000);
        let message = |body: &str| failure(StatusCode::FORBIDDEN, "text/plain", body.as_bytes(), "").message;
        assert_eq!(message(&long), "é".repeat(1024));
        let truncated = message(&format!("x{long}"));
        assert_eq!(truncated, format!("x{}\u{fffd}", "é".repeat(1023)), "counted in bytes, as upstream");
    }
}
