//! What a client demands of a server: a certificate that bears one name and is signed by authorities that it believes.
//!
//! The name is fixed and not taken from the address that is dialled: autoscalers dial each other by pod address, which
//! no certificate bears.

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

/// The demand. Clones share the authorities, which may be replaced while they are used.
#[derive(Clone, Debug)]
pub struct Trust {
    roots: Roots,
    name: ServerName<'static>,
    origin: Arc<str>,
}

impl Trust {
    /// Demands `name` and the authorities in `file`, which is followed until `shutdown`.
    ///
    /// # Errors
    /// The file cannot be read or holds no authority, or `name` is neither a DNS name nor an address.
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

    /// Shakes hands. Not bounded in time: that is the caller's part.
    ///
    /// # Errors
    /// The connection breaks, or the server's certificate is not what is demanded; the error says what is.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        let connected = TlsConnector::from(self.roots.config()).connect(self.name.clone(), stream).await;
        connected.map_err(|error| {
            let (name, origin) = (self.name.to_str(), &self.origin);
            let rule = format!("the server's certificate must bear {name} and be signed by an authority in {origin}");
            io::Error::new(error.kind(), format!("TLS handshake: {error}; {rule}"))
        })
    }
}
