//! Sends an admitted request to the pod that was chosen for it, and brings back the answer.
//!
//! # What may be sent again
//!
//! | what happened | what follows |
//! |---|---|
//! | connect refused, unreachable, not answered | the pod is out at once; [`Failure::Elsewhere`] |
//! | the connection closed before any of the request was written | once more on another connection; the pod is out when new connections do so too |
//! | a reused connection closed before the response, for GET, HEAD, OPTIONS or TRACE without a body, or with an idempotency key | once more on another connection |
//! | a new connection closed so, for such a request | the pod is out; [`Failure::Elsewhere`], once |
//! | anything else | [`Refusal::Pod`]: the pod may have acted on it |
//!
//! An unsent or repeatable request goes to another pod or back to the head of the queue; that is
//! [`crate::layers::hold`]'s part. A pod that was told to end while requests were on their way to it is the usual case.
//!
//! # Not here
//!
//! CONNECT (refused: upstream passes it to the pod, where it means nothing). Holding an upload until the pod says 100 (it starts as soon as there is a connection), relaying other 1xx responses,
//! request trailers over HTTP/1.1, a retry of a refused HTTP/2 stream.

pub(crate) mod dial;
pub(crate) mod headers;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod pool;

use crate::body::RequestBody;
use crate::refusal::Refusal;
use crate::server::tunnel::Tunnel;
use bytes::Bytes;
use common::backend::Protocol;
use headers::Contract;
use http::header::{CONNECTION, HeaderName, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode, Version, request};
use http_body::{Body, Frame, SizeHint};
use http1::{Failed, Http1Body};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use pool::Pool;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// New connections that may close before they took a request.
const CLOSED_AT_ONCE_MAX: usize = 2;

/// A request that has been made fit for its revision's pods.
pub(crate) struct Prepared {
    head: request::Parts,
    body: RequestBody,
    contract: Contract,
    protocol: Protocol,
    upgrade: Option<(HeaderValue, OnUpgrade)>,
}

/// Why a pod brought no answer.
pub(crate) enum Failure {
    /// The request may go elsewhere: none of it was sent, or no byte came back and to send it again does no harm.
    Elsewhere {
        /// The request, as it was.
        request: Box<Prepared>,
        /// What was wrong with the pod.
        cause: String,
        /// Whether the pod may have acted on it.
        may_have_run: bool,
    },
    /// Something may have been sent.
    Final(Refusal),
}

impl Prepared {
    /// Takes a request in hand. `protocol` is what the pods speak.
    ///
    /// # Errors
    /// It cannot be expressed towards a pod.
    pub(crate) fn new(
        mut request: Request<RequestBody>,
        contract: Contract,
        protocol: Protocol,
        peer: &crate::exchange::Peer,
    ) -> Result<Box<Self>, Refusal> {
        if request.method() == Method::CONNECT {
            return Err(Refusal::Malformed(
                "CONNECT is not proxied: there is nothing to connect to but the service itself",
            ));
        }
        let upgradable = protocol == Protocol::Http1 && request.version() < Version::HTTP_2;
        let on_upgrade =
            (upgradable && request.headers().contains_key(UPGRADE)).then(|| hyper::upgrade::on(&mut request));
        let (mut head, body) = request.into_parts();
        let asked = headers::prepare(&mut head, contract, peer, upgradable)?;
        Ok(Box::new(Self { head, body, contract, protocol, upgrade: asked.zip(on_upgrade) }))
    }

    /// Sends the request to the pod behind `pool` and waits for the response's head.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the exchange: the pod's connection or stream is closed.
    pub(crate) async fn send(mut self: Box<Self>, pool: &Arc<Pool>) -> Result<Response<PodBody>, Failure> {
        headers::address(&mut self.head, self.contract, &pool.host, self.protocol).map_err(Failure::Final)?;
        match self.protocol {
            _ if self.upgrade.is_some() => self.send_upgrade(pool).await,
            Protocol::Http1 => self.send_http1(pool).await,
            Protocol::H2c => self.send_http2(pool).await,
        }
    }

    async fn send_http1(mut self: Box<Self>, pool: &Arc<Pool>) -> Result<Response<PodBody>, Failure> {
        let mut closed_at_once = 0;
        loop {
            let connection = match pool.http1().await {
                Ok(connection) => connection,
                Err(error) => return Err(self.unreachable(&error)),
            };
            let reused = connection.reused;
            let copy = self.is_repeatable().then(|| copy_of(&self.head));
            let rest = self.rest();
            match connection.exchange(Request::from_parts(self.head, self.body), pool).await {
                Ok(response) => return Ok(finish(response.map(PodBody::Http1))),
                Err(Failed { unsent: Some(request), error }) => {
                    self = rest.with(request);
                    closed_at_once += usize::from(!reused);
                    if closed_at_once == CLOSED_AT_ONCE_MAX {
                        return Err(self.unsent(&error));
                    }
                }
                Err(Failed { error, .. }) => match copy {
                    Some(head) if is_stale(&error) => {
                        self = rest.with(Request::from_parts(head, RequestBody::Empty));
                        if !reused {
                            return Err(Failure::Elsewhere {
                                request: self,
                                cause: cause_of(&error),
                                may_have_run: true,
                            });
                        }
                    }
                    _ => return Err(lost(pool, &error)),
                },
            }
        }
    }

