//! The stat server: a WebSocket server on HTTP/1.1 with one binary frame per batch, plain or over TLS
//! ([`common_runtime::stat_tls`]).
//!
//! # Order of decisions, for every path and method (Knative's)
//!
//! 1. A kubelet's probe (`User-Agent: kube-probe/…`, or a `K-Kubelet-Probe` header) gets 200. On [`READY`], a path
//!    that Knative's probes do not use, it gets 503 until this process can act ([`Access::can_act`]).
//! 2. A `Host` that begins with `autoscaler-bucket` names a bucket up to its first dot. If this process does not own
//!    it, the response is an empty 200, which a WebSocket client treats as a refusal.
//! 3. A query of another autoscaler ([`super::queries`]) gets its response, if queries are served.
//! 4. The upgrade: version 13, no subprotocol, no compression, same origin if there is an `Origin`.
//! 5. If tokens are required ([`common_runtime::admission`]), queries and upgrades without a valid one get 401, 403 or
//!    503.
//!
//! With TLS, a plain connection gets 400 after step 1. A probe reveals nothing, and the kubelet's probes need not
//! change.
//!
//! # Frames
//!
//! Each frame goes to the [`Sink`] from the task that read it. There is no queue in between, so a sleeping service
//! wakes without a hop, and a busy sink holds back the socket from which it reads. A frame that is not binary or
//! cannot be decoded is counted and dropped; the connection stays. A frame that is too large, or that the protocol
//! forbids, is counted and ends its connection, because the start of the next frame is unknown. The server sends pongs
//! and close frames only.
//!
//! # Bounds
//!
//! Before the upgrade there are at most [`CONNECTIONS`]; the oldest gives way to a new one, so that probes are always
//! served. After the upgrade there are at most [`STREAMS`]. A frame has at most [`FRAME_MAX`] bytes. A TLS handshake
//! and a request head take at most [`HEAD_TIMEOUT`]. The total size and the duration of incomplete large frames are
//! bounded too ([`super::incomplete_frames`]). At a bound, the address with the largest share gives way
//! ([`common_runtime::bounded_accept`]). TCP keep-alive detects peers that vanish.
//!
//! # Shutdown
//!
//! Every connection gets a close frame, 1012 `Restarting`, and up to [`CLOSE_PATIENCE`] to respond.

#[cfg(test)]
mod tests;

use super::counters::{BadFrame, Counters};
use super::forwarded;
use super::incomplete_frames::{self, IncompleteFrameError, MeteredStream};
use super::queries::{QUERY_PREFIX, Responder};
use autoscaler_core::forwarding::Forwarded;
use bytes::Bytes;
use common::ownership::bucket_of_host;
use common_controller::shares::Instance;
use common_runtime::admission::{Gate, Peer, bearer};
use common_runtime::bounded_accept::{Acceptor, GivesWay, Limits, Shares};
use common_runtime::listen::listen;
use common_runtime::stat_tls::StatServerTls;
use common_runtime::tls;
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Path on which a kubelet asks whether this process can act, and not only whether it runs.
pub const READY: &str = "/ready";
/// Limits of connections before the upgrade: probes, queries, handshakes.
pub const CONNECTIONS: Limits = Limits { total: 1024, per_address: 128 };
/// Limits of concurrent streams: one for each activator and each other autoscaler.
pub const STREAMS: Limits = Limits { total: 4096, per_address: 4096 };
/// Maximum frame size: a batch of 10 000 entries with the longest names that Kubernetes allows takes 6.5 MB.
pub const FRAME_MAX: usize = 8 * 1024 * 1024;
/// Longest wait for a request head.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for all peers to respond to the close frame on shutdown. Upstream: 5 s.
pub const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Read buffer of each connection. Most frames are far smaller.
const READ_BUFFER: usize = 8 * 1024;
/// Time until the first TCP keep-alive probe, as upstream.
const KEEP_ALIVE: Duration = Duration::from_secs(180);

