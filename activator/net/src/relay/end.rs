//! One end of a relayed connection: a socket with its timeout and its monitoring.

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

/// A connection as plain bytes. Dropping it closes the connection in order.
#[derive(Debug)]
pub struct TcpEnd {
    pub(super) stream: TcpStream,
    timeout: UserTimeout,
    /// Liveness tracking, for connections to pods.
    tracked: Option<Arc<Tracked>>,
}

impl TcpEnd {
    pub(crate) fn new(stream: TcpStream, timeout: UserTimeout, tracked: Option<Arc<Tracked>>) -> Self {
        Self { stream, timeout, tracked }
    }

    /// Reads available bytes into a buffer. Zero bytes mean that the peer has ended its direction.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        let read = read.map(|()| buffer.filled().len() - before);
        Poll::Ready(self.after_read(read))
    }

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

    /// Writes as many bytes as there is room for.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.timeout.before_write(&self.stream, bytes.len());
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        Poll::Ready(self.after_write(written))
    }

    /// Writes at most `length` bytes with `write`, which must not block.
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

    /// Ends the direction towards the peer. An error means that the socket is no longer connected.
    pub(crate) fn finish(&self) -> io::Result<()> {
        SockRef::from(&self.stream).shutdown(Shutdown::Write)?;
        if let Some(tracked) = &self.tracked {
            tracked.ended();
        }
        Ok(())
    }

    /// Reports whether the connection was reset or given up, if it is no longer read.
    pub(crate) fn is_broken(&self) -> bool {
        tcp_state(self.stream.as_fd()).is_ok_and(|state| state.closed)
    }

    fn after_read(&self, read: io::Result<usize>) -> io::Result<usize> {
        match (&read, &self.tracked) {
            (Ok(1..), Some(tracked)) => tracked.read(),
            // A connection that this side has closed must not look like the peer's end.
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

/// Ends the monitoring.
impl Drop for TcpEnd {
    fn drop(&mut self) {
        if let Some(tracked) = &self.tracked {
            tracked.socket.close();
        }
    }
}

/// Makes the close of a socket send a reset. Unsent bytes are lost.
pub(crate) fn reset(socket: &TcpStream) {
    // An error means that the socket is no longer connected.
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}
