//! Requests that ask for the activator itself, told from traffic by their headers alone; method, path and host do not
//! matter.
//!
//! | request | answer |
//! |---|---|
//! | `User-Agent: kube-probe/…`, or `K-Kubelet-Probe` | health, whatever else it carries |
//! | `K-Network-Probe: probe` and `K-Network-Hash: h` | 200, `K-Network-Hash: h` |
//! | the same without a hash | 400 |
//! | `K-Network-Probe: activator` | 200, body `activator` |
//! | any other value | 400 |
//! | an empty value | traffic |
//!
//! Probes touch no revision, no metric and no stat. The hash is taken out of all other requests (by
//! [`crate::forward::headers`]).
//!
//! # Health
//!
//! 200 once the revisions are known and the stat link has been up once, or 10 s have passed since the start: an
//! autoscaler that is away must not keep activators from serving warm traffic. 503 before, 500 after the shutdown
//! signal and never otherwise. (Upstream fails whenever the stat link is down.)

use crate::body::{BodyError, Reply};
use crate::exchange::Inbound;
use crate::quote;
use crate::refusal::Refusal;
use crate::server::rescue::plain;
use bytes::Bytes;
use common::headers::{self, Incoming};
use http::header::{HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tower::Service;

// Parsed once, not for each request.
const NETWORK_PROBE: HeaderName = HeaderName::from_static(headers::NETWORK_PROBE);
const KUBELET_PROBE: HeaderName = HeaderName::from_static(headers::KUBELET_PROBE);

/// How long a start waits for the stat link.
const STAT_LINK_WAIT: Duration = Duration::from_secs(10);

/// What the kubelet is told.
#[derive(Debug)]
pub(crate) struct Health {
    started: Instant,
    synced: AtomicBool,
    linked: AtomicBool,
    draining: AtomicBool,
}

impl Health {
    /// Not healthy yet.
    pub(crate) fn new(started: Instant) -> Self {
        Self {
            started,
            synced: AtomicBool::new(false),
            linked: AtomicBool::new(false),
            draining: AtomicBool::new(false),
        }
    }

    /// The first full lists of all watches have been taken in.
    pub(crate) fn set_synced(&self) {
        self.synced.store(true, Ordering::Release);
    }

    /// The stat link was up.
    pub(crate) fn set_linked(&self) {
        self.linked.store(true, Ordering::Release);
    }

    /// The shutdown signal came.
    pub(crate) fn set_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Whether the revisions are known.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// The status, and the reason for a bad one.
    pub(crate) fn check(&self, now: Instant) -> (StatusCode, &'static str) {
        if self.draining.load(Ordering::Acquire) {
            (StatusCode::INTERNAL_SERVER_ERROR, "received SIGTERM from kubelet\n")
        } else if !self.is_synced() {
            (StatusCode::SERVICE_UNAVAILABLE, "the revisions are not known yet\n")
        } else if !self.linked.load(Ordering::Acquire) && now.duration_since(self.started) < STAT_LINK_WAIT {
            (StatusCode::SERVICE_UNAVAILABLE, "connection has not yet been established\n")
        } else {
            (StatusCode::OK, "")
        }
    }
}

/// Answers probes, and passes the rest on.
#[derive(Clone)]
pub(crate) struct Probe<S> {
    inner: S,
    health: Arc<Health>,
}

impl<S> Probe<S> {
    /// Around `inner`.
    pub(crate) fn new(inner: S, health: Arc<Health>) -> Self {
        Self { inner, health }
    }
}

impl<S, B> Service<Inbound> for Probe<S>
where
    S: Service<Inbound, Response = Response<B>, Error = Refusal>,
    B: Body<Data = Bytes, Error: Into<BodyError>>,
{
    type Response = Response<Reply<B>>;
    type Error = Refusal;
    type Future = Probed<S::Future, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, inbound: Inbound) -> Self::Future {
        match answer(inbound.request.headers(), &self.health) {
            Some(response) => Probed::Answered { response: Some(response) },
            None => Probed::Traffic { exchange: self.inner.call(inbound) },
        }
    }
}

/// The answer, if the headers are a probe's.
fn answer<B>(fields: &HeaderMap, health: &Health) -> Option<Response<Reply<B>>> {
    let network_probe = fields.get(NETWORK_PROBE);
    let is_plain = network_probe.is_none()
        && !fields.contains_key(KUBELET_PROBE)
        && !fields.get(USER_AGENT).is_some_and(|agent| agent.as_bytes().starts_with(b"kube-probe/"));
    if is_plain {
        return None;
    }
    let text = |name: &str| fields.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // A value that is not ASCII is still a value.
    let kubelet = fields.get(KUBELET_PROBE).map_or("", |v| if v.is_empty() { "" } else { "set" });
    let probe = match network_probe {
        None => "",
        Some(value) => value.to_str().unwrap_or("\u{fffd}"),
    };
    Some(match headers::classify(text(headers::USER_AGENT), kubelet, probe) {
        Incoming::Traffic => return None,
        Incoming::Kubelet => {
            let (status, reason) = health.check(Instant::now());
            if status == StatusCode::OK { Response::new(Reply::own(Bytes::new())) } else { plain(status, reason, true) }
        }
        Incoming::HashProbe => match fields.get(headers::NETWORK_HASH).filter(|hash| !hash.is_empty()) {
            Some(hash) => {
                let mut response = Response::new(Reply::own(Bytes::new()));
                response.headers_mut().insert(headers::NETWORK_HASH, hash.clone());
                response
            }
            None => {
                let text = "a probe request must contain a non-empty \"K-Network-Hash\" header\n";
                plain(StatusCode::BAD_REQUEST, text, true)
            }
        },
        Incoming::ActivatorProbe => plain(StatusCode::OK, headers::ACTIVATOR_VALUE, false),
        Incoming::UnknownProbe(_) => {
            let value = network_probe.map_or(&b""[..], HeaderValue::as_bytes);
            let shown = quote::quoted(&quote::html_escaped(value));
            plain(StatusCode::BAD_REQUEST, format!("unexpected probe header value: {shown}\n"), true)
        }
    })
}

