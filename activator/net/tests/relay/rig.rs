//! A server with one port for any protocol, and a listener of the test as its pod.

use activator_net::{
    CarriedProtocol, ClientBounds, ClientConnections, Connected, ConnectionGuard, Connector, Ended, ErrorResponder,
    Inbound, Memory, Pools, PortListeners, ProxyError, Server, Trust,
};
use bytes::Bytes;
use http::{Response, Version};
use http_body_util::Full;
use socket2::SockRef;
use std::future::Future;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

/// Maximum wait for anything in a test on real time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server with one port.
pub(crate) struct Rig {
    pub(crate) server: Server<Silent>,
    pub(crate) address: SocketAddr,
    /// Destination of relayed connections.
    pub(crate) pod: TcpListener,
    /// Connector of all connections, with their numbers.
    pub(crate) connector: ToPod,
    /// Ends of relayed connections, with the forwarded bytes.
    pub(crate) ended: mpsc::UnboundedReceiver<(Ended, [u64; 2])>,
    _open: tokio_util::sync::DropGuard,
}

#[derive(Clone)]
pub(crate) struct Silent;

impl ErrorResponder<ProxyError> for Silent {
    fn respond(&self, _: &ProxyError, _: bool, _: Version) -> Option<Response<Full<Bytes>>> {
        None
    }
}

/// Connector to the rig's pod.
#[derive(Clone)]
pub(crate) struct ToPod {
    pools: Arc<Pools>,
    pod: SocketAddr,
    idle: Option<Duration>,
    /// Number of connections that woke the workload.
    woken: Arc<AtomicUsize>,
    /// Number of these that wait for a pod.
    held: Arc<AtomicUsize>,
    /// Number of further connections for which there is a pod.
    pub(crate) pods: Arc<Semaphore>,
    ended: mpsc::UnboundedSender<(Ended, [u64; 2])>,
}

struct Held(Arc<AtomicUsize>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(crate) struct RelayedGuard {
    idle: Option<Duration>,
    ended: mpsc::UnboundedSender<(Ended, [u64; 2])>,
}

impl Connector for ToPod {
    type Guard = RelayedGuard;

    fn takes_relayed(&self) -> bool {
        true
    }

    fn is_sibling(&self, _: SocketAddr) -> bool {
        false
    }

    async fn connect(self, _: SocketAddr, mark: Option<String>) -> Connected<RelayedGuard> {
        assert_eq!(mark, None, "nobody relays");
        self.woken.fetch_add(1, Ordering::SeqCst);
        self.held.fetch_add(1, Ordering::SeqCst);
        let _held = Held(self.held.clone());
        let Ok(permit) = self.pods.acquire().await else { return Connected::Refused };
        permit.forget();
        match self.pools.get(self.pod, "ns").connect_tcp().await {
            Ok(end) => Connected::To(end, RelayedGuard { idle: self.idle, ended: self.ended }),
            Err(_) => Connected::Refused,
        }
    }

    async fn waits_for_pod(&self) {
        std::future::pending().await
    }

    fn record_silent_disconnect(&self) {}
}

impl ConnectionGuard for RelayedGuard {
    fn idle(&self) -> Option<Duration> {
        self.idle
    }

    fn ended(self, how: Ended, passed: [u64; 2]) {
        let _ = self.ended.send((how, passed)); // The test may be over.
    }
}

impl Rig {
    /// Starts a port that carries bytes, and wakes the workload after `wake_after`; `None`: it carries any protocol.
    /// There are pods for all connections.
    pub(crate) async fn start(wake_after: Option<Duration>) -> Self {
        Self::start_with(wake_after, None, Semaphore::MAX_PERMITS).await
    }

    /// Starts a port with a limited number of pods and an idle timeout.
    pub(crate) async fn start_with(wake_after: Option<Duration>, idle: Option<Duration>, pods: usize) -> Self {
        let until = CancellationToken::new();
        let pod = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let (ended, ends) = mpsc::unbounded_channel();
        let connector = ToPod {
            pools: Pools::start((1, 1), None, until.clone()),
            pod: pod.local_addr().expect("bound"),
            idle,
            woken: Arc::default(),
            held: Arc::default(),
            pods: Arc::new(Semaphore::new(pods)),
            ended,
        };
        let server = server(5_000, &until);
        let (address, passing) = (SocketAddr::new(here(), free()), connector.clone());
        let ports = PortListeners::new(address.ip(), None);
        ports.bind(address.port(), Arc::new(()));
        let chain =
            tower::service_fn(|_: Inbound| async { Ok::<_, ProxyError>(Response::new(Full::<Bytes>::from("hello"))) });
        server.listen_ports(
            &ports,
            chain,
            |_| 1,
            move |_| match wake_after {
                Some(wake_after) => CarriedProtocol::Tcp { wake_after, connector: passing.clone() },
                None => CarriedProtocol::Auto { silent_after: Duration::from_millis(100), connector: passing.clone() },
            },
        );
        Self { server, address, pod, connector, ended: ends, _open: until.drop_guard() }
    }

    /// Connects a client.
    pub(crate) async fn client(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("connected")
    }

    /// Returns the next connection to the pod.
    pub(crate) async fn accepted(&self) -> TcpStream {
        patient(self.pod.accept()).await.expect("a connection").0
    }

    pub(crate) fn woken(&self) -> usize {
        self.connector.woken.load(Ordering::SeqCst)
    }

    pub(crate) fn held(&self) -> usize {
        self.connector.held.load(Ordering::SeqCst)
    }

    /// Returns the end of the next connection.
    pub(crate) async fn ended(&mut self) -> (Ended, [u64; 2]) {
        patient(self.ended.recv()).await.expect("the server is there")
    }
}

/// Returns an address that no other test process uses, so that a free number stays free.
pub(crate) fn here() -> IpAddr {
    let [high, low, ..] = std::process::id().to_le_bytes();
    Ipv4Addr::new(127, 1 + high % 254, low, 1 + high % 254).into()
}

/// Returns a free number that no other test of this process uses.
pub(crate) fn free() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        if std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, number)).is_ok() {
            return number;
        }
    }
}

/// Checks the next bytes.
pub(crate) async fn assert_reads(stream: &mut TcpStream, expected: &[u8]) {
    let mut read = vec![0; expected.len()];
    patient(stream.read_exact(&mut read)).await.expect("open");
    assert_eq!(read, expected);
}

/// Checks that the connection is reset.
pub(crate) async fn assert_reset(stream: &mut TcpStream) {
    let read = patient(stream.read(&mut [0; 16])).await;
    assert_eq!(read.expect_err("not in order").kind(), ErrorKind::ConnectionReset);
}

pub(crate) fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("open");
}

/// Returns a server without ports, for at most `connections` connections.
pub(crate) fn server(connections: usize, until: &CancellationToken) -> Server<Silent> {
    let bounds = ClientBounds { connections, descriptors: u64::MAX, idle: None };
    let connections = ClientConnections::start(bounds, Memory::new(None), until.clone());
    Server::new(Silent, Arc::new(|_| Trust::default()), Duration::ZERO, connections, None, None)
}

/// Returns the future's output, or fails the test.
pub(crate) async fn patient<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

/// Waits for a state that is not signalled.
pub(crate) async fn until(wanted: impl Fn() -> bool) {
    patient(async {
        while !wanted() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}
