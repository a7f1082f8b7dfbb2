//! Conversion of typed errors to HTTP responses.
//!
//! Every response of the activator with a status of 500 or more, and the 403 for a guarded workload, carries
//! `x-zeroscale-origin: activator` and `x-zeroscale-reason: WORD` ([`Refusal::reason`]), so that it is not taken for
//! the pod's. A 503 carries `Retry-After`. A gRPC request gets a trailers-only response: 14 unavailable, 4 deadline
//! exceeded, 7 permission denied, 8 resource exhausted. An unknown revision is 12, unimplemented, the standard mapping
//! of a 404.
//!
//! Each response is counted by its reason.
//!
//! The response to a malformed request closes the client's HTTP/1 connection, even if the fault is found only later. If
//! the workload of a port is not or no longer served, connections to that port are closed, over HTTP/2 as well, because
//! a new connection may reach another object.
//!
//! The front end chooses the text ([`FrontEnd::text`]); gRPC clients always get our own text, which names the exceeded
//! bound.

use crate::discovery::front_end::FrontEnd;
use crate::metrics::WordCounter;
use crate::refusal::Refusal;
use activator_net::{PortGone, TURNED_AWAY};
use bytes::Bytes;
use common::text::printable_document;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode, Version};
use http_body_util::Full;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::sync::Arc;

pub(crate) const ORIGIN: HeaderName = HeaderName::from_static("x-zeroscale-origin");
pub(crate) const REASON: HeaderName = HeaderName::from_static("x-zeroscale-reason");

/// Bytes that gRPC escapes in a message: all but printable ASCII, and the percent sign.
const GRPC_MESSAGE: &AsciiSet = &CONTROLS.add(b'%');

const RETRY_AFTER_SECONDS: &str = "1";

/// Turns refusals into responses with the texts of a front end. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ErrorResponder {
    pub(crate) front_end: Arc<dyn FrontEnd>,
    pub(crate) refused: WordCounter,
}

impl activator_net::ErrorResponder<Refusal> for ErrorResponder {
    fn respond(&self, refusal: &Refusal, grpc: bool, version: Version) -> Option<Response<Full<Bytes>>> {
        tracing::debug!(reason = refusal.reason(), error = %refusal, "request refused");
        if !matches!(refusal, Refusal::Elsewhere { relayed: true }) {
            self.refused.count(refusal.reason());
        }
        (!matches!(refusal, Refusal::ClientGone)).then(|| answer(refusal, grpc, version, &*self.front_end))
    }
}

fn answer(refusal: &Refusal, grpc: bool, version: Version, front_end: &dyn FrontEnd) -> Response<Full<Bytes>> {
    let status = refusal.status();
    if let Refusal::Elsewhere { relayed: true } = refusal {
        let mut response = plain(status, "", false);
        response.headers_mut().insert(TURNED_AWAY, HeaderValue::from_static("1"));
        return response;
    }
    let mut response = match refusal.grpc_code() {
        Some(code) if grpc => trailers_only(code, refusal.text().trim_end()),
        _ => plain(
            status,
            printable_document(&front_end.text(refusal)).into_owned(),
            !matches!(refusal, Refusal::Timeout(_) | Refusal::Unwoken { .. }),
        ),
    };
    let headers = response.headers_mut();
    if status.is_server_error() || matches!(refusal, Refusal::Guarded) {
        headers.insert(ORIGIN, HeaderValue::from_static("activator"));
        headers.insert(REASON, HeaderValue::from_static(refusal.reason()));
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
    }
    if refusal.forbids_reuse() && version < Version::HTTP_2 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if matches!(refusal, Refusal::NotServed | Refusal::Deleted) {
        response.extensions_mut().insert(PortGone);
    }
    response
}

pub(crate) fn plain(status: StatusCode, text: impl Into<Bytes>, nosniff: bool) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if nosniff {
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    response
}

