//! Sends an admitted request to the pod that was chosen for it, and brings back the answer.
//!
//! # What may be sent again
//!
//! | what happened | what follows |
//! |---|---|
//! | connect refused, unreachable, not answered | the pod is out at once; [`Failure::Elsewhere`] |
//! | connect not answered, while others were | [`Failure::Elsewhere`], maybe there again |
//! | the connection closed before any of the request was written | once more on another connection; the pod is out when new connections do so too |
//! | a reused connection closed before the response, for GET, HEAD, OPTIONS or TRACE without a body, or with an idempotency key | once more on another connection |
//! | a new connection closed so, for such a request | the pod is out; [`Failure::Elsewhere`], once |
//! | sent bytes stay unacknowledged ([`crate::pod::stream`]) | the pod is out; repeatable: [`Failure::Elsewhere`], once; else [`ProxyError::Pod`] |
//! | the pod is found gone while the answer is waited for ([`Pool::lost`]) | the same, also for upgrades |
//! | an HTTP/2 pod says that it has not looked at the request (refused stream, GOAWAY), whose body can be sent again ([`crate::body`]) | once more, at most [`UNPROCESSED_MAX`] times; then the pod is out; [`Failure::Elsewhere`] |
//! | the client's own body breaks off | [`ProxyError::Malformed`] |
//! | anything else | [`ProxyError::Pod`]: the pod may have acted on it |
//!
//! An unsent or repeatable request goes to another pod or back to the head of the queue; that is
//! the caller's part. A pod that was told to end while requests were on their way to it is the usual case.
//!
//! # Not here
//!
//! CONNECT (refused: upstream passes it to the pod, where it means nothing). Relaying 1xx responses other than 100,
//! and the fields of the pod's 100.

mod copy;
mod failure;
mod headers;
mod pod_body;

use crate::body::{RequestBody, Upload};
use crate::client::peer::Peer;
use crate::error::ProxyError;
use crate::http1::connection::{Failed, Http1Body};
use crate::http2;
use crate::liveness::Lost;
use crate::pool::Pool;
use crate::tunnel::{PodEnd, Tunnel};
use activator_core::contract::Contract;
use common::backend::Protocol;
use copy::HeadCopy;
use failure::{Break, broken, cause_of, evidence_of, is_stale, is_unprocessed};
pub use failure::{Evidence, Failure};
use http::header::{CONNECTION, HeaderName, HeaderValue, TRAILER, UPGRADE};
use http::uri::Scheme;
use http::{Method, Request, Response, StatusCode, Version, request};
use hyper::upgrade::OnUpgrade;
use parking_lot::Mutex;
pub use pod_body::PodBody;
use pod_body::Source;
use std::future::Future;
use std::io::ErrorKind;
use std::sync::Arc;

/// Tells a mesh to send to the pod that the connection goes to.
pub(crate) const PASSTHROUGH_LB: HeaderName = HeaderName::from_static("k-passthrough-lb");

/// How often an HTTP/2 pod may turn the same request away.
const UNPROCESSED_MAX: usize = 4;

/// New connections that may close before they took a request.
const CLOSED_AT_ONCE_MAX: usize = 2;

