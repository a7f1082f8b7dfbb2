//! Sliding maximum of recent decisions: the value that the scale-down delay holds.
//!
//! Time is divided into slots of two seconds, the evaluation period. A value recorded in slot `i` holds through slot
//! `i + slots − 1`. The entries form a queue with values that fall from head to tail, so recording is O(1) amortised
//! and the maximum is the head.
//!
//! If the clock goes backwards, values are recorded into the newest slot. The queue therefore never outgrows the
//! window.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use common::time::Timestamp;

/// Length of a slot in seconds in production: the evaluation period.
const GRANULARITY_SECS: u32 = 2;

/// Sliding maximum.
#[derive(Clone, Debug)]
pub struct MaxWindow {
    /// (slot, value) pairs: slots rise, values fall.
    entries: VecDeque<(i64, i32)>,
    slots: i64,
    granularity_secs: u32,
}

impl MaxWindow {
    /// Creates a window for a scale-down delay of at most [`WINDOW_MAX`](crate::window::WINDOW_MAX); longer delays are
    /// cut.
    pub fn new(delay: Duration) -> Self {
        Self::with_granularity(delay, GRANULARITY_SECS)
    }

    /// Creates a window with slots of `granularity_secs` (at least 1).
    pub fn with_granularity(delay: Duration, granularity_secs: u32) -> Self {
        let granularity_secs = granularity_secs.max(1);
        Self { entries: VecDeque::new(), slots: slots(delay, granularity_secs), granularity_secs }
    }

    /// Records `value` and returns the maximum of the window.
    pub fn record(&mut self, at: Timestamp, value: i32) -> i32 {
        let slot = at.as_secs().div_euclid(i64::from(self.granularity_secs));
        let slot = self.entries.back().map_or(slot, |(newest, _)| slot.max(*newest));
        while self.entries.front().is_some_and(|(oldest, _)| slot - oldest >= self.slots) {
            self.entries.pop_front();
        }
        while self.entries.back().is_some_and(|(_, smaller)| *smaller <= value) {
            self.entries.pop_back();
        }
        // A larger value of the same slot lasts at least as long as this one.
        if self.entries.back().is_none_or(|(newest, _)| *newest != slot) {
            self.entries.push_back((slot, value));
        }
        self.entries.front().map_or(value, |(_, largest)| *largest)
    }

    /// Changes the delay. Values that are too old for it are removed with the next record.
    pub fn resize(&mut self, delay: Duration) {
        self.slots = slots(delay, self.granularity_secs);
    }
}

fn slots(delay: Duration, granularity_secs: u32) -> i64 {
    crate::window::slots(delay.min(crate::window::WINDOW_MAX), granularity_secs).into()
}