/// Returns a gRPC error: status 200, no body, the code among the headers.
fn trailers_only(code: &'static str, message: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static(code));
    if let Ok(message) = HeaderValue::try_from(utf8_percent_encode(message, GRPC_MESSAGE).to_string()) {
        headers.insert("grpc-message", message);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::standalone::Standalone;
    use crate::refusal::TimedOut;
    use activator_net::ProxyError;
    use http_body::Body;
    use std::time::Duration;

    const STANDALONE: Standalone = Standalone {
        system_namespace: String::new(),
        namespaces: common_runtime::namespaces::Namespaces::ALL,
        routers: Vec::new(),
        proxies: Vec::new(),
    };

    /// Goal: own errors carry origin, reason and `Retry-After`, but never the pod's address. gRPC clients get trailers
    /// only.
    #[test]
    fn each_refusal_becomes_a_response() {
        let dest = "10.0.0.1:80".parse().expect("an address");
        let rows = [
            (Refusal::NoRevision { name: "x".into() }, 404, Some("12")),
            (Refusal::Guarded, 403, Some("7")),
            (Refusal::QueueFull { bound: 5 }, 503, Some("8")),
            (Refusal::MemoryFull { bound: 99 }, 503, Some("8")),
            (Refusal::AnswerFull { needed: 9, bound: 99, own: 98 }, 502, Some("8")),
            (Refusal::ShareFull { bound: 99, own: 50 }, 503, Some("8")),
            (TimedOut::Total(Duration::from_secs(3)).into(), 504, Some("4")),
            (TimedOut::Idle(Duration::from_secs(3)).into(), 504, Some("4")),
            (Refusal::from(TimedOut::Total(Duration::from_secs(3))).unwoken(&"quota".into()), 504, Some("4")),
            (Refusal::Failing { reason: "CrashLoopBackOff".into() }, 503, Some("14")),
            (Refusal::Paused, 503, Some("14")),
            (Refusal::Fallback { service: "sorry".into(), cause: "refused".into() }, 502, Some("14")),
            (Refusal::Deleted, 503, Some("14")),
            (Refusal::NotServed, 503, Some("14")),
            (ProxyError::Pod { dest, cause: "connection refused".into() }.into(), 502, Some("14")),
            (ProxyError::NoRoom { bound: 7 }.into(), 503, Some("8")),
            (ProxyError::Malformed("malformed Host header").into(), 400, None),
            (ProxyError::Unsupported { status: StatusCode::EXPECTATION_FAILED, rule: "expectation" }.into(), 417, None),
        ];
        for (refusal, expected, code) in rows {
            let response = answer(&refusal, false, Version::HTTP_11, &STANDALONE);
            assert_eq!(response.status().as_u16(), expected, "{refusal}");
            assert_eq!(response.headers().contains_key(ORIGIN), expected >= 500 || expected == 403, "{refusal}");
            assert_eq!(response.headers().contains_key(RETRY_AFTER), expected == 503, "{refusal}");
            assert_eq!(response.headers().contains_key(CONNECTION), matches!(expected, 400 | 417), "{refusal}");
            assert!(!STANDALONE.text(&refusal).contains("10.0.0.1"), "{refusal}");
            let grpc = answer(&refusal, true, Version::HTTP_2, &STANDALONE);
            let fields = format!("{:?}", grpc.headers());
            assert!(!fields.contains("10.0.0.1") && !fields.contains("prod"), "{fields}");
            match code {
                None => assert!(grpc.status().is_client_error(), "{refusal}"),
                Some(code) => {
                    assert_eq!(grpc.status(), StatusCode::OK, "{refusal}");
                    assert_eq!(grpc.headers()["grpc-status"], code, "{refusal}");
                    assert!(grpc.body().is_end_stream(), "{refusal}");
                }
            }
        }
        assert_eq!(utf8_percent_encode("a%b\u{e4}", GRPC_MESSAGE).to_string(), "a%25b%C3%A4");
        assert!(STANDALONE.text(&Refusal::QueueFull { bound: 5 }).contains("5 requests"));
        assert!(STANDALONE.text(&Refusal::MemoryFull { bound: 99 }).contains("99 bytes"));
        assert!(STANDALONE.text(&Refusal::ShareFull { bound: 99, own: 50 }).contains("share of 99"));
        let failed = Refusal::from(ProxyError::Pod { dest, cause: "connection reset".into() });
        assert_eq!(STANDALONE.text(&failed), "a pod of the workload failed: connection reset\n");
    }
}
