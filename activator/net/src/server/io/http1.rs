//! A client's HTTP/1 connection, as hyper reads and writes it. Every received byte passes the check of its framing
//! first ([`crate::server::heads::framing`]).
//!
//! If the check lengthens the bytes, they may not fit into hyper's buffer. The rest waits here for the next read: at
//! most twice the size of one read.
//!
//! hyper's output is written unchanged. Interim responses are inserted between its writes ([`crate::client::interim`]).
//!
//! # Close
//!
//! hyper shuts the connection down after a complete response. It drops the connection if the response failed or timed
//! out, or the connection is cut. An HTTP/1.0 client without a length takes the end of the connection for the end of
//! its response, so in those cases the connection is reset.
//!
//! # Disconnects
//!
//! During a request hyper keeps reading, and so notices the FIN of a client that has gone, unless it has read bytes
//! after the request: the next request, or an extra line end. Then the kernel is asked
//! ([`crate::client::disconnects`]). It is also asked after the FIN of a client that may only have half-closed.

use crate::client::disconnects::Disconnect;
use crate::client::peer::Peer;
use crate::relay::end::reset;
use crate::server::heads::framing::Framing;
use crate::server::io::bounded_writes::{BoundedWrites, ClientStream};
use crate::server::io::linger::Linger;
use crate::server::memory::connection_memory::ConnectionMemory;
use crate::server::progress::Progress;
use bytes::Bytes;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of bytes per read at the start of a head, or within one. So at most as many bytes of a waiting body
/// lie in the parser's buffer, which grew with earlier bodies.
const HEAD_PART: usize = 8192;

/// A client's connection whose framing is checked.
pub(crate) struct ClientIo<S: ClientStream> {
    io: BoundedWrites<S>,
    framing: Framing,
    /// Bytes that did not fit into the last read.
    left: Bytes,
    progress: Arc<Progress>,
    client: Arc<Peer>,
    /// Detector of a disconnect while hyper has read bytes after the current request.
    disconnect: Option<Disconnect>,
    linger: Linger,
    memory: ConnectionMemory,
    /// The client has half-closed after a complete request, and waits for the response.
    is_half_closed: bool,
    /// hyper has written everything, and shut the connection down.
    is_shut_down: bool,
}

impl<S: ClientStream> ClientIo<S> {
    pub(crate) fn new(io: BoundedWrites<S>, client: Arc<Peer>, progress: Arc<Progress>) -> Self {
        let memory = ConnectionMemory::new(progress.permit.clone());
        let (framing, linger) = Default::default();
        let (left, disconnect, is_half_closed, is_shut_down) = (Bytes::new(), None, false, false);
        Self { io, framing, left, progress, client, disconnect, linger, memory, is_half_closed, is_shut_down }
    }

    /// Checks the framing of received bytes. Returns their replacement, if they must be changed.
    fn follow(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        if self.progress.permit.is_tunnel() {
            return None;
        }
        let is_whole = self.framing.heads > 0 && self.framing.is_between();
        let under_way = is_whole && self.progress.permit.idle_since().is_none();
        let replaced = self.framing.follow(bytes);
        self.progress.heads.store(self.framing.heads, Ordering::Relaxed);
        if self.framing.had_body {
            self.share_socket();
        }
        if self.framing.has_pipelined_bytes || under_way && !bytes.is_empty() {
            self.disconnect = self.share_socket().watch();
        }
        replaced
    }

    fn share_socket(&self) -> &Peer {
        // SAFETY: the socket is that of `io`, which is dropped with this, after `drop` has called `close_socket`.
        unsafe { self.client.share_socket(self.io.stream.socket()) };
        &self.client
    }

    /// Reports whether an HTTP exchange is in progress.
    fn is_under_way(&self) -> bool {
        !self.progress.permit.is_tunnel() && self.progress.permit.idle_since().is_none()
    }