pin_project! {
    /// A probe's answer, or the exchange below.
    #[project = ProbedProjection]
    pub(crate) enum Probed<F, B> {
        /// Ours.
        Answered {
            response: Option<Response<Reply<B>>>,
        },
        /// Below.
        Traffic {
            #[pin]
            exchange: F,
        },
    }
}

impl<F, B> Future for Probed<F, B>
where
    F: Future<Output = Result<Response<B>, Refusal>>,
{
    type Output = Result<Response<Reply<B>>, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            ProbedProjection::Answered { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                None => Poll::Pending, // Polled again after its end, which nobody may do.
            },
            ProbedProjection::Traffic { exchange } => {
                exchange.poll(cx).map_ok(|response| response.map(|body| Reply::Inner { body }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Empty;

    fn ask(fields: &[(&str, &[u8])], health: &Health) -> Option<(u16, String)> {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            map.append(name, HeaderValue::from_bytes(value).expect("a value"));
        }
        let response: Response<Reply<Empty<Bytes>>> = answer(&map, health)?;
        let status = response.status().as_u16();
        let hash = response.headers().get(headers::NETWORK_HASH).map(|h| format!("hash {h:?}"));
        let body = match response.into_body() {
            Reply::Own { bytes } => String::from_utf8(bytes.unwrap_or_default().to_vec()).expect("text"),
            Reply::Inner { .. } => unreachable!("nothing is below"),
        };
        Some((status, hash.unwrap_or(body)))
    }

    /// The matrix of Knative's probes, as observed on a live activator.
    #[tokio::test]
    async fn probes_are_answered_as_upstream_does() {
        let health = Health::new(Instant::now());
        health.set_synced();
        health.set_linked();
        type Fields<'a> = &'a [(&'a str, &'a [u8])];
        let no_hash = "a probe request must contain a non-empty \"K-Network-Hash\" header\n";
        let rows: [(Fields<'_>, Option<(u16, &str)>); 17] = [
            (&[("user-agent", b"kube-probe/1.34")], Some((200, ""))),
            (&[("user-agent", b"kube-probe/")], Some((200, ""))),
            (&[("k-kubelet-probe", b"x")], Some((200, ""))),
            (&[("user-agent", b"kube-probe/1"), ("k-network-probe", b"queue")], Some((200, ""))),
            (&[("user-agent", b"kube-probe")], None),
            (&[("user-agent", b"Kube-Probe/1")], None),
            (&[("k-kubelet-probe", b"")], None),
            (&[("k-network-probe", b"probe"), ("k-network-hash", b"h")], Some((200, "hash \"h\""))),
            (&[("k-network-probe", b"probe"), ("k-network-hash", b"")], Some((400, no_hash))),
            (&[("k-network-probe", b"probe")], Some((400, no_hash))),
            (&[("k-network-probe", b"activator")], Some((200, "activator"))),
            (&[("k-network-probe", b"activator"), ("k-network-probe", b"queue")], Some((200, "activator"))),
            (&[("k-network-probe", b""), ("k-network-probe", b"activator")], None),
            (&[("k-network-probe", b"queue")], Some((400, "unexpected probe header value: \"queue\"\n"))),
            (
                &[("k-network-probe", b"<b>&'\"")],
                Some((400, "unexpected probe header value: \"&lt;b&gt;&amp;&#39;&#34;\"\n")),
            ),
            (&[("k-network-probe", b"\xe9")], Some((400, "unexpected probe header value: \"\\xe9\"\n"))),
            (&[("user-agent", b"curl")], None),
        ];
        for (fields, expected) in rows {
            let answered = ask(fields, &health);
            assert_eq!(answered.as_ref().map(|(s, b)| (*s, b.as_str())), expected, "{fields:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn health_needs_the_revisions_and_the_stat_link_or_ten_seconds() {
        let health = Health::new(Instant::now());
        assert_eq!(health.check(Instant::now()).0, StatusCode::SERVICE_UNAVAILABLE);
        tokio::time::advance(STAT_LINK_WAIT).await;
        assert_eq!(health.check(Instant::now()).0, StatusCode::SERVICE_UNAVAILABLE, "nothing is known");
        health.set_synced();
        assert_eq!(health.check(Instant::now()).0, StatusCode::OK, "the data path does not need the autoscaler");

        let fresh = Health::new(Instant::now());
        fresh.set_synced();
        assert_eq!(fresh.check(Instant::now()).0, StatusCode::SERVICE_UNAVAILABLE);
        fresh.set_linked();
        assert_eq!(fresh.check(Instant::now()).0, StatusCode::OK);
        fresh.set_draining();
        assert_eq!(fresh.check(Instant::now()).0, StatusCode::INTERNAL_SERVER_ERROR);
    }
}
