//! Serves the requests of one connection: checks each head, calls the chain, and converts the result to HTTP.
//!
//! The caller's [`ErrorResponder`] converts errors to responses, and a 101 becomes a tunnel. While the server is
//! leaving, each HTTP/1 response is the last of its connection. So is one on a connection in the reserve
//! ([`crate::client::connections`]). On a workload's port, also over HTTP/2, the same applies to each response while
//! clients must reconnect ([`crate::server::accept::ports`]), and to one that says that the port is no longer served
//! ([`PortGone`]).

use super::progress::Progress;
use super::{Chain, ErrorResponder, PortGone};
use crate::body::{BodyError, EndsConnection, Guard, Guarded, HeadCharge, Reply, RequestBody};
use crate::client::Inbound;
use crate::client::connection_permit::{ConnectionPermit, Phase};
use crate::client::peer::Peer;
use crate::error::ProxyError;
use crate::hop_by_hop::TURNED_AWAY;
use crate::server::heads::head_check;
use crate::server::memory::output::{self, Metered};
use crate::tunnel::Tunnel;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

pub(super) struct ConnectionService<S, R> {
    /// The connection's own chain: a clone per request would touch reference counts that all threads share.
    chain: RefCell<S>,
    pub(super) peer: Arc<Peer>,
    /// Number of HTTP/1 requests so far.
    requests: Cell<u64>,
    own: Arc<ServiceShared<R>>,
}

/// State shared by the exchanges of a connection.
struct ServiceShared<R> {
    responder: R,
    tunnels: TaskTracker,
    progress: Arc<Progress>,
}

impl<S, R> ConnectionService<S, R> {
    /// Creates the service for the connection of `peer` with this permit. `tunnels` tracks its upgrades.
    pub(super) fn new(
        chain: S,
        peer: Arc<Peer>,
        permit: Arc<ConnectionPermit>,
        responder: R,
        tunnels: TaskTracker,
    ) -> Self {
        let progress = Arc::new(Progress::new(permit));
        let own = Arc::new(ServiceShared { responder, tunnels, progress });
        Self { chain: RefCell::new(chain), peer, requests: Cell::new(0), own }
    }

    pub(super) fn progress(&self) -> &Arc<Progress> {
        &self.own.progress
    }

    /// Reports whether the head of the next HTTP/1 request was checked and valid ([`crate::server::heads::framing`]).
    fn is_next_head_valid(&self) -> bool {
        let request = self.requests.get() + 1;
        self.requests.set(request);
        request <= self.own.progress.heads.load(Ordering::Relaxed)
    }
}

type Answer<B, R> = Response<Metered<Guarded<Reply<B>, Running<R>>>>;

impl<S, R> hyper::service::Service<Request<Incoming>> for ConnectionService<S, R>
where
    S: Chain,
    R: ErrorResponder<S::Error>,
{
    type Response = Answer<S::Body, R>;
    type Error = BodyError;
    type Future = Exchange<S::Future, R>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (grpc, version) = (is_grpc(request.headers()), request.version());
        let head_only = version == Version::HTTP_2 && *request.method() == Method::HEAD;
        let has_room = self.own.progress.permit.begin_exchange();
        let running = Some(Running(self.own.clone()));
        let serving = |exchange, refused| Exchange { exchange, refused, grpc, head_only, version, running };
        let checked = if version < Version::HTTP_2 && !self.is_next_head_valid() {
            Err(ProxyError::Malformed("the end of the request is ambiguous"))
        } else if !has_room {
            Err(self.own.progress.permit.no_room_error())
        } else {
            head_check::check(&request)
        };
        if checked.is_err() || head_check::is_for_server(&request) {
            return serving(None, checked.err());
        }
        let unread = (version == Version::HTTP_2).then(|| self.peer.unread_frames());
        let request = request.map(|body| RequestBody::new(body, unread));
        let is_subsequent = self.requests.get() > 1;
        let inbound = Inbound { request, peer: self.peer.clone(), received: Instant::now(), is_subsequent };
        // Readiness is not polled: every layer of the chain is always ready, and waits inside its future.
        serving(Some(self.chain.borrow_mut().call(inbound)), None)
    }
}

/// A running exchange of a connection, counted from its head to the end of its response's body.
pub(super) struct Running<R>(Arc<ServiceShared<R>>);

impl<R> Guard for Running<R> {}

impl<R> Drop for Running<R> {
    fn drop(&mut self) {
        self.0.progress.permit.end_exchange();
    }
}

pin_project! {
    /// One exchange, whose errors become responses.
    pub(super) struct Exchange<F, R> {
        // None if the server responds itself.
        #[pin]
        exchange: Option<F>,
        refused: Option<ProxyError>,
        grpc: bool,
        head_only: bool,
        version: Version,
        // None once it has a response.
        running: Option<Running<R>>,
    }
}

