//! Who is at the client's end of a connection.

use crate::body::RequestBody;
use crate::client::disconnects::{Disconnect, Disconnects};
use crate::client::timers::SpareTimers;
use crate::tcp::state::SharedSocket;
use http::{HeaderValue, Version};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use tokio::net::TcpStream;

/// The client's side of a connection, with the header values that are made of it: once, not for each request.
#[derive(Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Its IP address, for `X-Forwarded-For`.
    pub ip: HeaderValue,
    /// Whether it speaks TLS.
    pub tls: bool,
    /// `for=IP;proto=SCHEME`, for `Forwarded`.
    pub forwarded: HeaderValue,
    /// Timers that exchanges before this one needed no longer.
    pub timers: SpareTimers,
    /// Whether its headers may choose a revision, and its internal headers are believed.
    pub trusted: bool,
    /// Its socket, once a request over HTTP/1 had a body.
    socket: OnceLock<Arc<SharedSocket>>,
    /// Whoever notices that it goes away.
    disconnects: Option<Arc<Disconnects>>,
}

impl Peer {
    /// From the accepted connection's remote address. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn new(address: SocketAddr, trusted: bool, tls: bool) -> Self {
        let proto = scheme(tls);
        let ip = address.ip().to_canonical();
        let value = |text: String| HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("unknown"));
        let forwarded =
            if ip.is_ipv6() { format!("for=\"[{ip}]\";proto={proto}") } else { format!("for={ip};proto={proto}") };
        Self {
            address: SocketAddr::new(ip, address.port()),
            ip: value(ip.to_string()),
            forwarded: value(forwarded),
            timers: SpareTimers::default(),
            trusted,
            tls,
            socket: OnceLock::new(),
            disconnects: None,
        }
    }

    /// Has it looked after by those that look after all clients.
    pub(crate) fn with(self, disconnects: Arc<Disconnects>) -> Self {
        Self { disconnects: Some(disconnects), ..self }
    }

    /// What it speaks, as a URL's scheme.
    pub fn scheme(&self) -> &'static str {
        scheme(self.tls)
    }

    /// Has the client of a request looked after that waits while nobody reads from it.
    pub fn disconnect(&self, version: Version, body: &RequestBody) -> Option<Disconnect> {
        let unread = version < Version::HTTP_2 && !body.is_empty();
        let disconnects = self.disconnects.as_ref().filter(|_| unread)?;
        Some(disconnects.watch(self.socket.get()?))
    }

    /// Its socket may be looked at while a body lies unread. Without a descriptor to spare, the client's going is
    /// noticed when the body is read.
    pub(crate) fn share_socket(&self, socket: &TcpStream) {
        if self.socket.get().is_none()
            && let Ok(shared) = SharedSocket::new(socket)
        {
            self.socket.get_or_init(|| Arc::new(shared));
        }
    }

    /// Its socket is closed.
    pub(crate) fn close_socket(&self) {
        self.socket.get().into_iter().for_each(|socket| socket.close());
    }
}

fn scheme(tls: bool) -> &'static str {
    if tls { "https" } else { "http" }
}
