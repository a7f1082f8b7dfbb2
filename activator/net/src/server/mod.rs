//! Data ports: accept connections, detect the protocol, serve, drain.
//!
//! Every port supports HTTP/1.1 and HTTP/2 by prior knowledge. The protocol is detected by peeking at the first bytes,
//! so a silent connection costs a socket but no buffers. A TLS port negotiates the protocol in the handshake, and
//! serves the same chain.
//!
//! In addition, each port of a workload has its own listener ([`accept::ports`]), and its connections belong to that
//! workload. Such a port may carry any protocol ([`CarriedProtocol`]): connections that are not HTTP are relayed as
//! bytes ([`tcp`]).
//!
//! Plain connections may be served by worker threads ([`crate::worker`]).
//!
//! # Draining
//!
//! 1. Health checks fail (done by the caller), so that peers stop sending. Requests are still served.
//!    [`Server::close_after_response`]: over HTTP/1 each response closes its connection, so that step 2 does not close
//!    a connection while a peer sends its next request.
//! 2. [`Server::drain`]: listeners close and connections are told to finish. HTTP/1 closes after the exchange in
//!    flight, HTTP/2 gets GOAWAY, tunnels continue.
//! 3. The remaining connections are cut at the deadline.
//!
//! # Clients that occupy resources
//!
//! The kernel detects vanished clients ([`io::bounded_writes`]). If there is no room, the largest holders give way
//! ([`ClientConnections`]). Leaving new connections in the listen queue instead would delay all connections behind
//! them, including health checks.
//!
//! # Not here
//!
//! `Upgrade: h2c` (obsolete since RFC 9113; such a request is served as HTTP/1.1). HTTP/2 PINGs to check whether a
//! client is alive: the kernel already probes it, and nothing is sent that HTTP does not require.

mod accept;
mod chain;
mod connection;
pub mod deadline;
mod heads;
mod io;
mod memory;
mod progress;
mod protocol;
mod service;
mod serving;
mod tcp;

pub use accept::port_protocols::CarriedProtocol;
pub use accept::ports::PortListeners;
pub use chain::{Chain, ErrorResponder, PortGone};
pub use io::bounded_writes::KeepAlive;
pub use tcp::{Connected, ConnectionGuard, Connector};