    async fn send_http2(mut self: Box<Self>, pool: &Arc<Pool>) -> Result<Response<PodBody>, Failure> {
        let mut closed_at_once = 0;
        loop {
            let connection = match pool.http2().await {
                Ok(connection) => connection,
                Err(error) => return Err(self.unreachable(&error)),
            };
            let rest = self.rest();
            let copy = self.is_repeatable().then(|| copy_of(&self.head));
            match connection.exchange(Request::from_parts(self.head, self.body)).await {
                Ok(response) => return Ok(finish(response.map(PodBody::Http2))),
                Err(Failed { unsent: Some(request), error }) => {
                    self = rest.with(request);
                    closed_at_once += 1;
                    if closed_at_once == CLOSED_AT_ONCE_MAX {
                        return Err(self.unsent(&error));
                    }
                }
                Err(Failed { error, .. }) => match copy {
                    Some(head) if is_stale(&error) => {
                        let request = rest.with(Request::from_parts(head, RequestBody::Empty));
                        return Err(Failure::Elsewhere { request, cause: cause_of(&error), may_have_run: true });
                    }
                    _ => return Err(lost(pool, &error)),
                },
            }
        }
    }

    async fn send_upgrade(mut self: Box<Self>, pool: &Arc<Pool>) -> Result<Response<PodBody>, Failure> {
        let connection = match pool.dial_http1().await {
            Ok(connection) => connection,
            Err(error) => return Err(self.unreachable(&error)),
        };
        let asked = self.upgrade.take();
        let mut response = match connection.upgrade(Request::from_parts(self.head, self.body)).await {
            Ok(response) => response,
            Err(Failed { error, .. }) => return Err(lost(pool, &error)),
        };
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(finish(response.map(PodBody::Http1)));
        }
        let Some((requested, client)) = asked else { return Err(unasked(pool, response.headers(), "")) };
        let Some(protocol) = headers::agreed_upgrade(response.headers(), &requested) else {
            return Err(unasked(pool, response.headers(), &String::from_utf8_lossy(requested.as_bytes())));
        };
        let pod = hyper::upgrade::on(&mut response);
        headers::strip_response(response.headers_mut());
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        response.headers_mut().insert(UPGRADE, protocol);
        response.extensions_mut().insert(Tunnel { client, pod });
        Ok(response.map(|_| PodBody::Tunnel))
    }

    /// Whether a lost copy of the request does no harm (RFC 9110, 9.2.2, as far as upstream goes).
    fn is_repeatable(&self) -> bool {
        const KEYS: [HeaderName; 2] =
            [HeaderName::from_static("idempotency-key"), HeaderName::from_static("x-idempotency-key")];
        self.body.is_empty()
            && (matches!(self.head.method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
                || KEYS.iter().any(|key| self.head.headers.contains_key(key)))
    }

    fn unreachable(self: Box<Self>, error: &std::io::Error) -> Failure {
        Failure::Elsewhere { cause: format!("connect: {error}"), request: self, may_have_run: false }
    }

    fn unsent(self: Box<Self>, error: &hyper::Error) -> Failure {
        Failure::Elsewhere { cause: error.to_string(), request: self, may_have_run: false }
    }

    fn rest(&self) -> Rest {
        Rest { contract: self.contract, protocol: self.protocol }
    }
}

/// What a request needs besides itself to be sent once more.
struct Rest {
    contract: Contract,
    protocol: Protocol,
}

impl Rest {
    fn with(self, request: Request<RequestBody>) -> Box<Prepared> {
        let (head, body) = request.into_parts();
        Box::new(Prepared { head, body, contract: self.contract, protocol: self.protocol, upgrade: None })
    }
}

fn copy_of(head: &request::Parts) -> request::Parts {
    let (mut copy, ()) = Request::new(()).into_parts();
    copy.method = head.method.clone();
    copy.uri = head.uri.clone();
    copy.version = head.version;
    copy.headers = head.headers.clone();
    copy
}

/// Whether the pod closed the connection instead of answering.
fn is_stale(error: &hyper::Error) -> bool {
    error.is_incomplete_message() || error.is_closed() || io_cause(error).is_some()
}

fn io_cause(error: &hyper::Error) -> Option<&std::io::Error> {
    std::error::Error::source(error).and_then(|source| source.downcast_ref())
}

fn lost(pool: &Pool, error: &hyper::Error) -> Failure {
    Failure::Final(Refusal::Pod { dest: pool.address, cause: cause_of(error) })
}

/// An error and what is behind it.
fn cause_of(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn unasked(pool: &Pool, headers: &http::HeaderMap, requested: &str) -> Failure {
    let protocol = headers.get(UPGRADE).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).unwrap_or_default();
    let cause = format!("backend tried to switch protocol {protocol:?} when {requested:?} was requested");
    Failure::Final(Refusal::Pod { dest: pool.address, cause })
}

/// Makes a pod's response fit for the client.
fn finish<B>(mut response: Response<B>) -> Response<B> {
    headers::strip_response(response.headers_mut());
    *response.version_mut() = Version::HTTP_11; // hyper writes what the client's connection speaks.
    response
}

/// The body of a pod's response.
pub(crate) enum PodBody {
    /// Over HTTP/1.1.
    Http1(Http1Body),
    /// Over HTTP/2.
    Http2(Incoming),
    /// The connection became a tunnel: no data, and no end before the tunnel's.
    Tunnel,
}

impl Body for PodBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match self.get_mut() {
            Self::Http1(body) => Pin::new(body).poll_frame(cx),
            Self::Http2(body) => Pin::new(body).poll_frame(cx),
            Self::Tunnel => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
            Self::Tunnel => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
            Self::Tunnel => SizeHint::default(),
        }
    }
}
