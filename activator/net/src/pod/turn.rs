//! Turns of the task that reads a connection.
//!
//! A kilobyte on the wire may be a head of a megabyte, because each field may refer to an earlier one. `h2` decodes
//! what it reads, and keeps it until the stream's task takes it. So each turn of the driving task reads only a limited
//! number of bytes. Between turns, the streams' tasks take their heads and drop those that are too large.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};

/// Maximum number of bytes per turn; the last read may exceed it.
const TURN_MAX: usize = 64 * 1024;

/// A turn, which ends when there is nothing to read.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Number of bytes read in this turn.
    read: usize,
}

impl Turn {
    /// Reads from `io`, unless the turn is over. Then the task is woken for the next one.
    pub(super) fn poll_read(
        &mut self,
        io: Pin<&mut impl AsyncRead>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if self.read >= TURN_MAX {
            self.read = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let read = io.poll_read(cx, buffer);
        self.read = if read.is_pending() { 0 } else { self.read + buffer.filled().len() - before };
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_test::{assert_pending, assert_ready_ok, task};

    /// Goal: after a limited number of bytes other tasks have a turn, and reading resumes by itself.
    #[test]
    fn a_large_input_is_read_in_turns() {
        let (source, mut buffer) = (vec![7; 3 * TURN_MAX + 5], [0; 16 * 1024]);
        let (mut turn, mut rest, mut polled) = (Turn::default(), source.as_slice(), task::spawn(()));
        let (mut received, mut turns) = (0, 1);
        while received < source.len() {
            let mut part = ReadBuf::new(&mut buffer);
            match polled.enter(|cx, _| turn.poll_read(Pin::new(&mut rest), cx, &mut part)) {
                Poll::Ready(read) => read.expect("from memory"),
                Poll::Pending => {
                    assert!(polled.is_woken());
                    turns += 1;
                }
            }
            received += part.filled().len();
        }
        assert_eq!((received, turns), (source.len(), 4));
    }

    #[test]
    fn a_full_turn_follows_a_wait() {
        let (mut pod, mut ours) = tokio::io::duplex(4 * TURN_MAX);
        let (mut turn, mut buffer) = (Turn::default(), vec![0; TURN_MAX / 2]);
        for _ in 0..10 {
            let mut part = ReadBuf::new(&mut buffer);
            let written = task::spawn(tokio::io::AsyncWriteExt::write_all(&mut pod, &[7; TURN_MAX / 2])).poll();
            assert_ready_ok!(written);
            task::spawn(()).enter(|cx, _| assert_ready_ok!(turn.poll_read(Pin::new(&mut ours), cx, &mut part)));
            assert_eq!(part.filled().len(), TURN_MAX / 2);
            let mut none = ReadBuf::new(&mut buffer);
            task::spawn(()).enter(|cx, _| assert_pending!(turn.poll_read(Pin::new(&mut ours), cx, &mut none)));
        }
    }
}
