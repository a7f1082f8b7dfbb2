//! Virtual time of a simulation: a clock, one queue of events, the trace, and the first violated invariant.
//!
//! Each event has a time. Events of the same time happen in the order of their creation.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub(crate) struct Timeline<E> {
    pub(crate) now: Duration,
    /// Arbitrary instant of the start.
    pub(crate) epoch: Instant,
    /// First violated invariant, with its time.
    pub(crate) violation: Option<(Duration, String)>,
    verbose: bool,
    queue: BTreeMap<(Duration, u64), E>,
    count: u64,
}

impl<E> Timeline<E> {
    pub(crate) fn new(verbose: bool) -> Self {
        // Earlier instants must exist, too.
        let epoch = origin() + Duration::from_secs(3600);
        Self { now: Duration::ZERO, epoch, violation: None, verbose, queue: BTreeMap::new(), count: 0 }
    }

    /// Adds an event after a delay.
    pub(crate) fn after(&mut self, delay: Duration, event: E) {
        self.count += 1;
        self.queue.insert((self.now + delay, self.count), event);
    }

    /// Moves to the next event until `end`. Returns `None` if there is none, or an invariant is violated.
    pub(crate) fn next(&mut self, end: Duration) -> Option<E> {
        let ((at, _), event) = self.queue.pop_first().filter(|((at, _), _)| *at <= end && self.violation.is_none())?;
        self.now = at;
        Some(event)
    }

    pub(crate) fn instant(&self) -> Instant {
        self.epoch + self.now
    }

    /// Prints a line of the trace.
    pub(crate) fn trace(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>9.4}  {}", self.now.as_secs_f64(), what());
        }
    }

    /// Records the first violated invariant.
    pub(crate) fn violate(&mut self, what: String) {
        if self.violation.is_none() {
            self.trace(|| format!("VIOLATION {what}"));
            self.violation = Some((self.now, what));
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "origin of virtual instants; nothing here waits")]
pub(crate) fn origin() -> Instant {
    Instant::now()
}
