//! One client connection: its protocol is detected from its first bytes within a deadline, then it is served
//! ([`super::serving`]).

use super::protocol::{self, Protocol};
use super::service::ConnectionService;
use super::tcp::{self, Connector, has_unread, unless_finished};
use super::{Chain, ErrorResponder, serving};
use crate::body::BodyError;
use crate::client::connection_permit::{ConnectionPermit, PhaseReceiver};
use crate::limits::HEAD_TIMEOUT;
use crate::server::io::bounded_writes::KeepAlive;
use common_runtime::tls;
use common_runtime::tls::rustls::ServerConfig;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) address: SocketAddr,
    pub(super) keepalive: Option<KeepAlive>,
    /// Receiver of the order to finish or end.
    pub(super) phases: PhaseReceiver,
    pub(super) permit: Arc<ConnectionPermit>,
}

impl Connection {
    /// Serves the connection until it ends, or has finished after the order to do so.
    pub(super) async fn serve<S: Chain, R: ErrorResponder<S::Error>>(
        mut self,
        service: ConnectionService<S, R>,
    ) -> Result<(), BodyError> {
        let detected = in_time(protocol::detect(&self.stream), &mut self.phases).await.transpose()?;
        let protocol = detected.unwrap_or(Protocol::Closed);
        serving::serve(protocol, self.stream, self.keepalive, service, self.phases).await
    }

    /// Serves as [`Connection::serve`] does, on a port with any protocol: connections that are not HTTP are relayed by
    /// `connector`. A silent connection is neither served nor relayed, unless pods are found to speak first.
    pub(super) async fn serve_any<S: Chain, R: ErrorResponder<S::Error>, C: Connector>(
        mut self,
        service: ConnectionService<S, R>,
        connector: C,
        silent_after: Duration,
    ) -> Result<(), BodyError> {
        let protocol = {
            let mut detected = pin!(protocol::detect_any(&self.stream));
            match unless_finished(timeout(silent_after, detected.as_mut()), &mut self.phases).await {
                None => Protocol::Closed,
                Some(Ok(detected)) => detected?,
                // Boxed, because this is rare.
                Some(Err(_)) => Box::pin(detect_late(detected, &self.stream, &connector, &mut self.phases)).await?,
            }
        };
        if protocol == Protocol::Other {
            drop(service);
            // Boxed, so that an HTTP connection does not carry the size of this future.
            return Box::pin(tcp::hold(self, connector, true)).await;
        }
        serving::serve(protocol, self.stream, self.keepalive, service, self.phases).await
    }

    /// Serves as [`Connection::serve`] does, after a TLS handshake. Without ALPN the first bytes show the protocol.
    pub(super) async fn serve_tls<S: Chain, R: ErrorResponder<S::Error>>(
        self,
        config: Arc<ServerConfig>,
        service: ConnectionService<S, R>,
    ) -> Result<(), BodyError> {
        let Self { stream, keepalive, mut phases, .. } = self;
        let shaken = async {
            let mut stream = tls::accept(stream, config).await?;
            // Wait even if ALPN chose the protocol, so that a client that is silent afterwards has the same deadline.
            let detected = protocol::detect_tls(&mut stream).await?;
            let protocol = match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => Protocol::Http2,
                Some(_) => Protocol::Http1,
                None => detected,
            };
            Ok::<_, BodyError>((protocol, stream))
        };
        // Boxed, so that the memory of the handshake is freed afterwards, and not kept for the whole connection.
        match in_time(Box::pin(shaken), &mut phases).await.transpose()? {
            Some((protocol, stream)) => serving::serve(protocol, stream, keepalive, service, phases).await,
            None => Ok(()),
        }
    }
}

/// Waits for the protocol of a connection that has been silent for a while: [`Protocol::Other`] also if it must be
/// relayed to a pod, and [`Protocol::Closed`] also if the server drains.
async fn detect_late<C: Connector>(
    detected: impl Future<Output = io::Result<Protocol>>,
    stream: &TcpStream,
    connector: &C,
    phases: &mut PhaseReceiver,
) -> io::Result<Protocol> {
    let first = async {
        tokio::select! {
            biased; // Bytes of the client have priority.
            detected = detected => detected,
            () = connector.waits_for_pod(), if !has_unread(stream) => Ok(Protocol::Other),
        }
    };
    let Some(detected) = unless_finished(timeout(HEAD_TIMEOUT, first), phases).await else {
        return Ok(Protocol::Closed);
    };
    let detected = detected.unwrap_or(Ok(Protocol::Closed));
    if matches!(detected, Ok(Protocol::Closed) | Err(_)) && !has_unread(stream) {
        connector.record_silent_disconnect();
    }
    detected
}

