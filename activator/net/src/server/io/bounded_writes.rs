//! Detects a client that vanished without a packet: its machine died, or the route to it is gone.
//!
//! Only the kernel probes, and nothing is written. Keep-alive probes a connection without traffic. While sent bytes are
//! unacknowledged, keep-alive does not probe, and TCP's user timeout bounds the time. Both are set on the listener, and
//! its connections inherit them.
//!
//! The user timeout is active only for bytes that surely fit ([`UserTimeout`]). Otherwise the revision's own timeout
//! bounds the exchange.

use crate::tcp::coalesced_write;
use crate::tcp::user_timeout::UserTimeout;
use common_runtime::tls::server::TlsStream;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Keep-alive settings for silent clients. The kernel sends the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Time without a packet before the first probe, and between probes. The kernel uses whole seconds.
    pub every: Duration,
    /// Number of unanswered probes after which the client is gone.
    pub probes: u32,
}

impl KeepAlive {
    /// Applies the settings to every connection that `listener` accepts. An error means that the kernel rejects the
    /// settings.
    pub(crate) fn set(&self, listener: &impl AsFd) -> io::Result<()> {
        let socket = SockRef::from(listener);
        let keepalive = TcpKeepalive::new().with_time(self.every).with_interval(self.every).with_retries(self.probes);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(self.gone_after()))
    }

    /// Returns the maximum silence of a client.
    pub(crate) fn gone_after(&self) -> Duration {
        self.every.saturating_mul(self.probes.saturating_add(1))
    }
}

/// A client's connection, plain or TLS.
pub(crate) trait ClientStream: AsyncRead + AsyncWrite + Unpin {
    fn socket(&self) -> &TcpStream;
}

impl ClientStream for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl ClientStream for TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// A client's connection whose writes have a timeout while they surely fit.
pub(crate) struct BoundedWrites<S> {
    pub(crate) stream: S,
    timeout: UserTimeout,
}

impl<S: ClientStream> BoundedWrites<S> {
    pub(crate) fn new(stream: S, keepalive: Option<KeepAlive>) -> Self {
        Self { stream, timeout: UserTimeout::new(keepalive.map(|keepalive| keepalive.gone_after())) }
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.timeout.before_write(self.stream.socket(), slices.iter().map(|slice| slice.len()).sum());
        let written = coalesced_write::poll_write(Pin::new(&mut self.stream), cx, slices);
        if let Poll::Ready(Ok(length)) = written {
            self.timeout.wrote(length);
        }
        written
    }
}
