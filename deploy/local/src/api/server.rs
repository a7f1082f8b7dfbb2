//! Server: options, a handle, and the loop that accepts connections.
//!
//! The port serves plain HTTP and TLS. Traffic on loopback does not need TLS, but kubectl and similar clients send a
//! kubeconfig's token only over TLS. So the kubeconfig has an `https` URL and the server's self-signed certificate. The
//! key never leaves the process. The first byte of a connection shows whether it uses TLS.

use super::core::{Api, ApiOptions};
use super::{collector, handler, identity};
use crate::private_file;
use crate::usage::UsageTable;
use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common_runtime::tls::speaks_tls;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

/// Maximum wait for connections to end after [`ApiServer::shutdown`].
const DRAIN: Duration = Duration::from_secs(2);

/// Maximum idle time of a connection. It is longer than the time for which clients keep idle connections (kube's 90 s);
/// otherwise the server would close a connection while a request is on its way.
const IDLE: Duration = Duration::from_secs(180);

/// Extension of a kubeconfig's cluster with the address of its dashboard.
const DASHBOARD: &str = "zeroscale.dev/dashboard";

/// A running API server. Dropping the handle shuts it down without waiting.
pub struct ApiServer {
    address: SocketAddr,
    token: String,
    certificate: Arc<str>,
    dashboard: Option<SocketAddr>,
    api: Arc<Api>,
    tasks: TaskTracker,
}

impl ApiServer {
    /// Starts a server on the caller's runtime. It serves requests once this returns. Fails if the address is not a
    /// loopback address or cannot be bound.
    pub async fn start(options: ApiOptions) -> anyhow::Result<ApiServer> {
        let listen = options.listen;
        ensure!(
            listen.ip().is_loopback(),
            "the API server listens only on loopback addresses, and {listen} is not one"
        );
        let listener =
            TcpListener::bind(listen).await.with_context(|| format!("the API server cannot listen on {listen}"))?;
        let address = listener.local_addr().context("the API server's listener has no local address")?;
        let token = options.token.clone().unwrap_or_else(identity::generate_token);
        let tls = Tls::self_signed(address.ip())?;
        let certificate = tls.certificate.clone();
        let api = Api::new(&options, &token);
        let tasks = TaskTracker::new();
        tasks.spawn(collector::run(api.clone()));
        tasks.spawn(accept(listener, tls, api.clone(), tasks.clone()));
        Ok(ApiServer { address, token, certificate, dashboard: options.dashboard, api, tasks })
    }

    /// Returns the URL, such as `http://127.0.0.1:40001`. The same port serves `https`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the administrator's bearer token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Drops the history, like a server after compaction: each watch ends with 410, and its client must list again.
    pub fn forget_history(&self) {
        self.api.store.forget();
    }

    /// Sets the folder in which the node keeps the logs of its pods.
    pub fn set_pod_logs(&self, work_dir: PathBuf) {
        *self.api.logs.write() = Some(work_dir);
    }

    /// Sets the source of pod usage. From now on the server has `metrics.k8s.io`.
    pub fn set_usage(&self, usage: UsageTable) {
        self.api.serve_metrics(usage);
    }

    /// Returns a kubeconfig for this server, with the token, the server's certificate, and the dashboard's address if
    /// there is one.
    pub fn kubeconfig(&self) -> String {
        let (address, token) = (self.address, &self.token);
        let extension = |dashboard| {
            format!("    extensions:\n    - name: {DASHBOARD}\n      extension:\n        address: http://{dashboard}\n")
        };
        let dashboard = self.dashboard.map(extension).unwrap_or_default();
        let authority = STANDARD.encode(self.certificate.as_bytes());
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: zeroscale\n\
             clusters:\n- name: zeroscale\n  cluster:\n    server: https://{address}\n    \
             certificate-authority-data: {authority}\n{dashboard}\
             contexts:\n- name: zeroscale\n  context:\n    cluster: zeroscale\n    user: admin\n    \
             namespace: default\n\
             users:\n- name: admin\n  user:\n    token: {token}\n"
        )
    }

    /// Writes the kubeconfig in one step to a file that only its owner can read. Fails if the file or its temporary
    /// file cannot be written.
    pub fn write_kubeconfig(&self, path: &Path) -> anyhow::Result<()> {
        private_file::write(path, &self.kubeconfig()).context("the kubeconfig cannot be written")
    }

    /// Ends all watches and connections, and waits for them.
    pub async fn shutdown(self) {
        self.api.shutdown.cancel();
        self.tasks.close();
        let _ = timeout(DRAIN, self.tasks.wait()).await;
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.api.shutdown.cancel();
    }
}

