//! Client side of a connection.

use crate::body::RequestBody;
use crate::body::unread_frames::UnreadFrames;
use crate::client::connection_permit::ConnectionPermit;
use crate::client::disconnects::Disconnect;
use crate::client::interim::Interims;
use crate::client::timers::SpareTimers;
use crate::error::ProxyError;
use crate::tcp::state::SharedSocket;
use http::{HeaderValue, Version};
use std::any::Any;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpStream;

/// Client side of a connection, with the header values derived from it. They are built once, not per request.
#[derive(Debug)]
pub struct Peer {
    /// Address of the client.
    pub address: SocketAddr,
    /// IP address of the client, for `X-Forwarded-For`.
    pub ip: HeaderValue,
    /// Set if the client uses TLS.
    pub tls: bool,
    /// Timers that earlier exchanges no longer need.
    pub timers: SpareTimers,
    /// Headers of this client that are trusted.
    pub trust: Trust,
    /// Socket of the connection. Set once an HTTP/1 request had a body or was followed by more bytes or FIN.
    socket: OnceLock<Arc<SharedSocket>>,
    /// Maximum time between the client's last data and its FIN to count as a half-close.
    pub(crate) half_close: Duration,
    /// Unread bytes, over HTTP/2.
    unread: OnceLock<Arc<UnreadFrames>>,
    /// Interim responses to be written before a response, once there were any.
    interims: OnceLock<Box<Interims>>,
    /// Dedicated port of a workload that the client connected to.
    pub(crate) port: Option<Arc<OwnPort>>,
    /// Share of the connection in the limit for all clients.
    pub(crate) permit: Option<Arc<ConnectionPermit>>,
    /// Activator that relays the requests of this client; `None` if the client is connected directly.
    via: Option<Arc<Peer>>,
}

/// Identity of a workload's port, as known to the code that bound it.
pub type PortIdentity = Arc<dyn Any + Send + Sync>;

/// A workload's dedicated port, shared by the connections to it.
#[derive(Debug)]
pub(crate) struct OwnPort {
    pub(crate) identity: PortIdentity,
    /// Clients must reconnect, because new connections are routed elsewhere.
    pub(crate) must_reconnect: AtomicBool,
}

impl OwnPort {
    pub(crate) fn new(identity: PortIdentity) -> Arc<Self> {
        Arc::new(Self { identity, must_reconnect: AtomicBool::new(false) })
    }
}

/// Trust in a peer's headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Headers that choose a revision (`Knative-Serving-*`) are trusted.
    pub revision: bool,
    /// Forwarding headers (`Forwarded`, `X-Forwarded-For`, `X-Forwarded-Proto`) are trusted.
    pub forwarded: bool,
}

impl Peer {
    /// Creates a peer from the remote address of an accepted connection. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn new(address: SocketAddr, trust: Trust, tls: bool) -> Self {
        let (timers, socket, unread, interims) = Default::default();
        let (half_close, port, permit, via) = (Duration::ZERO, None, None, None);
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let ip = HeaderValue::try_from(address.ip().to_string()).unwrap_or(HeaderValue::from_static("unknown"));
        Self { address, ip, tls, timers, trust, socket, half_close, unread, interims, port, permit, via }
    }

    /// Returns a peer for a client whose requests this peer, an activator, relays.
    pub fn relaying(self: &Arc<Self>, client: SocketAddr, trust: Trust, tls: bool) -> Arc<Self> {
        Arc::new(Self { port: self.port.clone(), via: Some(Arc::clone(self)), ..Self::new(client, trust, tls) })
    }

    fn connection_owner(&self) -> &Self {
        self.via.as_deref().unwrap_or(self)
    }

    /// Returns the identity of the workload's dedicated port that the client connected to, if there is one and it is a
    /// `T`.
    pub fn port<T: Any>(&self) -> Option<&T> {
        self.port.as_ref()?.identity.downcast_ref()
    }

    /// Counts the connection to a workload, because it carries one of its requests. The workload's number is not zero.
    ///
    /// # Errors
    /// The limit is reached, and no workload or client has more connections than those of this request.
    pub fn count_to_workload(&self, workload: u64) -> Result<(), ProxyError> {
        self.connection_owner().permit.as_ref().map_or(Ok(()), |permit| permit.count_to_workload(workload))
    }

    /// Returns the counters of unread bodies, for HTTP/2 only.
    pub(crate) fn unread_frames(&self) -> &Arc<UnreadFrames> {
        self.unread.get_or_init(Arc::default)
    }

    /// Returns the interim responses for the client, which uses HTTP/1.1.
    pub(crate) fn interims(&self) -> &Interims {
        self.connection_owner().interims.get_or_init(Box::default)
    }

    /// Returns the interim responses for the client, if there were any.
    pub(crate) fn existing_interims(&self) -> Option<&Interims> {
        self.interims.get().map(Box::as_ref)
    }

    /// Returns the scheme of a URL for the connection.
    pub fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// Watches the client of a request that waits while its body is unread.
    pub fn disconnect(&self, version: Version, body: &RequestBody) -> Option<Disconnect> {
        let is_unread = version < Version::HTTP_2 && !body.is_empty();
        is_unread.then(|| self.connection_owner().watch()).flatten()
    }

    /// Watches the client while its connection, whose socket is shared, is not read.
    pub(crate) fn watch(&self) -> Option<Disconnect> {
        Some(Disconnect::new(self.socket.get()?.clone(), self.half_close))
    }

    /// Reports whether the client has gone. The caller has read a FIN from its shared socket.
    pub(crate) fn has_left(&self) -> bool {
        self.socket.get().is_none_or(|socket| socket.has_left(self.half_close))
    }

    /// Shares the socket, so that it can be inspected while a body is unread.
    ///
    /// # Safety
    /// The socket is that of this client's connection. Its owner calls [`Peer::close_socket`] before it closes the
    /// socket.
    pub(crate) unsafe fn share_socket(&self, socket: &TcpStream) {
        // SAFETY: guaranteed by the caller.
        self.socket.get_or_init(|| Arc::new(unsafe { SharedSocket::new(socket) }));
    }

    /// Ends the sharing, because the socket is about to be closed.
    pub(crate) fn close_socket(&self) {
        self.socket.get().into_iter().for_each(|socket| socket.close());
    }
}