use crate::body::BodyError;
use crate::client::connection_permit::{ConnectionPermit, Phase};
use crate::client::connections::ClientConnections;
use crate::client::peer::{OwnPort, Peer, Trust};
use crate::worker::WorkerRuntimes;
use accept::acceptor::Acceptor;
use common_runtime::tls::rustls::ServerConfig;
use connection::Connection;
use service::ConnectionService;
use std::future::Future;
use std::net::{IpAddr, SocketAddr, TcpStream as StdStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Function that returns the trust in the headers of a peer with this address.
pub type TrustOf = Arc<dyn Fn(IpAddr) -> Trust + Send + Sync>;

/// Connections and tunnels of all data ports.
#[derive(Clone)]
pub struct Server<R> {
    tasks: TaskTracker,
    closing: CancellationToken,
    responder: R,
    trust: TrustOf,
    half_close: Duration,
    workers: Option<Arc<WorkerRuntimes>>,
    keepalive: Option<KeepAlive>,
    /// Connections of all ports.
    pub connections: ClientConnections,
}

impl<R: Clone> Server<R> {
    /// Creates a server without ports. `trust` is called with the address of each connection's peer; mapped IPv4
    /// addresses are passed as IPv4. A client's FIN within `half_close` of its last data does not count as a
    /// disconnect.
    ///
    /// Its connections are limited together with others in `connections`. Plain ones are served on `workers`, if there
    /// are any.
    pub fn new(
        responder: R,
        trust: TrustOf,
        half_close: Duration,
        connections: ClientConnections,
        keepalive: Option<KeepAlive>,
        workers: Option<Arc<WorkerRuntimes>>,
    ) -> Self {
        let (tasks, closing) = (TaskTracker::new(), CancellationToken::new());
        Self { tasks, closing, responder, trust, half_close, workers, keepalive, connections }
    }

    /// Serves `listener` with `chain` until [`Server::drain`], over TLS if there is a configuration for it.
    pub fn listen<S: Chain>(&self, listener: TcpListener, tls: Option<Arc<ServerConfig>>, chain: S)
    where
        R: ErrorResponder<S::Error>,
    {
        let server = self.clone();
        if let Some(Err(error)) = self.keepalive.map(|keepalive| keepalive.set(&listener)) {
            tracing::warn!(%error, "cannot set keep-alive on a listener; vanished clients are not detected");
        }
        self.tasks.spawn(async move {
            let listener = match listener.into_std().and_then(|listener| Acceptor::new(listener.into())) {
                Ok(listener) => listener,
                Err(error) => return tracing::error!(%error, "cannot serve a data port"),
            };
            loop {
                let (stream, address) = tokio::select! {
                    biased; // A closed port accepts no more connections.
                    () = server.closing.cancelled() => return,
                    accepted = listener.accept(&server.connections) => accepted,
                };
                let Some(permit) = server.connections.enter(address.ip(), 0, None, true) else { continue };
                let permit = Arc::new(permit);
                let service = server.service(address, tls.is_some(), None, permit.clone(), chain.clone());
                match tls.clone() {
                    None => {
                        server.spawn(stream, address, permit, server.worker(), |connection| connection.serve(service));
                    }
                    Some(config) => {
                        server.spawn(stream, address, permit, None, |connection| connection.serve_tls(config, service))
                    }
                }
            }
        });
    }

    /// Returns the next worker, if there are any.
    fn worker(&self) -> Option<&Handle> {
        self.workers.as_deref().map(WorkerRuntimes::next)
    }

    /// Spawns the task of an accepted connection, which is in non-blocking mode, on a worker or on this runtime.
    fn spawn<F>(
        &self,
        stream: StdStream,
        address: SocketAddr,
        permit: Arc<ConnectionPermit>,
        worker: Option<&Handle>,
        serve: impl FnOnce(Connection) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<(), BodyError>> + Send + 'static,
    {
        let (keepalive, phases) = (self.keepalive, permit.phase_receiver());
        // A single future: a wrapper would hold that of `serve` twice, before it is awaited and meanwhile.
        let serving = async move {
            // This registers the socket with the worker.
            let stream = TcpStream::from_std(stream).and_then(|stream| stream.set_nodelay(true).map(|()| stream));
            let ended = match stream {
                Ok(stream) => serve(Connection { stream, address, keepalive, phases, permit }).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = ended {
                tracing::debug!(%address, %error, "connection ended");
            }
        };
        match worker {
            None => self.tasks.spawn(serving),
            Some(worker) => self.tasks.spawn_on(serving, worker),
        };
    }

    /// Creates the peer and the service of a connection.
    fn service<S: Chain>(
        &self,
        address: SocketAddr,
        tls: bool,
        port: Option<Arc<OwnPort>>,
        permit: Arc<ConnectionPermit>,
        chain: S,
    ) -> ConnectionService<S, R> {
        let trust = (self.trust)(address.ip().to_canonical());
        let mut peer = Peer::new(address, trust, tls);
        (peer.port, peer.permit) = (port, Some(permit.clone()));
        peer.half_close = self.half_close;
        ConnectionService::new(chain, Arc::new(peer), permit, self.responder.clone(), self.tasks.clone())
    }

    /// Makes every HTTP/1 connection end with its next response. New connections are still accepted.
    pub fn close_after_response(&self) {
        self.connections.advance(Phase::CloseAfterResponse);
    }

    /// Closes the listeners, tells every connection to finish, and waits at most `bound` for exchanges and tunnels in
    /// flight. Returns the number of connections and tunnels that were cut.
    pub async fn drain(&self, bound: Duration) -> usize {
        self.closing.cancel();
        self.connections.advance(Phase::Finish);
        self.tasks.close();
        match tokio::time::timeout(bound, self.tasks.wait()).await {
            Ok(()) => 0,
            Err(_) => {
                let left = self.tasks.len();
                self.connections.advance(Phase::Cut);
                self.tasks.wait().await;
                left
            }
        }
    }
}
