//! Protocols on workloads' ports: HTTP, anything else, or either.

use super::ports::{Accepted, PortListeners};
use super::seat::Seat;
use super::tcp::{Connection, Connector};
use super::{Chain, ErrorResponder, Server, connection};
use crate::body::BodyError;
use crate::client::peer::{OwnPort, PortIdentity};
use futures::future::BoxFuture;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Protocols that a port carries, with the connector for connections that are not HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries<C> {
    /// HTTP/1.1, or HTTP/2 by prior knowledge.
    Http,
    /// Any protocol; relayed as bytes.
    Tcp {
        /// Time that a connection must stay open without a byte to wake the workload.
        wake_after: Duration,
        /// Connects to pods.
        connector: C,
    },
    /// HTTP or any other protocol, detected from the first bytes. A silent connection does not wake the workload,
    /// unless its pods speak first.
    Auto {
        /// Time without a byte after which a connection counts as silent.
        silent_after: Duration,
        /// Connects to pods.
        connector: C,
    },
}

impl<R: Clone> Server<R> {
    /// Serves the connections to `ports` until [`Server::drain`]. `carries` returns a port's protocols when a
    /// connection arrives. HTTP is served with `chain`. `workload` returns the number of a port's workload, to whose
    /// share its connections count. The number is not zero.
    pub fn listen_ports<S: Chain, C: Connector>(
        &self,
        ports: &PortListeners,
        chain: S,
        workload: impl Fn(&PortIdentity) -> u64 + Send + 'static,
        carries: impl Fn(&PortIdentity) -> Carries<C> + Send + 'static,
    ) where
        R: ErrorResponder<S::Error>,
    {
        let server = self.clone();
        ports.told_by(self.connections.clone());
        let serve = move |Accepted { stream, address, port }: Accepted| {
            let carries = carries(port.identity());
            let (own, speaks) = (workload(port.identity()), !matches!(carries, Carries::Tcp { .. }));
            let Some(seat) = server.connections.enter(address.ip(), own, Some(port.clone()), speaks) else {
                return; // Closed: there is no room, not even for a response.
            };
            server.serve(stream, address, carries, port, Arc::new(seat), chain.clone());
        };
        self.tasks.spawn(ports.clone().accept(serve, self.connections.clone(), self.closing.clone()));
    }

    /// Serves an accepted connection, which is in non-blocking mode.
    fn serve<S: Chain, C: Connector>(
        &self,
        stream: StdStream,
        address: SocketAddr,
        carries: Carries<C>,
        port: Arc<OwnPort>,
        seat: Arc<Seat>,
        chain: S,
    ) where
        R: ErrorResponder<S::Error>,
    {
        match carries {
            Carries::Http => self.spawn(stream, address, None, Some(port), seat, chain),
            Carries::Tcp { wake_after, connector } => {
                self.spawn_boxed(stream, address, seat, false, move |connection| {
                    Box::pin(connection.serve(connector, wake_after))
                });
            }
            Carries::Auto { silent_after, connector } => {
                let (client, service) = self.connection(address, false, Some(port), seat.clone(), chain);
                self.spawn_boxed(stream, address, seat, true, move |connection| {
                    Box::pin(connection::serve_or_hold(connection, client, service, connector, silent_after))
                });
            }
        }
    }

    /// Spawns a connection's task on the next worker.
    fn spawn_boxed<F>(&self, stream: StdStream, address: SocketAddr, seat: Arc<Seat>, beside_http: bool, serve: F)
    where
        F: FnOnce(Connection) -> BoxFuture<'static, Result<(), BodyError>> + Send + 'static,
    {
        let (keepalive, listener) = (self.keepalive, seat.listener());
        let serving = async move {
            // This registers the socket with the worker.
            let ended = match TcpStream::from_std(stream) {
                Ok(stream) => serve(Connection { stream, address, keepalive, listener, seat, beside_http }).await,
                Err(error) => Err(error.into()),
            };
            connection::note(address, ended);
        };
        match &self.workers {
            None => self.tasks.spawn(serving),
            Some(workers) => self.tasks.spawn_on(serving, workers.next()),
        };
    }
}