async fn accept(listener: TcpListener, tls: Tls, api: Arc<Api>, tasks: TaskTracker) {
    while let Some(accepted) = api.shutdown.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => drop(tasks.spawn(connection(stream, tls.clone(), api.clone()))),
            Err(error) => {
                // Probably out of descriptors: wait until some are released.
                tracing::warn!(%error, "the API server cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, tls: Tls, api: Arc<Api>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "the API server cannot set TCP_NODELAY");
    }
    let Some(uses_tls) = api.shutdown.run_until_cancelled(Tls::detect(&stream)).await else { return };
    match uses_tls {
        Ok(false) => serve(stream, api).await,
        Ok(true) => match tls.accept(stream).await {
            Ok(stream) => serve(stream, api).await,
            Err(error) => tracing::debug!(%error, "a TLS handshake with the API server failed"),
        },
        Err(error) => tracing::trace!(%error, "a connection to the API server failed"),
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, api: Arc<Api>) {
    let shutdown = api.shutdown.clone();
    let service = service_fn(move |request| {
        let api = api.clone();
        async move { Ok::<_, Infallible>(handler::handle(api, request).await) }
    });
    let mut builder = http1::Builder::new();
    // hyper's timeout for a head starts at the previous response.
    builder.timer(TokioTimer::new()).header_read_timeout(IDLE);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%error, "a connection to the API server failed");
    }
}

/// Maximum duration of the client's part of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct Tls {
    acceptor: TlsAcceptor,
    /// Certificate for clients, as PEM.
    pub(crate) certificate: Arc<str>,
}

impl Tls {
    /// Generates a key and a certificate for an address.
    pub(crate) fn self_signed(address: IpAddr) -> anyhow::Result<Self> {
        let mut names = vec!["localhost".to_string(), "127.0.0.1".to_string()];
        names.extend(Some(address.to_string()).filter(|address| !names.contains(address)));
        let generated =
            rcgen::generate_simple_self_signed(names).context("the API server's certificate cannot be generated")?;
        let key = PrivatePkcs8KeyDer::from(generated.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .context("the API server supports no version of TLS")?
            .with_no_client_auth()
            .with_single_cert(vec![generated.cert.der().clone()], key.into())
            .context("the API server's certificate cannot be used")?;
        Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), certificate: generated.cert.pem().into() })
    }

    /// Reports whether a connection uses TLS. It waits for the first byte: clients open connections in advance, and may
    /// send nothing for as long as they keep an idle connection.
    pub(crate) async fn detect(stream: &TcpStream) -> anyhow::Result<bool> {
        Ok(timeout(IDLE, speaks_tls(stream)).await??)
    }

    /// Performs the server's part of a handshake.
    pub(crate) async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        timeout(HANDSHAKE, self.acceptor.accept(stream)).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    async fn start() -> ApiServer {
        ApiServer::start(ApiOptions::new("10.96.0.0/16".parse().expect("a range"))).await.expect("a free port")
    }

    /// Goal: a client that keeps an idle connection as long as kube does finds it open.
    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_stays_open() {
        let server = start().await;
        let (mut client, end) = duplex(1 << 16);
        tokio::spawn(serve(end, server.api.clone()));
        let mut answer = vec![0; 1 << 14];
        for turn in ["first", "again"] {
            client.write_all(b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("it is open");
            let length = client.read(&mut answer).await.expect("it is open");
            assert!(answer[..length].starts_with(b"HTTP/1.1 "), "{turn}: {length} bytes");
            tokio::time::sleep(Duration::from_secs(90)).await;
        }
    }

    /// Goal: the same holds for a connection that was opened in advance and is unused.
    #[tokio::test(start_paused = true)]
    async fn a_connection_opened_in_advance_stays_open() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("room");
        let (stream, _) = listener.accept().await.expect("accepted");
        let uses_tls = tokio::spawn(async move { Tls::detect(&stream).await });
        tokio::time::sleep(Duration::from_secs(90)).await;
        client.write_all(b"G").await.expect("it is open");
        assert!(!uses_tls.await.expect("no panic").expect("in time"));
    }

    /// Goal: a watch ends with its client's connection, even if there is nothing to write.
    #[tokio::test(start_paused = true)]
    async fn a_watch_ends_with_its_client() {
        let server = start().await;
        let (mut client, end) = duplex(1 << 16);
        let served = tokio::spawn(serve(end, server.api.clone()));
        let head = "GET /api/v1/configmaps?watch=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer";
        client.write_all(format!("{head} {}\r\n\r\n", server.token()).as_bytes()).await.expect("it is open");
        let mut answer = vec![0; 1 << 14];
        let length = client.read(&mut answer).await.expect("it is open");
        assert!(answer[..length].starts_with(b"HTTP/1.1 200 "));
        drop(client);
        // Shorter than any watch.
        timeout(Duration::from_secs(600), served).await.expect("an end").expect("no panic");
    }

    #[tokio::test]
    async fn a_silent_connection_does_not_delay_the_shutdown() {
        let options = ApiOptions::new("127.9.0.0/24".parse().expect("a range"));
        let server = ApiServer::start(options).await.expect("a server");
        let _silent = TcpStream::connect(server.address()).await.expect("a connection");
        // The shutdown waits for two seconds at most.
        timeout(Duration::from_millis(1900), server.shutdown()).await.expect("an end");
    }
}
