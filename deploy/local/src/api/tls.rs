//! TLS on the port that also serves plain HTTP.
//!
//! Traffic on loopback does not need TLS, but kubectl and similar clients send a kubeconfig's token only over TLS. So
//! the kubeconfig has an `https` URL and the server's self-signed certificate. The key never leaves the process. The
//! first byte of a connection shows whether it uses TLS.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use common_runtime::tls::speaks_tls;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::server::TlsStream;

use super::server::IDLE;

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
    use crate::api::{ApiOptions, ApiServer};
    use k8s_openapi::api::core::v1::Namespace;
    use kube::config::{KubeConfigOptions, Kubeconfig};
    use kube::{Api, Client, Config};

    async fn namespaces(config: Config) -> kube::Result<usize> {
        Ok(Api::<Namespace>::all(Client::try_from(config)?).list(&Default::default()).await?.items.len())
    }

    async fn start() -> ApiServer {
        ApiServer::start(ApiOptions::new("127.9.0.0/24".parse().expect("a range"))).await.expect("a server")
    }

    #[tokio::test]
    async fn one_port_serves_tls_and_plain_http() {
        let server = start().await;
        let file = Kubeconfig::from_yaml(&server.kubeconfig()).expect("a kubeconfig");
        let tls = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a configuration");
        assert_eq!(tls.cluster_url.scheme_str(), Some("https"));
        assert_eq!(namespaces(tls.clone()).await.expect("an answer with TLS"), 4);

        let mut plain = Config::new(server.url().parse().expect("a URL"));
        plain.auth_info = tls.auth_info.clone();
        assert_eq!(namespaces(plain).await.expect("an answer without TLS"), 4);

        let mut stranger = tls;
        stranger.root_cert = None;
        assert!(namespaces(stranger).await.is_err(), "clients do not trust the certificate by default");
    }

    #[tokio::test]
    async fn a_silent_connection_does_not_delay_the_shutdown() {
        let server = start().await;
        let _silent = tokio::net::TcpStream::connect(server.address()).await.expect("a connection");
        // The shutdown waits for two seconds at most.
        tokio::time::timeout(std::time::Duration::from_millis(1900), server.shutdown()).await.expect("an end");
    }
}
