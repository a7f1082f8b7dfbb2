//! A server's certificate: the same for every requested name, and replaceable while the server runs.

use super::Parameters;
use arc_swap::ArcSwap;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use std::sync::Arc;
use tokio_rustls::rustls::{self, ServerConfig};

/// Certificate and key of a server. Clones share them.
#[derive(Clone, Debug)]
pub struct Identity(Arc<ArcSwap<CertifiedKey>>);

impl Identity {
    /// Creates an identity with `pair` until it is replaced.
    pub fn new(pair: Arc<CertifiedKey>) -> Self {
        Self(Arc::new(ArcSwap::new(pair)))
    }

    /// Presents `pair` in handshakes from now on; established connections are unchanged.
    pub fn replace(&self, pair: Arc<CertifiedKey>) {
        self.0.store(pair);
    }

    /// Returns the chain that a handshake currently presents.
    pub fn certificates(&self) -> Vec<CertificateDer<'static>> {
        self.0.load().cert.clone()
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Requirement of client certificates.
#[derive(Clone, Debug, Default)]
pub enum ClientAuth {
    /// Clients are not asked for a certificate.
    #[default]
    None,
    /// A presented certificate must be signed by one of these CAs; clients may present none.
    Optional(Arc<RootCertStore>),
    /// Clients must present a certificate that is signed by one of these CAs.
    Required(Arc<RootCertStore>),
}

/// Builds a server's settings. `alpn` lists its protocols, best first; if empty, the client's are ignored. Fails if
/// `parameters` permit no version, or if `clients` contains no CA.
pub fn server_config(
    identity: &Identity,
    parameters: &Parameters,
    clients: ClientAuth,
    alpn: &[&[u8]],
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(parameters.provider());
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(parameters.versions())?;
    let verifier = |roots| WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
    let general = |error| rustls::Error::General(format!("client certificates: {error}"));
    let builder = match clients {
        ClientAuth::None => builder.with_no_client_auth(),
        ClientAuth::Optional(roots) => {
            builder.with_client_cert_verifier(verifier(roots).allow_unauthenticated().build().map_err(general)?)
        }
        ClientAuth::Required(roots) => builder.with_client_cert_verifier(verifier(roots).build().map_err(general)?),
    };
    let mut config = builder.with_cert_resolver(Arc::new(identity.clone()));
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}
