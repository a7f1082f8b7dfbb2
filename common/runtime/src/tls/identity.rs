//! The certificate that a server shows: one for every name that is asked for, replaceable while it serves.

use super::Parameters;
use arc_swap::ArcSwap;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use std::sync::Arc;
use tokio_rustls::rustls::{self, ServerConfig};

/// A server's certificate and key. Clones share it.
#[derive(Clone, Debug)]
pub struct Identity(Arc<Current>);

#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl Identity {
    /// With `pair` until another comes.
    pub fn new(pair: Arc<CertifiedKey>) -> Self {
        Self(Arc::new(Current(ArcSwap::new(pair))))
    }

    /// Handshakes from now on show `pair`; established connections stay as they are.
    pub fn replace(&self, pair: Arc<CertifiedKey>) {
        self.0.0.store(pair);
    }

    /// The chain that a handshake shows now.
    pub fn shown(&self) -> Vec<CertificateDer<'static>> {
        self.0.0.load().cert.clone()
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Whether clients must show a certificate.
#[derive(Clone, Debug, Default)]
pub enum ClientAuth {
    /// They are not asked.
    #[default]
    None,
    /// One that is shown must be signed by these; none need be.
    Optional(Arc<RootCertStore>),
    /// One must be shown, signed by these.
    Required(Arc<RootCertStore>),
}

/// A server's settings. `alpn` lists its protocols, best first; none: the client's are ignored.
///
/// # Errors
/// `parameters` leave nothing to agree on, or `clients` names no authority.
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
    let mut config = builder.with_cert_resolver(identity.0.clone());
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}