    /// Records the client's FIN, which hyper gets once its requests are answered. From now on the kernel is asked
    /// whether the client has gone. Returns false if the FIN is not a half-close.
    fn half_close(&mut self) -> bool {
        let is_whole = self.framing.heads > 0 && self.framing.is_between();
        self.is_half_closed = is_whole && self.is_under_way() && !self.share_socket().has_left();
        if self.is_half_closed {
            self.disconnect = self.client.watch();
        }
        self.is_half_closed
    }

    /// Reports whether the client has gone while hyper does not read. A tunnel watches its client itself.
    fn has_gone(&mut self, cx: &mut Context<'_>) -> bool {
        let watched = self.disconnect.as_mut().filter(|_| !self.progress.permit.is_tunnel());
        watched.is_some_and(|disconnect| disconnect.poll_gone(cx).is_ready())
    }

    /// Writes interim responses: the rest of a started one and, if `may_begin` is set, the next.
    fn poll_interims(&mut self, cx: &mut Context<'_>, may_begin: bool) -> Poll<io::Result<()>> {
        match self.client.existing_interims() {
            None => Poll::Ready(Ok(())),
            Some(interims) => {
                let io = &mut self.io;
                interims.poll_write(may_begin, |bytes| io.poll_write(cx, &[IoSlice::new(bytes)]))
            }
        }
    }

    /// Passes as many of the left bytes to hyper as fit.
    fn pass_left(&mut self, buffer: &mut ReadBuf<'_>) {
        let fits = self.left.len().min(buffer.remaining());
        buffer.put_slice(&self.left.split_to(fits));
    }
}

/// Ends the sharing of the socket. An incomplete response must not look complete, so it is reset.
impl<S: ClientStream> Drop for ClientIo<S> {
    fn drop(&mut self) {
        if self.progress.closes_answer.load(Ordering::Relaxed) && !self.is_shut_down {
            reset(self.io.stream.socket());
        }
        self.client.close_socket();
    }
}

impl<S: ClientStream> AsyncRead for ClientIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.is_half_closed {
            // hyper reads again when the exchange is over.
            return if self.is_under_way() { Poll::Pending } else { Poll::Ready(Ok(())) };
        }
        if self.left.is_empty() {
            self.disconnect = None; // hyper is reading.
            let before = buffer.filled().len();
            let is_http = !self.progress.permit.is_tunnel();
            if buffer.remaining() > HEAD_PART && self.framing.is_in_head() && is_http {
                let mut part = ReadBuf::new(buffer.initialize_unfilled_to(HEAD_PART));
                ready!(Pin::new(&mut self.io.stream).poll_read(cx, &mut part))?;
                let read = part.filled().len();
                buffer.advance(read);
            } else {
                ready!(Pin::new(&mut self.io.stream).poll_read(cx, buffer))?;
            }
            if buffer.filled().len() == before && self.half_close() {
                return Poll::Pending;
            }
            if let Some(replaced) = self.follow(&buffer.filled()[before..]) {
                buffer.set_filled(before);
                self.left = replaced.into();
                self.pass_left(buffer);
            }
            let unfinished = self.framing.unfinished as u64;
            self.memory.set(unfinished)?;
        } else {
            self.pass_left(buffer);
        }
        self.progress.reads.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: ClientStream> AsyncWrite for ClientIo<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes at each poll, even while it does not read.
        if self.has_gone(cx) {
            return Poll::Ready(Err(io::Error::new(ErrorKind::ConnectionAborted, "the client has disconnected")));
        }
        // hyper has written all that it has.
        ready!(self.poll_interims(cx, true))?;
        Pin::new(&mut self.io.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_shut_down = true; // hyper has flushed before.
        let Self { io, framing, progress, linger, .. } = &mut *self;
        // A tunnel only ends one of its directions.
        let may_send = !framing.is_between() && !progress.permit.is_tunnel();
        linger.poll_shutdown(&mut io.stream, cx, may_send)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_interims(cx, false))?;
        self.io.poll_write(cx, slices)
    }
}
