//! Output of a client's connection that is not written yet, within the limit of the process.
//!
//! hyper takes a response's data before the socket accepts it: up to 400 KiB for each HTTP/1 connection, and 32 KiB for
//! each HTTP/2 stream. With clients that do not read, that adds up.
//!
//! # The rule
//!
//! A piece of data costs its length and [`PIECE`] from when it is given to hyper until hyper drops it after writing.
//! Each connection may have [`FREE`] outstanding. Beyond that, it takes from the memory of all connections in steps of
//! [`STEP`], while there is plenty ([`Charge::spare`]). If there is not, its bodies wait, and so do their pods.
//!
//! # Wake-ups
//!
//! A body waits only while data is outstanding. Each dropped piece returns the memory that its connection no longer
//! needs, and wakes the connection's bodies as soon as there is room. After the last piece there always is, because
//! then nothing is outstanding. So a client that reads makes progress whatever other connections hold, and no body
//! waits for another connection. One lock for each connection protects all of this, so that no wake-up is lost.
//!
//! # Edge cases
//!
//! - A body is polled as soon as there is room for a byte, with a limit of the free room ([`reading`]). It may return
//!   more: 4 KiB over HTTP/1, and a frame over HTTP/2 (16 KiB). If several threads poll at once, each of them may.
//! - A short piece is copied, so that it does not pin its read buffer. A short piece that ends its body is not counted,
//!   because most responses consist of one.
//!
//! # Heads
//!
//! A large head is charged earlier, to its workload ([`HeadCharge`]). Over HTTP/1 the charge is kept until the
//! connection ends, which it does with this response, because hyper keeps the buffer of the head. Over HTTP/2 a value
//! of the head holds the charge until the head is encoded, and then the connection until the head is written.

use super::{FREE, STEP, charge_for};
use crate::body::{HeadCharge, reading};
use crate::client::connection_permit::ConnectionPermit;
use crate::memory::{Charge, Kind};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

/// Overhead of hyper and h2 for a piece.
const PIECE: u64 = 400;

/// Length below which data is short.
const SHORT: usize = 1024;

/// Length of an HTTP/2 DATA frame, unless the client allows more.
const FRAME: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Output {
    permit: Arc<ConnectionPermit>,
    state: Mutex<OutputState>,
    /// Number of frames of [`FRAME`] bytes that were sent since the last call of `frames_sent`.
    frames: AtomicU32,
}

#[derive(Debug, Default)]
struct OutputState {
    /// Outstanding data, in bytes.
    outstanding: u64,
    /// Charge for outstanding data that is not free.
    charge: Option<Charge>,
    waiting: Vec<Waker>,
    /// Charges of heads that are encoded but not written; over HTTP/1, of all heads.
    heads: Vec<HeadCharge>,
}

impl OutputState {
    fn allowed(&self) -> u64 {
        FREE + self.charge.as_ref().map_or(0, Charge::bytes)
    }

    /// Returns the room for more outstanding data, if there is any.
    fn room(&self) -> Option<usize> {
        let room = self.allowed().checked_sub(self.outstanding).filter(|room| *room > 0)?;
        Some(usize::try_from(room).unwrap_or(usize::MAX))
    }
}

impl Output {
    pub(crate) fn new(permit: Arc<ConnectionPermit>) -> Self {
        Self { permit, state: Mutex::default(), frames: AtomicU32::new(0) }
    }

