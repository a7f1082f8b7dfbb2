//! The ingress of the embedded cluster: Host → public Service → its current endpoints.
//!
//! Besides the names that the activators know, `NAME.NS.localhost` is a Service's: browsers, curl and some resolvers
//! (systemd-resolved, nss-myhostname) take every name below `localhost` for this machine (RFC 6761), so the URL alone is
//! enough ([`url_of`]). What the Service's pods read is the Host that the client sent.
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
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Longest wait for a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Where programs of this machine find a Service: `http://NAME.NS.localhost:PORT/`. None where the ingress listens on an
/// address that `localhost` does not mean.
pub fn url_of(ingress: SocketAddr, namespace: &str, service: &str) -> Option<String> {
    let ip = ingress.ip();
    let is_local = ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST || ip.is_unspecified();
    let port = Some(ingress.port()).filter(|port| *port != 80).map(|port| format!(":{port}")).unwrap_or_default();
    is_local.then(|| format!("http://{service}.{namespace}.localhost{port}/"))
}

/// Serves on `listener` until `shutdown`, following the Services and EndpointSlices that `client` sees, and the ledger of
/// hosts in `system_namespace`.
pub async fn run(
    listener: TcpListener,
    client: Client,
    cluster_domain: String,
    system_namespace: &'static str,
    shutdown: CancellationToken,
) {
    let table = Arc::new(Table::new(cluster_domain));
    let following = tokio::spawn(table::follow(table.clone(), client, system_namespace, shutdown.clone()));
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    #[test]
    fn a_url_names_the_service_where_localhost_is_the_ingress() {
        let rows = [
            ("127.0.0.1:8080", Some("http://hello.default.localhost:8080/")),
            ("0.0.0.0:80", Some("http://hello.default.localhost/")),
            ("[::1]:8080", Some("http://hello.default.localhost:8080/")),
            ("127.0.0.2:8080", None),
            ("192.0.2.1:8080", None),
        ];
        for (ingress, expected) in rows {
            let url = url_of(ingress.parse().expect("an address"), "default", "hello");
            assert_eq!(url.as_deref(), expected, "{ingress}");
        }
    }

    /// Goal: a client that sends all of its body before it reads has our refusal, and no reset.
    #[tokio::test]
    async fn a_refusal_reaches_a_client_that_sends_on() {
        const LENGTH: usize = 16 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connected");
        let (stream, peer) = listener.accept().await.expect("accepted");
        let proxy = Arc::new(Proxy::new(Arc::new(Table::new("cluster.local".into()))));
        tokio::spawn(connection(stream, peer, proxy, CancellationToken::new()));
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {LENGTH}\r\n\r\n");
        client.write_all(head.as_bytes()).await.expect("open");
        client.write_all(&vec![b'x'; LENGTH]).await.expect("read to its end");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("an end, and no reset");
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    }
}
