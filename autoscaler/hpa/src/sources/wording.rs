//! What the API server's answers are called when they are failures: users meet these texts in conditions and events.
//!
//! A `Status` object speaks for itself. Anything else, such as the plain text of a path that nobody serves, gets the
//! words that Kubernetes' own clients put in its place, with the verb and the resource that was asked for.

use http::StatusCode;
use serde::Deserialize;

/// What was asked, for the words of a failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// `get` or `put`.
    pub(super) verb: &'a str,
    /// Resource and group, as in `pods.metrics.k8s.io`.
    pub(super) resource: &'a str,
    /// The object's name, if one was named.
    pub(super) name: &'a str,
}

/// An answer that is a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The HTTP status; none: there was no answer.
    pub(super) code: Option<u16>,
    /// For people.
    pub(super) message: String,
}

impl Failure {
    /// No answer.
    pub(super) fn silent(message: impl Into<String>) -> Self {
        Self { code: None, message: message.into() }
    }

    /// Whether what was asked for is not there.
    pub(super) fn is_absent(&self) -> bool {
        self.code == Some(404)
    }
}

#[derive(Deserialize)]
struct Status {
    kind: String,
    #[serde(default)]
    message: String,
}

/// The failure that an answer tells of.
pub(super) fn failure(code: StatusCode, body: &[u8], asked: Asked<'_>) -> Failure {
    let told = serde_json::from_slice::<Status>(body).ok().filter(|status| status.kind == "Status");
    let message = match told.filter(|status| !status.message.is_empty()) {
        Some(status) => status.message,
        None => generic(code, String::from_utf8_lossy(body).trim(), asked),
    };
    Failure { code: Some(code.as_u16()), message }
}

fn generic(code: StatusCode, body: &str, asked: Asked<'_>) -> String {
    let said = if body.is_empty() { "unknown" } else { body };
    let text = match code.as_u16() {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 | 406 => said,
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
        500.. => return format!("{} {}", quoted(said), place(asked)).trim_end().to_owned(),
        _ => "the server responded with a status that is not known",
    };
    format!("{text} {}", place(asked)).trim_end().to_owned()
}

fn quoted(said: &str) -> String {
    format!("an error on the server ({said:?}) has prevented the request from succeeding")
}

fn place(asked: Asked<'_>) -> String {
    let Asked { verb, resource, name } = asked;
    match (resource, name) {
        ("", _) => String::new(),
        (_, "") => format!("({verb} {resource})"),
        _ => format!("({verb} {resource} {name})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: Asked<'_> = Asked { verb: "get", resource: "pods.metrics.k8s.io", name: "" };

    /// (status, body) -> what a user reads, known from many questions on the web.
    #[test]
    fn failures_are_worded_as_kubernetes_clients_word_them() {
        let status = r#"{"kind":"Status","code":404,"message":"deployments.apps \"web\" not found"}"#;
        for (code, body, message) in [
            (404, status, "deployments.apps \"web\" not found"),
            (404, "404 page not found\n", "the server could not find the requested resource (get pods.metrics.k8s.io)"),
            (503, "", "the server is currently unable to handle the request (get pods.metrics.k8s.io)"),
            (
                502,
                "bad gateway",
                "an error on the server (\"bad gateway\") has prevented the request from succeeding \
                 (get pods.metrics.k8s.io)",
            ),
            (403, "go away", "go away (get pods.metrics.k8s.io)"),
        ] {
            let code = StatusCode::from_u16(code).expect("a status");
            assert_eq!(failure(code, body.as_bytes(), PODS).message, message);
        }
        let named = Asked { resource: "pods.custom.metrics.k8s.io", name: "*", ..PODS };
        let failure = failure(StatusCode::NOT_FOUND, b"", named);
        assert!(failure.message.ends_with("(get pods.custom.metrics.k8s.io *)"), "{}", failure.message);
        assert!(failure.is_absent());
    }
}