/// A request that has been made fit for its revision's pods.
pub struct Prepared {
    head: request::Parts,
    body: RequestBody,
    contract: Contract,
    protocol: Protocol,
    upgrade: Option<(HeaderValue, OnUpgrade)>,
    /// The host in place of the pod's address.
    passthrough: Option<HeaderValue>,
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
        peer: &Peer,
        passthrough: Option<HeaderValue>,
    ) -> Result<Box<Self>, ProxyError> {
        if request.method() == Method::CONNECT {
            return Err(ProxyError::Malformed(
                "CONNECT is not proxied: there is nothing to connect to but the service itself",
            ));
        }
        let upgradable = protocol == Protocol::Http1 && request.version() < Version::HTTP_2;
        let on_upgrade =
            (upgradable && request.headers().contains_key(UPGRADE)).then(|| hyper::upgrade::on(&mut request));
        let (mut head, body) = request.into_parts();
        let asked = headers::prepare(&mut head, contract, peer, protocol, upgradable)?;
        if body.is_empty() {
            head.headers.remove(TRAILER);
        }
        if passthrough.is_some() {
            head.headers.append(PASSTHROUGH_LB, HeaderValue::from_static("true"));
        }
        Ok(Box::new(Self { head, body, contract, protocol, upgrade: asked.zip(on_upgrade), passthrough }))
    }

    /// Its head, as the next pod will see it.
    pub fn head_mut(&mut self) -> &mut request::Parts {
        &mut self.head
    }

    /// Its method, what the pods speak, and the length of its body, if it was told.
    pub fn kind(&self) -> (Method, Version, Option<u64>) {
        let version = match self.protocol {
            Protocol::Http1 => Version::HTTP_11,
            Protocol::H2c => Version::HTTP_2,
        };
        (self.head.method.clone(), version, http_body::Body::size_hint(&self.body).exact())
    }

    /// Sends the request to the pod behind `pool` and waits for the response's head.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the exchange: the pod's connection or stream is closed.
    pub async fn send(mut self: Box<Self>, pool: &Arc<Pool>) -> Result<Response<PodBody>, Failure> {
        let scheme = if pool.is_encrypted() { Scheme::HTTPS } else { Scheme::HTTP };
        let host = self.passthrough.as_ref().unwrap_or(&pool.host);
        headers::address(&mut self.head, self.contract, host, self.protocol, scheme)
            .map_err(|error| Failure::Final { error, evidence: Evidence::None })?;
        match self.protocol {
            // Boxed, as whatever is rare or large: nearly every request would carry its room, and move it.
            _ if self.upgrade.is_some() => Box::pin(self.send_upgrade(pool)).await,
            Protocol::Http1 => self.send_http1(pool).await,
            Protocol::H2c => Box::pin(self.send_http2(pool)).await,
        }
    }

    async fn send_http1(mut self: Box<Self>, pool: &Arc<Pool>) -> Result<Response<PodBody>, Failure> {
        let mut closed_at_once = 0;
        let upload = self.body.upload();
        loop {
            let lost = pool.lost();
            let connection = match pool.idle() {
                Some(idle) => Ok(idle),
                None => connected(Box::pin(pool.http1()), pool.lost()).await,
            };
            let connection = match connection {
                Ok(connection) => connection,
                Err(error) => return Err(self.unreachable(pool, &error)),
            };
            let reused = connection.reused;
            let exchange = connection.exchange(&self.head, &mut self.body, pool);
            let Failed { error, unsent } = match unless_lost(exchange, lost).await {
                Some(Ok(response)) => return finish_http1(pool, response),
                Some(Err(failed)) => failed,
                None => return Err(self.gone(pool)),
            };
            if unsent {
                closed_at_once += usize::from(!reused);
                if closed_at_once == CLOSED_AT_ONCE_MAX {
                    return Err(self.unsent(&error));
                }
            } else if self.is_repeatable() && is_stale(&error) {
                let evidence = evidence_of(&error, reused);
                if !reused || evidence != Evidence::None {
                    let evidence = if evidence == Evidence::None { Evidence::Out } else { evidence };
                    return Err(self.repeatable(&error, evidence));
                }
            } else {
                return Err(broken(pool, &error, upload.as_deref(), evidence_of(&error, reused)));
            }
        }
    }

    async fn send_http2(mut self: Box<Self>, pool: &Arc<Pool>) -> Result<Response<PodBody>, Failure> {
        let (mut closed_at_once, mut unprocessed) = (0, 0);
        loop {
            let stream = match pool.open_http2() {
                Some(open) => Ok(open),
                None => connected(Box::pin(pool.http2()), pool.lost()).await,
            };
            let stream = match stream {
                Ok(stream) => stream,
                Err(error) => return Err(self.unreachable(pool, &error)),
            };
            let worked = stream.has_answered();
            let rest = self.rest();
            let repeatable = self.is_repeatable();
            let copy = HeadCopy::of(&self.head);
            // Not beside `lost`: if the pod is, its connection breaks, which is one answer for all of its streams.
            match stream.exchange(Request::from_parts(self.head, self.body)).await {
                Ok(response) => {
                    stream.answered();
                    return Ok(finish(response.map(|body| Source::Http2 { body, _stream: stream }.into())));
                }
                Err(http2::connection::Failed::Unsent(error, body)) => {
                    let Some(head) = copy else { return Err(broken(pool, &error, rest.upload(), Evidence::None)) };
                    self = rest.with(Request::from_parts(head.into_parts(), body));
                    closed_at_once += 1;
                    if closed_at_once == CLOSED_AT_ONCE_MAX {
                        return Err(self.unsent(&error));
                    }
                }
                Err(http2::connection::Failed::Broken(error, body)) => match copy {
                    Some(head) if is_unprocessed(&error) => {
                        unprocessed += 1;
                        let Some(body) = body.and_then(RequestBody::rewound) else {
                            return Err(broken(pool, &error, rest.upload(), Evidence::None));
                        };
                        self = rest.with(Request::from_parts(head.into_parts(), body));
                        if unprocessed > UNPROCESSED_MAX {
                            return Err(self.unsent(&error));
                        }
                        if error.is_go_away() {
                            pool.leave_http2(&stream); // It takes no more streams.
                        }
                    }
                    Some(head) if repeatable && is_stale(&error) => {
                        let request = rest.with(Request::from_parts(head.into_parts(), RequestBody::Empty));
                        let evidence = match evidence_of(&error, worked) {
                            Evidence::None => Evidence::Out,
                            more => more,
                        };
                        return Err(request.repeatable(&error, evidence));
                    }
                    _ => return Err(broken(pool, &error, rest.upload(), evidence_of(&error, worked))),
                },
            }
        }
    }

    async fn send_upgrade(mut self: Box<Self>, pool: &Arc<Pool>) -> Result<Response<PodBody>, Failure> {
        let lost = pool.lost();
        let connection = match connected(Box::pin(pool.dial_http1()), pool.lost()).await {
            Ok(connection) => connection,
            Err(error) => return Err(self.unreachable(pool, &error)),
        };
        let upload = self.body.upload();
        let exchange = connection.exchange(&self.head, &mut self.body, pool);
        let mut response = match unless_lost(exchange, lost).await {
            Some(Ok(response)) => response,
            Some(Err(Failed { error, unsent: true })) => return Err(self.unsent(&error)),
            Some(Err(Failed { error, .. })) => {
                let evidence = evidence_of(&error, false);
                // Only from a pod that is gone. One that closes may mean that it knows of no upgrade.
                if evidence != Evidence::None && self.is_repeatable() && is_stale(&error) {
                    return Err(self.repeatable(&error, evidence));
                }
                return Err(broken(pool, &error, upload.as_deref(), evidence));
            }
            None => return Err(self.gone(pool)),
        };
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return finish_http1(pool, response);
        }
        let Some((requested, client)) = self.upgrade.take() else { return Err(unasked(pool, response.headers(), "")) };
        let Some(protocol) = headers::agreed_upgrade(response.headers(), &requested) else {
            return Err(unasked(pool, response.headers(), &String::from_utf8_lossy(requested.as_bytes())));
        };
        headers::strip_response(response.headers_mut());
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        response.headers_mut().insert(UPGRADE, protocol);
        let (mut head, body) = response.into_parts();
        let pod = body.into_tunnel().map(|pod| Box::new(pod) as PodEnd);
        head.extensions.insert(Tunnel { client, pod: Arc::new(Mutex::new(pod)) });
        Ok(Response::from_parts(head, Source::Tunnel.into()))
    }

    /// Whether a lost copy of the request does no harm (RFC 9110, 9.2.2, as far as upstream goes).
    fn is_repeatable(&self) -> bool {
        const KEYS: [HeaderName; 2] =
            [HeaderName::from_static("idempotency-key"), HeaderName::from_static("x-idempotency-key")];
        self.body.is_empty()
            && (matches!(self.head.method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
                || KEYS.iter().any(|key| self.head.headers.contains_key(key)))
    }

    fn unreachable(self: Box<Self>, pool: &Pool, error: &std::io::Error) -> Failure {
        if pool.is_encrypted() && error.kind() == ErrorKind::InvalidData {
            // Its certificate is wrong, which nobody mends by asking again.
            let error = ProxyError::Pod { dest: pool.address, cause: error.to_string() };
            return Failure::Final { error, evidence: Evidence::None };
        }
        let evidence = if error.kind() == ErrorKind::ResourceBusy { Evidence::None } else { Evidence::Out };
        let cause = format!("connect: {error}");
        Failure::Elsewhere { cause, request: self, may_have_run: false, evidence }
    }

    fn unsent(self: Box<Self>, error: &impl Break) -> Failure {
        Failure::Elsewhere { cause: error.to_string(), request: self, may_have_run: false, evidence: Evidence::Out }
    }

    fn repeatable(self: Box<Self>, error: &impl Break, evidence: Evidence) -> Failure {
        Failure::Elsewhere { cause: cause_of(error), request: self, may_have_run: true, evidence }
    }

    /// The pod was found gone while its answer was waited for.
    fn gone(self: Box<Self>, pool: &Pool) -> Failure {
        let cause = "it answers neither bytes nor a connect".to_owned();
        if self.is_repeatable() {
            Failure::Elsewhere { request: self, cause, may_have_run: true, evidence: Evidence::Out }
        } else {
            Failure::Final { error: ProxyError::Pod { dest: pool.address, cause }, evidence: Evidence::Out }
        }
    }

    fn rest(&self) -> Rest {
        let passthrough = self.passthrough.clone();
        Rest { contract: self.contract, protocol: self.protocol, upload: self.body.upload(), passthrough }
    }
}

