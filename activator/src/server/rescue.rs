//! Where typed errors become HTTP, and 101 responses become tunnels.
//!
//! Every answer of ours from 500 up carries `x-zeroscale-origin: activator` and `x-zeroscale-reason: WORD`
//! ([`Refusal::reason`]), so that nobody takes it for the pod's; a refusal that a later attempt may escape carries
//! `Retry-After`. A gRPC request gets a trailers-only response instead: 14 unavailable, 4 deadline exceeded, 8 resource
//! exhausted; an unknown revision is 12, unimplemented, which is what the standard reads a 404 as.
//!
//! What cannot be understood ([`super::strict`]), or turns out to be malformed later, is answered and the client's
//! HTTP/1 connection closed.
//!
//! Statuses and texts for what upstream refuses too are upstream's in knative mode; in standalone the text is the
//! error's own, which names the bound. Anybody may read it, so it names no pod, no address and no namespace: those are
//! in the log.

use super::Chain;
use super::drain::{Drain, Phase};
use super::strict::{self, Verdict};
use super::tunnel::Tunnel;
use crate::body::{BodyError, Reply, RequestBody};
use crate::exchange::{Inbound, Peer};
use crate::refusal::Refusal;
use bytes::Bytes;
use common_runtime::environment::Mode;
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// Marks an answer of ours.
const ORIGIN: HeaderName = HeaderName::from_static("x-zeroscale-origin");
/// Says why, in a word.
const REASON: HeaderName = HeaderName::from_static("x-zeroscale-reason");

/// Seconds after which a refused client may come back.
const RETRY_AFTER_SECONDS: &str = "1";

/// The chain as hyper calls it, for one connection.
pub(super) struct Rescue<S> {
    /// The connection's own: a copy for each request would touch counts that all threads share.
    chain: RefCell<S>,
    peer: Arc<Peer>,
    own: Arc<Own>,
}

/// What a connection's exchanges share.
struct Own {
    mode: Mode,
    tunnels: TaskTracker,
    drain: Drain,
}

impl<S> Rescue<S> {
    /// For the connection of `peer`. `tunnels` counts what becomes of its upgrades.
    pub(super) fn new(chain: S, peer: Arc<Peer>, mode: Mode, tunnels: TaskTracker, drain: Drain) -> Self {
        Self { chain: RefCell::new(chain), peer, own: Arc::new(Own { mode, tunnels, drain }) }
    }
}

impl<S: Chain> hyper::service::Service<Request<Incoming>> for Rescue<S> {
    type Response = Response<Reply<S::Body>>;
    type Error = BodyError;
    type Future = Rescued<S::Future>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (grpc, version) = (is_grpc(request.headers()), request.version());
        let head_only = version == Version::HTTP_2 && *request.method() == Method::HEAD;
        let rescued =
            |exchange, verdict| Rescued { exchange, verdict, grpc, head_only, version, own: self.own.clone() };
        match strict::judge(&request) {
            Verdict::Pass => {}
            verdict => return rescued(None, verdict),
        }
        let request = request.map(RequestBody::new);
        self.peer.note(version, request.body());
        let inbound = Inbound { request, peer: self.peer.clone(), received: Instant::now() };
        // Readiness is not asked for: every layer of the chain is always ready, and waits inside its future.
        rescued(Some(self.chain.borrow_mut().call(inbound)), Verdict::Pass)
    }
}

pin_project! {
    /// One exchange whose errors are answered.
    pub(super) struct Rescued<F> {
        #[pin]
        exchange: Option<F>,
        verdict: Verdict,
        grpc: bool,
        head_only: bool,
        version: Version,
        own: Arc<Own>,
    }
}

impl<F, B> Future for Rescued<F>
where
    F: Future<Output = Result<Response<B>, Refusal>>,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
{
    type Output = Result<Response<Reply<B>>, BodyError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut answer = std::task::ready!(self.as_mut().poll_answer(cx));
        let is_last = self.version < Version::HTTP_2 && self.own.drain.phase() == Phase::Leaving;
        if is_last && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Poll::Ready(Ok(if self.head_only { without_body(answer) } else { answer }))
    }
}

