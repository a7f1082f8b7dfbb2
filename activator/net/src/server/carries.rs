//! What comes to workloads' ports: HTTP, anything else, or either.

use super::drain::Listener;
use super::ports::{Accepted, PortListeners};
use super::progress::Progress;
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
    /// comes. What is HTTP is served with `chain`.
    pub fn listen_ports<S: Chain, C: Connector>(
        &self,
        ports: &PortListeners,
        chain: S,
        carries: impl Fn(&PortIdentity) -> Carries<C> + Send + 'static,
    ) where
        R: ErrorResponder<S::Error>,
    {
        let server = self.clone();
        self.connections.accepts();
        ports.told_by(self.drain.clone());
        let accepting = ports.clone().accept(
            move |Accepted { stream, address, port }| match server.connections.open() >= server.room {
                true => server.serve_proofs(stream, address, &carries(port.identity()), port, chain.clone()),
                false => server.serve(stream, address, carries(port.identity()), port, chain.clone()),
            },
            self.closing.clone(),
        );
        self.tasks.spawn(accepting);
    }

    /// Serves a connection for which there is no room, as far as it asks for the port itself.
    fn serve_proofs<S: Chain, C>(
        &self,
        stream: StdStream,
        address: SocketAddr,
        carries: &Carries<C>,
        port: Arc<OwnPort>,
        chain: S,
    ) where
        R: ErrorResponder<S::Error>,
    {
        match (carries, TcpStream::from_std(stream)) {
            (Carries::Http | Carries::Auto { .. }, Ok(stream)) => {
                self.serve_probes(stream, address, None, Some(port), chain);
            }
            (Carries::Tcp { .. }, _) | (_, Err(_)) => self.connections.refuse(),
        }
    }

    /// Serves a connection that was accepted and does not block.
    fn serve<S: Chain, C: Connector>(
        &self,
        stream: StdStream,
        address: SocketAddr,
        carries: Carries<C>,
        port: Arc<OwnPort>,
        chain: S,
    ) where
        R: ErrorResponder<S::Error>,
    {
        match carries {
            Carries::Http => self.spawn(stream, address, None, Some(port), chain),
            Carries::Tcp { wake_after, connector } => {
                let progress = Arc::new(Progress::new(self.drain.second()));
                let listener = self.drain.listener(progress.clone());
                self.spawn_boxed(stream, address, (progress, listener), false, move |connection| {
                    Box::pin(connection.serve(connector, wake_after))
                });
            }
            Carries::Auto { silent_after, connector } => {
                let (client, service, listener) = self.connection(address, false, Some(port), chain, None);
                let progress = service.progress().clone();
                self.spawn_boxed(stream, address, (progress, listener), true, move |connection| {
                    Box::pin(connection::serve_or_hold(connection, client, service, connector, silent_after))
                });
            }
        }
    }

    /// Has a connection served on the worker whose turn it is.
    fn spawn_boxed<F>(
        &self,
        stream: StdStream,
        address: SocketAddr,
        (progress, listener): (Arc<Progress>, Listener),
        beside_http: bool,
        serve: F,
    ) where
        F: FnOnce(Connection) -> BoxFuture<'static, Result<(), BodyError>> + Send + 'static,
    {
        let (keepalive, drain) = (self.keepalive, self.drain.clone());
        let serving = async move {
            // From now on the worker waits for its input.
            let ended = match TcpStream::from_std(stream) {
                Ok(stream) => {
                    serve(Connection { stream, address, keepalive, listener, progress, drain, beside_http }).await
                }
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
