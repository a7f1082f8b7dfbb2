//! A connection to a pod, which detects that the pod is gone.
//!
//! # The rule
//!
//! A pod's kernel answers a connect and acknowledges bytes within a round trip, however slow the pod's program is. A
//! pod whose kernel does neither for [`silence_max`] is considered gone: the connection is closed, and requests go
//! elsewhere or fail at once. The duration of a response is not measured. [`crate::liveness`] monitors unacknowledged
//! bytes.
//!
//! # Connections without traffic
//!
//! Nothing is unacknowledged on an idle tunnel, or between two parts of a body. Keep-alive sends a probe after 5 s, and
//! another a second later. If that is not answered within a second, the connection ends. Lost bytes are retransmitted,
//! a lost probe is not, so one unanswered probe proves nothing.
//!
//! # TCP user timeout
//!
//! The timeout is set only if [`crate::liveness`] does not monitor the connection: for probes to another port. With it,
//! Linux ends a connection at the first unanswered probe. Without it, Linux would retransmit for a minute or two after
//! a connection was given up and closed, so such a connection is reset.
//!
//! The timeout also runs while the peer acknowledges but has no room, and a program may pause reading an upload. So it
//! is active only for bytes that surely fit ([`SURE_ROOM`]). If more was written that the peer has not taken, the
//! timeout is switched off until it has.

use crate::liveness::silence::silence_max;
use crate::liveness::{KEEPALIVE, Link, Liveness, Tracked};
use crate::relay::end::TcpEnd;
use crate::tcp::coalesced_write;
use crate::tcp::connect::Connected;
use crate::tcp::rebind::Rebindable;
use crate::tcp::user_timeout::{SURE_ROOM, UserTimeout};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Time until a keep-alive probe must be answered, and their number: more than one, because a packet may be lost.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_RETRIES: u32 = 2;

/// A connection to a pod.
#[derive(Debug)]
pub(crate) struct PodStream {
    stream: Rebindable,
    /// Time from the connect's start to its answer, as measured by the kernel.
    pub(crate) round_trip: Duration,
    /// Received bytes show that the peer has taken everything written: HTTP/2, whose peers always read.
    read_says_taken: bool,
    /// The owner reported that everything was taken. Applied at the next write, because the timeout is not needed
    /// before.
    told_taken: bool,
    /// Number of written bytes that the peer may not have taken.
    pending: usize,
    /// The user timeout is set.
    bounded: bool,
    /// Liveness tracking, which replaces the user timeout.
    tracked: Option<Arc<Tracked>>,
}

impl PodStream {
    /// Wraps a new connection.
    ///
    /// # Errors
    /// The socket is no longer connected.
    pub(crate) fn new(connected: Connected) -> io::Result<Self> {
        let Connected { stream, round_trip } = connected;
        stream.set_nodelay(true)?;
        let keepalive =
            TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_RETRIES);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        let mut stream = Self {
            stream: Rebindable::new(stream),
            round_trip,
            read_says_taken: true,
            told_taken: false,
            pending: 0,
            bounded: false,
            tracked: None,
        };
        stream.set_bounded(true)?;
        Ok(stream)
    }

    /// Tracks the stream as a connection to the address of `link`.
    pub(crate) fn track(&mut self, liveness: &Liveness, link: &Arc<Link>) {
        // SAFETY: the owner of the stream, this or the `TcpEnd` that it becomes, closes `tracked` before its own fields
        // are dropped. It moves the stream to another worker only while no other thread uses it (`before_write`).
        self.tracked = self.stream.get().map(|stream| unsafe { liveness.open(stream, link) }).ok();
        if self.tracked.is_some() {
            // An error means that the socket is no longer connected. The next read or write reports that.
            let _ = self.set_bounded(false);
        }
    }

    /// Converts the stream to a byte stream. Nothing must have been sent.
    ///
    /// # Errors
    /// The socket is no longer connected.
    pub(crate) fn into_end(mut self) -> io::Result<TcpEnd> {
        let stream = self.stream.take()?;
        let bound = self.tracked.is_none().then(|| silence_max(self.round_trip));
        Ok(TcpEnd::new(stream, UserTimeout::new(bound), self.tracked.take()))
    }

    /// Returns the pod's address.
    ///
    /// # Errors
    /// The socket is no longer connected.
    pub(crate) fn peer_address(&self) -> io::Result<SocketAddr> {
        self.stream.get()?.peer_addr()
    }

    /// Returns the liveness tracking.
    pub(crate) fn tracked(&self) -> Option<Arc<Tracked>> {
        self.tracked.clone()
    }

    /// From now on, only [`PodStream::taken`] reports that the peer has taken everything written: HTTP/1.1.
    pub(crate) fn takes_until_told(&mut self) {
        self.read_says_taken = false;
    }

    /// Records a response, which implies that the peer has taken everything written.
    pub(crate) fn taken(&mut self) {
        self.told_taken = true;
    }

    fn set_bounded(&mut self, bounded: bool) -> io::Result<()> {
        self.bounded = bounded;
        #[cfg(target_os = "linux")]
        SockRef::from(self.stream.get()?).set_tcp_user_timeout(bounded.then(|| silence_max(self.round_trip)))?;
        Ok(())
    }

    fn all_taken(&mut self) -> io::Result<()> {
        self.pending = 0;
        if self.bounded || self.tracked.is_some() { Ok(()) } else { self.set_bounded(true) }
    }

    fn before_write(&mut self) -> io::Result<()> {
        if !self.stream.is_here() {
            match &self.tracked {
                Some(tracked) => tracked.moved(|| self.stream.rebind())?,
                None => self.stream.rebind()?,
            }
        }
        if std::mem::take(&mut self.told_taken) { self.all_taken() } else { Ok(()) }
    }

    fn after_write(&mut self, written: &Poll<io::Result<usize>>) -> io::Result<()> {
        if let Poll::Ready(Ok(n)) = written {
            if let Some(tracked) = &self.tracked {
                tracked.wrote();
            }
            self.pending = self.pending.saturating_add(*n);
            if self.bounded && self.pending > SURE_ROOM {
                return self.set_bounded(false);
            }
        }
        Ok(())
    }
}

/// Closes the connection for its liveness tracking too.
impl Drop for PodStream {
    fn drop(&mut self) {
        if let Some(tracked) = &self.tracked {
            tracked.close();
        }
    }
}

impl AsyncRead for PodStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = std::task::ready!(Pin::new(self.stream.get_mut()?).poll_read(cx, buffer));
        if read.is_err() || buffer.filled().len() == before {
            // A connection that we closed ourselves must not look like the pod's end.
            let broken = self.tracked.as_ref().and_then(|tracked| tracked.why_broken());
            return Poll::Ready(broken.map_or(read, Err));
        }
        if let Some(tracked) = &self.tracked {
            tracked.read();
        }
        if self.read_says_taken {
            self.all_taken()?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PodStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.before_write()?;
        let written = Pin::new(self.stream.get_mut()?).poll_write(cx, bytes);
        self.after_write(&written)?;
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.before_write()?;
        let written = coalesced_write::poll_write(Pin::new(self.stream.get_mut()?), cx, slices);
        self.after_write(&written)?;
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.get().is_ok_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()?).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = std::task::ready!(Pin::new(self.stream.get_mut()?).poll_shutdown(cx));
        if let (Ok(()), Some(tracked)) = (&ended, &self.tracked) {
            tracked.ended();
        }
        Poll::Ready(ended)
    }
}
