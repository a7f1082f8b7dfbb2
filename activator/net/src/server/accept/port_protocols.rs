//! Protocols on workloads' ports: HTTP, anything else, or either.

use crate::client::peer::PortIdentity;
use crate::server::accept::ports::{Accepted, PortListeners};
use crate::server::tcp::{self, Connector};
use crate::server::{Chain, ErrorResponder, Server};
use std::sync::Arc;
use std::time::Duration;

/// Protocols that a port carries, with the connector for connections that are not HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarriedProtocol<C> {
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
        workload: impl Fn(&PortIdentity) -> u64 + Send + Sync + 'static,
        carries: impl Fn(&PortIdentity) -> CarriedProtocol<C> + Send + Sync + 'static,
    ) where
        R: ErrorResponder<S::Error>,
    {
        let server = self.clone();
        let serve = move |Accepted { stream, address, port }: Accepted| {
            let carries = carries(&port.identity);
            let may_be_http = !matches!(carries, CarriedProtocol::Tcp { .. });
            let number = workload(&port.identity);
            let Some(permit) = server.connections.enter(address.ip(), number, Some(port.clone()), may_be_http) else {
                return; // Closed: there is no room, not even for a response.
            };
            let (permit, worker) = (Arc::new(permit), server.worker());
            let service = || server.service(address, false, Some(port), permit.clone(), chain.clone());
            // The futures of other protocols are boxed, because they are larger.
            match carries {
                CarriedProtocol::Http => {
                    let service = service();
                    server.spawn(stream, address, permit, worker, |connection| connection.serve(service));
                }
                CarriedProtocol::Tcp { wake_after, connector } => {
                    server.spawn(stream, address, permit, worker, move |connection| {
                        Box::pin(tcp::serve(connection, connector, wake_after))
                    });
                }
                CarriedProtocol::Auto { silent_after, connector } => {
                    let service = service();
                    server.spawn(stream, address, permit, worker, move |connection| {
                        Box::pin(connection.serve_any(service, connector, silent_after))
                    });
                }
            }
        };
        ports.serve(serve, self.connections.clone());
        let (ports, closing) = (ports.clone(), self.closing.clone());
        self.tasks.spawn(async move {
            closing.cancelled().await;
            ports.close().await;
        });
    }
}
