//! Sends an admitted request to its chosen pod, and returns the response.
//!
//! # Retries
//!
//! | event | consequence |
//! |---|---|
//! | connect refused, unreachable, or not answered | the pod is out at once (it gets no requests until its probe passes); [`Failure::Elsewhere`] |
//! | connect not answered, while others were | [`Failure::Elsewhere`], which may be the same pod |
//! | connection closed before any of the request was written | retried on another connection; the pod is out if new connections are closed in the same way |
//! | connection closed or reset before a byte of the response, for a request without a body that is GET, HEAD, OPTIONS or TRACE, or has an idempotency key; to a plain pod also PUT and DELETE with a small body | retried once, see below |
//! | sent bytes stay unacknowledged ([`crate::pod::stream`]) | the pod is out; if repeatable: [`Failure::Elsewhere`], once; else [`ProxyError::Pod`] |
//! | pod found gone before the response ([`Pool::lost`]) | the same, also for upgrades |
//! | HTTP/2 pod reports the request as unprocessed (refused stream, GOAWAY), and the body can be sent again ([`crate::body`]) | retried at most four times; then the pod is out; [`Failure::Elsewhere`] |
//! | pod speaks another HTTP version than assumed ([`protocol_guess`]) | sent to the same pod in that version |
//! | the client's body fails | [`ProxyError::Malformed`] |
//! | anything else | [`ProxyError::Pod`]: the pod may have acted on the request |
//!
//! # Close without a response
//!
//! A program may close instead of responding (a handler that panics, nginx's 444); if it left input unread, its kernel
//! resets the connection. A killed pod closes too, and so does a pod whose idle timeout expires just then.
//!
//! - If the connection had been idle, or had carried a response before, these cases look the same. The request is
//!   retried on a new connection, to another pod if one has a free slot ([`Failure::Elsewhere`] without evidence). The
//!   kernel of a pod that is being killed may still accept connections.
//! - If a plain pod resets a new connection, the kernel of a killed pod may have accepted it. The same applies, and
//!   also if another activator closes or resets a connection.
//! - Otherwise a new connect checks the pod. If it is refused, the pod is out, and the request goes elsewhere. If it is
//!   accepted, the program closed on purpose: the client gets a 502, and the pod stays in use.
//! - If a retry is closed too, the client gets the same 502.
//!
//! A request that must not run twice goes to a plain pod over a connection that is new, or was idle for a few
//! milliseconds at most, to avoid the pod's idle timeout. This does not apply to HTTP/2: a pod announces there that it
//! closes and what it has not processed (GOAWAY), and every gRPC call is such a request.
//!
//! So a request runs at most twice: a request that may have run is sent only over new connections, to any pod. A
//! partial head is the start of a response, after which nothing is retried (for HTTP/2, `h2` does not report partial
//! heads).
//!
//! The caller sends an unsent or repeatable request to another pod, or puts it back at the head of the queue. The usual
//! case is a pod that is terminated while requests are on their way to it.
//!
//! # Not here
//!
//! CONNECT (rejected; upstream passes it to the pod, where it has no use). Interim responses (1xx) of HTTP/2 pods and
//! to HTTP/2 clients, which hyper's server does not support. The fields of a pod's 100.

mod copy;
mod failure;
mod forwarding;
mod headers;
mod protocol_guess;
mod relayed;
mod to_http1;
mod to_http2;

