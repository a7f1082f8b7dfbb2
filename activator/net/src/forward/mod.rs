//! Sends an admitted request to the pod that was chosen for it, and brings back the answer.
//!
//! # What may be sent again
//!
//! | what happened | what follows |
//! |---|---|
//! | connect refused, unreachable, not answered | the pod is out at once; [`Failure::Elsewhere`] |
//! | connect not answered, while others were | [`Failure::Elsewhere`], or there again |
//! | the connection closed before any of the request was written | once more on another connection; the pod is out when new connections do so too |
//! | a connection closed, or was reset, before a byte of the answer to a request without a body that is GET, HEAD, OPTIONS or TRACE, or has an idempotency key; to a plain pod also PUT and DELETE, with a small body | once more, see below |
//! | sent bytes stay unacknowledged ([`crate::pod::stream`]) | the pod is out; repeatable: [`Failure::Elsewhere`], once; else [`ProxyError::Pod`] |
//! | the pod is found gone while the answer is waited for ([`Pool::lost`]) | the same, also for upgrades |
//! | an HTTP/2 pod says that it has not looked at the request (refused stream, GOAWAY), whose body can be sent again ([`crate::body`]) | once more, at most four times; then the pod is out; [`Failure::Elsewhere`] |
//! | the pod speaks another HTTP than was assumed ([`unknown`]) | in that, there |
//! | the client's own body breaks off | [`ProxyError::Malformed`] |
//! | anything else | [`ProxyError::Pod`]: the pod may have acted on it |
//!
//! # Closed without an answer
//!
//! A program may close instead of answering (a handler that panics, nginx's 444), and resets the connection if it left
//! something unread. A pod that was killed closes too, and so does one whose idle time-out met the request.
//!
//! - If the connection had been idle, or had brought an answer before, nothing tells them apart: the request goes over a
//!   new connection, to another pod if one has a free slot ([`Failure::Elsewhere`] without evidence). The kernel of a pod
//!   that is being killed may accept a connection yet.
//! - A new connection that a plain pod resets may be one that the kernel of a killed pod has accepted: the same.
//! - Otherwise the pod is asked by a new connect. Refused: the pod is out, and the request goes elsewhere. Accepted: it
//!   was the answer of its program, a 502, and the pod stays in use.
//! - Closed a second time: the same 502.
//!
//! A request that must not run twice goes to a plain pod over a connection that is new, or was idle for a few milliseconds
//! at most, so that it does not meet the pod's idle time-out. Over HTTP/2 it does not: a pod says there that it closes and
//! what it has not looked at (GOAWAY), and each gRPC call is such a request.
//!
//! So a request runs twice at most: what may have run once goes only over connections that are made for it, on
//! whatever pod. Half a head is an answer that has begun, and nothing is sent again after it (of an HTTP/2 head, `h2`
//! tells no half).
//!
//! An unsent or repeatable request goes to another pod or back to the head of the queue; that is
//! the caller's part. A pod that was told to end while requests were on their way to it is the usual case.
//!
//! # Not here
//!
//! CONNECT (refused: upstream passes it to the pod, where it means nothing). Interim responses (1xx) of HTTP/2 pods, and
//! to HTTP/2 clients, for which hyper's server has no way; the fields of the pod's 100.

mod copy;
mod failure;
mod forwarding;
mod headers;
mod pod_body;
mod relayed;
mod to_http1;
mod to_http2;
mod unknown;

use crate::body::RequestBody;
use crate::client::peer::Peer;
use crate::error::ProxyError;
use crate::hop_by_hop::strip_response;
use crate::liveness::Lost;
use crate::pool::Pool;
use activator_core::contract::Contract;
use common::backend::Protocol;
use failure::Break;
pub use failure::{Evidence, Failure, evidence_of_connect};
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRAILER, UPGRADE};
use http::uri::Scheme;
use http::{Method, Request, Response, Version, request};
use hyper::upgrade::OnUpgrade;
pub use pod_body::PodBody;
pub use relayed::TURNED_AWAY;
use relayed::{MayHaveRun, Original};
use std::future::Future;
use std::io::ErrorKind;
use std::sync::Arc;
pub use unknown::Learned;

/// Tells a mesh to send to the pod that the connection goes to.
pub(crate) const PASSTHROUGH_LB: HeaderName = HeaderName::from_static("k-passthrough-lb");

