//! What travels through the chain of layers: a request with what is known about it, more with each layer.

use crate::body::RequestBody;
use crate::revision::Revision;
use http::{HeaderValue, Request};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::time::Instant;

/// The client's side of a connection, with the header values that are made of it: once, not for each request.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its address.
    pub(crate) address: SocketAddr,
    /// Its IP address, for `X-Forwarded-For`.
    pub(crate) ip: HeaderValue,
    /// Whether it speaks TLS.
    pub(crate) tls: bool,
    /// `for=IP;proto=SCHEME`, for `Forwarded`.
    pub(crate) forwarded: HeaderValue,
    /// Whether its headers may choose a revision, and its internal headers are believed.
    pub(crate) trusted: bool,
}

impl Peer {
    /// From the accepted connection's remote address. An IPv4-mapped IPv6 address counts as IPv4.
    pub(crate) fn new(address: SocketAddr, trusted: bool, tls: bool) -> Self {
        let proto = scheme(tls);
        let ip = address.ip().to_canonical();
        let value = |text: String| HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("unknown"));
        let forwarded =
            if ip.is_ipv6() { format!("for=\"[{ip}]\";proto={proto}") } else { format!("for={ip};proto={proto}") };
        Self {
            address: SocketAddr::new(ip, address.port()),
            ip: value(ip.to_string()),
            forwarded: value(forwarded),
            trusted,
            tls,
        }
    }

    /// What it speaks, as a URL's scheme.
    pub(crate) fn scheme(&self) -> &'static str {
        scheme(self.tls)
    }
}

fn scheme(tls: bool) -> &'static str {
    if tls { "https" } else { "http" }
}

/// A request as it was read.
pub(crate) struct Inbound {
    /// Head and body.
    pub(crate) request: Request<RequestBody>,
    /// Who sent it.
    pub(crate) peer: Arc<Peer>,
    /// When its head had been read.
    pub(crate) received: Instant,
}

/// A request whose revision is known.
pub(crate) struct Call {
    /// Head and body.
    pub(crate) request: Request<RequestBody>,
    /// Who sent it.
    pub(crate) peer: Arc<Peer>,
    /// When its head had been read.
    pub(crate) received: Instant,
    /// Whom it is for.
    pub(crate) revision: Arc<Revision>,
}
