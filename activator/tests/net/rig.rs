//! Test environment: an activator on real sockets. A stream of events replaces the cluster, a WebSocket server that
//! passes on its messages replaces the autoscaler, and pods are small HTTP servers on free ports.

use activator::discovery::{Event, Listing, Spec};
use activator::{Activator, ColdStart, Options, WorkerRuntimes};
use activator_core::breaker::{Capacity, Load};
use bytes::Bytes;
use common::RevisionKey;
use common::backend::Backend;
use common::stat::{Stat, WireStatMessage};
use common_runtime::environment::Mode;
use common_runtime::resolve::{Dns, Resolve};
use futures::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use socket2::SockRef;
use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Longest wait in a test, even if many others use the processors.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Threads for client connections: more than one, to cover transfers between them.
pub(crate) const WORKERS: NonZeroUsize = NonZeroUsize::new(2).expect("two");

/// Limits of clients and pods for a head: more than the activator passes on.
const FIELDS_MAX: usize = 4096;
const HEAD_MAX: usize = 4 << 20;

/// GET of `ns/app`, and the same as an upgrade.
pub(crate) const GET: &str = "GET / HTTP/1.1\r\nhost: app.ns\r\n\r\n";
pub(crate) const UPGRADE: &str = "GET / HTTP/1.1\r\nhost: app.ns\r\nconnection: Upgrade\r\nupgrade: echo\r\n\r\n";

/// Response body of a pod.
pub(crate) type AnyBody = UnsyncBoxBody<Bytes, hyper::Error>;

