//! The bound on a request's head: it runs from the head's first byte, not from the end of the request before.
//!
//! hyper's own timer for this starts as soon as it waits for a head, and so would close connections that are merely
//! kept alive; clients would then lose requests that cross the close on the wire. It asks a [`Timer`] for that timer,
//! though, and polls it only after it has tried to read. So [`HeadTimer`] gives out timers that stand still until
//! something was read. A connection that has said nothing yet is bounded before ([`super::connection`]).
//!
//! The end of a client's side is told from its going, where that can be done ([`crate::client::disconnects`]).
//!
//! The same timers tell when a head is being read, which is when its raw bytes are looked at ([`super::head_scan`]).

use super::HEAD_TIMEOUT;
use super::head_scan::HeadScan;
use crate::client::disconnects::{ASK, Departure};
use crate::client::peer::Peer;
use crate::tcp::coalesced_write;
use common_runtime::tls::server::TlsStream;
use hyper::rt::{Read, ReadBufCursor, Sleep, Timer, Write};
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes of a head that are looked at in one go.
const PIECE: usize = 8 * 1024;

/// A client's connection, in plain or encrypted.
pub(super) trait ClientIo: AsyncRead + AsyncWrite + Unpin {
    /// What carries it.
    fn socket(&self) -> &TcpStream;
}

impl ClientIo for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl ClientIo for TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// A client's socket that counts how often it was read from, and looks at heads.
pub(super) struct CountedIo<S> {
    io: TokioIo<S>,
    shared: Arc<Shared>,
    /// The head that `scan` belongs to.
    head: u32,
    scan: HeadScan,
    client: Arc<Peer>,
    /// Something was sent since the head that was read last.
    answering: bool,
    /// The client has ended its side in mid-request, and is waited for all the same.
    ended: Option<Departure>,
}

/// Makes timers that start with the next read of the socket.
#[derive(Clone)]
pub(super) struct HeadTimer {
    shared: Arc<Shared>,
}

/// What timers and socket know of each other. All of a connection happens in one task, one after the other.
#[derive(Default)]
struct Shared {
    reads: AtomicU32,
    /// Heads that were waited for so far.
    heads: AtomicU32,
    /// The one that is being read, counted from 1; 0 for none.
    awaited: AtomicU32,
}

/// Ready [`HEAD_TIMEOUT`] after the first read since it was made.
struct HeadSleep {
    shared: Arc<Shared>,
    head: u32,
    reads_before: u32,
    running: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl<S: ClientIo> CountedIo<S> {
    /// The socket, and the timers that follow it.
    pub(super) fn new(stream: S, client: Arc<Peer>) -> (Self, HeadTimer) {
        let shared = Arc::<Shared>::default();
        client.socket.set(stream.socket());
        let io = Self {
            io: TokioIo::new(stream),
            shared: shared.clone(),
            head: 0,
            scan: HeadScan::new(true),
            client,
            answering: false,
            ended: None,
        };
        (io, HeadTimer { shared })
    }

    /// hyper reads on while a request that was read to its end is in hand, and takes the client's end for its going.
    /// Hides it while the client is asked ([`crate::client::disconnects`]); nothing of an answer has been sent yet.
    fn poll_end(&mut self, cx: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if self.ended.is_none() {
            let mut piece = [MaybeUninit::uninit(); PIECE];
            let room = buffer.remaining().min(PIECE);
            let mut read = ReadBuf::uninit(&mut piece[..room]);
            std::task::ready!(AsyncRead::poll_read(Pin::new(self.io.inner_mut()), cx, &mut read))?;
            if !read.filled().is_empty() {
                buffer.put_slice(read.filled());
                return Poll::Ready(Ok(()));
            }
            let asked = Write::poll_write(Pin::new(&mut self.io), cx, ASK);
            if !matches!(asked, Poll::Ready(Ok(n)) if n == ASK.len()) {
                return Poll::Ready(Ok(())); // It takes nothing any more.
            }
            self.ended = self.client.ended();
        }
        match &self.ended {
            Some(departure) if departure.poll_gone(cx).is_pending() => Poll::Pending,
            _ => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }

    /// Reads a piece of a head.
    fn poll_head(&mut self, head: u32, cx: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if self.head != head {
            (self.head, self.scan) = (head, HeadScan::new(head == 1));
            self.ended = None;
        }
        let mut piece = [MaybeUninit::uninit(); PIECE];
        let room = buffer.remaining().min(PIECE);
        let mut read = ReadBuf::uninit(&mut piece[..room]);
        std::task::ready!(AsyncRead::poll_read(Pin::new(self.io.inner_mut()), cx, &mut read))?;
        self.scan.scan(read.filled_mut());
        self.answering &= read.filled().is_empty();
        buffer.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl Timer for HeadTimer {
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Sleep>> {
        let reads_before = self.shared.reads.load(Ordering::Relaxed);
        let head = self.shared.heads.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        self.shared.awaited.store(head, Ordering::Relaxed);
        Box::pin(HeadSleep { shared: self.shared.clone(), head, reads_before, running: None })
    }

    fn sleep_until(&self, _: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(HEAD_TIMEOUT)
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

impl Future for HeadSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.running.is_none() && self.shared.reads.load(Ordering::Relaxed) == self.reads_before {
            return Poll::Pending; // Nobody need be woken: the next read comes with a poll of its own.
        }
        self.running.get_or_insert_with(|| Box::pin(tokio::time::sleep(HEAD_TIMEOUT))).as_mut().poll(cx)
    }
}

impl Sleep for HeadSleep {}

/// hyper drops the timer when the head is complete.
impl Drop for HeadSleep {
    fn drop(&mut self) {
        let _ = self.shared.awaited.compare_exchange(self.head, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Nobody may look at a socket that is closed.
impl<S> Drop for CountedIo<S> {
    fn drop(&mut self) {
        self.client.socket.closing();
    }
}

impl<S: ClientIo> Read for CountedIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let read = match self.shared.awaited.load(Ordering::Relaxed) {
            0 if !self.answering && self.client.has_said_all() => self.poll_end(cx, buffer),
            0 => Read::poll_read(Pin::new(&mut self.io), cx, buffer),
            head => self.poll_head(head, cx, buffer),
        };
        let read = std::task::ready!(read);
        self.shared.reads.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(read)
    }
}

impl<S: ClientIo> Write for CountedIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.answering = true;
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.answering = true;
        coalesced_write::poll_write(Pin::new(self.io.inner_mut()), cx, slices)
    }
}
