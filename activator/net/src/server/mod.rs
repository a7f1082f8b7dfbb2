//! The data ports: accept, tell the protocol, serve, drain.
//!
//! Every port speaks HTTP/1.1 and HTTP/2 by prior knowledge. The protocol is told from the first bytes, which are
//! looked at and not taken, so a connection that says nothing costs a socket and no buffers. A port for TLS
//! ([`Server::listen_tls`]) agrees on the protocol in the handshake, and serves the same chain.
//!
//! Beside these, each port of a workload has a listener of its own ([`ports`]), whose connections mean that workload. Such
//! a port may carry anything ([`Carries`]): what is not HTTP is passed on as bytes ([`tcp`]).
//!
//! Plain connections may be served by threads of their own ([`crate::worker`]).
//!
//! # Draining
//!
//! 1. Probes fail (the caller's part), so that peers stop sending; everything is still served. [`Server::leave`]: over
//!    HTTP/1 each answer closes its connection, so that none is closed below while a peer sends its next request on it.
//! 2. [`Server::drain`]: listeners close; connections are told: HTTP/1 closes after the exchange in flight, HTTP/2 gets
//!    GOAWAY; tunnels go on.
//! 3. Whoever is left when the bound has passed is cut.
//!
//! # Clients that take room
//!
//! [`Server::bounded`]: vanished ones are found out by the kernel ([`bounded_writes`]), and where there is no room, those
//! who hold most give way to others ([`client_connections`]). To leave who comes then in the listen queue instead would
//! keep everybody waiting behind it, probes among them.
//!
//! # Not here
//!
//! `Upgrade: h2c` (obsolete since RFC 9113; such a request is served as HTTP/1.1). HTTP/2's PING, to ask whether a client
//! is there: its kernel is asked already, and nothing is written that HTTP does not ask for.

mod acceptor;
mod bounded_writes;
mod calm;
mod carries;
mod chain;
mod client_connections;
mod client_io;
mod connection;
mod frames;
mod framing;
mod head_check;
mod head_timeout;
mod http2_io;
mod kept;
mod linger;
mod output;
pub mod overdue;
mod ports;
mod progress;
mod protocol;
mod references;
mod seat;
mod service;
mod serving;
mod tcp;

pub use bounded_writes::KeepAlive;
pub use carries::Carries;
pub use chain::{Chain, ErrorResponder, PortGone};
pub use client_connections::{ClientBounds, ClientConnections};
pub use ports::PortListeners;
pub use tcp::{Connected, Connector, Place};