/// Activator and its environment.
pub(crate) struct Rig {
    pub(crate) activator: Activator,
    pub(crate) address: SocketAddr,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) stats: mpsc::UnboundedReceiver<WireStatMessage>,
    pub(crate) cold_starts: mpsc::UnboundedReceiver<ColdStart>,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Options)) -> Self {
        Self::start_configured(change, activator::Configs::default()).await
    }

    /// Starts an activator that knows a revision `ns/app`, modified by `change`.
    pub(crate) async fn with_revision(change: impl FnOnce(&mut Backend)) -> Self {
        Self::with_options(|_| {}, change).await
    }

    /// Starts an activator with changed options that knows `ns/app`, modified by `change`.
    pub(crate) async fn with_options(options: impl FnOnce(&mut Options), change: impl FnOnce(&mut Backend)) -> Self {
        let rig = Self::start_with(options).await;
        rig.revision(change).await;
        rig
    }

    /// Starts an activator that knows `ns/app`, modified by `change`, with these pods.
    pub(crate) async fn with_pods(pods: &[SocketAddr], change: impl FnOnce(&mut Backend)) -> Self {
        let rig = Self::with_revision(change).await;
        rig.pods(pods).await;
        rig
    }

    pub(crate) async fn start_configured(change: impl FnOnce(&mut Options), configs: activator::Configs) -> Self {
        Self::start_with_all(change, configs, Arc::new(Dns)).await
    }

    /// Starts an activator that finds Services through `resolver`.
    pub(crate) async fn start_with_all(
        change: impl FnOnce(&mut Options),
        configs: activator::Configs,
        resolver: Arc<dyn Resolve>,
    ) -> Self {
        let mut rig = Self::start_unsynced(change, configs, resolver).await;
        rig.emit(Event::Synced).await;
        rig.until_linked().await;
        rig
    }

    /// Starts an activator whose first lists are not complete: it got no [`Event::Synced`].
    pub(crate) async fn start_unsynced(
        change: impl FnOnce(&mut Options),
        configs: activator::Configs,
        resolver: Arc<dyn Resolve>,
    ) -> Self {
        let (sender, stats) = mpsc::unbounded_channel();
        let autoscaler = Pod::raw(listen().await, move |stream, _| receive_stats(stream, sender.clone()));

        let (cold_sender, cold_starts) = mpsc::unbounded_channel();
        let mut options = Options::new("activator-0", IpAddr::from(Ipv4Addr::LOCALHOST), Mode::Standalone);
        options.http1 = free();
        options.h2c = free();
        options.https = free();
        options.stat_url = format!("ws://{}", autoscaler.address);
        options.linger = Duration::ZERO;
        options.drain = Duration::from_secs(5);
        options.workers = Some(WorkerRuntimes::start(WORKERS).expect("two threads"));
        options.on_cold_start = Some(Arc::new(move |cold: &ColdStart| {
            let _ = cold_sender.send(cold.clone());
        }));
        change(&mut options);
        let (events, receiver) = mpsc::channel(64);
        let activator = activator::start(options, receiver, resolver, configs).await.expect("free ports");
        Self { address: activator.http1, activator, events, stats, cold_starts }
    }

    /// Waits for the first attestation, which shows that the stat link is up.
    async fn until_linked(&mut self) {
        loop {
            let message = patient(self.stats.recv()).await.expect("the link stays up");
            if message.stat.is_none() {
                assert_eq!((message.namespace.as_str(), message.name.as_str()), ("knative-serving", "activator-0"));
                return;
            }
        }
    }

    /// Waits for the next message about a revision.
    pub(crate) async fn next_stat(&mut self) -> WireStatMessage {
        loop {
            let message = patient(self.stats.recv()).await.expect("the link stays up");
            if message.stat.is_some() {
                return message;
            }
        }
    }

    /// Returns whether the autoscaler got reports of load since the last call, up to the second attestation from now.
    pub(crate) async fn is_load(&mut self) -> bool {
        let is_load = |stat: Stat| stat.average_concurrent_requests > 0.0 || stat.request_count > 0.0;
        let (mut attested, mut load) = (0, false);
        while let Ok(message) = self.stats.try_recv() {
            load |= message.stat.is_some_and(is_load);
        }
        while attested < 2 {
            match patient(self.stats.recv()).await.expect("the link stays up").stat {
                None => attested += 1,
                Some(stat) => load |= is_load(stat),
            }
        }
        load
    }

    pub(crate) async fn emit(&self, event: Event) {
        self.events.send(event).await.expect("the activator listens");
    }

    /// Creates a revision `ns/app`, modified by `change`.
    pub(crate) async fn revision(&self, change: impl FnOnce(&mut Backend)) {
        let mut backend = backend("app");
        change(&mut backend);
        self.emit(Event::Revision(Arc::new(Spec::standalone("ns", "app", backend)))).await;
        self.settled().await;
    }

    /// Sets the pods of `ns/app`, none of them ready in Kubernetes.
    pub(crate) async fn pods(&self, addresses: &[SocketAddr]) {
        self.pods_of("app", addresses).await;
    }

    /// Sets the pods of a revision in `ns`, none of them ready in Kubernetes.
    pub(crate) async fn pods_of(&self, name: &str, addresses: &[SocketAddr]) {
        let listing = Listing { not_ready: addresses.iter().map(|a| (*a).into()).collect(), ..Listing::default() };
        self.emit(Event::Pods { key: key(name), listing }).await;
    }

    /// Makes `pod` the only pod of `ns/app`.
    pub(crate) async fn only_pod(&self, pod: Pod) -> Pod {
        self.pods(&[pod.address]).await;
        pod
    }

    /// Sets the pods of `ns/app`, all of them ready in Kubernetes.
    pub(crate) async fn ready_pods(&self, addresses: &[SocketAddr]) {
        let listing = Listing { ready: addresses.iter().map(|a| (*a).into()).collect(), ..Listing::default() };
        self.emit(Event::Pods { key: key("app"), listing }).await;
    }

    /// Waits until the load of `ns/app` matches.
    pub(crate) async fn until(&self, wanted: impl Fn(Load) -> bool) {
        until(|| self.activator.load(&key("app")).is_some_and(&wanted)).await;
    }

    /// Waits until a pod can take requests.
    pub(crate) async fn until_open(&self) {
        self.until(|load| load.capacity != Capacity::CLOSED).await;
    }

    /// Waits until all earlier events have been applied, by sending a later one.
    pub(crate) async fn settled(&self) {
        let marker = backend("marker");
        self.emit(Event::Revision(Arc::new(Spec::standalone("ns", "marker", marker)))).await;
        until(|| self.activator.load(&key("marker")).is_some()).await;
        self.emit(Event::Deleted(key("marker"))).await;
        until(|| self.activator.load(&key("marker")).is_none()).await;
    }

    /// Waits until a revision is found by this host, because hosts are rebuilt later than its other data. Requests are
    /// sent until one is not refused; that one may be held until its connection has been reset.
    pub(crate) async fn until_named(&self, host: &str) {
        until_async(async || {
            let mut client = self.send_raw(&format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n")).await;
            let mut status = *b"HTTP/1.1 404";
            let answered = tokio::time::timeout(Duration::from_millis(100), client.read_exact(&mut status)).await;
            reset(client);
            answered.is_err() || status != *b"HTTP/1.1 404"
        })
        .await;
    }

    pub(crate) async fn get(&self, host: &str, path: &str) -> FullResponse {
        self.send(Request::get(path).header("host", host)).await
    }

    pub(crate) async fn send(&self, request: http::request::Builder) -> FullResponse {
        ask(self.address, request).await
    }

    /// Sends this many GETs at once, each on its own connection.
    pub(crate) fn get_many(self: &Arc<Self>, path: &'static str, count: usize) -> JoinSet<FullResponse> {
        let get = move |rig: Arc<Self>| async move { rig.get("app.ns", path).await };
        (0..count).map(|_| get(self.clone())).collect()
    }

    /// Returns a page of the admin port.
    pub(crate) async fn admin_page(&self, path: &str) -> String {
        let admin = self.activator.admin.expect("bound");
        ask(admin, Request::get(path).header("host", "admin")).await.body
    }

    /// Opens a client connection for bytes.
    pub(crate) async fn raw(&self) -> TcpStream {
        connect(self.address).await
    }

    /// Opens a client connection and writes `text`.
    pub(crate) async fn send_raw(&self, text: &str) -> TcpStream {
        connect_and_write(self.address, text).await
    }
}

