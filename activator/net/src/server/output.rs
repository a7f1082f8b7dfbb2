//! What a client's connection was given to write, and has not written: bounded for the process.
//!
//! hyper takes data of an answer ahead of what the socket takes: up to 400 KiB for each connection over HTTP/1, 32 KiB
//! for each stream of HTTP/2. Of clients that do not read, that adds up.
//!
//! # The rule
//!
//! A piece of data costs its length and [`PIECE`] from when hyper is given it until hyper drops it, which it does when
//! the piece is written. Each connection may have [`FREE`] outstanding; beyond that it takes from the memory of all
//! connections, in steps of [`STEP`], while there is plenty ([`Charge::spare`]). Where there is not, its bodies wait, and so do
//! their pods.
//!
//! # Who wakes them
//!
//! A body waits only while something is outstanding. Each piece that is dropped gives back what its connection needs no
//! longer, and wakes the connection's bodies as soon as there is room again; at the last piece there is, since then
//! nothing is outstanding. So whoever reads gets on, however much others hold, and nobody waits for another connection.
//! All of it happens under one lock for each connection, so that no wake is lost.
//!
//! # Odd cases
//!
//! - A body is asked for a piece as soon as there is room for a byte of it, and for as much as there is room for
//!   ([`reading`]). What comes may be more, 4 KiB over HTTP/1 and a frame over HTTP/2 (16 KiB); while several threads ask
//!   at once, each of them may get it.
//! - A short piece is copied, so that it does not keep the buffer that it was read into. One that ends its body is not
//!   counted: it is what an everyday answer has.
//!
//! # Heads
//!
//! A large head is charged before it gets here, to its workload ([`HeadCharge`]). Over HTTP/1 the charge is kept until the
//! connection ends, which it does with this answer, because hyper keeps the buffer that the head was written to. Over
//! HTTP/2 a value of the head holds the charge until the head is encoded, and the connection until that is written.

use super::seat::Seat;
use crate::body::{HeadCharge, reading};
use crate::memory::{Charge, Kind, Memory};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

/// What each connection may have outstanding without taking from the budget.
const FREE: u64 = 16 * 1024;

/// What is taken of the budget at once.
const STEP: u64 = 64 * 1024;

/// What hyper and h2 keep for a piece beside its data.
const PIECE: u64 = 400;

/// Data of fewer bytes is short.
const SHORT: usize = 1024;

/// Bytes of a frame of data over HTTP/2, unless the client allows more.
const FRAME: usize = 16 * 1024;

/// One connection's output.
#[derive(Debug, Default)]
pub(super) struct Output {
    memory: Option<(Memory, Arc<Seat>)>,
    state: Mutex<State>,
    /// Frames of [`FRAME`] bytes that were sent since the last question.
    frames: AtomicU32,
}

#[derive(Debug, Default)]
struct State {
    /// What is outstanding, in bytes.
    outstanding: u64,
    beyond: Option<Box<Beyond>>,
    /// Charges of heads that are encoded, and not written yet; over HTTP/1, of all of them.
    heads: Vec<HeadCharge>,
}

/// Of a connection that had more outstanding than is free.
#[derive(Debug)]
struct Beyond {
    charge: Charge,
    waiting: Vec<Waker>,
}

impl Beyond {
    /// What may be outstanding.
    fn allowed(&self) -> u64 {
        FREE + self.charge.bytes()
    }
}

impl State {
    /// The same, whether or not anything is charged.
    fn allowed(&self) -> u64 {
        self.beyond.as_ref().map_or(FREE, |beyond| beyond.allowed())
    }
}

/// What is left of what may be outstanding, if anything.
fn room(allowed: u64, outstanding: u64) -> Option<usize> {
    let room = allowed.checked_sub(outstanding).filter(|room| *room > 0)?;
    Some(usize::try_from(room).unwrap_or(usize::MAX))
}

impl Output {
    /// Of the connection with this seat; without memory nothing is bounded.
    pub(super) fn new(memory: Option<(Memory, Arc<Seat>)>) -> Self {
        Self { memory, ..Self::default() }
    }

