//! TLS to queue-proxies and the private Service, if system-internal TLS is enabled (knative mode).
//!
//! - Pods listen on 8112, the Service on 443, besides their plain ports. Probes stay plain, as upstream.
//! - The server name is `data-plane.knative.dev` for every pod. There is no ALPN, because a queue-proxy recognizes
//!   HTTP/2 by its preface.
//! - The certificate must also contain exactly `kn-user-NAMESPACE`, so that a pod cannot pose as one of another
//!   namespace. This is checked for each connection, and a pool of connections belongs to one namespace.
//! - A certificate error is no reason to try another pod, or to take this one out. The client gets the error.

use crate::pod::stream::PodStream;
use common::names::{
    ACTIVATOR_H2C_PORT, ACTIVATOR_HTTP1_PORT, DATA_PLANE_NAME, DATA_PLANE_ROUTING_NAME, DATA_PLANE_USER_PREFIX,
    HTTPS_PORT, HTTPS_SERVICE_PORT,
};
use common_runtime::tls::client::TlsStream;
use common_runtime::tls::rustls::pki_types::ServerName;
use common_runtime::tls::{Roots, TlsConnector};
use std::io;
use std::net::SocketAddr;
use tokio_util::either::Either;

#[derive(Clone, Debug)]
pub(crate) struct PodTls {
    roots: Roots,
    /// Second name that their certificates must contain.
    pub(crate) user_name: String,
}

/// A connection to a pod, plain or encrypted.
pub(crate) type PodIo = Either<PodStream, Box<TlsStream<PodStream>>>;

impl PodTls {
    /// Creates settings for pods of `namespace`, with certificates signed by `roots`.
    pub(crate) fn new(roots: Roots, namespace: &str) -> Self {
        Self { roots, user_name: format!("{DATA_PLANE_USER_PREFIX}{}", namespace.to_lowercase()) }
    }

    /// Creates settings for activators, whose certificates contain the routing name.
    pub(crate) fn of_activator(roots: Roots) -> Self {
        Self { roots, user_name: DATA_PLANE_ROUTING_NAME.to_owned() }
    }

    /// Returns the TLS address for the plain address `plain`. Queue-proxies use two known plain ports; all other ports
    /// are a Service's.
    pub(crate) fn address(plain: SocketAddr) -> SocketAddr {
        let port = match plain.port() {
            ACTIVATOR_HTTP1_PORT | ACTIVATOR_H2C_PORT => HTTPS_PORT,
            _ => HTTPS_SERVICE_PORT,
        };
        SocketAddr::new(plain.ip(), port)
    }

    /// Performs the handshake over a connection. An error means that the pod closed the connection, or its certificate
    /// is invalid ([`io::ErrorKind::InvalidData`]).
    pub(crate) async fn handshake(&self, stream: PodStream) -> io::Result<PodIo> {
        let name = ServerName::try_from(DATA_PLANE_NAME).map_err(io::Error::other)?;
        let stream = TlsConnector::from(self.roots.config()).connect(name, stream).await?;
        let (_, session) = stream.get_ref();
        let leaf = session.peer_certificates().and_then(|chain| chain.first());
        let leaf = leaf.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the pod has no certificate"))?;
        let leaf = webpki::EndEntityCert::try_from(leaf)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("invalid certificate: {error}")))?;
        let names: Vec<&str> = leaf.valid_dns_names().collect();
        if !names.contains(&self.user_name.as_str()) {
            let (wanted, names) = (&self.user_name, names.join(" "));
            let problem = format!("san {wanted:?} does not have a matching name in [{names}]");
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        Ok(PodIo::Right(Box::new(stream)))
    }
}

pub(crate) fn tcp_of(io: &mut PodIo) -> &mut PodStream {
    match io {
        PodIo::Left(stream) => stream,
        PodIo::Right(stream) => stream.get_mut().0,
    }
}

impl From<PodStream> for PodIo {
    fn from(stream: PodStream) -> Self {
        Self::Left(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tls_port_follows_from_the_plain_port() {
        for (plain, expected) in [
            ("10.0.0.1:8012", "10.0.0.1:8112"),
            ("[2001:db8::1]:8013", "[2001:db8::1]:8112"),
            ("10.0.0.1:80", "10.0.0.1:443"),
        ] {
            assert_eq!(PodTls::address(plain.parse().expect(plain)), expected.parse().expect(expected));
        }
    }
}