/// New connections that may close before they took a request.
const CLOSED_AT_ONCE_MAX: usize = 2;

/// A request that has been made fit for its revision's pods.
pub struct Prepared {
    head: request::Parts,
    body: RequestBody,
    upgrade: Option<(HeaderValue, OnUpgrade)>,
    delivery: Delivery,
}

/// How a request reaches its pods.
struct Delivery {
    contract: Contract,
    protocol: Protocol,
    /// The host in place of the pod's address.
    passthrough: Option<HeaderValue>,
    /// Whom it came from, if that one can have interim responses.
    client: Option<Arc<Peer>>,
    /// The pod may speak another protocol than `protocol`, which is found out ([`unknown`]).
    is_guess: bool,
    /// A pod may have acted on it already: it goes over a new connection, and nowhere after that.
    may_have_run: bool,
    /// It goes to another activator.
    is_relayed: bool,
    /// Its head as it came, where it may have to be made fit for somebody else.
    original: Option<Box<Original>>,
}

impl Prepared {
    /// Takes a request in hand. `protocol` is what the pods speak.
    ///
    /// # Errors
    /// It cannot be expressed towards a pod.
    pub fn new(
        mut request: Request<RequestBody>,
        contract: Contract,
        protocol: Protocol,
        peer: Arc<Peer>,
        passthrough: Option<HeaderValue>,
    ) -> Result<Box<Self>, ProxyError> {
        // HTTP/1.0 has no upgrades: a pod that was asked would answer a client whose connection ends.
        let upgradable = protocol == Protocol::Http1 && request.version() == Version::HTTP_11;
        let on_upgrade =
            (upgradable && request.headers().contains_key(UPGRADE)).then(|| hyper::upgrade::on(&mut request));
        let may_have_run = MayHaveRun::taken(&mut request);
        let (mut head, body) = request.into_parts();
        let has_interims = head.version == Version::HTTP_11;
        let asked = headers::prepare(&mut head, contract, &peer, protocol, upgradable)?;
        if body.is_empty() {
            head.headers.remove(TRAILER);
            if matches!(head.method, Method::POST | Method::PUT | Method::PATCH) {
                // Pods may refuse these without a length (411), and upstream always sends it.
                head.headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
            }
        }
        if passthrough.is_some() {
            head.headers.append(PASSTHROUGH_LB, HeaderValue::from_static("true"));
        }
        let client = has_interims.then_some(peer);
        let delivery = Delivery {
            contract,
            protocol,
            passthrough,
            client,
            is_guess: false,
            may_have_run,
            is_relayed: false,
            original: None,
        };
        Ok(Box::new(Self { head, body, upgrade: asked.zip(on_upgrade), delivery }))
    }

    /// Its head.
    pub fn head(&self) -> &request::Parts {
        &self.head
    }

    /// Its body, as far as it is to be sent yet.
    pub fn body(&self) -> &RequestBody {
        &self.body
    }

    /// The protocol is not certain: where a pod speaks another, the request is sent in that.
    pub fn guess_protocol(&mut self) {
        self.delivery.is_guess = true;
    }

    /// Returns whether a pod may have acted on the request.
    pub fn may_have_run(&self) -> bool {
        self.delivery.may_have_run
    }

    /// Its head, as the next pod will see it.
    pub fn head_mut(&mut self) -> &mut request::Parts {
        &mut self.head
    }

    /// Its method, what the pods speak, and the length of its body, if it was told.
    pub fn kind(&self) -> (Method, Version, Option<u64>) {
        let version = match self.delivery.protocol {
            Protocol::Http1 => Version::HTTP_11,
            Protocol::H2c => Version::HTTP_2,
        };
        (self.head.method.clone(), version, http_body::Body::size_hint(&self.body).exact())
    }

    /// Sends the request to the pod behind `pool` and waits for the response's head.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the exchange: the pod's connection or stream is closed.
    pub async fn send(self: Box<Self>, pool: &Arc<Pool>) -> Result<Response<PodBody>, Failure> {
        if self.delivery.is_guess && pool.spoken.knows(self.delivery.protocol) != Some(true) {
            return Box::pin(self.send_guessing(pool)).await;
        }
        self.send_known(pool).await
    }