/// Sends a request without a body on its own connection.
pub(crate) async fn ask(address: SocketAddr, request: http::request::Builder) -> FullResponse {
    ask_with(address, request, "").await
}

/// Sends a request with a body on its own connection.
pub(crate) async fn ask_with(
    address: SocketAddr,
    request: http::request::Builder,
    body: impl Into<Bytes>,
) -> FullResponse {
    let request = request.body(Full::new(body.into())).expect("a request");
    FullResponse::receive(http1_client(address).await.send_request(request)).await
}

/// Sends a request with a body on its own HTTP/2 connection.
pub(crate) async fn ask_http2(
    address: SocketAddr,
    request: http::request::Builder,
    body: impl Into<Bytes>,
) -> FullResponse {
    let request = request.body(Full::new(body.into())).expect("a request");
    FullResponse::receive(http2_client(address).await.send_request(request)).await
}

/// Connects and writes `text`.
pub(crate) async fn connect_and_write(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = connect(address).await;
    write(&mut stream, text).await;
    stream
}

/// Connects without Nagle's delay.
pub(crate) async fn connect(address: SocketAddr) -> TcpStream {
    let stream = patient(TcpStream::connect(address)).await.expect("connected");
    stream.set_nodelay(true).expect("connected");
    stream
}

pub(crate) async fn http1_client<B>(address: SocketAddr) -> hyper::client::conn::http1::SendRequest<B>
where
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let stream = connect(address).await;
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.max_headers(FIELDS_MAX).max_buf_size(HEAD_MAX);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("nothing is sent yet");
    tokio::spawn(connection.with_upgrades());
    sender
}

pub(crate) async fn http2_client<B>(address: SocketAddr) -> hyper::client::conn::http2::SendRequest<B>
where
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let stream = connect(address).await;
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.max_header_list_size(HEAD_MAX as u32);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("settings");
    tokio::spawn(connection);
    sender
}

/// Complete response.
#[derive(Debug)]
pub(crate) struct FullResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    pub(crate) trailers: Option<HeaderMap>,
}

