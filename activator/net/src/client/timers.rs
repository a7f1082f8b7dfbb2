//! Timers that a connection's exchanges reuse.

use parking_lot::Mutex;
use smallvec::SmallVec;
use std::pin::Pin;
use tokio::time::{Instant, Sleep, sleep_until};

/// Maximum number of spare timers of a connection. Few connections have more concurrent HTTP/2 exchanges, and each
/// timer holds the waker of its last task until it fires.
const TIMERS_KEPT: usize = 8;

/// Timers that stay registered between the exchanges of a connection: resetting one costs less than creating and
/// removing one per exchange. A spare timer may fire, which wakes a task needlessly, once per timeout of the revision.
#[derive(Debug, Default)]
pub struct SpareTimers(Mutex<SmallVec<[Pin<Box<Sleep>>; 1]>>);

impl SpareTimers {
    /// Returns a timer set to `at`.
    pub fn take(&self, at: Instant) -> Pin<Box<Sleep>> {
        let spare = self.0.lock().pop();
        match spare {
            Some(mut timer) => {
                timer.as_mut().reset(at);
                timer
            }
            None => Box::pin(sleep_until(at)),
        }
    }

    /// Keeps a timer, unless there are too many.
    pub fn keep(&self, timer: Pin<Box<Sleep>>) {
        let mut spare = self.0.lock();
        if spare.len() < TIMERS_KEPT {
            spare.push(timer);
        } // Otherwise it is dropped after the lock, because that locks the runtime's timer wheel.
    }
}
