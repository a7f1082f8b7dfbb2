//! Connections to one Service port: accepted, connected to an endpoint, and copied in both directions.

use parking_lot::Mutex;
use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Maximum number of connections of one Service port; each costs two descriptors. Further ones are reset.
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
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "the Service proxy cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await; // Out of descriptors: let some close.
                    continue;
                }
            },
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            reset(&stream);
            continue;
        };
        let backends = backends.clone();
        tokio::spawn(async move {
            forward(stream, &backends).await;
            drop(place);
        });
    }
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