    /// Ready when one more piece may be taken, of so many bytes.
    fn poll_room(&self, cx: &Context<'_>) -> Poll<usize> {
        let Some((memory, seat)) = &self.memory else { return Poll::Ready(usize::MAX) };
        let mut locked = self.state.lock();
        let state = &mut *locked;
        if let Some(room) = room(state.allowed(), state.outstanding) {
            return Poll::Ready(room);
        }
        let new = || Box::new(Beyond { charge: seat.charge(memory, Kind::Output), waiting: Vec::new() });
        let beyond = state.beyond.get_or_insert_with(new);
        while beyond.charge.spare(STEP) {
            // A large piece may have used up more than a step.
            if let Some(room) = room(beyond.allowed(), state.outstanding) {
                let woken = std::mem::take(&mut beyond.waiting); // There is room for them as well.
                drop(locked);
                woken.into_iter().for_each(Waker::wake);
                return Poll::Ready(room);
            }
        }
        if !beyond.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            beyond.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn gives_back(&self, cost: u64) {
        let mut state = self.state.lock();
        state.outstanding -= cost;
        let outstanding = state.outstanding;
        let Some(beyond) = &mut state.beyond else { return };
        let needed = outstanding.saturating_sub(FREE).div_ceil(STEP) * STEP;
        if needed < beyond.charge.bytes() {
            let _ = beyond.charge.set(needed); // Less is never refused.
        }
        let woken = match outstanding < beyond.allowed() {
            true => std::mem::take(&mut beyond.waiting),
            false => Vec::new(),
        };
        if beyond.charge.bytes() == 0 && beyond.waiting.is_empty() {
            state.beyond = None;
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Frames of data that were given to be sent since it was asked last.
    pub(super) fn frames_sent(&self) -> u32 {
        self.frames.swap(0, Ordering::Relaxed)
    }

    /// Keeps the charge of a head that was encoded.
    pub(super) fn keep(&self, charge: HeadCharge) {
        self.state.lock().heads.push(charge);
    }

    /// All that was encoded has been written.
    pub(super) fn flushed(&self) {
        let mut state = self.state.lock();
        if !state.heads.is_empty() {
            let written = std::mem::take(&mut state.heads);
            drop(state);
            drop(written);
        }
    }
}

/// Who has a connection's output.
pub(super) trait HasOutput: Send + Sync + 'static {
    /// The connection's.
    fn output(&self) -> &Output;
}

/// Data that hyper was given.
struct Piece<O: HasOutput> {
    data: Bytes,
    cost: u64,
    of: Arc<O>,
}

impl<O: HasOutput> AsRef<[u8]> for Piece<O> {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl<O: HasOutput> Drop for Piece<O> {
    fn drop(&mut self) {
        self.of.output().gives_back(self.cost);
    }
}

/// Counts data until it is dropped. `last`: it ends its body.
fn counted<O: HasOutput>(of: &Arc<O>, data: Bytes, last: bool) -> Bytes {
    let is_short = data.len() < SHORT;
    if of.output().memory.is_none() || is_short && last {
        return data;
    }
    let cost = data.len() as u64 + PIECE;
    let data = if is_short { Bytes::copy_from_slice(&data) } else { data };
    of.output().state.lock().outstanding += cost;
    Bytes::from_owner(Piece { data, cost, of: of.clone() })
}

/// A value of a head with the head's charge, which goes to the connection when the head is encoded.
struct Charged<O: HasOutput> {
    value: HeaderValue,
    charge: Option<HeadCharge>,
    of: Arc<O>,
}

impl<O: HasOutput> AsRef<[u8]> for Charged<O> {
    fn as_ref(&self) -> &[u8] {
        self.value.as_bytes()
    }
}

impl<O: HasOutput> Drop for Charged<O> {
    fn drop(&mut self) {
        self.charge.take().into_iter().for_each(|charge| self.of.output().keep(charge));
    }
}

/// Has the head keep its charge until it is encoded.
pub(super) fn charge<O: HasOutput>(of: &Arc<O>, head: &mut HeaderMap, charge: HeadCharge) {
    let Some(value) = head.values_mut().max_by_key(|value| value.len()) else { return };
    let charged = Charged { value: value.clone(), charge: Some(charge), of: of.clone() };
    if let Ok(mut with_charge) = HeaderValue::from_maybe_shared(Bytes::from_owner(charged)) {
        // Else the table of the connection's encoder would keep it.
        with_charge.set_sensitive(true);
        *value = with_charge;
    }
}

pin_project! {
    /// An answer's body that waits while its connection has too much outstanding.
    pub(super) struct Metered<B, O> {
        #[pin]
        body: B,
        of: Arc<O>,
        keeps_length: bool,
    }
}

impl<B, O> Metered<B, O> {
    /// Of this connection.
    pub(super) fn new(body: B, of: Arc<O>) -> Self {
        Self { body, of, keeps_length: false }
    }

    /// If set, the body does not look empty. hyper omits the length of an empty body, but that of a 304 is about the
    /// body that is not sent.
    pub(super) fn keeping_length(self, keeps_length: bool) -> Self {
        Self { keeps_length, ..self }
    }
}

impl<B: Body<Data = Bytes>, O: HasOutput> Body for Metered<B, O> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut this = self.project();
        let room = std::task::ready!(this.of.output().poll_room(cx));
        let frame = std::task::ready!(reading::at_most(room, || this.body.as_mut().poll_frame(cx)));
        let length = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
        let frames = u32::try_from(length.div_ceil(FRAME)).unwrap_or(u32::MAX).max(1);
        this.of.output().frames.fetch_add(frames, Ordering::Relaxed);
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
