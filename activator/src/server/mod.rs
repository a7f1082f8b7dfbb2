//! The data ports: accept, tell the protocol, serve, drain.
//!
//! Every port speaks HTTP/1.1 and HTTP/2 by prior knowledge. The protocol is told from the first bytes, which are
//! looked at and not taken, so a connection that says nothing costs a socket and no buffers. A port for TLS
//! ([`Server::listen_tls`]) agrees on the protocol in the handshake, and serves the same chain.
//!
//! Plain connections may be served by threads of their own ([`crate::lanes`]).
//!
//! # Draining
//!
//! 1. Probes fail (the caller's part), so that peers stop sending; everything is still served. [`Server::leave`]: over
//!    HTTP/1 each answer closes its connection, so that none is closed below while a peer sends its next request on it.
//! 2. [`Server::drain`]: listeners close; connections are told: HTTP/1 closes after the exchange in flight, HTTP/2 gets
//!    GOAWAY; tunnels go on.
//! 3. Whoever is left when the bound has passed is cut.
//!
//! # Not here
//!
//! `Upgrade: h2c` (obsolete since RFC 9113; such a request is served as HTTP/1.1), limits on connections.

mod connection;
pub(crate) mod departures;
mod drain;
mod head_scan;
mod head_timeout;
pub(crate) mod rescue;
mod strict;
pub(crate) mod tunnel;

pub(crate) use connection::STREAM_WINDOW;

use crate::body::BodyError;
use crate::exchange::{Inbound, Peer};
use crate::lanes::Lanes;
use crate::refusal::Refusal;
use bytes::Bytes;
use common_runtime::environment::{Cidr, Mode};
use common_runtime::tls::rustls::ServerConfig;
use departures::Departures;
use drain::{Drain, Phase};
use http::Response;
use http_body::Body;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

/// How long a client may take for a request's head, and for its first byte on a new connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause after a failed accept (out of descriptors): let some connections close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the chain must be, seen from the server.
pub(crate) trait Chain:
    Service<Inbound, Response = Response<<Self as Chain>::Body>, Error = Refusal, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
    /// The body of its responses.
    type Body: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static;
}

impl<S, B> Chain for S
where
    S: Service<Inbound, Response = Response<B>, Error = Refusal, Future: Send> + Clone + Send + Sync + 'static,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
{
    type Body = B;
}

/// Connections and tunnels of all data ports.
#[derive(Clone)]
pub(crate) struct Server {
    tasks: TaskTracker,
    drain: Drain,
    closing: CancellationToken,
    mode: Mode,
    trust: Arc<[Cidr]>,
    departures: Arc<Departures>,
    lanes: Option<Lanes>,
}

impl Server {
    /// No ports yet. `trust` names the peers whose revision headers are believed in standalone.
    pub(crate) fn new(mode: Mode, trust: Vec<Cidr>, departures: Arc<Departures>) -> Self {
        Self {
            tasks: TaskTracker::new(),
            drain: Drain::default(),
            closing: CancellationToken::new(),
            mode,
            trust: trust.into(),
            departures,
            lanes: None,
        }
    }

    /// Has plain connections served on these.
    pub(crate) fn with(self, lanes: Option<Lanes>) -> Self {
        Self { lanes, ..self }
    }

    /// Serves `listener` with `chain` until [`Server::drain`].
    pub(crate) fn listen<S: Chain>(&self, listener: TcpListener, chain: S) {
        self.accept(listener, None, chain);
    }

    /// As [`Server::listen`], over TLS.
    pub(crate) fn listen_tls<S: Chain>(&self, listener: TcpListener, config: Arc<ServerConfig>, chain: S) {
        self.accept(listener, Some(config), chain);
    }

    fn accept<S: Chain>(&self, listener: TcpListener, tls: Option<Arc<ServerConfig>>, chain: S) {
        let server = self.clone();
        self.tasks.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    biased; // A closed port takes no one more.
                    () = server.closing.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                match accepted {
                    Ok((stream, address)) => server.spawn(stream, address, tls.clone(), chain.clone()),
                    Err(error) => {
                        tracing::warn!(%error, "accept failed");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        });
    }

    fn spawn<S: Chain>(&self, stream: TcpStream, address: SocketAddr, tls: Option<Arc<ServerConfig>>, chain: S) {
        let peer = Peer::new(address, self.trusts(address.ip()), tls.is_some()).with(self.departures.clone());
        let peer = Arc::new(peer);
        let client = peer.clone();
        let hyper = rescue::Rescue::new(chain, peer, self.mode, self.tasks.clone(), self.drain.clone());
        let listener = self.drain.listener();
        let told = move |ended: Result<(), BodyError>| {
            if let Err(error) = ended {
                tracing::debug!(%address, %error, "connection ended");
            }
        };
        match tls {
            // Two tasks rather than one with a choice: a plain connection must not carry the room that TLS needs.
            None => match &self.lanes {
                None => self.tasks.spawn(async move { told(connection::serve(stream, client, hyper, listener).await) }),
                Some(lanes) => {
                    let stream = stream.into_std();
                    // One future: another around it would hold it twice, before it is awaited and meanwhile.
                    let serving = async move {
                        match stream.and_then(TcpStream::from_std) {
                            // From now on the lane waits for its input.
                            Ok(stream) => told(connection::serve(stream, client, hyper, listener).await),
                            Err(error) => told(Err(error.into())),
                        }
                    };
                    self.tasks.spawn_on(serving, lanes.next())
                }
            },
            Some(config) => {
                let serving = async move { told(connection::serve_tls(stream, config, client, hyper, listener).await) };
                self.tasks.spawn(serving)
            }
        };
    }

    fn trusts(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.mode == Mode::Knative || self.trust.iter().any(|network| network.contains(&peer))
    }

    /// Lets every connection over HTTP/1 end with its next answer. New ones are taken as before.
    pub(crate) fn leave(&self) {
        self.drain.advance(Phase::Leaving);
    }

    /// Closes the listeners, tells every connection to finish, and waits, at most `bound`, for exchanges and tunnels in
    /// flight. Returns how many connections and tunnels were cut.
    pub(crate) async fn drain(&self, bound: Duration) -> usize {
        self.closing.cancel();
        self.drain.advance(Phase::Finish);
        self.tasks.close();
        match tokio::time::timeout(bound, self.tasks.wait()).await {
            Ok(()) => 0,
            Err(_) => {
                let left = self.tasks.len();
                self.drain.advance(Phase::Cut);
                self.tasks.wait().await;
                left
            }
        }
    }
}
