//! A client's requirements on a server: a certificate with one given name, signed by a trusted CA.
//!
//! The name is fixed and not taken from the dialled address: autoscalers dial each other by pod address, which no
//! certificate contains.

use super::{PemError, Roots, files};
use rustls::pki_types::ServerName;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsConnector, rustls};
use tokio_util::sync::CancellationToken;

/// Requirements on a server. Clones share the CAs, which may be replaced while they are in use.
#[derive(Clone, Debug)]
pub struct Trust {
    roots: Roots,
    name: ServerName<'static>,
    origin: Arc<str>,
}

impl Trust {
    /// Requires `name` and the CAs in `file`, which is reloaded until `shutdown`. Fails if the file cannot be read or
    /// contains no CA, or if `name` is neither a DNS name nor an address.
    pub async fn follow(
        file: PathBuf,
        name: &str,
        every: Duration,
        shutdown: CancellationToken,
    ) -> Result<Self, PemError> {
        let bad = |_| PemError::new(format!("name {name:?}"), "is neither a DNS name nor an IP address");
        let name = ServerName::try_from(name.to_owned()).map_err(bad)?;
        let origin = file.display().to_string().into();
        Ok(Self { roots: files::follow_roots(file, every, shutdown).await?, name, origin })
    }

    /// Performs the handshake. Has no time limit; the caller sets one. Fails if the connection breaks or the server's
    /// certificate does not meet the requirements, which the error describes.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        let connected = TlsConnector::from(self.roots.config()).connect(self.name.clone(), stream).await;
        connected.map_err(|error| {
            let (name, origin) = (self.name.to_str(), &self.origin);
            let rule =
                format!("the server's certificate must contain the name {name} and be signed by a CA in {origin}");
            io::Error::new(error.kind(), format!("TLS handshake: {error}; {rule}"))
        })
    }
}
