//! Noticing that a client has vanished: its machine died, or the way to it is gone, and no packet says so.
//!
//! Only the kernel asks, and nothing is written for it. A connection on which nothing is under way is asked by
//! keep-alive. While sent bytes are unacknowledged keep-alive is silent, and TCP's user timeout bounds the time for them.
//! Both are set on the listener, whose connections inherit them.
//!
//! The user timeout holds only for bytes that surely find room ([`UserTimeout`]). Meanwhile the revision's own timeout
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

/// When a client that says nothing is asked whether it is there, by its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// After so long without a packet, and then again: whole seconds, as the kernel has it.
    pub every: Duration,
    /// After so many questions without an answer it is gone.
    pub questions: u32,
}

impl KeepAlive {
    /// Has it hold for every connection that `listener` accepts.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub(super) fn set(&self, listener: &impl AsFd) -> io::Result<()> {
        let socket = SockRef::from(listener);
        let asking = TcpKeepalive::new().with_time(self.every).with_interval(self.every).with_retries(self.questions);
        socket.set_tcp_keepalive(&asking)?;
        socket.set_tcp_user_timeout(Some(self.gone_after()))
    }

    /// How long a client may be silent.
    pub(super) fn gone_after(&self) -> Duration {
        self.every.saturating_mul(self.questions.saturating_add(1))
    }
}

/// A client's connection whose writes are bounded in time while they surely find room.
pub(super) struct BoundedWrites<S> {
    stream: S,
    timeout: UserTimeout,
}

impl<S: ClientStream> BoundedWrites<S> {
    /// A connection that was accepted with this.
    pub(super) fn new(stream: S, keepalive: Option<KeepAlive>) -> Self {
        Self { stream, timeout: UserTimeout::new(keepalive.map(|keepalive| keepalive.gone_after())) }
    }

    /// So many bytes are to be written.
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
