//! Trouble that lasts: said once when it has set in, and once when it is over.
//!
//! What is tried again until it works fails now and then, and that is no news: a failure is said at debug. When the
//! same thing has failed for [`LASTING`] it is said at warn, once, and what follows at debug again, until the thing
//! works, which is said at info. Not every thing tells of its success (a watch is silent while nothing happens), so
//! failures that lie further apart than [`FORGOTTEN_AFTER`] do not belong together.

use std::fmt::Display;
use std::time::Duration;
use tokio::time::Instant;

/// Failures go on for so long before they are trouble: a peer that starts or restarts is back by then.
const LASTING: Duration = Duration::from_secs(5);
/// Longer than any pause between two attempts.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// The failures of one thing that is tried again and again.
#[derive(Debug)]
pub struct Trouble {
    thing: String,
    row: Option<Row>,
}

/// Failures that belong together.
#[derive(Clone, Copy, Debug)]
struct Row {
    first: Instant,
    last: Instant,
    told: bool,
}

impl Trouble {
    /// None so far. `thing` is what it will be called, such as `the binding of pod default/a`.
    pub fn with(thing: impl Into<String>) -> Self {
        Self { thing: thing.into(), row: None }
    }

    /// It failed, and will be tried again.
    pub fn failed(&mut self, error: &impl Display) {
        if self.sets_in(Instant::now()) {
            tracing::warn!(thing = self.thing, %error, "keeps failing; it is tried again, quietly, until it works");
        } else {
            tracing::debug!(thing = self.thing, %error, "failed; will be tried again");
        }
    }

    /// As [`Trouble::failed`], where it is known what would mend it.
    pub fn failed_for(&mut self, error: &impl Display, remedy: &impl Display) {
        if self.sets_in(Instant::now()) {
            tracing::warn!(thing = self.thing, %error, %remedy, "keeps failing; it is tried again, quietly, until it works");
        } else {
            tracing::debug!(thing = self.thing, %error, %remedy, "failed; will be tried again");
        }
    }

    /// It works.
    pub fn over(&mut self) {
        if self.row.take().is_some_and(|row| row.told) {
            tracing::info!(thing = self.thing, "works again");
        }
    }

    /// Notes a failure; whether it is the one that makes trouble of the row.
    fn sets_in(&mut self, now: Instant) -> bool {
        let mut row = self.row.filter(|row| now.saturating_duration_since(row.last) < FORGOTTEN_AFTER).unwrap_or(Row {
            first: now,
            last: now,
            told: false,
        });
        let sets_in = !row.told && now.saturating_duration_since(row.first) >= LASTING;
        row.last = now;
        row.told |= sets_in;
        self.row = Some(row);
        sets_in
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: one word for one trouble. Method: failures at given seconds, and which of them are told.
    #[tokio::test]
    async fn trouble_is_told_once_until_it_is_over() {
        let start = Instant::now();
        let mut trouble = Trouble::with("a test");
        let mut at = |second| trouble.sets_in(start + Duration::from_secs(second));
        let told: Vec<u64> = [0, 1, 4, 5, 6, 60].into_iter().filter(|second| at(*second)).collect();
        assert_eq!(told, [5], "after five seconds, and then no more");
        assert!(!at(200), "a failure after a long peace begins a new row");
        assert!(at(206));
        trouble.over();
        assert!(!trouble.sets_in(start + Duration::from_secs(207)), "so does one after a success");
    }
}
