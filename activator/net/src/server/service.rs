//! One connection's requests: checks each head, hands it to the chain, and makes HTTP of what comes back.
//!
//! An error becomes a response by the caller's [`ErrorResponder`]; a 101 becomes a tunnel. While the server leaves, each
//! answer over HTTP/1 is the last of its connection.

use super::drain::{Drain, Phase};
use super::head_check::{self, Checked};
use super::{Chain, ErrorResponder};
use crate::body::{BodyError, Reply, RequestBody};
use crate::client::Inbound;
use crate::client::peer::Peer;
use crate::error::ProxyError;
use crate::tunnel::Tunnel;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// The chain as hyper calls it, for one connection.
pub(super) struct ConnectionService<S, R> {
    /// The connection's own: a copy for each request would touch counts that all threads share.
    chain: RefCell<S>,
    peer: Arc<Peer>,
    own: Arc<Own<R>>,
}

/// What a connection's exchanges share.
struct Own<R> {
    responder: R,
    tunnels: TaskTracker,
    drain: Drain,
}

impl<S, R> ConnectionService<S, R> {
    /// For the connection of `peer`. `tunnels` counts what becomes of its upgrades.
    pub(super) fn new(chain: S, peer: Arc<Peer>, responder: R, tunnels: TaskTracker, drain: Drain) -> Self {
        Self { chain: RefCell::new(chain), peer, own: Arc::new(Own { responder, tunnels, drain }) }
    }
}

impl<S, R> hyper::service::Service<Request<Incoming>> for ConnectionService<S, R>
where
    S: Chain,
    R: ErrorResponder<S::Error>,
{
    type Response = Response<Reply<S::Body>>;
    type Error = BodyError;
    type Future = Exchange<S::Future, R>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (grpc, version) = (is_grpc(request.headers()), request.version());
        let head_only = version == Version::HTTP_2 && *request.method() == Method::HEAD;
        let serving =
            |exchange, checked| Exchange { exchange, checked, grpc, head_only, version, own: self.own.clone() };
        match head_check::check(&request) {
            Checked::Pass => {}
            checked => return serving(None, checked),
        }
        let request = request.map(RequestBody::new);
        self.peer.note(version, request.body());
        let inbound = Inbound { request, peer: self.peer.clone(), received: Instant::now() };
        // Readiness is not asked for: every layer of the chain is always ready, and waits inside its future.
        serving(Some(self.chain.borrow_mut().call(inbound)), Checked::Pass)
    }
}

pin_project! {
    /// One exchange whose errors are answered.
    pub(super) struct Exchange<F, R> {
        #[pin]
        exchange: Option<F>,
        checked: Checked,
        grpc: bool,
        head_only: bool,
        version: Version,
        own: Arc<Own<R>>,
    }
}

impl<F, B, E, R> Future for Exchange<F, R>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: From<ProxyError>,
    R: ErrorResponder<E>,
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

impl<F, B, E, R> Exchange<F, R>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: From<ProxyError>,
    R: ErrorResponder<E>,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
{
    fn poll_answer(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Reply<B>>> {
        let this = self.project();
        let Some(exchange) = this.exchange.as_pin_mut() else {
            return Poll::Ready(match std::mem::replace(this.checked, Checked::Pass) {
                Checked::Refused(error) => {
                    this.own.responder.respond(&error.into(), *this.grpc, *this.version).map(Reply::Left)
                }
                Checked::Pass | Checked::ForServer => Response::new(nothing()),
            });
        };
        Poll::Ready(match std::task::ready!(exchange.poll(cx)) {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                let (mut head, body) = response.into_parts();
                if let Some(tunnel) = head.extensions.remove::<Tunnel>() {
                    let mut drain = this.own.drain.listener();
                    this.own.tunnels.spawn(async move { tunnel.run(body, drain.cut()).await });
                }
                Response::from_parts(head, nothing())
            }
            Ok(response) => response.map(|body| Reply::Right(body)),
            Err(error) => this.own.responder.respond(&error, *this.grpc, *this.version).map(Reply::Left),
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
    Response::from_parts(head, nothing())
}

/// No body.
fn nothing<B>() -> Reply<B> {
    Reply::Left(Full::default())
}

fn is_grpc(headers: &http::HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"application/grpc"))
}
