//! Virtual time of a simulation: a clock, one queue of events, the trace, and the first violated invariant.
//!
//! Everything that happens is an event at a time. Events of the same time happen in the order of their creation.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub(crate) struct Timeline<E> {
    pub(crate) now: Duration,
    /// Made-up instant of the start.
    pub(crate) epoch: Instant,
    /// First violated invariant, with its time.
    pub(crate) broken: Option<(Duration, String)>,
    verbose: bool,
    queue: BTreeMap<(Duration, u64), E>,
    made: u64,
}

impl<E> Timeline<E> {
    pub(crate) fn new(verbose: bool) -> Self {
        // Later than the origin, so that earlier instants exist.
        let epoch = origin() + Duration::from_secs(3600);
        Self { now: Duration::ZERO, epoch, broken: None, verbose, queue: BTreeMap::new(), made: 0 }
    }

    pub(crate) fn at(&mut self, delay: Duration, event: E) {
        self.made += 1;
        self.queue.insert((self.now + delay, self.made), event);
    }

    /// Moves to the next event until `end`. Returns `None` if there is none, or an invariant is violated.
    pub(crate) fn next(&mut self, end: Duration) -> Option<E> {
        let ((at, _), event) = self.queue.pop_first().filter(|((at, _), _)| *at <= end && self.broken.is_none())?;
        self.now = at;
        Some(event)
    }

    pub(crate) fn instant(&self) -> Instant {
        self.epoch + self.now
    }

    /// Prints a line of the trace.
    pub(crate) fn say(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>9.4}  {}", self.now.as_secs_f64(), what());
        }
    }

    /// Records the first violated invariant.
    pub(crate) fn break_rule(&mut self, what: String) {
        if self.broken.is_none() {
            self.say(|| format!("BROKEN {what}"));
            self.broken = Some((self.now, what));
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "an origin for made-up instants; nothing here waits")]
pub(crate) fn origin() -> Instant {
    Instant::now()
}
