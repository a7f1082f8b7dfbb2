//! What a client's connection keeps beside its requests: bounded for the process.
//!
//! | what | costs |
//! |---|---|
//! | a head over HTTP/1 that has not ended | its length, beyond [`FREE`] |
//! | a header block over HTTP/2 that goes on in CONTINUATION frames | its length and what it may have become: [`DECODED`] times that, at most [`DECODED_MAX`] |
//! | DATA frames that nobody has read | what they keep ([`crate::body::unread`]), but for the data of requests that are held |
//! | data on its way to a pod | its length |
//! | the most streams of HTTP/2 at once | [`STREAM_ROOM`] each: h2's tables grow with them, and do not become small again |
//!
//! All of it comes out of the process's memory ([`crate::memory`]): where the connection's own workload and client have most of
//! that, the connection ends, and the others have room. What an ordinary request needs is free, so its connection takes part in
//! none of this.
//!
//! It is charged in steps, so that the lock is met once in [`STEP`] bytes. What is no longer kept is given back when the
//! connection is polled next.
//!
//! # Not here
//!
//! What one exchange keeps at most, and nobody adds up: a body over HTTP/1 on its way to a pod, which hyper reads in
//! pieces of up to 400 KiB; what HTTP/2 pods may send ahead, 4 MiB for each connection to them. Answers that clients do
//! not read are charged by [`super::output`].

use super::seat::Seat;
use crate::memory::{Charge, Kind, Memory};
use std::io;
use std::sync::Arc;

/// What each connection may keep without being charged: its buffers, which it has in any case.
const FREE: u64 = 16 * 1024;

/// What is taken of the budget at once.
const STEP: u64 = 64 * 1024;

/// Bytes in memory for one of a header block: a reference of one byte becomes a value in the map.
const DECODED: u64 = 80;

/// The most that a decoded block occupies: a list of 1 MiB, in fields of the smallest size.
const DECODED_MAX: u64 = 2560 * 1024;

/// One connection's part of the memory.
pub(super) struct Kept {
    memory: Option<Memory>,
    seat: Arc<Seat>,
    charge: Option<Charge>,
}

/// Room in h2's tables for a stream, its head and its answer: measured 320 KiB for 250.
const STREAM_ROOM: u64 = 1280;

/// What a header block of so many bytes may keep while it is decoded.
pub(super) fn block(length: u64) -> u64 {
    length + (length * DECODED).min(DECODED_MAX)
}

/// What is kept for so many streams.
pub(super) fn streams(most: u32) -> u64 {
    u64::from(most) * STREAM_ROOM
}

impl Kept {
    /// Of the connection with this seat; without memory nothing is bounded.
    pub(super) fn new(memory: Option<Memory>, seat: Arc<Seat>) -> Self {
        Self { memory, seat, charge: None }
    }

    /// It keeps so many bytes now. An error says that this is more than its share.
    pub(super) fn set(&mut self, bytes: u64) -> io::Result<()> {
        if bytes <= FREE && self.charge.is_none() {
            return Ok(());
        }
        self.charge(bytes.saturating_sub(FREE).div_ceil(STEP) * STEP)
    }

    #[cold]
    fn charge(&mut self, bytes: u64) -> io::Result<()> {
        let Some(memory) = &self.memory else { return Ok(()) };
        if bytes == 0 {
            self.charge = None;
            return Ok(());
        }
        let charge = self.charge.get_or_insert_with(|| self.seat.charge(memory, Kind::Input));
        if bytes == charge.bytes() {
            return Ok(());
        }
        charge.set(bytes).map_err(|full| {
            tracing::debug!(%full, "a connection keeps too much");
            io::Error::other("the connection's unfinished input keeps more than its share of memory")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_charged_in_steps_and_gives_back() {
        let memory = Memory::new(Some(16 * STEP));
        let input = || memory.kept(Kind::Input);
        let mut kept = Kept::new(Some(memory.clone()), Arc::default());
        for (bytes, steps) in [(FREE, 0), (FREE + 1, 1), (FREE + STEP, 1), (FREE + STEP + 1, 2), (0, 0), (1 << 18, 4)] {
            kept.set(bytes).expect("room");
            assert_eq!(input(), steps * STEP, "{bytes}");
        }
        assert!(kept.set(18 * STEP).is_err(), "more than there is");
        let mut other = Kept::new(Some(memory.clone()), Arc::default());
        other.set(FREE + STEP).expect("another has room");
        drop(kept);
        assert_eq!(input(), STEP);
        other.set(0).expect("less");
        assert_eq!(input(), 0);
    }

    #[test]
    fn a_block_costs_what_it_may_become() {
        assert_eq!([0, 10, 1 << 20].map(block), [0, 810, (1 << 20) + DECODED_MAX]);
    }
}