/// Receiver of frames. Called from many tasks at once; must not block.
pub trait Sink: Send + Sync + 'static {
    /// Handles a binary frame. Returns `false` if it cannot be decoded.
    fn frame(&self, frame: Bytes, from: &Origin) -> bool;

    /// Returns whether this process owns the bucket of this name.
    fn owns_bucket(&self, name: &str) -> bool;
}

/// Origin of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The peer's address.
    pub ip: IpAddr,
    /// Forwarding mark, if another autoscaler forwarded it.
    pub forwarded: Option<Forwarded<Instance>>,
    /// Pod that the peer has proven to be. The peer may speak for this pod only.
    pub pod: Option<Arc<str>>,
}

/// Stat server bound to its port.
pub struct StatServer {
    listener: TcpListener,
    /// Conditions of access; by default none.
    pub access: Access,
}

/// Conditions of access, each optional.
#[derive(Clone, Default)]
pub struct Access {
    /// Requires tokens of stat senders.
    pub gate: Option<Arc<Gate>>,
    /// Enables TLS.
    pub tls: Option<StatServerTls>,
    /// Serves queries of other autoscalers.
    pub responder: Option<Responder>,
    /// Reports not ready until this is cancelled.
    pub can_act: Option<CancellationToken>,
}

impl StatServer {
    /// Binds `address`.
    ///
    /// # Errors
    /// The address cannot be bound; the error names it.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = listen(address)
            .map_err(|error| io::Error::new(error.kind(), format!("stat port {address} cannot be bound: {error}")))?;
        Ok(Self { listener, access: Access::default() })
    }

    /// Returns the address it listens on.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`, then closes every connection; returns when they are closed, within [`CLOSE_PATIENCE`].
    pub async fn serve(self, sink: Arc<dyn Sink>, counters: Counters, shutdown: CancellationToken) {
        let (streams, incomplete) = (Shares::new(STREAMS, GivesWay::Youngest), incomplete_frames::shares());
        let (Self { listener, access }, tasks, until) = (self, TaskTracker::new(), shutdown.clone());
        let server = Server { sink, counters, access, streams, incomplete, shutdown, tasks: tasks.clone() };
        // The listener is closed at once, so that peers connect elsewhere.
        let acceptor = Acceptor::new(listener, "stat", CONNECTIONS);
        let connections = acceptor.serve(until, |stream, ip| server.clone().connection(stream, ip)).await;
        tasks.close();
        let ended = async { tokio::join!(connections.wait(), tasks.wait()) };
        if timeout(CLOSE_PATIENCE, ended).await.is_err() {
            tracing::debug!(open = tasks.len(), "some peers did not respond to the close frame in time");
        }
    }
}

#[derive(Clone)]
struct Server {
    sink: Arc<dyn Sink>,
    counters: Counters,
    access: Access,
    streams: Arc<Shares>,
    incomplete: Arc<Shares>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

impl Server {
    async fn connection(self, stream: TcpStream, ip: IpAddr) {
        // Neither option is needed for correctness.
        let _ = stream.set_nodelay(true);
        let keep_alive = socket2::TcpKeepalive::new().with_time(KEEP_ALIVE);
        let _ = socket2::SockRef::from(&stream).set_tcp_keepalive(&keep_alive);
        let Some(tls) = self.access.tls.clone() else {
            return self.exchanges(stream, ip, false).await;
        };
        match timeout(HEAD_TIMEOUT, tls::speaks_tls(&stream)).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return self.exchanges(stream, ip, !tls.allow_plain).await,
            Ok(Err(_)) | Err(_) => return, // The peer sent nothing.
        }
        match timeout(HEAD_TIMEOUT, tls::accept(stream, tls.config)).await {
            Ok(Ok(stream)) => self.exchanges(stream, ip, false).await,
            Ok(Err(error)) => {
                self.counters.tls_refusals.inc();
                tracing::debug!(peer = %ip, %error, "the TLS handshake of a stat connection failed");
            }
            Err(_) => _ = self.counters.tls_refusals.inc(),
        }
    }

