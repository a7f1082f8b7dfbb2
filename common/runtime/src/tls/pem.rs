//! Parses PEM, with errors that name the origin.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::sync::Arc;
use tokio_rustls::rustls;

/// Error of PEM that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct PemError {
    /// Origin of the PEM: the file, or the object and its key.
    pub origin: String,
    /// Description of the problem.
    pub problem: String,
}

impl PemError {
    /// Creates an error about `origin`.
    pub fn new(origin: impl fmt::Display, problem: impl fmt::Display) -> Self {
        Self { origin: origin.to_string(), problem: problem.to_string() }
    }
}

/// Parses every certificate in `pem`; at least one. Fails if the text is not PEM or contains no certificate.
pub fn certificates(origin: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| PemError::new(origin, format_args!("not PEM: {error}")))?;
    let none = || PemError::new(origin, "contains no certificate in PEM (BEGIN CERTIFICATE)");
    if certificates.is_empty() { Err(none()) } else { Ok(certificates) }
}

/// Parses a certificate chain, leaf first, with its private key. Each comes with its origin. Fails if one of them
/// cannot be read or they do not match.
pub fn key_pair(chain: (&str, &[u8]), key: (&str, &[u8])) -> Result<Arc<CertifiedKey>, PemError> {
    let certificates = certificates(chain.0, chain.1)?;
    let private = PrivateKeyDer::from_pem_slice(key.1)
        .map_err(|error| PemError::new(key.0, format_args!("contains no private key in PEM: {error}")))?;
    let provider = super::provider();
    let signer = provider
        .key_provider
        .load_private_key(private)
        .map_err(|error| PemError::new(key.0, format_args!("the private key cannot be used: {error}")))?;
    let pair = CertifiedKey::new(certificates, signer);
    match pair.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => Ok(Arc::new(pair)),
        Err(error) => Err(PemError::new(
            chain.0,
            format_args!("the certificate does not belong to the private key of {}: {error}", key.0),
        )),
    }
}
