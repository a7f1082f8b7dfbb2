//! TCP connection to a pod. It ends if the pod's kernel is silent for too long, however long a response takes.
//!
//! [`crate::liveness`] monitors the unacknowledged bytes of a tracked connection. Other connections, for probes to
//! another port, have a TCP user timeout: without it, Linux would retransmit for a minute or two after a probe was
//! given up. Probes send few bytes, which surely fit, so a pod without room is not taken for a silent one.
//!
//! # Connections without traffic
//!
//! Nothing is unacknowledged on an idle tunnel, or between two parts of a body. Keep-alive sends a probe after 5 s, and
//! another a second later. If that is not answered within a second, the connection ends. Lost bytes are retransmitted,
//! a lost probe is not, so one unanswered probe proves nothing. A user timeout would end the connection at the first.
//!
//! # Workers
//!
//! Each worker has its own I/O driver ([`crate::worker`]), and a socket is registered with the driver of the worker
//! that created it. If another worker uses the connection, it is registered there instead. Otherwise every response
//! would wake two threads.

use super::turn::Turn;
use crate::liveness::silence::silence_max;
use crate::liveness::{KEEPALIVE, Link, Liveness, Tracked};
use crate::relay::end::TcpEnd;
use crate::tcp::coalesced_write;
use crate::tcp::connect::Connected;
use crate::tcp::user_timeout::UserTimeout;
use crate::worker;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Time until a keep-alive probe must be answered, and their number: more than one, because a packet may be lost.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_RETRIES: u32 = 2;

#[derive(Debug)]
pub(crate) struct PodStream {
    /// `None` after a failed registration with another worker, which closed the socket.
    stream: Option<TcpStream>,
    /// Worker whose driver the socket is registered with.
    worker: Option<usize>,
    /// Time from the connect's start to its answer, as measured by the kernel.
    pub(crate) round_trip: Duration,
    /// Liveness tracking, which replaces the user timeout.
    pub(crate) tracked: Option<Arc<Tracked>>,
    /// Current turn, if it is limited.
    turn: Option<Turn>,
}

impl PodStream {
    /// Wraps a new connection. It is tracked as a connection to the address of a link, or has a user timeout. An error
    /// means that the socket is no longer connected.
    pub(crate) fn new(connected: Connected, tracking: Option<(&Liveness, &Arc<Link>)>) -> io::Result<Self> {
        let Connected { stream, round_trip } = connected;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        let keepalive =
            TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_RETRIES);
        socket.set_tcp_keepalive(&keepalive)?;
        if tracking.is_none() {
            socket.set_tcp_user_timeout(Some(silence_max(round_trip)))?;
        }
        // SAFETY: the owner of the stream, this or the `TcpEnd` that it becomes, closes `tracked` before its own fields
        // are dropped. It moves the stream to another worker only while no other thread uses it (`rebind`).
        let tracked = tracking.map(|(liveness, link)| unsafe { liveness.open(&stream, link) });
        Ok(Self { stream: Some(stream), worker: worker::current(), round_trip, tracked, turn: None })
    }

    /// Limits the bytes that are read in each turn of a task.
    pub(crate) fn limit_turns(&mut self) {
        self.turn = Some(Turn::default());
    }

    /// Converts the tracked stream to a byte stream. Nothing must have been sent. An error means that the socket is no
    /// longer connected.
    pub(crate) fn into_end(mut self) -> io::Result<TcpEnd> {
        let stream = self.stream.take().ok_or(ErrorKind::NotConnected)?;
        Ok(TcpEnd::new(stream, UserTimeout::new(None), self.tracked.take()))
    }

    fn socket(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        Ok(Pin::new(self.stream.as_mut().ok_or(ErrorKind::NotConnected)?))
    }

    /// Registers the socket with the caller's worker, unless it is there. The descriptor stays the same. If the
    /// worker's driver rejects the socket, it is closed.
    fn rebind(&mut self) -> io::Result<()> {
        let here = worker::current();
        if self.worker == here {
            return Ok(());
        }
        self.worker = here;
        let stream = &mut self.stream;
        let mut rebind = || {
            let socket = stream.take().ok_or(ErrorKind::NotConnected)?;
            *stream = Some(TcpStream::from_std(socket.into_std()?)?);
            Ok(())
        };
        match &self.tracked {
            Some(tracked) => tracked.socket.with_exclusive(rebind),
            None => rebind(),
        }
    }

    fn after_write(&self, written: &Poll<io::Result<usize>>) {
        if let (Poll::Ready(Ok(_)), Some(tracked)) = (written, &self.tracked) {
            tracked.wrote();
        }
    }
}

/// Closes the connection for its liveness tracking too.
impl Drop for PodStream {
    fn drop(&mut self) {
        if let Some(tracked) = &self.tracked {
            tracked.socket.close();
        }
    }
}

impl AsyncRead for PodStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let this = &mut *self;
        let socket = Pin::new(this.stream.as_mut().ok_or(ErrorKind::NotConnected)?);
        let read = ready!(match &mut this.turn {
            Some(turn) => turn.poll_read(socket, cx, buffer),
            None => socket.poll_read(cx, buffer),
        });
        let Some(tracked) = &self.tracked else { return Poll::Ready(read) };
        if read.is_err() || buffer.filled().len() == before {
            // A connection that we closed ourselves must not look like the pod's end.
            return Poll::Ready(tracked.why_broken().map_or(read, Err));
        }
        tracked.read();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PodStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.rebind()?;
        let written = self.socket()?.poll_write(cx, bytes);
        self.after_write(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.rebind()?;
        let written = coalesced_write::poll_write(self.socket()?, cx, slices);
        self.after_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = ready!(self.socket()?.poll_shutdown(cx));
        if let (Ok(()), Some(tracked)) = (&ended, &self.tracked) {
            tracked.ended();
        }
        Poll::Ready(ended)
    }
}
