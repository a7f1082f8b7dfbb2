//! Who is at the client's end of a connection.

use crate::body::RequestBody;
use crate::body::unread::Unread;
use crate::client::disconnects::{Disconnect, Disconnects};
use crate::client::interim::Interims;
use crate::client::timers::SpareTimers;
use crate::error::ProxyError;
use crate::memory::Memory;
use crate::tcp::state::SharedSocket;
use http::{HeaderValue, Version};
use std::any::Any;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Timers that exchanges before this one needed no longer.
    pub timers: SpareTimers,
    /// Which of its headers are believed.
    pub trust: Trust,
    /// Its socket, once a request over HTTP/1 had a body, or something came behind one.
    socket: OnceLock<Arc<SharedSocket>>,
    /// Whoever notices that it goes away.
    disconnects: Option<Arc<Disconnects>>,
    /// What lies unread, over HTTP/2.
    unread: OnceLock<Arc<Unread>>,
    /// What all clients may keep.
    memory: Option<Memory>,
    /// What its connection is to write before a response, once there was such a thing.
    interims: OnceLock<Box<Interims>>,
    /// The workload's port that it connected to.
    port: Option<Arc<OwnPort>>,
    /// Its connection's part of what all may have.
    seat: Option<Arc<dyn Claims>>,
    /// The activator that relays its requests, if it is not connected here itself.
    via: Option<Arc<Peer>>,
}

/// A connection's part of what all may have, which is counted to the workload that it carries requests for.
pub(crate) trait Claims: std::fmt::Debug + Send + Sync {
    /// It carries a request for this workload.
    ///
    /// # Errors
    /// There is no room for it.
    fn claim(&self, workload: u64) -> Result<(), ProxyError>;
}

/// What a workload's port stands for, as who has it bound knows it.
pub type PortIdentity = Arc<dyn Any + Send + Sync>;

/// A workload's port, as those share it who have come to it.
#[derive(Debug)]
pub(crate) struct OwnPort {
    identity: PortIdentity,
    /// Who would come to it now is led elsewhere.
    is_left: AtomicBool,
}

impl OwnPort {
    /// One that stands for this.
    pub(crate) fn new(identity: PortIdentity) -> Arc<Self> {
        Arc::new(Self { identity, is_left: AtomicBool::new(false) })
    }

    /// What it stands for.
    pub(crate) fn identity(&self) -> &PortIdentity {
        &self.identity
    }

    /// From now on its clients are to come anew.
    pub(crate) fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    /// Whether they are.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }
}

/// Which of a peer's headers are believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Those that choose a revision (`Knative-Serving-*`).
    pub revision: bool,
    /// Forwarding headers (`Forwarded`, `X-Forwarded-For`, `X-Forwarded-Proto`).
    pub forwarded: bool,
}

impl Peer {
    /// From the accepted connection's remote address. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn new(address: SocketAddr, trust: Trust, tls: bool) -> Self {
        let ip = address.ip().to_canonical();
        Self {
            address: SocketAddr::new(ip, address.port()),
            ip: HeaderValue::try_from(ip.to_string()).unwrap_or(HeaderValue::from_static("unknown")),
            timers: SpareTimers::default(),
            trust,
            tls,
            socket: OnceLock::new(),
            disconnects: None,
            unread: OnceLock::new(),
            memory: None,
            interims: OnceLock::new(),
            port: None,
            seat: None,
            via: None,
        }
    }

    /// A client whose requests this one relays: an activator.
    pub fn relaying(self: &Arc<Self>, client: SocketAddr, trust: Trust, tls: bool) -> Arc<Self> {
        Arc::new(Self { port: self.port.clone(), via: Some(Arc::clone(self)), ..Self::new(client, trust, tls) })
    }

    /// Whose connection it is.
    fn connected(&self) -> &Self {
        self.via.as_deref().unwrap_or(self)
    }

    /// Has it come to this port of a workload.
    pub(crate) fn on(self, port: Option<Arc<OwnPort>>) -> Self {
        Self { port, ..self }
    }

    /// What the port that it came to stands for, if that is a workload's of its own, and if it is a `T`.
    pub fn port<T: Any>(&self) -> Option<&T> {
        self.port.as_ref()?.identity.downcast_ref()
    }

    /// Has its connection have this part of what all may have.
    pub(crate) fn seated(self, seat: Arc<dyn Claims>) -> Self {
        Self { seat: Some(seat), ..self }
    }

    /// Its connection carries a request for this workload, by a number that is not zero.
    ///
    /// # Errors
    /// There is no room for the connection, and nobody has more than this workload, or than the client of it.
    pub fn claim(&self, workload: u64) -> Result<(), ProxyError> {
        self.connected().seat.as_ref().map_or(Ok(()), |seat| seat.claim(workload))
    }

    /// Has it looked after by those that look after all clients.
    pub(crate) fn with(self, disconnects: Arc<Disconnects>) -> Self {
        Self { disconnects: Some(disconnects), ..self }
    }

    /// What lies unread of the bodies that it sends; of those over HTTP/2 alone.
    pub(crate) fn unread(&self) -> &Arc<Unread> {
        self.unread.get_or_init(Arc::default)
    }

    /// Has it take from this memory what it keeps.
    pub(crate) fn within(self, memory: Option<Memory>) -> Self {
        Self { memory, ..self }
    }

    /// What that is, if it is bounded.
    pub(crate) fn memory(&self) -> Option<Memory> {
        self.memory.clone()
    }

    /// Where interim responses to it are left; it speaks HTTP/1.1.
    pub(crate) fn interims(&self) -> &Interims {
        self.connected().interims.get_or_init(Box::default)
    }

    /// The same, if there was one yet.
    pub(crate) fn had_interims(&self) -> Option<&Interims> {
        self.interims.get().map(Box::as_ref)
    }

    /// What it speaks, as a URL's scheme.
    pub fn scheme(&self) -> &'static str {
        scheme(self.tls)
    }

    /// Has the client of a request looked after that waits while nobody reads from it.
    pub fn disconnect(&self, version: Version, body: &RequestBody) -> Option<Disconnect> {
        let unread = version < Version::HTTP_2 && !body.is_empty();
        let connected = self.connected();
        let disconnects = connected.disconnects.as_ref().filter(|_| unread)?;
        Some(disconnects.watch(connected.socket.get()?))
    }

    /// Has it looked after while its connection, whose socket is shared, reads nothing.
    pub(crate) fn watch(&self) -> Option<Disconnect> {
        Some(self.disconnects.as_ref()?.watch(self.socket.get()?))
    }

    /// Returns whether the client, whose end was read from its shared socket, has gone.
    pub(crate) fn has_left(&self) -> bool {
        let shared = self.disconnects.as_ref().zip(self.socket.get());
        shared.is_none_or(|(disconnects, socket)| disconnects.has_left(socket))
    }

    /// Its socket may be looked at while a body lies unread.
    ///
    /// # Safety
    /// It is the socket of this client's connection, whose owner calls [`Peer::close_socket`] before it closes the socket.
    pub(crate) unsafe fn share_socket(&self, socket: &TcpStream) {
        // SAFETY: the caller's promise.
        self.socket.get_or_init(|| Arc::new(unsafe { SharedSocket::new(socket) }));
    }

    /// Its socket is closed next.
    pub(crate) fn close_socket(&self) {
        self.socket.get().into_iter().for_each(|socket| socket.close());
    }
}

fn scheme(tls: bool) -> &'static str {
    if tls { "https" } else { "http" }
}
