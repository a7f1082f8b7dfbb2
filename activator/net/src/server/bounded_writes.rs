//! Detects a client that vanished without a packet: its machine died, or the route to it is gone.
//!
//! Only the kernel probes, and nothing is written. Keep-alive probes a connection without traffic. While sent bytes are
//! unacknowledged, keep-alive does not probe, and TCP's user timeout bounds the time. Both are set on the listener, and
//! its connections inherit them.
//!
//! The user timeout is active only for bytes that surely fit ([`UserTimeout`]). Otherwise the revision's own timeout
//! bounds the exchange.

use super::client_io::ClientStream;
use crate::tcp::user_timeout::UserTimeout;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Keep-alive settings for silent clients. The kernel sends the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Time without a packet before the first probe, and between probes. The kernel uses whole seconds.
    pub every: Duration,
    /// Number of unanswered probes after which the client is gone.
    pub questions: u32,
}

impl KeepAlive {
    /// Applies the settings to every connection that `listener` accepts.
    ///
    /// # Errors
    /// The kernel rejects the settings.
    pub(super) fn set(&self, listener: &impl AsFd) -> io::Result<()> {
        let socket = SockRef::from(listener);
        let asking = TcpKeepalive::new().with_time(self.every).with_interval(self.every).with_retries(self.questions);
        socket.set_tcp_keepalive(&asking)?;
        socket.set_tcp_user_timeout(Some(self.gone_after()))
    }

    /// Returns the maximum silence of a client.
    pub(super) fn gone_after(&self) -> Duration {
        self.every.saturating_mul(self.questions.saturating_add(1))
    }
}

/// A client's connection whose writes have a timeout while they surely fit.
pub(super) struct BoundedWrites<S> {
    stream: S,
    timeout: UserTimeout,
}

impl<S: ClientStream> BoundedWrites<S> {
    /// Wraps an accepted connection.
    pub(super) fn new(stream: S, keepalive: Option<KeepAlive>) -> Self {
        Self { stream, timeout: UserTimeout::new(keepalive.map(|keepalive| keepalive.gone_after())) }
    }

    /// Adjusts the timeout before a write of `length` bytes.
    fn before_write(&mut self, length: usize) {
        self.timeout.before_write(self.stream.socket(), length);
    }

    fn after_write(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(n)) = written {
            self.timeout.wrote(*n);
        }
    }
}

impl<S: ClientStream> ClientStream for BoundedWrites<S> {
    fn socket(&self) -> &TcpStream {
        self.stream.socket()
    }
}

impl<S: ClientStream> AsyncRead for BoundedWrites<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: ClientStream> AsyncWrite for BoundedWrites<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.before_write(bytes.len());
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.after_write(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.before_write(slices.iter().map(|slice| slice.len()).sum());
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.after_write(&written);
        written
    }
}
