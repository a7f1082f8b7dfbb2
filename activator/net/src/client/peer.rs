//! Who is at the client's end of a connection.

use crate::body::{RequestBody, Upload};
use crate::client::disconnects::{AtEnd, Departure, Departures};
use crate::client::timers::SpareTimers;
use crate::tcp::state::SharedSocket;
use http::{HeaderValue, Version};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    /// Its socket, while it speaks HTTP/1.
    pub(crate) socket: Arc<SharedSocket>,
    /// Whoever notices that it goes away.
    departures: Option<Arc<Departures>>,
    /// Its current request is of HTTP/1.1 and has no body.
    asks_only: AtomicBool,
    /// Or one that it follows.
    upload: Mutex<Option<Arc<Upload>>>,
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
            socket: Arc::new(SharedSocket::unset()),
            departures: None,
            asks_only: AtomicBool::new(false),
            upload: Mutex::default(),
        }
    }

    /// Has those notice its going that look after all clients.
    pub fn with(self, departures: Arc<Departures>) -> Self {
        Self { departures: Some(departures), ..self }
    }

    /// What it speaks, as a URL's scheme.
    pub fn scheme(&self) -> &'static str {
        scheme(self.tls)
    }

    /// Notes which request is in hand. Over HTTP/2, where several are, it is never asked for.
    pub(crate) fn note(&self, version: Version, body: &RequestBody) {
        if version == Version::HTTP_2 {
            return;
        }
        let asks_only = version == Version::HTTP_11 && body.is_empty();
        self.asks_only.store(asks_only, Ordering::Relaxed);
        if !asks_only {
            *self.upload.lock() = body.upload().filter(|_| version == Version::HTTP_11);
        }
    }

    /// Whether the request in hand is of HTTP/1.1 and has been read to its end.
    pub(crate) fn has_said_all(&self) -> bool {
        self.asks_only.load(Ordering::Relaxed) || self.upload.lock().as_ref().is_some_and(|upload| upload.finished())
    }

    /// Has a request looked after that waits while nobody reads from its client.
    pub fn departure(&self, version: Version, body: &RequestBody) -> Option<Departure> {
        // What is said to the socket directly would not be encrypted.
        let end = if version == Version::HTTP_11 && !self.tls { AtEnd::Ask } else { AtEnd::Gone };
        let unread = version < Version::HTTP_2 && !body.is_empty();
        self.departures.as_ref().filter(|_| unread).map(|departures| departures.watch(&self.socket, end))
    }

    /// Has the client looked after, which has ended its side and was asked.
    pub(crate) fn ended(&self) -> Option<Departure> {
        self.departures.as_ref().map(|departures| departures.watch(&self.socket, AtEnd::Asked))
    }
}

fn scheme(tls: bool) -> &'static str {
    if tls { "https" } else { "http" }
}