impl FullResponse {
    pub(crate) async fn read(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let body = patient(body.collect()).await.expect("a complete body");
        let trailers = body.trailers().cloned();
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        Self { status: head.status, headers: head.headers, body, trailers }
    }

    /// Waits for a response, and reads it.
    pub(crate) async fn receive(response: impl Future<Output = hyper::Result<Response<Incoming>>>) -> Self {
        Self::read(patient(response).await.expect("an answer")).await
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }
}

pub(crate) fn key(name: &str) -> RevisionKey {
    RevisionKey::new("ns", name)
}

/// Returns a plain backend whose timeout ends no test.
pub(crate) fn backend(name: &str) -> Backend {
    Backend { timeout_ms: 3_600_000, ..Backend::plain(name) }
}

/// Pod: a server on a free port, and counts of its connections and requests.
pub(crate) struct Pod {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) requests: Arc<AtomicUsize>,
    accepting: tokio::task::JoinHandle<()>,
}

/// Listener that stops listening on drop, even if a process that another test has just started still has a copy of its
/// descriptor, until its exec.
struct Listening(TcpListener);

impl Drop for Listening {
    fn drop(&mut self) {
        // Fails only if it no longer listens.
        let _ = SockRef::from(&self.0).shutdown(std::net::Shutdown::Both);
    }
}

