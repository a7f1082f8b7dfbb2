//! The bound on a request's head: it runs from the head's first byte, not from the end of the request before.
//!
//! hyper's own timer for this starts as soon as it waits for a head, and so would close connections that are merely kept
//! alive; clients would then lose requests that cross the close on the wire. It asks a [`Timer`] for that timer, though, and
//! polls it only after it has tried to read. So [`HeadTimer`] gives out timers that stand still until something was read.
//! A connection that has said nothing yet is bounded before ([`super::connection`]).

use super::HEAD_TIMEOUT;
use hyper::rt::{Read, ReadBufCursor, Sleep, Timer, Write};
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// A client's socket that counts how often it was read from.
pub(super) struct CountedIo {
    io: TokioIo<TcpStream>,
    reads: Arc<AtomicU32>,
}

/// Makes timers that start with the next read of the socket.
#[derive(Clone)]
pub(super) struct HeadTimer {
    reads: Arc<AtomicU32>,
}

/// Ready [`HEAD_TIMEOUT`] after the first read since it was made.
struct HeadSleep {
    reads: Arc<AtomicU32>,
    reads_before: u32,
    running: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl CountedIo {
    /// The socket, and the timers that follow it.
    pub(super) fn new(stream: TcpStream) -> (Self, HeadTimer) {
        let reads = Arc::new(AtomicU32::new(0));
        (Self { io: TokioIo::new(stream), reads: reads.clone() }, HeadTimer { reads })
    }
}

impl Timer for HeadTimer {
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Sleep>> {
        let reads_before = self.reads.load(Ordering::Relaxed);
        Box::pin(HeadSleep { reads: self.reads.clone(), reads_before, running: None })
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
        if self.running.is_none() && self.reads.load(Ordering::Relaxed) == self.reads_before {
            return Poll::Pending; // Nobody need be woken: the next read comes with a poll of its own.
        }
        self.running.get_or_insert_with(|| Box::pin(tokio::time::sleep(HEAD_TIMEOUT))).as_mut().poll(cx)
    }
}

impl Sleep for HeadSleep {}

impl Read for CountedIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let read = std::task::ready!(Pin::new(&mut self.io).poll_read(cx, buffer));
        self.reads.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(read)
    }
}

impl Write for CountedIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
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
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }
}