use crate::body::{BodyError, Guarded, RequestBody, Upload};
use crate::client::peer::Peer;
use crate::error::ProxyError;
use crate::hop_by_hop::strip_response;
use crate::http1::ExchangeError;
use crate::http1::connection::Http1Body;
use crate::http2::Received;
use crate::http2::connection::Stream;
use crate::pool::Pool;
use activator_core::contract::Contract;
use bytes::Bytes;
use common::backend::Protocol;
pub use failure::{Evidence, Failure, evidence_of_connect};
use failure::{broken, cause_of, is_reset, is_stale};
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRAILER, UPGRADE};
use http::uri::Scheme;
use http::{Method, Request, Response, Version, request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Either;
use hyper::upgrade::OnUpgrade;
pub use protocol_guess::DetectedProtocol;
use relayed::MayHaveRun;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Field that tells a service mesh to send to the pod that the connection addresses.
pub(crate) const PASSTHROUGH_LB: HeaderName = HeaderName::from_static("k-passthrough-lb");

/// Number of new connections that close before they take a request, after which the pod is out.
const CLOSED_AT_ONCE_MAX: usize = 2;

/// A request that is ready for its revision's pods.
pub struct Prepared {
    /// Head for the next pod.
    pub head: request::Parts,
    /// Body, as far as it is still to be sent.
    pub body: RequestBody,
    upgrade: Option<(HeaderValue, OnUpgrade)>,
    delivery: Delivery,
}

struct Delivery {
    contract: Contract,
    protocol: Protocol,
    /// Host to use instead of the pod's address.
    passthrough: Option<HeaderValue>,
    /// Client of the request, if it supports interim responses.
    client: Option<Arc<Peer>>,
    /// The pod may speak another protocol than `protocol`, which is detected ([`protocol_guess`]).
    is_guess: bool,
    /// A pod may have acted on the request. It is sent only over a new connection, and not retried after that.
    may_have_run: bool,
    /// The request goes to another activator.
    is_relayed: bool,
    /// Head as received, if it may have to be prepared again for another destination.
    original: Option<Box<request::Parts>>,
}

impl Prepared {
    /// Prepares a request. `protocol` is the protocol of the pods.
    ///
    /// # Errors
    /// The request cannot be expressed towards a pod.
    pub fn new(
        request: Request<RequestBody>,
        contract: Contract,
        protocol: Protocol,
        peer: Arc<Peer>,
        passthrough: Option<HeaderValue>,
    ) -> Result<Box<Self>, ProxyError> {
        let mut prepared = Self::prepare(request, contract, protocol, peer, false)?;
        let head = &mut prepared.head;
        if prepared.body.is_empty() {
            head.headers.remove(TRAILER);
            if matches!(head.method, Method::POST | Method::PUT | Method::PATCH) {
                // Pods may reject these without a length (411), and upstream always sends it.
                head.headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
            }
        }
        if passthrough.is_some() {
            head.headers.append(PASSTHROUGH_LB, HeaderValue::from_static("true"));
        }
        prepared.delivery.passthrough = passthrough;
        Ok(prepared)
    }

    /// Prepares a request for pods, or for another activator if it `is_relayed`.
    fn prepare(
        mut request: Request<RequestBody>,
        contract: Contract,
        protocol: Protocol,
        peer: Arc<Peer>,
        is_relayed: bool,
    ) -> Result<Box<Self>, ProxyError> {
        // HTTP/1.0 has no upgrades: a pod that accepts one would face a client whose connection ends.
        let is_http11 = request.version() == Version::HTTP_11;
        let upgradable = protocol == Protocol::Http1 && is_http11;
        let on_upgrade =
            (upgradable && request.headers().contains_key(UPGRADE)).then(|| hyper::upgrade::on(&mut request));
        let may_have_run = request.extensions_mut().remove::<MayHaveRun>().is_some();
        let (mut head, body) = request.into_parts();
        let for_pods = (!is_relayed).then_some(contract);
        let upgrade_protocol = headers::prepare(&mut head, for_pods, &peer, protocol, upgradable)?;
        let (client, passthrough, original, is_guess) = (is_http11.then_some(peer), None, None, false);
        let delivery =
            Delivery { contract, protocol, passthrough, client, is_guess, may_have_run, is_relayed, original };
        Ok(Box::new(Self { head, body, upgrade: upgrade_protocol.zip(on_upgrade), delivery }))
    }

    /// Marks the protocol as a guess: if a pod speaks another one, the request is sent in that.
    pub fn guess_protocol(&mut self) {
        self.delivery.is_guess = true;
    }

    /// Reports whether a pod may have acted on the request.
    pub fn may_have_run(&self) -> bool {
        self.delivery.may_have_run
    }

    /// Returns the method, the protocol of the pods, and the length of the body, if it is known.
    pub fn kind(&self) -> (Method, Version, Option<u64>) {
        let version = match self.delivery.protocol {
            Protocol::Http1 => Version::HTTP_11,
            Protocol::H2c => Version::HTTP_2,
        };
        (self.head.method.clone(), version, self.body.size_hint().exact())
    }

    /// Sends the request to the pod behind `pool` and waits for the response's head.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the exchange: the pod's connection or stream is closed.
    pub async fn send(self: Box<Self>, pool: &Arc<Pool>) -> Result<Response<PodBody>, Failure> {
        if self.delivery.is_guess && pool.speaks(self.delivery.protocol) != Some(true) {
            return Box::pin(self.send_guessing(pool)).await;
        }
        self.send_known(pool).await
    }

    async fn send_known(mut self: Box<Self>, pool: &Arc<Pool>) -> Result<Response<PodBody>, Failure> {
        let scheme = if pool.is_encrypted() { Scheme::HTTPS } else { Scheme::HTTP };
        let Delivery { contract, protocol, ref passthrough, .. } = self.delivery;
        let host = passthrough.as_ref().unwrap_or(&pool.host);
        // Another activator gets the client's own host.
        let contract = if self.delivery.is_relayed { Contract::Plain } else { contract };
        headers::address(&mut self.head, contract, host, protocol, scheme)
            .map_err(|error| Failure::Final { error, evidence: Evidence::None })?;
        match protocol {
            Protocol::Http1 => self.send_http1(pool).await,
            // Boxed, because it is larger. Otherwise nearly every request would carry its size, and move it.
            Protocol::H2c => Box::pin(self.send_http2(pool)).await,
        }
    }

    /// Reports whether running the request twice is harmless (RFC 9110, 9.2.2, as far as upstream goes).
    fn is_repeatable(&self) -> bool {
        const KEYS: [HeaderName; 2] =
            [HeaderName::from_static("idempotency-key"), HeaderName::from_static("x-idempotency-key")];
        self.body.is_empty()
            && (matches!(self.head.method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
                || KEYS.iter().any(|key| self.head.headers.contains_key(key)))
            || self.delivery.contract == Contract::Plain && self.is_put_or_delete() && self.body.is_whole()
    }

    /// Reports whether the method is idempotent and its request may have a body.
    fn is_put_or_delete(&self) -> bool {
        matches!(self.head.method, Method::PUT | Method::DELETE)
    }

    fn unreachable(self: Box<Self>, pool: &Pool, error: &std::io::Error) -> Failure {
        if pool.is_encrypted() && error.kind() == ErrorKind::InvalidData {
            // The certificate is wrong, so a retry does not help.
            return Failure::of_pod(pool, error.to_string(), Evidence::None);
        }
        Failure::Elsewhere { cause: format!("connect: {error}"), request: self, evidence: evidence_of_connect(error) }
    }

    fn unsent(self: Box<Self>, error: &ExchangeError) -> Failure {
        Failure::Elsewhere { cause: error.to_string(), request: self, evidence: Evidence::Unavailable }
    }

    /// Returns the failure of a request that the pod may have acted on. It is retried elsewhere if that is harmless and
    /// this was the first attempt.
    fn repeated(mut self: Box<Self>, pool: &Pool, cause: String, evidence: Evidence) -> Failure {
        let is_repeatable = !self.delivery.may_have_run && self.is_repeatable();
        if !self.rewind() || !is_repeatable {
            return Failure::of_pod(pool, cause, evidence);
        }
        self.delivery.may_have_run = true;
        Failure::Elsewhere { request: self, cause, evidence }
    }

    /// Returns the failure of an exchange that broke off before the response began. `is_aged` is set if the connection
    /// was idle, or had carried a response: it may have been closed regardless of the request.
    async fn broken_off(
        mut self: Box<Self>,
        pool: &Pool,
        error: &ExchangeError,
        upload: Option<&Upload>,
        evidence: Evidence,
        is_aged: bool,
    ) -> Failure {
        if !is_stale(error) || !self.is_repeatable() {
            return broken(pool, error, upload, evidence);
        }
        let is_reset = self.delivery.contract == Contract::Plain && is_reset(error);
        // Another activator closes a connection without a response when its process ends, or if it lacks connections,
        // never because of the request.
        let is_unrelated = is_reset || self.delivery.is_relayed;
        if is_aged || self.delivery.may_have_run || evidence != Evidence::None || is_unrelated {
            return self.repeated(pool, cause_of(error), evidence);
        }
        self.delivery.may_have_run = true;
        match pool.lost().connected(Box::pin(pool.new_http1())).await {
            Ok(_) => broken(pool, error, None, Evidence::None),
            // The pod has read some of the body, or all of it.
            Err(error) if !self.rewind() => Failure::of_pod(pool, format!("connect: {error}"), Evidence::None),
            Err(error) => self.unreachable(pool, &error),
        }
    }

    /// Restores the body as it was before anything was sent. Returns false if that is not possible.
    fn rewind(&mut self) -> bool {
        let body = std::mem::replace(&mut self.body, RequestBody::Empty).rewound();
        let is_whole = body.is_some();
        self.body = body.unwrap_or(RequestBody::Empty);
        is_whole
    }
}

/// Body of a pod's response. Frames pass through. Its end returns the connection or the stream to the pool.
pub struct PodBody(Either<Http1Body, Guarded<Received, Stream>>);

impl Body for PodBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.get_mut().0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// Prepares a pod's response for the client.
fn finish<B>(mut response: Response<B>) -> Response<B> {
    strip_response(response.headers_mut());
    *response.version_mut() = Version::HTTP_11; // hyper writes the version of the client's connection.
    response
}