    async fn send_known(mut self: Box<Self>, pool: &Arc<Pool>) -> Result<Response<PodBody>, Failure> {
        let scheme = if pool.is_encrypted() { Scheme::HTTPS } else { Scheme::HTTP };
        let Delivery { contract, protocol, ref passthrough, .. } = self.delivery;
        let host = passthrough.as_ref().unwrap_or(&pool.host);
        // Another activator is told the client's own host.
        let contract = if self.delivery.is_relayed { Contract::Plain } else { contract };
        headers::address(&mut self.head, contract, host, protocol, scheme)
            .map_err(|error| Failure::Final { error, evidence: Evidence::None })?;
        match protocol {
            // Boxed, as whatever is rare or large: nearly every request would carry its room, and move it.
            _ if self.upgrade.is_some() => Box::pin(self.send_upgrade(pool)).await,
            Protocol::Http1 => self.send_http1(pool).await,
            Protocol::H2c => Box::pin(self.send_http2(pool)).await,
        }
    }

    /// Whether a lost copy of the request does no harm (RFC 9110, 9.2.2, as far as upstream goes).
    fn is_repeatable(&self) -> bool {
        const KEYS: [HeaderName; 2] =
            [HeaderName::from_static("idempotency-key"), HeaderName::from_static("x-idempotency-key")];
        self.body.is_empty()
            && (matches!(self.head.method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
                || KEYS.iter().any(|key| self.head.headers.contains_key(key)))
            || self.delivery.contract == Contract::Plain && self.is_put_or_delete() && self.body.is_whole()
    }

    /// Returns whether the method is idempotent and its request may have a body.
    fn is_put_or_delete(&self) -> bool {
        matches!(self.head.method, Method::PUT | Method::DELETE)
    }

    fn unreachable(self: Box<Self>, pool: &Pool, error: &std::io::Error) -> Failure {
        if pool.is_encrypted() && error.kind() == ErrorKind::InvalidData {
            // Its certificate is wrong, which nobody mends by asking again.
            let error = ProxyError::Pod { dest: pool.address, cause: error.to_string() };
            return Failure::Final { error, evidence: Evidence::None };
        }
        Failure::Elsewhere { cause: format!("connect: {error}"), request: self, evidence: evidence_of_connect(error) }
    }

    fn unsent(self: Box<Self>, error: &impl Break) -> Failure {
        Failure::Elsewhere { cause: error.to_string(), request: self, evidence: Evidence::Out }
    }

    /// The pod may have acted on it: once more elsewhere, if that does no harm and this was the first time.
    fn repeated(mut self: Box<Self>, pool: &Pool, cause: String, evidence: Evidence) -> Failure {
        let is_repeatable = !self.delivery.may_have_run && self.is_repeatable();
        let body = std::mem::replace(&mut self.body, RequestBody::Empty);
        let Some(body) = body.rewound().filter(|_| is_repeatable) else {
            return Failure::Final { error: ProxyError::Pod { dest: pool.address, cause }, evidence };
        };
        self.body = body;
        self.delivery.may_have_run = true;
        Failure::Elsewhere { request: self, cause, evidence }
    }

    /// The pod was found gone while its answer was waited for.
    fn gone(self: Box<Self>, pool: &Pool) -> Failure {
        self.repeated(pool, "it answers neither bytes nor a connect".to_owned(), Evidence::Out)
    }
}

/// What `exchange` brings, unless the pod is lost meanwhile. It stays where it is, and is not moved in here.
async fn unless_lost<T>(exchange: impl Future<Output = T> + Unpin, lost: Lost<'_>) -> Option<T> {
    tokio::select! {
        biased; // What has come counts.
        answered = exchange => Some(answered),
        () = lost.happened() => None,
    }
}

/// A connection, unless the pod is lost meanwhile: many may wait for theirs.
async fn connected<T>(
    connection: impl Future<Output = std::io::Result<T>> + Unpin,
    lost: Lost<'_>,
) -> std::io::Result<T> {
    unless_lost(connection, lost).await.unwrap_or_else(|| Err(ErrorKind::HostUnreachable.into()))
}

/// Makes a pod's response fit for the client.
fn finish<B>(mut response: Response<B>) -> Response<B> {
    strip_response(response.headers_mut());
    response.headers_mut().remove(TURNED_AWAY); // Only activators say so.
    *response.version_mut() = Version::HTTP_11; // hyper writes what the client's connection speaks.
    response
}
