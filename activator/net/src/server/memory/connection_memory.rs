//! Memory that a client's connection holds besides its requests, within the limit of the process.
//!
//! | memory | cost |
//! |---|---|
//! | an unfinished HTTP/1 head | its length, beyond [`FREE`] |
//! | an HTTP/2 header block that continues in CONTINUATION frames | its length, and its possible decoded size: [`DECODED`] times the length, at most [`DECODED_MAX`] |
//! | unread DATA frames | their cost ([`crate::body::unread_frames`]), without the data of held requests |
//! | data on its way to a pod | its length |
//! | maximum number of concurrent HTTP/2 streams so far | [`STREAM_ROOM`] each: h2's tables grow with them, and do not shrink |
//!
//! All of it is charged to the process's memory ([`crate::memory`]). If the connection's own workload and client hold
//! the most, the connection ends, so that others have room. The memory of an ordinary request is free, so its
//! connection needs no charge.
//!
//! Charges are made in steps, so that the lock is taken once per [`STEP`](super::STEP) bytes. Freed memory is returned
//! at the next poll of the connection.
//!
//! # Not here
//!
//! The limited memory of single exchanges is not added up: an HTTP/1 body on its way to a pod, which hyper reads in
//! pieces of up to 400 KiB; data that HTTP/2 pods may send ahead, 4 MiB per connection. Responses that clients do not
//! read are charged by [`crate::server::memory::output`].

use super::{FREE, charge_for};
use crate::client::connection_permit::ConnectionPermit;
use crate::memory::{Charge, Kind};
use std::io;
use std::sync::Arc;

/// Maximum growth of a header block when decoded: a reference of one byte becomes a value in the map.
const DECODED: u64 = 80;

/// Maximum size of a decoded block: a list of 1 MiB, in fields of the minimum size.
const DECODED_MAX: u64 = 2560 * 1024;

pub(crate) struct ConnectionMemory {
    permit: Arc<ConnectionPermit>,
    charge: Option<Charge>,
}

/// Size of a stream, its head and its response in h2's tables: measured as 320 KiB for 250.
const STREAM_ROOM: u64 = 1280;

/// Returns the memory that an unfinished header block of `length` bytes may need when decoded.
pub(crate) fn block(length: u64) -> u64 {
    length + (length * DECODED).min(DECODED_MAX)
}

pub(crate) fn streams(most: u32) -> u64 {
    u64::from(most) * STREAM_ROOM
}

impl ConnectionMemory {
    pub(crate) fn new(permit: Arc<ConnectionPermit>) -> Self {
        Self { permit, charge: None }
    }

    /// Sets the memory of the connection in bytes. An error means that its share is exceeded.
    pub(crate) fn set(&mut self, bytes: u64) -> io::Result<()> {
        if bytes <= FREE && self.charge.is_none() {
            return Ok(());
        }
        self.charge(charge_for(bytes))
    }

    #[cold]
    fn charge(&mut self, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            self.charge = None;
            return Ok(());
        }
        let charge = self.charge.get_or_insert_with(|| self.permit.charge(Kind::Input));
        if bytes == charge.bytes() {
            return Ok(());
        }
        charge.set(bytes).map_err(|full| {
            tracing::debug!(%full, "the unfinished input of a connection exceeds its share of memory");
            io::Error::other("the unfinished input of the connection exceeds its share of memory")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::STEP;
    use super::*;
    use crate::memory::Memory;

    #[test]
    fn a_connection_is_charged_in_steps() {
        let memory = Memory::new(Some(16 * STEP));
        let input = || memory.charged(Kind::Input);
        let mut charged = ConnectionMemory::new(Arc::new(ConnectionPermit::charged_to(memory.clone())));
        for (bytes, steps) in [(FREE, 0), (FREE + 1, 1), (FREE + STEP, 1), (FREE + STEP + 1, 2), (0, 0), (1 << 18, 4)] {
            charged.set(bytes).expect("room");
            assert_eq!(input(), steps * STEP, "{bytes}");
        }
        assert!(charged.set(18 * STEP).is_err(), "more than there is");
        let mut other = ConnectionMemory::new(Arc::new(ConnectionPermit::charged_to(memory.clone())));
        other.set(FREE + STEP).expect("another has room");
        drop(charged);
        assert_eq!(input(), STEP);
        other.set(0).expect("less");
        assert_eq!(input(), 0);
    }

    #[test]
    fn a_header_block_costs_its_possible_decoded_size() {
        assert_eq!([0, 10, 1 << 20].map(block), [0, 810, (1 << 20) + DECODED_MAX]);
    }
}
