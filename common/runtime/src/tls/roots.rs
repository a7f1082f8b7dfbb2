//! The authorities that a client believes, replaceable while it dials.

use super::PemError;
use super::pem;
use arc_swap::ArcSwap;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use tokio_rustls::rustls;

/// A set of authorities, as a client's settings. Clones share it.
#[derive(Clone, Debug)]
pub struct Roots(Arc<ArcSwap<ClientConfig>>);

impl Roots {
    /// Believes `roots` until others come. TLS 1.3 and no client certificate.
    ///
    /// # Errors
    /// The provider has no TLS 1.3, which ring has.
    pub fn new(roots: RootCertStore) -> Result<Self, rustls::Error> {
        Ok(Self(Arc::new(ArcSwap::new(config(roots)?))))
    }

    /// Handshakes from now on believe `roots`; established connections stay as they are.
    ///
    /// # Errors
    /// As [`Roots::new`].
    pub fn replace(&self, roots: RootCertStore) -> Result<(), rustls::Error> {
        self.0.store(config(roots)?);
        Ok(())
    }

    /// What holds now.
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

/// Adds every certificate of `pem` to `roots`. Upstream believes only the first of a `ca.crt`.
///
/// # Errors
/// It is no PEM, holds no certificate, or one that cannot be an authority; nothing is added then.
pub fn add(roots: &mut RootCertStore, origin: &str, pem: &[u8]) -> Result<(), PemError> {
    let before = roots.roots.len();
    for certificate in pem::certificates(origin, pem)? {
        if let Err(error) = roots.add(certificate) {
            roots.roots.truncate(before);
            return Err(PemError::new(
                origin,
                format_args!("holds a certificate that cannot be an authority: {error}"),
            ));
        }
    }
    Ok(())
}