impl<F, B> Rescued<F>
where
    F: Future<Output = Result<Response<B>, Refusal>>,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
{
    fn poll_answer(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Reply<B>>> {
        let this = self.project();
        let Some(exchange) = this.exchange.as_pin_mut() else {
            return Poll::Ready(match this.verdict {
                Verdict::Refuse(refusal) => answer(refusal, *this.grpc, *this.version, this.own.mode),
                Verdict::Pass | Verdict::Ourselves => Response::new(Reply::own(Bytes::new())),
            });
        };
        Poll::Ready(match std::task::ready!(exchange.poll(cx)) {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                let (mut head, body) = response.into_parts();
                if let Some(tunnel) = head.extensions.remove::<Tunnel>() {
                    this.own.tunnels.spawn(tunnel.run(body, this.own.drain.listener()));
                }
                Response::from_parts(head, Reply::own(Bytes::new()))
            }
            Ok(response) => response.map(|body| Reply::Inner { body }),
            Err(refusal) => {
                tracing::debug!(reason = refusal.reason(), error = %refusal, "refused");
                answer(&refusal, *this.grpc, *this.version, this.own.mode)
            }
        })
    }
}

/// What HEAD is answered with over HTTP/2, where hyper would send the body all the same: the length alone.
fn without_body<B>(response: Response<Reply<B>>) -> Response<Reply<B>>
where
    B: Body<Data = Bytes, Error: Into<BodyError>>,
{
    let (mut head, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact().filter(|_| !body.is_end_stream()) {
        head.headers.entry(CONTENT_LENGTH).or_insert(length.into());
    }
    Response::from_parts(head, Reply::own(Bytes::new()))
}

fn is_grpc(headers: &http::HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"application/grpc"))
}

/// The answer for a refusal.
fn answer<B>(refusal: &Refusal, grpc: bool, version: Version, mode: Mode) -> Response<Reply<B>> {
    let status = refusal.status();
    let mut response = match grpc_code(refusal) {
        Some(code) if grpc => trailers_only(code, text(refusal, Mode::Standalone).trim_end()),
        _ => plain(status, text(refusal, mode), !matches!(refusal, Refusal::Timeout(_))),
    };
    let headers = response.headers_mut();
    if status.is_server_error() {
        headers.insert(ORIGIN, HeaderValue::from_static("activator"));
        headers.insert(REASON, HeaderValue::from_static(refusal.reason()));
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
    }
    if refusal.is_distrust() && version < Version::HTTP_2 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn grpc_code(refusal: &Refusal) -> Option<&'static str> {
    match refusal {
        Refusal::Malformed(_) | Refusal::ClientGone | Refusal::Unsupported { .. } => None,
        Refusal::NoRevision { .. } => Some("12"),
        Refusal::Timeout(_) => Some("4"),
        Refusal::QueueFull { .. } | Refusal::MemoryFull { .. } => Some("8"),
        Refusal::Pod { .. } | Refusal::NotSynced | Refusal::Failing { .. } | Refusal::Deleted => Some("14"),
    }
}

fn text(refusal: &Refusal, mode: Mode) -> String {
    match (refusal, mode) {
        (Refusal::NoRevision { name }, Mode::Knative) => {
            let name = crate::quote::quoted(name.as_bytes());
            format!("Error getting active endpoint: revision.serving.knative.dev {name} not found\n")
        }
        (Refusal::Timeout(_), Mode::Knative) => "activator request timeout".to_owned(),
        (Refusal::QueueFull { .. }, Mode::Knative) => "pending request queue full\n".to_owned(),
        (Refusal::Pod { cause, .. }, Mode::Knative) => format!("{cause}\n"),
        (Refusal::Pod { cause, .. }, Mode::Standalone) => format!("a pod of the revision: {cause}\n"),
        // Behind the word Kubernetes tells of the pod, its namespace and its containers.
        (Refusal::Failing { reason }, _) => {
            format!("the revision's pods fail: {}\n", reason.split(':').next().unwrap_or_default())
        }
        (refusal, _) => format!("{refusal}\n"),
    }
}

