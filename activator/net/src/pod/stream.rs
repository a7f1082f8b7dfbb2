//! A connection to a pod, and noticing that the pod is gone.
//!
//! # The rule
//!
//! A pod's kernel answers a connect, and acknowledges what it was sent, within a round trip, however slow the program
//! behind it is. One that does not for [`silence_max`] is taken for gone: the connection is broken off, and requests go
//! elsewhere or fail at once. Nothing here measures how long an answer takes. It is [`crate::liveness`] that looks at
//! what is unacknowledged.
//!
//! # Connections without traffic
//!
//! Nothing is unacknowledged on a tunnel that says nothing, or between two parts of a body. Keep-alive asks after 5 s
//! of that, and again a second later; after another second without an answer the connection is over. Bytes that are
//! lost on the way are sent again, a question is not: one that stays unanswered says nothing.
//!
//! # TCP's user timeout
//!
//! It is set only where [`crate::liveness`] does not look: where the connection is a probe's to another port. With it, Linux ends a connection at the first question that stays unanswered. Without it,
//! Linux would go on with what was broken off for a minute or two after it is closed: so that is reset then.
//!
//! It counts also the time in which the peer acknowledges but has no room, and a program may well pause reading an
//! upload. So it holds only for bytes that surely find room ([`SURE_ROOM`]): once more has been written than that
//! without the peer having taken it, it is lifted, until it has.

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

/// Time until a keep-alive probe must be answered, and how many are sent: more than one, since a packet may be lost.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_RETRIES: u32 = 2;

/// A connection to a pod.
#[derive(Debug)]
pub(crate) struct PodStream {
    stream: Rebindable,
    /// From the connect's start to its answer, as the kernel saw it.
    pub(crate) round_trip: Duration,
    /// What comes back says that the peer has taken all that was written: HTTP/2, whose peers always read.
    read_says_taken: bool,
    /// The owner says so. Heeded with the next write: until then nothing is to be bounded.
    told_taken: bool,
    /// Bytes written that the peer may not have taken.
    pending: usize,
    /// The user timeout is set.
    bounded: bool,
    /// Whoever looks after it, in place of the user timeout.
    tracked: Option<Arc<Tracked>>,
}

impl PodStream {
    /// Takes over what is connected.
    ///
    /// # Errors
    /// It is so no longer.
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

    /// Has it looked after, as one to this address.
    pub(crate) fn track(&mut self, liveness: &Liveness, link: &Arc<Link>) {
        // SAFETY: whoever owns the stream, this or the `TcpEnd` that it becomes, closes what tracks it before its own fields
        // are dropped, and moves the stream to another worker while nobody looks (`before_write`).
        self.tracked = self.stream.get().map(|stream| unsafe { liveness.open(stream, link) }).ok();
        if self.tracked.is_some() {
            // An error says that it is not connected any more, which is told by whoever reads or writes next.
            let _ = self.set_bounded(false);
        }
    }

    /// The same as nothing but bytes, of which none has been sent yet.
    ///
    /// # Errors
    /// It is connected no longer.
    pub(crate) fn into_end(mut self) -> io::Result<TcpEnd> {
        let stream = self.stream.take()?;
        let bound = self.tracked.is_none().then(|| silence_max(self.round_trip));
        Ok(TcpEnd::new(stream, UserTimeout::new(bound), self.tracked.take()))
    }

    /// The pod's end.
    ///
    /// # Errors
    /// It is connected no longer.
    pub(crate) fn peer_address(&self) -> io::Result<SocketAddr> {
        self.stream.get()?.peer_addr()
    }

    /// Whoever looks after it.
    pub(crate) fn tracked(&self) -> Option<Arc<Tracked>> {
        self.tracked.clone()
    }

    /// From now on only [`PodStream::taken`] says that the peer has taken all that was written: HTTP/1.1.
    pub(crate) fn takes_until_told(&mut self) {
        self.read_says_taken = false;
    }

    /// The peer has answered, and is taken to have taken all that was written.
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

/// The connection ends with this, whoever looks after it.
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
            // What we broke off ourselves must not look like the pod's end.
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