impl<F, B, E, R> Future for Exchange<F, R>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: From<ProxyError>,
    R: ErrorResponder<E>,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
{
    type Output = Result<Answer<B, R>, BodyError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(Running(own)) = this.running else {
            return Poll::Ready(Err("the exchange already had a response".into()));
        };
        let served = match this.exchange.as_pin_mut() {
            Some(exchange) => std::task::ready!(exchange.poll(cx)).map(|response| own.begin_tunnel(response)),
            None => this.refused.take().map_or_else(|| Ok(Response::new(empty_body())), |error| Err(error.into())),
        };
        let answer = match served {
            Ok(answer) => Some(answer),
            Err(error) => {
                own.responder.respond(&error, *this.grpc, *this.version).map(|failed| failed.map(Reply::Left))
            }
        };
        // Without a response the client is gone, and the connection ends.
        let (mut answer, running) = answer.zip(this.running.take()).ok_or("the client has disconnected")?;
        if *this.version == Version::HTTP_2
            && answer.status() == StatusCode::MISDIRECTED_REQUEST
            && answer.headers().contains_key(TURNED_AWAY)
        {
            // HTTP/2 has a code for this: the relaying activator still has the complete request.
            return Poll::Ready(Err(h2::Error::from(h2::Reason::REFUSED_STREAM).into()));
        }
        let progress = &running.0.progress;
        let permit = &progress.permit;
        let (closes, is_reserved) = (permit.closes_after_response(), permit.is_reserved());
        let ends = answer.extensions().get::<EndsConnection>().is_some();
        let charge = answer.extensions_mut().remove::<HeadCharge>();
        charge.iter().for_each(|charge| charge.transfer_to(permit.state.clone()));
        let is_gone = permit.state.port.is_some() && answer.extensions().get::<PortGone>().is_some();
        let must_reconnect = is_gone || permit.state.must_reconnect();
        if (must_reconnect || is_reserved) && *this.version >= Version::HTTP_2 {
            // The response wakes the connection's task.
            permit.state.advance_phase(Phase::Finish);
        }
        let is_last = *this.version < Version::HTTP_2 && (closes || ends || must_reconnect || charge.is_some());
        match charge {
            Some(charge) if *this.version < Version::HTTP_2 => progress.output.keep(charge),
            Some(charge) => output::charge(&progress.output, answer.headers_mut(), charge),
            None => {}
        }
        if is_last && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if *this.version == Version::HTTP_10 && has_no_length(&answer) {
            progress.closes_answer.store(true, Ordering::Relaxed);
        }
        let answer = if *this.head_only { without_body(answer) } else { answer };
        let keeps_length = *this.version < Version::HTTP_2
            && answer.status() == StatusCode::NOT_MODIFIED
            && answer.headers().contains_key(CONTENT_LENGTH);
        let output = progress.output.clone();
        Poll::Ready(Ok(answer.map(|body| Metered::new(Guarded::new(body, running), output, keeps_length))))
    }
}

impl<R> ServiceShared<R> {
    fn begin_tunnel<B>(&self, response: Response<B>) -> Response<Reply<B>>
    where
        B: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
    {
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return response.map(Reply::Right);
        }
        let (mut head, body) = response.into_parts();
        if let Some(tunnel) = head.extensions.remove::<Tunnel>() {
            let permit = &self.progress.permit;
            permit.state.tunnel.store(true, Ordering::Relaxed);
            let mut phases = permit.phase_receiver();
            self.tunnels.spawn(async move { tunnel.run(body, phases.cut()).await });
        }
        Response::from_parts(head, empty_body())
    }
}

/// Returns the response to HEAD over HTTP/2, with the length only. hyper would send the body.
fn without_body<B: Body<Data = Bytes, Error: Into<BodyError>>>(response: Response<Reply<B>>) -> Response<Reply<B>> {
    let (mut head, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact().filter(|_| !body.is_end_stream()) {
        head.headers.entry(CONTENT_LENGTH).or_insert(length.into());
    }
    Response::from_parts(head, empty_body())
}

/// Reports whether a response to a client without chunked encoding ends with its connection.
fn has_no_length<B: Body<Data = Bytes, Error: Into<BodyError>>>(response: &Response<Reply<B>>) -> bool {
    let body = response.body();
    !body.is_end_stream() && body.size_hint().exact().is_none() && !response.headers().contains_key(CONTENT_LENGTH)
}

fn empty_body<B>() -> Reply<B> {
    Reply::Left(Full::default())
}

fn is_grpc(headers: &http::HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"application/grpc"))
}
