//! A client's connection over HTTP/1, as hyper reads and writes it: every byte that comes passes the check of its
//! framing first ([`super::framing`]).
//!
//! What the check makes longer may have no room where hyper reads it to. The rest waits here for the next read: at most
//! twice what was read at once.
//!
//! What hyper writes goes through as it is. Between its writes go interim responses ([`crate::client::interim`]).
//!
//! # The end
//!
//! hyper shuts the connection down once all of an answer is written, and drops it where that broke off, its time is
//! over, or the connection is cut. A client of HTTP/1.0 that was told no length takes the end of the connection for
//! that of its answer, so that it gets a reset in those cases.
//!
//! # Clients that go away
//!
//! While a request is under way hyper reads on, and so meets the end of a client that has gone, unless it has read
//! something behind the request: the next one, or a line end too many. Then the kernel is asked
//! ([`crate::client::disconnects`]), and so it is after the end of a client that may only have half-closed.

use super::framing::Framing;
use super::kept::Kept;
use super::linger::Linger;
use super::progress::Progress;
use crate::client::disconnects::Disconnect;
use crate::client::peer::Peer;
use crate::relay::end::reset;
use crate::tcp::coalesced_write;
use bytes::Bytes;
use common_runtime::tls::server::TlsStream;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Most bytes that are read at once where a head begins or goes on. Of a body that waits, no more than that lies in the
/// parser's buffer, which has grown with the bodies before it.
const HEAD_PART: usize = 8192;

/// A client's connection, in plain or encrypted.
pub(super) trait ClientStream: AsyncRead + AsyncWrite + Unpin {
    /// What carries it.
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

/// A client's connection whose framing is followed.
pub(super) struct ClientIo<S: ClientStream> {
    stream: S,
    framing: Framing,
    /// What the last read had no room for.
    left: Bytes,
    progress: Arc<Progress>,
    client: Arc<Peer>,
    /// Tells that the client has gone, while hyper has read something behind the request that is under way.
    disconnect: Option<Disconnect>,
    linger: Linger,
    kept: Kept,
    /// The client has ended its side behind a whole request, and waits for the answer.
    is_half_closed: bool,
    /// hyper has written all that it had to, and shut it down.
    is_shut_down: bool,
}

impl<S: ClientStream> ClientIo<S> {
    /// The connection of `client`.
    pub(super) fn new(stream: S, client: Arc<Peer>, progress: Arc<Progress>) -> Self {
        let kept = Kept::new(client.memory(), (**progress).clone());
        let (framing, linger) = (Framing::default(), Linger::default());
        let (left, disconnect, is_half_closed, is_shut_down) = (Bytes::new(), None, false, false);
        Self { stream, framing, left, progress, client, disconnect, linger, kept, is_half_closed, is_shut_down }
    }

    /// What takes the place of these bytes, if anything does.
    fn follow(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        if self.progress.is_tunnel() {
            return None;
        }
        let is_whole = self.framing.heads() > 0 && self.framing.is_between();
        let under_way = is_whole && self.progress.idle_since().is_none();
        let replaced = self.framing.follow(bytes);
        self.progress.set_heads(self.framing.heads());
        if self.framing.had_body() {
            self.share_socket();
        }
        if self.framing.is_ahead() || under_way && !bytes.is_empty() {
            self.disconnect = self.share_socket().watch();
        }
        replaced
    }

    /// Lets others look at the socket.
    fn share_socket(&self) -> &Peer {
        // SAFETY: the socket is `stream`'s, and `stream` is dropped with this, after `drop` has called `close_socket`.
        unsafe { self.client.share_socket(self.stream.socket()) };
        &self.client
    }

    /// Returns whether an exchange of HTTP is under way.
    fn is_under_way(&self) -> bool {
        !self.progress.is_tunnel() && self.progress.idle_since().is_none()
    }

    /// Notes the end of the client's side, of which hyper learns once its requests are answered. From now on the kernel
    /// is asked whether the client has gone.
    fn half_close(&mut self) -> bool {
        let is_whole = self.framing.heads() > 0 && self.framing.is_between();
        self.is_half_closed = is_whole && self.is_under_way() && !self.share_socket().has_left();
        if self.is_half_closed {
            self.disconnect = self.client.watch();
        }
        self.is_half_closed
    }

    /// Whether the client has gone while hyper does not read. A tunnel is another's to look after.
    fn has_gone(&mut self, cx: &Context<'_>) -> bool {
        let watched = self.disconnect.as_mut().filter(|_| !self.progress.is_tunnel());
        watched.is_some_and(|disconnect| disconnect.poll_gone(cx).is_ready())
    }

    /// Writes interim responses: what has begun of one, and where it `may_begin` the next.
    fn poll_interims(&mut self, cx: &mut Context<'_>, may_begin: bool) -> Poll<io::Result<()>> {
        match self.client.had_interims() {
            None => Poll::Ready(Ok(())),
            Some(interims) => interims.poll_write(&mut self.stream, cx, may_begin),
        }
    }

    /// Hands on as much of what is left as there is room for.
    fn hand_on(&mut self, buffer: &mut ReadBuf<'_>) {
        let fits = self.left.len().min(buffer.remaining());
        buffer.put_slice(&self.left.split_to(fits));
    }
}

/// A socket that is closed is nobody's to look at. What breaks off must not look whole.
impl<S: ClientStream> Drop for ClientIo<S> {
    fn drop(&mut self) {
        if self.progress.closes_answer() && !self.is_shut_down {
            reset(self.stream.socket());
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
            self.disconnect = None; // hyper reads.
            let before = buffer.filled().len();
            let is_http = !self.progress.is_tunnel();
            if buffer.remaining() > HEAD_PART && self.framing.is_in_head() && is_http {
                let mut part = ReadBuf::new(buffer.initialize_unfilled_to(HEAD_PART));
                ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
                let read = part.filled().len();
                buffer.advance(read);
            } else {
                ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
            }
            if buffer.filled().len() == before && self.half_close() {
                return Poll::Pending;
            }
            if let Some(replaced) = self.follow(&buffer.filled()[before..]) {
                buffer.set_filled(before);
                self.left = replaced.into();
                self.hand_on(buffer);
            }
            let unfinished = self.framing.unfinished() as u64;
            self.kept.set(unfinished)?;
        } else {
            self.hand_on(buffer);
        }
        self.progress.read();
        Poll::Ready(Ok(()))
    }
}

impl<S: ClientStream> AsyncWrite for ClientIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_interims(cx, false))?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes in each of its turns, also while it does not read.
        if self.has_gone(cx) {
            return Poll::Ready(Err(io::Error::new(ErrorKind::ConnectionAborted, "the client has gone")));
        }
        // hyper has written all that it has.
        ready!(self.poll_interims(cx, true))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_shut_down = true; // hyper has flushed before.
        let Self { stream, framing, progress, linger, .. } = &mut *self;
        // A tunnel only ends one of its directions.
        let may_send = !framing.is_between() && !progress.is_tunnel();
        linger.poll_shutdown(stream, cx, may_send)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_interims(cx, false))?;
        coalesced_write::poll_write(Pin::new(&mut self.stream), cx, slices)
    }
}
