//! Connections to one Service port: accepted, connected to an endpoint, and copied in both directions.

use common_runtime::bounded_accept::{Acceptor, Limits};
use parking_lot::Mutex;
use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Maximum number of connections of one Service port; each costs two descriptors. Beyond it, the oldest one of the
/// client with the most connections is closed.
const CONNECTIONS_MAX: usize = 4096;
/// Maximum wait for an endpoint to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Endpoints of one port, used round-robin.
#[derive(Debug)]
pub(crate) struct Backends {
    endpoints: Mutex<Arc<Vec<SocketAddr>>>,
    turn: AtomicUsize,
}

impl Backends {
    pub(crate) fn new(endpoints: Vec<SocketAddr>) -> Self {
        Self { endpoints: Mutex::new(Arc::new(endpoints)), turn: AtomicUsize::new(0) }
    }

    /// Replaces the endpoints for new connections.
    pub(crate) fn set(&self, endpoints: Vec<SocketAddr>) {
        *self.endpoints.lock() = Arc::new(endpoints);
    }

    /// Returns all endpoints, beginning with the next one in the rotation.
    pub(crate) fn in_turn(&self) -> Vec<SocketAddr> {
        let endpoints = self.endpoints.lock().clone();
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % endpoints.len().max(1);
        endpoints[first..].iter().chain(&endpoints[..first]).copied().collect()
    }
}

/// Accepts connections until `stop`. Accepted connections continue after that.
pub(crate) async fn accept(listener: TcpListener, backends: Arc<Backends>, stop: CancellationToken) {
    let limits = Limits { total: CONNECTIONS_MAX, per_address: CONNECTIONS_MAX };
    let serve = |stream, _| {
        let backends = backends.clone();
        async move { forward(stream, &backends).await }
    };
    Acceptor::new(listener, "the Service proxy", limits).serve(stop, serve).await;
}

async fn forward(mut client: TcpStream, backends: &Backends) {
    for endpoint in backends.in_turn() {
        let Ok(mut server) = connect(endpoint).await else { continue };
        let _ = client.set_nodelay(true); // Affects only latency.
        if tokio::io::copy_bidirectional(&mut client, &mut server).await.is_err() {
            reset(&client);
            reset(&server);
        }
        return;
    }
    reset(&client);
}

async fn connect(endpoint: SocketAddr) -> io::Result<TcpStream> {
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(endpoint)).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Makes the peer see a reset instead of an end of stream when the stream is dropped.
fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO)); // On an error the peer sees an end of stream.
}
