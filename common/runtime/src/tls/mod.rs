//! TLS for servers and clients of both planes: rustls with ring.
//!
//! What is served and what is believed may change while connections live: a handshake takes what holds at that moment,
//! and what is established is left alone. Whatever cannot be used is refused with the name of the file, or of the
//! object and its key, and what was there before stays.
//!
//! | part | what it is |
//! |---|---|
//! | [`pem`] | certificates, keys and roots out of PEM, with errors that name where they came from |
//! | [`Identity`] | the certificate that a server shows, replaceable |
//! | [`Roots`] | the authorities that a client believes, replaceable |
//! | [`Parameters`] | versions, cipher suites and curves under Go's names |
//! | [`Trust`] | what a client demands of a server: a name, and who signs it |
//! | [`unverified()`] | a client that believes anybody: for probes alone |
//! | [`accept()`] | a server's handshake, and an answer to who speaks plain HTTP |
//! | [`files`] | certificates out of files, followed as they change |

mod accept;
pub mod files;
mod identity;
mod parameters;
pub mod pem;
mod roots;
mod trust;
mod unverified;

pub use accept::{HandshakeError, accept, speaks_tls};
pub use identity::{ClientAuth, Identity, server_config};
pub use parameters::Parameters;
pub use pem::PemError;
pub use roots::{Roots, add as add_roots};
pub use trust::Trust;
pub use unverified::unverified;

use rustls::crypto::{CryptoProvider, ring};
use std::sync::Arc;
pub use tokio_rustls::{TlsAcceptor, TlsConnector, client, rustls, server};

/// The protocols of a server that speaks both, in the order of its liking.
pub const HTTP_ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// ring, whatever other providers are linked into the process.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
