//! Connecting to a pod, and noticing that it is gone.
//!
//! # The rule
//!
//! A pod's kernel answers a connect, and acknowledges what it was sent, within a round trip, however slow the program behind
//! it is. One that does not for [`silence_max`] is taken for gone: the kernel breaks the connection off (`ETIMEDOUT`), and
//! requests go elsewhere or fail at once. Nothing here measures how long an answer takes.
//!
//! # The window
//!
//! TCP's user timeout counts also the time in which the peer acknowledges but has no room, and a program may well pause
//! reading an upload. So it holds only for bytes that surely find room ([`SURE_ROOM`]): once more has been written than that
//! without the peer having taken it, the bound is lifted, until it has.
//!
//! # Not here
//!
//! Looking at what is unacknowledged (`TCP_INFO`) before the kernel gives up: none of the safe interfaces to the kernel
//! that we use offers it. So a pod that vanishes in the middle of a large upload, with no other request on its way to it, is
//! noticed by the revision's time bounds only.

use socket2::{SockRef, TcpKeepalive};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Bounds of what comes out of [`silence_max`]. The upper one is for round trips that were measured wrongly.
const SILENCE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// Round trips that a pod's kernel may take.
const SILENCE_ROUND_TRIPS: u32 = 4;

/// First keep-alive probe on a connection without traffic (upstream's 5 s), and the time until it must be answered.
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes that fit into any kernel's receive buffer beside what is there already: half of the smallest first window in
/// common use (64 KiB).
const SURE_ROOM: usize = 32 * 1024;

/// How long a pod's kernel may be silent, given the round trip to it.
pub(crate) fn silence_max(round_trip: Duration) -> Duration {
    round_trip.saturating_mul(SILENCE_ROUND_TRIPS).clamp(SILENCE.0, SILENCE.1)
}

/// When the peer is known to have taken what was written.
#[derive(Clone, Debug)]
pub(crate) enum Taken {
    /// When something comes back: HTTP/2, whose peers always read.
    OnRead,
    /// When the exchange is over, which the owner says here: HTTP/1.1.
    OnMark(Arc<AtomicBool>),
}

/// A connection to a pod.
#[derive(Debug)]
pub(crate) struct PodStream {
    stream: TcpStream,
    /// From the connect's start to its end.
    pub(crate) round_trip: Duration,
    taken: Taken,
    /// Bytes written that the peer may not have taken.
    pending: usize,
    bounded: bool,
}

impl PodStream {
    /// Connects, within `timeout`.
    ///
    /// # Errors
    /// Refused, unreachable, or not answered in time.
    pub(crate) async fn connect(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let start = Instant::now();
        let stream = tokio::time::timeout(timeout, TcpStream::connect(address)).await.map_err(|_| {
            io::Error::new(io::ErrorKind::TimedOut, format!("connect not answered within {timeout:?}"))
        })??;
        let round_trip = start.elapsed();
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        let mut stream = Self { stream, round_trip, taken: Taken::OnRead, pending: 0, bounded: false };
        stream.set_bounded(true)?;
        Ok(stream)
    }

    /// Has an exchange's end mean that all was taken. Returns the mark to set then.
    pub(crate) fn taken_on_mark(&mut self) -> Arc<AtomicBool> {
        let mark = Arc::new(AtomicBool::new(false));
        self.taken = Taken::OnMark(mark.clone());
        mark
    }

    fn set_bounded(&mut self, bounded: bool) -> io::Result<()> {
        self.bounded = bounded;
        #[cfg(target_os = "linux")]
        SockRef::from(&self.stream).set_tcp_user_timeout(bounded.then(|| silence_max(self.round_trip)))?;
        Ok(())
    }

    fn all_taken(&mut self) -> io::Result<()> {
        self.pending = 0;
        if self.bounded { Ok(()) } else { self.set_bounded(true) }
    }

    fn before_write(&mut self) -> io::Result<()> {
        match &self.taken {
            Taken::OnMark(mark) if mark.swap(false, Ordering::Relaxed) => self.all_taken(),
            _ => Ok(()),
        }
    }

    fn after_write(&mut self, written: &Poll<io::Result<usize>>) -> io::Result<()> {
        if let Poll::Ready(Ok(n)) = written {
            self.pending = self.pending.saturating_add(*n);
            if self.bounded && self.pending > SURE_ROOM {
                return self.set_bounded(false);
            }
        }
        Ok(())
    }
}

impl AsyncRead for PodStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if matches!(self.taken, Taken::OnRead) && buffer.filled().len() > before {
            self.all_taken()?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PodStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.before_write()?;
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.after_write(&written)?;
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.before_write()?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.after_write(&written)?;
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_kernel_has_four_round_trips_and_half_a_second() {
        let ms = Duration::from_millis;
        for (round_trip, expected) in [(0, 500), (125, 500), (200, 800), (3_000, 5_000)] {
            assert_eq!(silence_max(ms(round_trip)), ms(expected), "{round_trip} ms");
        }
    }
}