/// A plain text answer.
pub(crate) fn plain<B>(status: StatusCode, text: impl Into<Bytes>, nosniff: bool) -> Response<Reply<B>> {
    let mut response = Response::new(Reply::own(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if nosniff {
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    response
}

/// gRPC's form of an error: status 200, no body, the code among the headers.
fn trailers_only<B>(code: &'static str, message: &str) -> Response<Reply<B>> {
    let mut response = Response::new(Reply::own(Bytes::new()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static(code));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(message)) {
        headers.insert("grpc-message", message);
    }
    response
}

/// gRPC's encoding of a message: printable ASCII except `%` stays.
fn percent_encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'$' | b'&'..=b'~' => encoded.push(char::from(byte)),
            other => {
                use std::fmt::Write;
                // Writing to a String cannot fail.
                let _ = write!(encoded, "%{other:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::TimedOut;
    use http_body_util::Empty;
    use std::time::Duration;

    type TestReply = Response<Reply<Empty<Bytes>>>;

    fn rows() -> Vec<(Refusal, u16, Option<&'static str>)> {
        let dest = "10.0.0.1:80".parse().expect("an address");
        vec![
            (Refusal::NoRevision { name: "x".into() }, 404, Some("12")),
            (Refusal::QueueFull { bound: 5 }, 503, Some("8")),
            (Refusal::MemoryFull { bound: 99 }, 503, Some("8")),
            (TimedOut::Total(Duration::from_secs(3)).into(), 504, Some("4")),
            (TimedOut::Idle(Duration::from_secs(3)).into(), 504, Some("4")),
            (Refusal::Failing { reason: "CrashLoopBackOff".into() }, 503, Some("14")),
            (Refusal::Deleted, 503, Some("14")),
            (Refusal::Pod { dest, cause: "connection refused".into() }, 502, Some("14")),
            (Refusal::Malformed("malformed Host header"), 400, None),
            (Refusal::Unsupported { status: StatusCode::EXPECTATION_FAILED, rule: "expectation" }, 417, None),
        ]
    }

    #[test]
    fn our_own_errors_say_that_they_are_ours_and_why() {
        for (refusal, expected, _) in rows() {
            let response: TestReply = answer(&refusal, false, Version::HTTP_11, Mode::Standalone);
            assert_eq!(response.status().as_u16(), expected, "{refusal}");
            assert_eq!(response.headers().contains_key(ORIGIN), expected >= 500, "{refusal}");
            assert_eq!(response.headers().contains_key(RETRY_AFTER), expected == 503, "{refusal}");
            assert_eq!(response.headers().contains_key(CONNECTION), matches!(expected, 400 | 417), "{refusal}");
        }
        assert!(text(&Refusal::QueueFull { bound: 5 }, Mode::Standalone).contains("5 requests"));
        assert!(text(&Refusal::MemoryFull { bound: 99 }, Mode::Standalone).contains("99 bytes"));
    }

    #[test]
    fn nobody_outside_learns_of_pods() {
        let reason = "CrashLoopBackOff: back-off 10s restarting failed container=app pod=app-7_prod(1-2)".to_owned();
        let dest = "10.0.0.1:80".parse().expect("an address");
        let rows = [
            (Refusal::Failing { reason }, "the revision's pods fail: CrashLoopBackOff\n"),
            (Refusal::Pod { dest, cause: "connection reset".into() }, "a pod of the revision: connection reset\n"),
        ];
        for (refusal, expected) in rows {
            assert_eq!(text(&refusal, Mode::Standalone), expected);
            let grpc: TestReply = answer(&refusal, true, Version::HTTP_2, Mode::Standalone);
            let message = grpc.headers()["grpc-message"].to_str().expect("text");
            assert!(!message.contains("10.0.0.1") && !message.contains("prod"), "{message}");
        }
    }

    #[test]
    fn grpc_gets_trailers_only() {
        for (refusal, _, code) in rows() {
            let response: TestReply = answer(&refusal, true, Version::HTTP_2, Mode::Standalone);
            match code {
                None => assert!(response.status().is_client_error(), "{refusal}"),
                Some(code) => {
                    assert_eq!(response.status(), StatusCode::OK, "{refusal}");
                    assert_eq!(response.headers()["grpc-status"], code, "{refusal}");
                    assert!(response.body().is_end_stream(), "{refusal}");
                }
            }
        }
        assert_eq!(percent_encoded("a%b\u{e4}"), "a%25b%C3%A4");
    }

    #[test]
    fn knative_mode_keeps_upstreams_texts() {
        let name = r#"<b>"q\ "#.to_owned();
        assert_eq!(
            text(&Refusal::NoRevision { name }, Mode::Knative),
            "Error getting active endpoint: revision.serving.knative.dev \"<b>\\\"q\\\\ \" not found\n"
        );
        let timeout = Refusal::from(TimedOut::Total(Duration::from_secs(1)));
        assert_eq!(text(&timeout, Mode::Knative), "activator request timeout");
    }
}