/// What a request needs besides itself to be sent once more.
struct Rest {
    contract: Contract,
    protocol: Protocol,
    upload: Option<Arc<Upload>>,
    passthrough: Option<HeaderValue>,
}

impl Rest {
    fn upload(&self) -> Option<&Upload> {
        self.upload.as_deref()
    }

    fn with(self, request: Request<RequestBody>) -> Box<Prepared> {
        let (head, body) = request.into_parts();
        let Self { contract, protocol, passthrough, .. } = self;
        Box::new(Prepared { head, body, contract, protocol, upgrade: None, passthrough })
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

fn unasked(pool: &Pool, headers: &http::HeaderMap, requested: &str) -> Failure {
    let protocol = headers.get(UPGRADE).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).unwrap_or_default();
    let cause = format!("backend tried to switch protocol {protocol:?} when {requested:?} was requested");
    Failure::Final { error: ProxyError::Pod { dest: pool.address, cause }, evidence: Evidence::None }
}

/// Makes an HTTP/1.1 pod's response fit for the client.
///
/// # Errors
/// It is none but a change of the protocol that nobody asked for.
fn finish_http1(pool: &Pool, response: Response<Http1Body<Pool>>) -> Result<Response<PodBody>, Failure> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(unasked(pool, response.headers(), ""));
    }
    Ok(finish(response.map(|body| Source::Http1(body).into())))
}

/// Makes a pod's response fit for the client.
fn finish<B>(mut response: Response<B>) -> Response<B> {
    headers::strip_response(response.headers_mut());
    *response.version_mut() = Version::HTTP_11; // hyper writes what the client's connection speaks.
    response
}
