//! What comes to workloads' ports: HTTP, anything else, or either.

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

/// What the connections of a port carry, and who finds pods for those that are not HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries<C> {
    /// HTTP/1.1, or HTTP/2 by prior knowledge.
    Http,
    /// Anything; passed on as bytes.
    Tcp {
        /// How long a connection must stand without a byte to mean something.
        wake_after: Duration,
        /// Finds pods.
        connector: C,
    },
    /// HTTP, or anything else: told from the first bytes. One that stays silent means nothing, unless its pods speak first.
    Auto {
        /// Time without a byte after which a connection counts as silent.
        silent_after: Duration,
        /// Finds pods.
        connector: C,
    },
}

impl<R: Clone> Server<R> {
    /// Serves what comes to `ports` until [`Server::drain`]: each connection is what `carries` says of its port when it
    /// comes. What is HTTP is served with `chain`. `workload`: whose share of connections a port's are counted to, by a number
    /// that is not zero.
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
                return; // Closed, since nothing that is said there is for us.
            };
            server.serve(stream, address, carries, port, Arc::new(seat), chain.clone());
        };
        self.tasks.spawn(ports.clone().accept(serve, self.connections.clone(), self.closing.clone()));
    }

    /// Serves a connection that was accepted and does not block.
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

    /// Has a connection served on the worker whose turn it is.
    fn spawn_boxed<F>(&self, stream: StdStream, address: SocketAddr, seat: Arc<Seat>, beside_http: bool, serve: F)
    where
        F: FnOnce(Connection) -> BoxFuture<'static, Result<(), BodyError>> + Send + 'static,
    {
        let (keepalive, listener) = (self.keepalive, seat.listener());
        let serving = async move {
            // From now on the worker waits for its input.
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