    /// Becomes ready when another piece may be taken. Returns the room in bytes.
    fn poll_capacity(&self, cx: &Context<'_>) -> Poll<usize> {
        let mut state = self.state.lock();
        // A large piece may have used up more than a step.
        while state.room().is_none() {
            if !state.charge.get_or_insert_with(|| self.permit.charge(Kind::Output)).spare(STEP) {
                if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                    state.waiting.push(cx.waker().clone());
                }
                return Poll::Pending;
            }
        }
        Poll::Ready(Self::wake(state))
    }

    fn release(&self, cost: u64) {
        let mut state = self.state.lock();
        state.outstanding -= cost;
        match charge_for(state.outstanding) {
            0 => state.charge = None,
            needed => {
                if let Some(charge) = state.charge.as_mut().filter(|charge| needed < charge.bytes()) {
                    let _ = charge.set(needed); // Reducing a charge never fails.
                }
            }
        }
        Self::wake(state);
    }

    /// Wakes the bodies that wait, if there is room. Returns the room.
    fn wake(mut state: MutexGuard<'_, OutputState>) -> usize {
        let room = state.room().unwrap_or(0);
        let woken = if room > 0 { std::mem::take(&mut state.waiting) } else { Vec::new() };
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        room
    }

    /// Returns the number of frames that were given to hyper since the last call.
    pub(crate) fn frames_sent(&self) -> u32 {
        self.frames.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn keep(&self, charge: HeadCharge) {
        self.state.lock().heads.push(charge);
    }

    /// Drops the charges of encoded heads, because all encoded data was written.
    pub(crate) fn flushed(&self) {
        let mut state = self.state.lock();
        if !state.heads.is_empty() {
            let written = std::mem::take(&mut state.heads);
            drop(state);
            drop(written);
        }
    }
}

/// Data that was given to hyper.
struct Piece {
    data: Bytes,
    cost: u64,
    of: Arc<Output>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.of.release(self.cost);
    }
}

/// Counts data until it is dropped. `last` is set if it ends its body.
fn counted(of: &Arc<Output>, data: Bytes, last: bool) -> Bytes {
    let is_short = data.len() < SHORT;
    if is_short && last {
        return data;
    }
    let cost = data.len() as u64 + PIECE;
    let data = if is_short { Bytes::copy_from_slice(&data) } else { data };
    of.state.lock().outstanding += cost;
    Bytes::from_owner(Piece { data, cost, of: of.clone() })
}

/// A value of a head that carries the head's charge. The charge passes to the connection when the head is encoded.
struct Charged {
    value: HeaderValue,
    charge: Option<HeadCharge>,
    of: Arc<Output>,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        self.value.as_bytes()
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        self.charge.take().into_iter().for_each(|charge| self.of.keep(charge));
    }
}

/// Attaches a charge to a head until it is encoded.
pub(crate) fn charge(of: &Arc<Output>, head: &mut HeaderMap, charge: HeadCharge) {
    let Some(value) = head.values_mut().max_by_key(|value| value.len()) else { return };
    let charged = Charged { value: value.clone(), charge: Some(charge), of: of.clone() };
    if let Ok(mut with_charge) = HeaderValue::from_maybe_shared(Bytes::from_owner(charged)) {
        // Otherwise the table of the connection's encoder would keep the value.
        with_charge.set_sensitive(true);
        *value = with_charge;
    }
}

pin_project! {
    /// A response's body that waits while its connection has too much outstanding data.
    pub(crate) struct Metered<B> {
        #[pin]
        body: B,
        of: Arc<Output>,
        keeps_length: bool,
    }
}

impl<B> Metered<B> {
    /// Wraps a body of this connection. With `keeps_length` it looks non-empty: hyper omits the length of an empty
    /// body, but in a 304 it is the length of the body that is not sent.
    pub(crate) fn new(body: B, of: Arc<Output>, keeps_length: bool) -> Self {
        Self { body, of, keeps_length }
    }
}

impl<B: Body<Data = Bytes>> Body for Metered<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut this = self.project();
        let room = std::task::ready!(this.of.poll_capacity(cx));
        let frame = std::task::ready!(reading::with_limit(room, || this.body.as_mut().poll_frame(cx)));
        let length = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
        let frames = u32::try_from(length.div_ceil(FRAME)).unwrap_or(u32::MAX).max(1);
        this.of.frames.fetch_add(frames, Ordering::Relaxed);
        let last = this.body.is_end_stream();
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|data| counted(this.of, data, last)))))
    }

    fn is_end_stream(&self) -> bool {
        !self.keeps_length && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.keeps_length { SizeHint::default() } else { self.body.size_hint() }
    }
}

#[cfg(test)]
mod tests;
