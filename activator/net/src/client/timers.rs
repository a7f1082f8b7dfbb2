//! Timers that a connection's exchanges pass on to each other.

use parking_lot::Mutex;
use smallvec::SmallVec;
use std::pin::Pin;
use tokio::time::{Instant, Sleep, sleep_until};

/// Most timers that a connection keeps: so many exchanges of HTTP/2 are at once in most cases, and each timer keeps
/// what is left of its last task until it fires.
const TIMERS_KEPT: usize = 8;

/// Timers that stay set between the exchanges of a connection: to move one costs less than to make and unset one for
/// each. Between them it may fire, and wakes a task for nothing, once for each revision's timeout.
#[derive(Debug, Default)]
pub struct SpareTimers(Mutex<SmallVec<[Pin<Box<Sleep>>; 1]>>);

impl SpareTimers {
    /// A timer set to `at`.
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

    /// Keeps a timer, if there are not too many.
    pub fn keep(&self, timer: Pin<Box<Sleep>>) {
        let mut spare = self.0.lock();
        if spare.len() < TIMERS_KEPT {
            spare.push(timer);
        } // Else it is dropped after the lock: it leaves the runtime's list of timers.
    }
}