    /// Serves a connection. `probes_only`: it is plain although TLS is required, so only probes are served.
    async fn exchanges<S>(self, stream: S, ip: IpAddr, probes_only: bool)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let shutdown = self.shutdown.clone();
        let service = hyper::service::service_fn(move |request| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.answer(request, ip, probes_only).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        // An error is the peer's: a truncated request, or a reset.
        let _ = shutdown.run_until_cancelled(connection).await;
    }

    /// Handles one request; an upgraded stream continues in its own task.
    async fn answer(&self, mut request: Request<Incoming>, ip: IpAddr, probes_only: bool) -> Response<Full<Bytes>> {
        if is_kubelet_probe(request.headers()) {
            return status(self.health(request.uri().path()));
        }
        if probes_only {
            self.counters.tls_refusals.inc();
            return refuse(StatusCode::BAD_REQUEST, "this port accepts stats over TLS only: use wss://");
        }
        if let Some(bucket) = bucket_of_host(host(&request))
            && !self.sink.owns_bucket(bucket)
        {
            return status(StatusCode::OK);
        }
        if let Some(responder) = &self.access.responder
            && request.uri().path().starts_with(QUERY_PREFIX)
        {
            return self.query(responder, &request, ip).await;
        }
        let accepted = match check_upgrade(&request) {
            Ok(accepted) => accepted,
            Err(refusal) => return *refusal,
        };
        let forwarded = forwarded::read(request.headers());
        let pod = match &self.access.gate {
            Some(gate) => match gate.admit(bearer(request.headers()), forwarded.is_some(), ip).await {
                Ok(Peer::Activator(pod)) => Some(pod),
                Ok(Peer::Autoscaler) => None,
                Err(refused) => return status(refused.status()),
            },
            None => None,
        };
        let Some(mut share) = self.streams.take(ip, 1) else {
            return refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                "all streams are in use, and no client address has more of them than this one: try again later",
            );
        };
        let origin = Origin { ip, forwarded, pod };
        let (upgrade, server, open) =
            (hyper::upgrade::on(&mut request), self.clone(), self.counters.connections.clone());
        self.tasks.spawn(async move {
            let reads = async {
                if let Ok(upgraded) = upgrade.await {
                    server.read(upgraded, origin).await;
                }
            };
            open.inc();
            tokio::select! {
                () = reads => {}
                () = share.lost() => {}
            }
            open.dec();
        });
        accepted
    }

    /// Returns the status of a kubelet's probe.
    fn health(&self, path: &str) -> StatusCode {
        let is_waiting = self.access.can_act.as_ref().is_some_and(|can_act| !can_act.is_cancelled());
        if is_waiting && path == READY { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
    }

    /// Handles a query, from another autoscaler only.
    async fn query(&self, responder: &Responder, request: &Request<Incoming>, ip: IpAddr) -> Response<Full<Bytes>> {
        if request.method() != Method::GET {
            return status(StatusCode::METHOD_NOT_ALLOWED);
        }
        match &self.access.gate {
            // Requires a forwarder's token: an activator is rejected.
            Some(gate) => match gate.admit(bearer(request.headers()), true, ip).await {
                Ok(_) => {}
                Err(refused) => return status(refused.status()),
            },
            None if ip.is_loopback() => {}
            None => {
                return refuse(
                    StatusCode::FORBIDDEN,
                    "this autoscaler requires no tokens, so it cannot verify that the client is an autoscaler: set \
                     ZEROSCALE_STAT_AUDIENCE",
                );
            }
        }
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        responder(path.to_owned()).await
    }

    async fn read(self, upgraded: Upgraded, origin: Origin) {
        let limits = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(0)
            .max_message_size(Some(FRAME_MAX))
            .max_frame_size(Some(FRAME_MAX));
        let (incoming, outgoing) = tokio::io::split(TokioIo::new(upgraded));
        let metered = MeteredStream::new(incoming, origin.ip, self.incomplete.clone());
        let stream = tokio::io::join(metered, outgoing);
        let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(limits)).await;
        loop {
            let Some(message) = self.shutdown.run_until_cancelled(socket.next()).await else {
                return restart(socket).await;
            };
            socket.get_mut().reader_mut().finished();
            match message {
                Some(Ok(Message::Binary(frame))) => {
                    self.counters.frames.inc();
                    if !self.sink.frame(frame, &origin) {
                        self.counters.bad_frame(BadFrame::Undecodable);
                    }
                }
                Some(Ok(Message::Text(_))) => {
                    self.counters.bad_frame(BadFrame::NotBinary);
                    tracing::debug!(peer = %origin.ip, "a text frame was dropped: stats must be sent in binary frames");
                }
                // The library sends pongs and the echo of a close frame with the next read.
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    if let Some(bad) = bad_frame_kind(&error) {
                        self.counters.bad_frame(bad);
                    }
                    tracing::debug!(peer = %origin.ip, %error, "a stat connection ended");
                    return;
                }
                None => return,
            }
        }
    }
}