/// Awaits the protocol. Returns `None` if that takes too long, or if the server drains before.
async fn in_time<T>(future: impl Future<Output = T>, phases: &mut PhaseReceiver) -> Option<T> {
    unless_finished(timeout(HEAD_TIMEOUT, future), phases).await?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Inbound;
    use crate::client::connections::tests::Busy;
    use crate::client::peer::{Peer, Trust};
    use crate::error::ProxyError;
    use crate::tcp::loopback;
    use bytes::Bytes;
    use common_runtime::tls::rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
    use http::Response;
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_util::task::TaskTracker;

    /// Serves one connection with a service that says hello, over TLS if there is a configuration.
    async fn served(config: Option<Arc<ServerConfig>>) -> TcpStream {
        let (client, stream) = loopback::connected().await;
        let chain =
            tower::service_fn(|_: Inbound| async { Ok::<_, ProxyError>(Response::new(Full::<Bytes>::from("hello"))) });
        let permit = Arc::<ConnectionPermit>::default();
        let address = stream.peer_addr().expect("connected");
        let peer = Arc::new(Peer::new(address, Trust::default(), false));
        let service = ConnectionService::new(chain, peer, permit.clone(), Busy, TaskTracker::new());
        let connection = Connection { stream, address, keepalive: None, phases: permit.phase_receiver(), permit };
        match config {
            None => tokio::spawn(connection.serve(service)),
            Some(config) => tokio::spawn(connection.serve_tls(config, service)),
        };
        client
    }

    /// Goal: a head may take 60 s from its first byte; so may the first byte of a new connection; an idle connection
    /// may wait any time. Method: a paused clock, which advances when all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn the_timeout_of_a_head_starts_with_its_first_byte() {
        let get = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        let mut buffer = [0; 1024];
        let mut client = served(None).await;
        for _ in 0..2 {
            client.write_all(get).await.expect("open");
            let n = client.read(&mut buffer).await.expect("open");
            assert!(buffer[..n].ends_with(b"hello"));
            tokio::time::sleep(HEAD_TIMEOUT * 3).await;
        }
        client.write_all(&get[..10]).await.expect("open");
        let start = tokio::time::Instant::now();
        while client.read(&mut buffer).await.unwrap_or(0) > 0 {}
        let bounds = HEAD_TIMEOUT..HEAD_TIMEOUT + Duration::from_secs(5);
        assert!(bounds.contains(&start.elapsed()), "a started head: {:?}", start.elapsed());

        for first in ["", "P", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r"] {
            let mut silent = served(None).await;
            silent.write_all(first.as_bytes()).await.expect("open");
            let start = tokio::time::Instant::now();
            assert_eq!(silent.read(&mut buffer).await.unwrap_or(0), 0, "{first:?}");
            assert!(bounds.contains(&start.elapsed()), "{first:?}: {:?}", start.elapsed());
        }
        let mut ended = served(None).await;
        ended.write_all(b"P").await.expect("open");
        ended.shutdown().await.expect("open");
        let start = tokio::time::Instant::now();
        assert_eq!(ended.read(&mut buffer).await.unwrap_or(0), 0);
        assert!(start.elapsed() < HEAD_TIMEOUT / 10, "closed at its FIN: {:?}", start.elapsed());
    }

    /// Goal: a stalled handshake has the deadline of a head, and so has a client that is silent afterwards.
    #[tokio::test(start_paused = true)]
    async fn a_tls_handshake_has_the_timeout_of_a_head() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = rcgen::CertificateParams::new(vec!["a".to_owned()]).expect("valid").self_signed(&key);
        let chain = vec![certificate.expect("signed").der().clone()];
        let unverified = tls::unverified().expect("TLS 1.3");
        let mut config = ServerConfig::builder_with_provider(unverified.crypto_provider().clone())
            .with_safe_default_protocol_versions()
            .expect("TLS 1.3")
            .with_no_client_auth()
            .with_single_cert(chain, PrivatePkcs8KeyDer::from(key.serialize_der()).into())
            .expect("a pair");
        config.alpn_protocols = vec![b"h2".to_vec()];
        let config = Arc::new(config);
        let bounds = HEAD_TIMEOUT..HEAD_TIMEOUT + Duration::from_secs(5);
        let mut buffer = [0; 1024];

        let mut stalled = served(Some(config.clone())).await;
        stalled.write_all(b"\x16\x03\x01").await.expect("open");
        let start = tokio::time::Instant::now();
        assert_eq!(stalled.read(&mut buffer).await.unwrap_or(0), 0);
        assert!(bounds.contains(&start.elapsed()), "in the handshake: {:?}", start.elapsed());

        let mut unverified = (*unverified).clone();
        unverified.alpn_protocols = vec![b"h2".to_vec()];
        let connector = tls::TlsConnector::from(Arc::new(unverified));
        let name = ServerName::try_from("a").expect("a name");
        let mut silent = connector.connect(name, served(Some(config)).await).await.expect("shaken");
        let start = tokio::time::Instant::now();
        assert_eq!(silent.read(&mut buffer).await.unwrap_or(0), 0);
        assert!(bounds.contains(&start.elapsed()), "after the handshake: {:?}", start.elapsed());
    }
}
