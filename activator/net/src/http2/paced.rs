//! A connection that is read in turns.
//!
//! A kilobyte on the wire may be a head of a megabyte, because each field may refer to an earlier one. `h2` decodes
//! what it reads, and keeps it until the stream's task takes it. So each turn of the driving task reads only a limited
//! number of bytes. Between turns, the streams' tasks take their heads and drop those that are too large.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of bytes per turn; the last read may exceed it.
const TURN_MAX: usize = 64 * 1024;

pub(super) struct Paced<Io> {
    io: Io,
    /// Number of bytes read in this turn.
    read: usize,
}

impl<Io> Paced<Io> {
    pub(super) fn new(io: Io) -> Self {
        Self { io, read: 0 }
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Paced<Io> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if self.read >= TURN_MAX {
            self.read = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        if read.is_pending() {
            self.read = 0;
        }
        ready!(read)?;
        self.read += buffer.filled().len() - before;
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Paced<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_test::{assert_pending, assert_ready_ok, task};

    /// Goal: after a limited number of bytes other tasks have a turn, and reading resumes by itself.
    #[test]
    fn much_is_read_in_turns() {
        let (source, mut buffer) = (vec![7; 3 * TURN_MAX + 5], [0; 16 * 1024]);
        let mut paced = Paced::new(source.as_slice());
        let mut turn = task::spawn(());
        let (mut seen, mut turns) = (0, 1);
        while seen < source.len() {
            let mut part = ReadBuf::new(&mut buffer);
            match turn.enter(|cx, _| Pin::new(&mut paced).poll_read(cx, &mut part)) {
                Poll::Ready(read) => read.expect("from memory"),
                Poll::Pending => {
                    assert!(turn.is_woken());
                    turns += 1;
                }
            }
            seen += part.filled().len();
        }
        assert_eq!((seen, turns), (source.len(), 4));
    }

    #[test]
    fn who_waits_has_a_whole_turn_afterwards() {
        let (mut pod, ours) = tokio::io::duplex(4 * TURN_MAX);
        let (mut paced, mut buffer) = (Paced::new(ours), vec![0; TURN_MAX / 2]);
        for _ in 0..10 {
            let mut part = ReadBuf::new(&mut buffer);
            let written = task::spawn(tokio::io::AsyncWriteExt::write_all(&mut pod, &[7; TURN_MAX / 2])).poll();
            assert_ready_ok!(written);
            task::spawn(()).enter(|cx, _| assert_ready_ok!(Pin::new(&mut paced).poll_read(cx, &mut part)));
            assert_eq!(part.filled().len(), TURN_MAX / 2);
            let mut none = ReadBuf::new(&mut buffer);
            task::spawn(()).enter(|cx, _| assert_pending!(Pin::new(&mut paced).poll_read(cx, &mut none)));
        }
    }
}
