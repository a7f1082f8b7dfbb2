//! What travels through the chain of layers: a request with what is known about it, more with each layer.

use crate::body::{RequestBody, Upload};
use crate::revision::Revision;
use crate::server::departures::{AtEnd, Departure, Departures};
use crate::tcp_state::SharedSocket;
use crate::trace::Trace;
use http::{HeaderValue, Request, Version};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::{Instant, Sleep, sleep_until};

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
    /// Timers that exchanges before this one needed no longer.
    pub(crate) timers: SpareTimers,
    /// Whether its headers may choose a revision, and its internal headers are believed.
    pub(crate) trusted: bool,
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
    pub(crate) fn with(self, departures: Arc<Departures>) -> Self {
        Self { departures: Some(departures), ..self }
    }

    /// What it speaks, as a URL's scheme.
    pub(crate) fn scheme(&self) -> &'static str {
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
    pub(crate) fn departure(&self, version: Version, body: &RequestBody) -> Option<Departure> {
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

/// Most timers that a connection keeps: so many exchanges of HTTP/2 are at once in most cases, and each timer keeps
/// what is left of its last task until it fires.
const TIMERS_KEPT: usize = 8;

/// Timers that stay set between the exchanges of a connection: to move one costs less than to make and unset one for
/// each. Between them it may fire, and wakes a task for nothing, once for each revision's timeout.
#[derive(Debug, Default)]
pub(crate) struct SpareTimers(Mutex<SmallVec<[Pin<Box<Sleep>>; 1]>>);

impl SpareTimers {
    /// A timer set to `at`.
    pub(crate) fn take(&self, at: Instant) -> Pin<Box<Sleep>> {
        let spare = self.0.lock().pop();
        match spare {
            Some(mut timer) => {
                timer.as_mut().reset(at);
                timer
            }
            None => Box::pin(sleep_until(at)),
        }
    }

    /// Keeps a timer, if there are not too many.
    pub(crate) fn keep(&self, timer: Pin<Box<Sleep>>) {
        let mut spare = self.0.lock();
        if spare.len() < TIMERS_KEPT {
            spare.push(timer);
        } // Else it is dropped after the lock: it leaves the runtime's list of timers.
    }
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
    /// Its spans, if traces are asked for.
    pub(crate) trace: Option<Arc<Trace>>,
}