use crate::client::disconnects::Disconnects;
use crate::client::peer::{OwnPort, Peer, Trust};
use crate::memory::Memory;
use crate::worker::WorkerRuntimes;
use acceptor::Acceptor;
use common_runtime::tls::rustls::ServerConfig;
use seat::{Phase, Seat};
use service::ConnectionService;
use std::net::{IpAddr, SocketAddr, TcpStream as StdStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a client may take for a request's head, and for its first byte on a new connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause after a failed accept (out of descriptors): let some connections close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Which headers of a peer are believed.
pub type TrustOf = Arc<dyn Fn(IpAddr) -> Trust + Send + Sync>;

/// Connections and tunnels of all data ports.
#[derive(Clone)]
pub struct Server<R> {
    tasks: TaskTracker,
    closing: CancellationToken,
    responder: R,
    trust: TrustOf,
    disconnects: Arc<Disconnects>,
    workers: Option<WorkerRuntimes>,
    keepalive: Option<KeepAlive>,
    connections: ClientConnections,
    memory: Option<Memory>,
}

impl<R: Clone> Server<R> {
    /// No ports yet. `trust` is asked about the address of each connection's peer, IPv4 as such.
    pub fn new(responder: R, trust: TrustOf, disconnects: Arc<Disconnects>) -> Self {
        Self {
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            responder,
            trust,
            disconnects,
            workers: None,
            keepalive: None,
            connections: ClientConnections::default(),
            memory: None,
        }
    }

    /// Bounds what clients may occupy, on every port from now on, and looks after it each second until `until`.
    pub fn bounded(self, keepalive: Option<KeepAlive>, bounds: ClientBounds, until: CancellationToken) -> Self {
        self.connections.bound(bounds);
        tokio::spawn(self.connections.clone().look_after(bounds.idle, until));
        Self { keepalive, ..self }
    }

    /// How many connections there are.
    pub fn connections(&self) -> ClientConnections {
        self.connections.clone()
    }

    /// Has plain connections served on these.
    pub fn with(self, workers: Option<WorkerRuntimes>) -> Self {
        Self { workers, ..self }
    }

    /// Has clients' connections take from `memory` what they keep that is no request yet, or that nobody reads.
    pub fn within(self, memory: Memory) -> Self {
        self.connections.set_clock_of(memory.clone());
        Self { memory: Some(memory), ..self }
    }

    /// Serves `listener` with `chain` until [`Server::drain`].
    pub fn listen<S: Chain>(&self, listener: TcpListener, chain: S)
    where
        R: ErrorResponder<S::Error>,
    {
        self.accept(listener, None, chain);
    }

    /// As [`Server::listen`], over TLS.
    pub fn listen_tls<S: Chain>(&self, listener: TcpListener, config: Arc<ServerConfig>, chain: S)
    where
        R: ErrorResponder<S::Error>,
    {
        self.accept(listener, Some(config), chain);
    }

    fn accept<S: Chain>(&self, listener: TcpListener, tls: Option<Arc<ServerConfig>>, chain: S)
    where
        R: ErrorResponder<S::Error>,
    {
        let server = self.clone();
        if let Some(Err(error)) = self.keepalive.map(|keepalive| keepalive.set(&listener)) {
            tracing::warn!(%error, "clients that vanish are not noticed: the listener takes no keep-alive");
        }
        self.tasks.spawn(async move {
            let listener = match Acceptor::new(listener) {
                Ok(listener) => listener,
                Err(error) => return tracing::error!(%error, "a data port is not served"),
            };
            loop {
                let accepted = tokio::select! {
                    biased; // A closed port takes no one more.
                    () = server.closing.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                match accepted {
                    Ok((stream, address)) => {
                        if let Some(seat) = server.connections.enter(address.ip(), 0, None, true) {
                            server.spawn(stream, address, tls.clone(), None, Arc::new(seat), chain.clone());
                        }
                    }
                    Err(error) => {
                        server.connections.short(&error);
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        });
    }

    /// Serves a connection that was accepted and does not block.
    fn spawn<S: Chain>(
        &self,
        stream: StdStream,
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        port: Option<Arc<OwnPort>>,
        seat: Arc<Seat>,
        chain: S,
    ) where
        R: ErrorResponder<S::Error>,
    {
        let listener = seat.listener();
        let (client, service) = self.connection(address, tls.is_some(), port, seat, chain);
        let keepalive = self.keepalive;
        let told = move |ended| connection::note(address, ended);
        // Two tasks rather than one with a choice: a plain connection must not carry the room that TLS needs.
        match tls {
            None => {
                // One future: another around it would hold it twice, before it is awaited and meanwhile.
                let serving = async move {
                    // From now on the worker waits for its input.
                    match TcpStream::from_std(stream) {
                        Ok(stream) => told(connection::serve(stream, client, service, keepalive, listener).await),
                        Err(error) => told(Err(error.into())),
                    }
                };
                match &self.workers {
                    None => self.tasks.spawn(serving),
                    Some(workers) => self.tasks.spawn_on(serving, workers.next()),
                }
            }
            Some(config) => self.tasks.spawn(async move {
                match TcpStream::from_std(stream) {
                    Ok(stream) => {
                        told(connection::serve_tls(stream, config, client, service, keepalive, listener).await);
                    }
                    Err(error) => told(Err(error.into())),
                }
            }),
        };
    }

    /// What a connection is served with.
    fn connection<S: Chain>(
        &self,
        address: SocketAddr,
        tls: bool,
        port: Option<Arc<OwnPort>>,
        seat: Arc<Seat>,
        chain: S,
    ) -> (Arc<Peer>, ConnectionService<S, R>)
    where
        R: ErrorResponder<S::Error>,
    {
        let trust = (self.trust)(address.ip().to_canonical());
        let peer = Peer::new(address, trust, tls).on(port).seated(seat.clone());
        let client = Arc::new(peer.with(self.disconnects.clone()).within(self.memory.clone()));
        let (responder, tunnels) = (self.responder.clone(), self.tasks.clone());
        let service = ConnectionService::new(chain, client.clone(), seat, responder, tunnels);
        (client, service)
    }

    /// Lets every connection over HTTP/1 end with its next answer. New ones are taken as before.
    pub fn leave(&self) {
        self.connections.advance(Phase::Leaving);
    }

    /// Closes the listeners, tells every connection to finish, and waits, at most `bound`, for exchanges and tunnels in
    /// flight. Returns how many connections and tunnels were cut.
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