/// Returns the kind of bad frame that caused an error; none if the connection broke or ended.
fn bad_frame_kind(error: &WsError) -> Option<BadFrame> {
    match error {
        WsError::Capacity(_) => Some(BadFrame::TooLarge),
        WsError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        WsError::Protocol(_) | WsError::Utf8(_) => Some(BadFrame::Forbidden),
        WsError::Io(error) if error.get_ref().is_some_and(|inner| inner.is::<IncompleteFrameError>()) => {
            Some(BadFrame::Unfinished)
        }
        _ => None,
    }
}

/// Sends a close frame and waits for the peer to disconnect, so that a reset cannot overtake the close frame.
async fn restart(mut socket: WebSocketStream<impl AsyncRead + AsyncWrite + Unpin>) {
    let frame = CloseFrame { code: CloseCode::Restart, reason: "Restarting".into() };
    let closing = async {
        if socket.close(Some(frame)).await.is_ok() {
            while let Some(Ok(_)) = socket.next().await {}
        }
    };
    let _ = timeout(CLOSE_PATIENCE, closing).await;
}

fn is_kubelet_probe(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
    let marked = headers.get("k-kubelet-probe").is_some_and(|value| !value.is_empty());
    agent.starts_with(b"kube-probe/") || marked
}

fn host(request: &Request<Incoming>) -> &str {
    let header = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    header.or_else(|| request.uri().authority().map(|authority| authority.as_str())).unwrap_or_default()
}

/// Checks a WebSocket handshake. Returns the response that accepts it.
fn check_upgrade(request: &Request<Incoming>) -> Result<Response<Full<Bytes>>, Box<Response<Full<Bytes>>>> {
    let accepted = create_response_with_body(request, Full::default).map_err(|error| {
        let status = match &error {
            WsError::Protocol(ProtocolError::WrongHttpMethod) => StatusCode::METHOD_NOT_ALLOWED,
            WsError::Protocol(ProtocolError::MissingUpgradeWebSocketHeader) => StatusCode::UPGRADE_REQUIRED,
            _ => StatusCode::BAD_REQUEST,
        };
        let mut refusal = Box::new(refuse(status, error.to_string()));
        if status == StatusCode::UPGRADE_REQUIRED {
            refusal.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        }
        refusal
    })?;
    match request.headers().get(header::ORIGIN) {
        Some(origin) if !same_origin(origin, host(request)) => {
            Err(Box::new(refuse(StatusCode::FORBIDDEN, "the header Origin must name the host of this port")))
        }
        _ => Ok(accepted),
    }
}

fn same_origin(origin: &HeaderValue, host: &str) -> bool {
    let authority = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

fn refuse(code: StatusCode, reason: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = status(code);
    *response.body_mut() = Full::new(reason.into());
    response
}
