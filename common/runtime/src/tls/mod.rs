//! TLS for servers and clients of both planes: rustls with ring.
//!
//! Certificates and CAs may change while connections live. A handshake uses the current ones; established connections
//! are unchanged. Unusable ones are rejected with the name of the file, or of the object and its key, and the former
//! ones stay.
//!
//! | part | purpose |
//! |---|---|
//! | [`pem`] | certificates, keys and CAs in PEM, with errors that name their origin |
//! | [`Identity`] | the certificate that a server presents, replaceable |
//! | [`Roots`] | the CAs that a client trusts, replaceable |
//! | [`Parameters`] | versions, cipher suites and curves under Go's names |
//! | [`Trust`] | a client's requirements on a server: a name and CAs |
//! | [`unverified()`] | a client that trusts any server: for probes only |
//! | [`accept()`] | a server's handshake, and a response to clients that use plain HTTP |
//! | [`files`] | certificates in files, reloaded when they change |

mod accept;
pub mod files;
mod identity;
mod parameters;
pub mod pem;
mod roots;
mod trust;
mod unverified;

pub use accept::{accept, speaks_tls};
pub use identity::{ClientAuth, Identity, server_config};
pub use parameters::Parameters;
pub use pem::PemError;
pub use roots::{Roots, add as add_roots};
pub use trust::Trust;
pub use unverified::unverified;

use rustls::crypto::{CryptoProvider, ring};
use std::sync::Arc;
pub use tokio_rustls::{TlsAcceptor, TlsConnector, client, rustls, server};

/// ALPN protocols of a server that supports both, best first.
pub const HTTP_ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Returns ring, whatever other providers are linked into the process.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
