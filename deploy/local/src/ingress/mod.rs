//! The ingress of the embedded cluster: Host → public Service → its current endpoints.
//!
//! It is deliberately dumb. It knows Services and EndpointSlices, no revisions, and sets no revision headers: which
//! revision a request is for, the activator finds out from Host. Both HTTP/1.1 and h2c are taken on one port; towards
//! an endpoint the name of the Service port decides (`http2`: h2c, anything else: HTTP/1.1). An endpoint that refuses
//! the connection is passed over for the next one, since nothing was sent to it.
//!
//! Not here: TLS, path rules, Ingress objects, retries of anything that was sent.

mod proxy;
mod table;

pub use table::{Table, Target};

use crate::ingress::proxy::Proxy;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use kube::Client;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Longest wait for a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves on `listener` until `shutdown`, following the Services and EndpointSlices that `client` sees.
pub async fn run(listener: TcpListener, client: Client, cluster_domain: String, shutdown: CancellationToken) {
    let table = Arc::new(Table::new(cluster_domain));
    let following = tokio::spawn(table::follow(table.clone(), client, shutdown.clone()));
    let proxy = Arc::new(Proxy::new(table));
    loop {
        let (stream, peer) = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "ingress: accept failed");
                    tokio::time::sleep(Duration::from_millis(50)).await; // Out of descriptors: let some close.
                    continue;
                }
            },
        };
        let _ = stream.set_nodelay(true); // Only ever a matter of latency.
        tokio::spawn(connection(stream, peer, proxy.clone(), shutdown.clone()));
    }
    let _ = following.await;
}

async fn connection(stream: tokio::net::TcpStream, peer: SocketAddr, proxy: Arc<Proxy>, shutdown: CancellationToken) {
    let service = hyper::service::service_fn(move |request| {
        let proxy = proxy.clone();
        async move { Ok::<_, std::convert::Infallible>(proxy.forward(request, peer).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = &mut connection => {}
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(Duration::from_secs(5), connection).await;
        }
    }
}
