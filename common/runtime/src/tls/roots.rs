//! CAs that a client trusts, replaceable while the client is in use.

use super::PemError;
use super::pem;
use arc_swap::ArcSwap;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use tokio_rustls::rustls;

/// Set of CAs, as a client's settings. Clones share it.
#[derive(Clone, Debug)]
pub struct Roots(Arc<ArcSwap<ClientConfig>>);

impl Roots {
    /// Creates settings that trust `roots` until they are replaced. TLS 1.3 and no client certificate. Fails if the
    /// provider has no TLS 1.3; ring has it.
    pub fn new(roots: RootCertStore) -> Result<Self, rustls::Error> {
        Ok(Self(Arc::new(ArcSwap::new(config(roots)?))))
    }

    /// Trusts `roots` in handshakes from now on; established connections are unchanged. Fails as [`Roots::new`] does.
    pub fn replace(&self, roots: RootCertStore) -> Result<(), rustls::Error> {
        self.0.store(config(roots)?);
        Ok(())
    }

    /// Returns the current settings.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.0.load_full()
    }
}

fn config(roots: RootCertStore) -> Result<Arc<ClientConfig>, rustls::Error> {
    let config = ClientConfig::builder_with_provider(super::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Adds every certificate of `pem` to `roots`. Upstream trusts only the first certificate of a `ca.crt`. Fails if the
/// text is not PEM, contains no certificate, or contains one that cannot be a CA. Nothing is added then.
pub fn add(roots: &mut RootCertStore, origin: &str, pem: &[u8]) -> Result<(), PemError> {
    let before = roots.roots.len();
    for certificate in pem::certificates(origin, pem)? {
        if let Err(error) = roots.add(certificate) {
            roots.roots.truncate(before);
            return Err(PemError::new(origin, format_args!("contains a certificate that cannot be a CA: {error}")));
        }
    }
    Ok(())
}
