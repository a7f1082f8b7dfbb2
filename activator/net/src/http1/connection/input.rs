//! Input from a pod that was not parsed yet.
//!
//! Most responses are small and forwarded as soon as they are read. So all connections of a thread read into one buffer
//! and take what they read; the buffer is reused when none of it is held. A connection that reads more than fits uses
//! its own buffer, larger each time, and returns to the shared one when it reads less. The poller may limit the size of
//! a read ([`reading`]).

use crate::body::reading;
use bytes::{BufMut, BytesMut};
use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

/// Size of a thread's buffer, and the room it must have for another read, in bytes.
const SHARED: usize = 8 * 1024;
const SHARED_MIN: usize = 4 * 1024;

/// Maximum buffer of one connection, in bytes.
const OWN_MAX: usize = 64 * 1024;

thread_local! {
    static BUFFER: Cell<Option<BytesMut>> = const { Cell::new(None) };
}

#[derive(Debug, Default)]
pub(super) struct Input {
    pub(super) bytes: BytesMut,
    /// Room offered to the next read; zero means the thread's buffer.
    offered: usize,
}

impl Input {
    /// Reads more. Returns the number of bytes; zero if the pod has ended its side.
    pub(super) fn poll_more<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut R,
    ) -> Poll<io::Result<usize>> {
        if self.offered == 0 && self.bytes.is_empty() {
            return self.poll_shared(cx, io);
        }
        let limit = reading::limit().max(SHARED_MIN);
        self.make_room(self.offered.clamp(SHARED_MIN, limit));
        let room = (self.bytes.capacity() - self.bytes.len()).min(limit);
        let read = ready!(poll_read_buf(Pin::new(io), cx, &mut (&mut self.bytes).limit(room)))?;
        if read == room {
            self.offered = (2 * room).min(OWN_MAX);
        } else if read < room / 4 {
            self.offered = if self.offered > SHARED { self.offered / 2 } else { 0 };
        }
        Poll::Ready(Ok(read))
    }

    /// Makes room for `bytes`, but not much more: a nearly empty buffer costs its full size while any part is held.
    fn make_room(&mut self, bytes: usize) {
        if self.bytes.is_empty() && (self.bytes.capacity() > 2 * bytes || !self.bytes.try_reclaim(bytes)) {
            self.bytes = BytesMut::with_capacity(bytes);
        } else {
            self.bytes.reserve(bytes);
        }
    }

    fn poll_shared<R: AsyncRead + Unpin>(&mut self, cx: &mut Context<'_>, io: &mut R) -> Poll<io::Result<usize>> {
        self.bytes = BytesMut::new(); // Even an empty part prevents the reuse of a buffer.
        let mut buffer = BUFFER.take().unwrap_or_default();
        if buffer.capacity() < SHARED_MIN {
            buffer.reserve(SHARED);
        }
        let room = buffer.capacity();
        let read = poll_read_buf(Pin::new(io), cx, &mut buffer);
        if let Poll::Ready(Ok(read @ 1..)) = read {
            self.bytes = buffer.split();
            self.offered = if read == room { 2 * SHARED } else { 0 };
        }
        BUFFER.set(Some(buffer));
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use tokio_test::{assert_pending, assert_ready_ok, task};

    fn read(input: &mut Input, source: &mut &[u8]) -> usize {
        task::spawn(()).enter(|cx, _| assert_ready_ok!(input.poll_more(cx, source)))
    }

    /// Goal: everything that is read is there, once and in order, in small and large amounts. Method: a source of known
    /// bytes; the input is taken at once, or grows.
    #[test]
    fn input_is_complete_and_in_order() {
        for takes in [true, false] {
            let source: Vec<u8> = (0..300_000_u32).flat_map(u32::to_ne_bytes).collect();
            let (mut rest, mut input, mut received) = (source.as_slice(), Input::default(), Vec::new());
            let mut largest = 0;
            loop {
                let read = read(&mut input, &mut rest);
                if read == 0 {
                    break;
                }
                largest = largest.max(read);
                if takes {
                    received.extend_from_slice(&input.bytes.split());
                }
            }
            received.extend_from_slice(&input.bytes);
            assert!(received == source, "{} of {}", received.len(), source.len());
            assert!(largest >= OWN_MAX, "{largest}");
        }
    }

    /// Goal: two connections of a thread do not see each other's bytes, however long they are held.
    #[test]
    fn held_input_is_not_overwritten() {
        let mut held = Vec::new();
        for round in 0..1000_u32 {
            let (source, mut input) = (round.to_ne_bytes().repeat(round as usize % 500 + 1), Input::default());
            read(&mut input, &mut source.as_slice());
            if round % 3 == 0 {
                held.push((input.bytes.split().freeze(), source));
            }
        }
        assert!(held.iter().all(|(bytes, source)| bytes == source));
    }

    /// Goal: connections that wait for input hold no part of the buffer, which could otherwise not be reused.
    #[test]
    fn waiting_connections_hold_no_buffer() {
        let (_pod, mut silent) = tokio::io::duplex(1);
        let mut waiting: Vec<Input> = std::iter::repeat_with(Input::default).take(100).collect();
        for input in &mut waiting {
            task::spawn(()).enter(|cx, _| assert_pending!(input.poll_more(cx, &mut silent)));
        }
        let address = |input: &mut Input| {
            read(input, &mut [1; 100].as_slice());
            let address = input.bytes.as_ptr().addr();
            input.bytes.clear();
            address
        };
        let mut busy = Input::default();
        let addresses: BTreeSet<usize> = (0..1000).map(|_| address(&mut busy)).collect();
        let (first, last) = (addresses.first().expect("some"), addresses.last().expect("some"));
        assert!(last - first < SHARED, "{first:x} to {last:x}");
    }

    /// Goal: a read with little room gets no more, and no large buffer, even after large reads.
    #[test]
    fn a_read_is_limited_to_the_room_of_the_poller() {
        let (large, mut input) = (vec![0; 1 << 20], Input::default());
        let mut rest = large.as_slice();
        let mut read_up_to = |input: &mut Input, limit| reading::with_limit(limit, || read(input, &mut rest));
        while read_up_to(&mut input, usize::MAX) < OWN_MAX {
            input.bytes.clear();
        }
        let held = input.bytes.split();
        for (limit, expected) in [(16_384, 16_384), (1, SHARED_MIN), (0, SHARED_MIN)] {
            assert_eq!(read_up_to(&mut input, limit), expected);
            assert!(input.bytes.capacity() <= 2 * expected, "{limit}: {}", input.bytes.capacity());
            input.bytes.clear();
        }
        assert_eq!(read_up_to(&mut input, usize::MAX), 2 * SHARED_MIN, "it grows again");
        drop(held);
    }

    #[test]
    fn small_reads_return_to_the_shared_buffer_after_a_large_response() {
        let (large, mut input) = (vec![0; 1 << 20], Input::default());
        let mut rest = large.as_slice();
        for _ in 0..10 {
            read(&mut input, &mut rest);
            input.bytes.clear();
        }
        assert_eq!(input.offered, OWN_MAX);
        for _ in 0..10 {
            read(&mut input, &mut [1, 2, 3].as_slice());
            assert_eq!(input.bytes.split(), [1, 2, 3].as_slice());
        }
        assert_eq!(input.offered, 0);
    }
}
