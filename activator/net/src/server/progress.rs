//! State of one client connection, shared by the parts that serve it.

use super::output::{HasOutput, Output};
use super::seat::Seat;
use crate::memory::Memory;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// State of one connection. Over HTTP/1, one task changes all of it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Number of reads.
    reads: AtomicU32,
    /// Number of complete and valid heads.
    heads: AtomicU64,
    /// The client detects the end of the last response only by the end of the connection.
    closes_answer: AtomicBool,
    seat: Arc<Seat>,
    output: Output,
}

impl Progress {
    /// Creates the state with this seat, and with `memory` for its output.
    pub(super) fn new(seat: Arc<Seat>, memory: Option<Memory>) -> Self {
        let (reads, heads, closes_answer) = (AtomicU32::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let output = Output::new(memory.map(|memory| (memory, seat.clone())));
        Self { reads, heads, closes_answer, seat, output }
    }

    /// Counts a read.
    pub(super) fn read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of reads.
    pub(super) fn reads(&self) -> u32 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Sets the number of complete and valid heads.
    pub(super) fn set_heads(&self, heads: u64) {
        self.heads.store(heads, Ordering::Relaxed);
    }

    /// Returns the number of complete and valid heads.
    pub(super) fn heads(&self) -> u64 {
        self.heads.load(Ordering::Relaxed)
    }

    /// Records that a response has begun that ends with the connection.
    pub(super) fn will_close_answer(&self) {
        self.closes_answer.store(true, Ordering::Relaxed);
    }

    /// Reports whether a response ends with the connection. It is the last one.
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
