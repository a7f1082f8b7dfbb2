//! What happens on one client's connection, as those see it who serve it.

use super::output::{HasOutput, Output};
use super::seat::Seat;
use crate::memory::Memory;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// One connection. Over HTTP/1 all of it happens in one task, one after the other.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// How often something was read.
    reads: AtomicU32,
    /// Heads that are complete and in order.
    heads: AtomicU64,
    /// Nothing but the end of the connection tells the client where its last answer ends.
    closes_answer: AtomicBool,
    seat: Arc<Seat>,
    output: Output,
}

impl Progress {
    /// With this seat, and a part of `memory` for what it has to write.
    pub(super) fn new(seat: Arc<Seat>, memory: Option<Memory>) -> Self {
        let (reads, heads, closes_answer) = (AtomicU32::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let output = Output::new(memory.map(|memory| (memory, seat.clone())));
        Self { reads, heads, closes_answer, seat, output }
    }

    /// Something was read.
    pub(super) fn read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// How often something was read.
    pub(super) fn reads(&self) -> u32 {
        self.reads.load(Ordering::Relaxed)
    }

    /// So many heads were seen, complete and in order.
    pub(super) fn set_heads(&self, heads: u64) {
        self.heads.store(heads, Ordering::Relaxed);
    }

    /// Heads that were seen, complete and in order.
    pub(super) fn heads(&self) -> u64 {
        self.heads.load(Ordering::Relaxed)
    }

    /// An answer has begun that ends where the connection does.
    pub(super) fn will_close_answer(&self) {
        self.closes_answer.store(true, Ordering::Relaxed);
    }

    /// Whether one has. It is the last of its connection.
    pub(super) fn closes_answer(&self) -> bool {
        self.closes_answer.load(Ordering::Relaxed)
    }
}

impl Deref for Progress {
    type Target = Arc<Seat>;

    fn deref(&self) -> &Arc<Seat> {
        &self.seat
    }
}

impl HasOutput for Progress {
    fn output(&self) -> &Output {
        &self.output
    }
}
