//! One end of a relayed connection: a socket, and what looks after it.

use crate::liveness::Tracked;
use crate::tcp::state::tcp_state;
use crate::tcp::user_timeout::UserTimeout;
use socket2::SockRef;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// A connection as nothing but bytes. Closed in order when dropped.
#[derive(Debug)]
pub struct TcpEnd {
    stream: TcpStream,
    timeout: UserTimeout,
    /// Whoever looks after it; of connections to pods.
    tracked: Option<Arc<Tracked>>,
}

impl TcpEnd {
    /// Of a socket.
    pub(crate) fn new(stream: TcpStream, timeout: UserTimeout, tracked: Option<Arc<Tracked>>) -> Self {
        Self { stream, timeout, tracked }
    }

    /// Reads, by a call that takes what has come. Zero bytes: the peer has ended its direction.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        let read = read.map(|()| buffer.filled().len() - before);
        Poll::Ready(self.after_read(read))
    }

    /// Reads by `read`, which must not wait.
    pub(crate) fn poll_read_with(
        &mut self,
        cx: &mut Context<'_>,
        mut read: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_io(Interest::READABLE, || read(self.stream.as_fd())) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(self.after_read(read)),
            }
        }
    }

    /// Writes what there is room for.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.timeout.before_write(&self.stream, bytes.len());
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        Poll::Ready(self.after_write(written))
    }

    /// Writes at most `length` bytes by `write`, which must not wait.
    pub(crate) fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        length: usize,
        mut write: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            self.timeout.before_write(&self.stream, length);
            match self.stream.try_io(Interest::WRITABLE, || write(self.stream.as_fd())) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(self.after_write(written)),
            }
        }
    }

    /// Ends the direction towards it.
    ///
    /// # Errors
    /// It is connected no longer.
    pub(crate) fn finish(&self) -> io::Result<()> {
        SockRef::from(&self.stream).shutdown(Shutdown::Write)?;
        if let Some(tracked) = &self.tracked {
            tracked.ended();
        }
        Ok(())
    }

    /// Breaks it off: the peer sees a reset, not an end. Also what waits to be sent is lost.
    pub(crate) fn reset(self) {
        reset(&self.stream);
    }

    /// Returns whether the connection has been reset or given up, for one from which nothing is read any more.
    pub(crate) fn is_broken(&self) -> bool {
        tcp_state(self.stream.as_fd()).is_ok_and(|state| state.closed)
    }

    fn after_read(&self, read: io::Result<usize>) -> io::Result<usize> {
        match (&read, &self.tracked) {
            (Ok(1..), Some(tracked)) => tracked.read(),
            // What was broken off on this side must not look like the peer's end.
            (Ok(0) | Err(_), Some(tracked)) => tracked.why_broken().map_or(Ok(()), Err)?,
            _ => {}
        }
        read
    }

    fn after_write(&mut self, written: io::Result<usize>) -> io::Result<usize> {
        if let Ok(n) = written {
            self.timeout.wrote(n);
            if let Some(tracked) = &self.tracked {
                tracked.wrote();
            }
        }
        written
    }
}

/// Whoever looks after it does so no longer.
impl Drop for TcpEnd {
    fn drop(&mut self) {
        if let Some(tracked) = &self.tracked {
            tracked.close();
        }
    }
}

/// Has a socket's peer see a reset when it is closed.
pub(crate) fn reset(socket: &TcpStream) {
    // An error says that it is connected no longer.
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}