impl Pod {
    /// Starts a pod that serves HTTP/1.1 and h2c with `handler`.
    pub(crate) async fn start<F, R>(handler: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response<AnyBody>> + Send + 'static,
    {
        Self::on(listen().await, |_| {}, handler)
    }

    /// Starts a pod that serves each connection with `serve`, which counts the requests itself.
    pub(crate) fn raw<R>(
        listener: TcpListener,
        mut serve: impl FnMut(TcpStream, Arc<AtomicUsize>) -> R + Send + 'static,
    ) -> Self
    where
        R: Future<Output: Send + 'static> + Send + 'static,
    {
        let address = listener.local_addr().expect("bound");
        let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (accepted, received) = (connections.clone(), requests.clone());
        let accepting = tokio::spawn(async move {
            let mut serving = JoinSet::new(); // Dropped with the pod: connections break.
            let listener = Listening(listener); // Dropped before them, so that no retry reaches an open port.
            loop {
                let Ok((stream, _)) = listener.0.accept().await else { return };
                accepted.fetch_add(1, Ordering::SeqCst);
                let _ = stream.set_nodelay(true); // Fails if it has been closed already.
                serving.spawn(serve(stream, received.clone()));
            }
        });
        Self { address, connections, requests, accepting }
    }

    /// Starts a pod like [`Pod::start`], and shows every accepted connection to `watch`.
    pub(crate) fn on<F, R>(listener: TcpListener, watch: impl Fn(&TcpStream) + Send + 'static, handler: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response<AnyBody>> + Send + 'static,
    {
        Self::raw(listener, move |stream, received| {
            watch(&stream);
            let handler = handler.clone();
            async move {
                let service = hyper::service::service_fn(move |request| {
                    received.fetch_add(1, Ordering::SeqCst);
                    let answer = handler(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                builder.http1().max_headers(FIELDS_MAX).max_buf_size(HEAD_MAX);
                builder.http2().max_header_list_size(HEAD_MAX as u32);
                let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
            }
        })
    }

    /// Starts a pod that answers every request with `text`.
    pub(crate) async fn saying(text: &'static str) -> Self {
        Self::saying_at(free(), text).await
    }

    pub(crate) async fn saying_at(address: SocketAddr, text: &'static str) -> Self {
        let listener = TcpListener::bind(address).await.expect("no other test has it");
        Self::on(listener, |_| {}, move |_| async move { Response::new(full(text)) })
    }

    /// Starts a pod that answers with the request line and all headers, sorted.
    pub(crate) async fn echoing() -> Self {
        Self::start(|request: Request<Incoming>| async move { Response::new(full(describe(&request))) }).await
    }

    /// Starts a pod that returns the body of each request once it is complete.
    pub(crate) async fn returning() -> Self {
        Self::start(|request: Request<Incoming>| async move {
            Response::new(full(request.into_body().collect().await.expect("a complete body").to_bytes()))
        })
        .await
    }

    /// Starts a pod that returns the length of the request body.
    pub(crate) async fn measuring() -> Self {
        Self::start(|request: Request<Incoming>| async move {
            let length = request.into_body().collect().await.map_or(0, |body| body.to_bytes().len());
            Response::new(full(length.to_string()))
        })
        .await
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Closes the port and every connection.
    pub(crate) async fn kill(self) {
        self.accepting.abort();
        let _ = self.accepting.await;
    }
}

pub(crate) fn describe(request: &Request<Incoming>) -> String {
    let version = if request.version() == Version::HTTP_2 { "h2" } else { "http/1.1" };
    let mut lines: Vec<String> = request
        .headers()
        .iter()
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    lines.sort();
    lines.insert(0, format!("{version} {} {}", request.method(), request.uri()));
    lines.join("\n")
}

pub(crate) fn full(text: impl Into<Bytes>) -> AnyBody {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns the response that accepts an upgrade to `protocol`.
pub(crate) fn switching_to(protocol: &str) -> Response<AnyBody> {
    let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    response.header("connection", "upgrade").header("upgrade", protocol).body(full("")).expect("a response")
}

/// Accepts an upgrade, and returns all bytes of the tunnel.
pub(crate) fn echo_tunnel(mut request: Request<Incoming>, protocol: &str) -> Response<AnyBody> {
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded.await.expect("upgraded")));
        let _ = tokio::io::copy(&mut read, &mut write).await;
    });
    switching_to(protocol)
}

pub(crate) async fn listen() -> TcpListener {
    TcpListener::bind(free()).await.expect("a free port")
}

/// Listens on a free port. Also returns the address.
pub(crate) async fn bind() -> (TcpListener, SocketAddr) {
    let listener = listen().await;
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

pub(crate) fn free() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)
}

/// Returns an address that no other test uses. It can be bound later, and again.
pub(crate) fn own_address() -> SocketAddr {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let [high, low, ..] = std::process::id().to_le_bytes();
    let next = u8::try_from(NEXT.fetch_add(1, Ordering::Relaxed)).expect("fewer than 256 are taken");
    SocketAddr::new(Ipv4Addr::new(127, high.max(1), low, next).into(), 18_012)
}

/// Returns the future's output, or fails the test after `PATIENCE`.
pub(crate) async fn patient<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

/// Waits for a state by polling it.
pub(crate) async fn until(wanted: impl Fn() -> bool) {
    patient(async {
        while !wanted() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Waits for a state by polling it asynchronously.
pub(crate) async fn until_async(wanted: impl AsyncFn() -> bool) {
    patient(async {
        while !wanted().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Reads everything until the peer closes.
pub(crate) async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = patient(stream.read_to_end(&mut bytes)).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads until `end` has been received.
pub(crate) async fn read_until(stream: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut bytes = Vec::new();
    patient(async {
        while !String::from_utf8_lossy(&bytes).contains(end) {
            let mut chunk = [0; 1024];
            let n = stream.read(&mut chunk).await.expect("readable");
            assert_ne!(n, 0, "closed before {end:?}: {:?}", String::from_utf8_lossy(&bytes));
            bytes.extend_from_slice(&chunk[..n]);
        }
    })
    .await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Closes with a reset. An orderly close directly behind a request would count as a half-close.
pub(crate) fn reset(client: TcpStream) {
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("a TCP socket");
}

pub(crate) async fn write(stream: &mut TcpStream, text: &str) {
    patient(stream.write_all(text.as_bytes())).await.expect("writable");
}

pub(crate) fn post(path: &str) -> http::request::Builder {
    Request::builder().method(Method::POST).uri(path).header("host", "app.ns")
}

pub(crate) async fn receive_stats(stream: TcpStream, sender: mpsc::UnboundedSender<WireStatMessage>) {
    let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
    while let Some(Ok(message)) = socket.next().await {
        if message.is_binary() {
            let frame = common::wire::decode(&message.into_data()).expect("a frame");
            for entry in frame.messages {
                let _ = sender.send(entry);
            }
        }
    }
}
