//! The future that waits for a permit, and the permit.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::queue::{Enqueued, WaiterKey};
use super::{AdmissionError, Breaker};

/// Permit of a breaker, released on drop.
#[derive(Debug)]
pub struct Permit<H: Deref<Target = Breaker>> {
    handle: H,
    /// False while the request still waits for the permit.
    held: bool,
}

/// Future that yields a permit, or the reason why there is none.
///
/// The request is received and queued at the first poll. Cancel safe: dropping the future leaves the queue, and passes
/// on a permit that was already granted.
#[derive(Debug)]
pub struct Acquire<H: Deref<Target = Breaker>> {
    state: AcquireState<H>,
}

#[derive(Debug)]
enum AcquireState<H: Deref<Target = Breaker>> {
    /// The request is not received yet.
    Arriving(Permit<H>),
    /// The request was admitted before, and keeps its permit until this future is polled.
    Returning(Permit<H>),
    /// The request waits under this key.
    Waiting(Permit<H>, WaiterKey),
    /// The outcome was returned.
    Done,
}

impl<H: Deref<Target = Breaker>> Permit<H> {
    /// Wraps a permit that was just taken.
    pub(super) fn new(handle: H) -> Self {
        Self { handle, held: true }
    }

    /// Returns the handle of the breaker that was passed in.
    pub fn handle(&self) -> &H {
        &self.handle
    }

    /// Trades the permit for the head of the queue, for a request that found no destination and of which nothing was
    /// sent. Always pending at its first poll, so that a loop around it lets other tasks run.
    pub fn requeue(self) -> Acquire<H> {
        Acquire { state: AcquireState::Returning(self) }
    }
}

impl<H: Deref<Target = Breaker>> Drop for Permit<H> {
    fn drop(&mut self) {
        if self.held {
            self.handle.give_back();
        }
    }
}

impl<H: Deref<Target = Breaker>> Acquire<H> {
    /// Creates the future of a request that has just arrived at the breaker behind `handle`. The handle is a reference,
    /// or an `Arc` if the permit must outlive the caller.
    pub fn new(handle: H) -> Self {
        Self { state: AcquireState::Arriving(Permit { handle, held: false }) }
    }
}

/// No pointer into the future exists: the queue stores only a key and a waker.
impl<H: Deref<Target = Breaker>> Unpin for Acquire<H> {}

impl<H: Deref<Target = Breaker>> Future for Acquire<H> {
    type Output = Result<Permit<H>, AdmissionError>;

    /// # Panics
    ///
    /// Panics if polled again after the outcome was returned.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = context.waker();
        let (mut permit, outcome) = match std::mem::replace(&mut self.state, AcquireState::Done) {
            // Arriving => (Done | Waiting)
            AcquireState::Arriving(permit) => {
                let outcome = if permit.handle.try_take() { Enqueued::Taken } else { permit.handle.enqueue(waker) };
                (permit, outcome)
            }
            // Returning => (Done | Waiting)
            AcquireState::Returning(mut permit) => {
                permit.held = false; // The call below releases the permit.
                let outcome = permit.handle.requeue(waker);
                (permit, outcome)
            }
            // Waiting => (Waiting | Done)
            AcquireState::Waiting(permit, key) => {
                let outcome = permit.handle.queue.lock().poll(key, waker);
                (permit, outcome)
            }
            AcquireState::Done => panic!("polled after it ended"),
        };
        match outcome {
            Enqueued::Taken => {
                permit.held = true;
                Poll::Ready(Ok(permit))
            }
            Enqueued::Refused(refusal) => Poll::Ready(Err(refusal)),
            Enqueued::Waiting(key) => {
                self.state = AcquireState::Waiting(permit, key);
                Poll::Pending
            }
        }
    }
}

impl<H: Deref<Target = Breaker>> Drop for Acquire<H> {
    fn drop(&mut self) {
        if let AcquireState::Waiting(permit, key) = &self.state {
            permit.handle.abandon(*key);
        }
    }
}
