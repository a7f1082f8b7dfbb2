//! Averages over a time window.
//!
//! A [`Window`] is a ring of slots, one per second (granularity 1). A slot *sums* the values recorded into it, on the
//! assumption that each source reports once a second. One window can hold several values that are always recorded
//! together, such as concurrency and requests; they share the bookkeeping of the ring.
//!
//! # Linear
//!
//! The mean of the slots from the oldest to the newest written one, rounded to six digits. (Otherwise a residue such as
//! 3.6e-17 would round up to a whole pod.) A young window averages over its real age. Gaps inside the data count as
//! zero, but **silence at the end does not**: expired slots are removed and the others are averaged. When the last slot
//! is as old as the window, the average is 0.
//!
//! # Weighted exponential
//!
//! `Σ slot · α·(1−α)^age`, neither normalised nor rounded, with `α = max(1 − 0.0001^(1/N), 0.2)` for N slots. The base
//! is the decimal 0.0001. The difference 1 − 0.9999 in doubles is off by one part in 10¹³, which is enough to change
//! the `ceil` of a whole number.
//!
//! # Edge cases, kept because decisions depend on them
//!
//! - A value exactly as old as the window is ignored. A value exactly one window after the newest clears all others.
//! - Exactly one window after the newest value the window averages 0 and is *not* empty. It is empty a second later.
//! - A resize moves the start of the data back by a full (old) window, which dilutes a young average. If the data is
//!   older than the old length, all of it is removed, but the time of the newest slot is kept.
//! - For granularities above a second, slots begin at multiples of the granularity since the Unix epoch.
//!
//! # Memory
//!
//! The ring exists from the first value on, and is released after a silence of two windows ([`Window::release`]): a
//! revision at zero holds none.
//!
//! # Not here
//!
//! Validation of the numbers ([`crate::metrics`]): a window adds any value.

#[cfg(test)]
mod tests;

use std::time::Duration;

use common::scaling::Aggregation;
use common::time::Timestamp;

/// Maximum length of a window; longer lengths are cut to it. Annotations allow an hour.
pub const WINDOW_MAX: Duration = Duration::from_secs(24 * 3600);

/// Averages are rounded to multiples of one divided by this.
const ROUNDING: f64 = 1e6;
/// `1 − 0.9999` as a decimal: the weight that may lie outside a weighted window.
const WEIGHT_OUTSIDE: f64 = 0.0001;
/// Minimum of α, reached from about 42 slots on.
const ALPHA_MIN: f64 = 0.2;

/// Ring of time slots with `K` values each. See the [module](self).
#[derive(Clone, Debug)]
pub struct Window<const K: usize = 1> {
    /// Empty, or one element per slot. Slot `s` (an absolute number) is at `s mod slots`.
    ring: Vec<[f64; K]>,
    /// Sum of the ring.
    total: [f64; K],
    /// Oldest slot of the data; `None` means older than anything.
    first: Option<i64>,
    /// Newest slot ever written.
    last: Option<i64>,
    length: Duration,
    granularity_secs: u32,
    slots: u32,
    /// Weight of the newest slot, if the average is weighted; `None` means linear.
    alpha: Option<f64>,
}

impl<const K: usize> Window<K> {
    /// Creates a window of one-second slots. A length below a second counts as a second, and one above [`WINDOW_MAX`]
    /// as that.
    pub fn new(length: Duration, aggregation: Aggregation) -> Self {
        Self::with_granularity(length, aggregation, 1)
    }

    /// Creates a window with slots of `granularity_secs` (at least 1).
    pub fn with_granularity(length: Duration, aggregation: Aggregation, granularity_secs: u32) -> Self {
        let granularity_secs = granularity_secs.max(1);
        let length = clamp_length(length);
        let slots = slots(length, granularity_secs);
        let alpha = alpha(aggregation, slots);
        Self { ring: Vec::new(), total: [0.0; K], first: None, last: None, length, granularity_secs, slots, alpha }
    }

    /// Adds `values` to the slot of `at`. It may lie before the newest slot, but by less than a window.
    pub fn record(&mut self, at: Timestamp, values: [f64; K]) {
        let slot = self.slot(at);
        let age = self.last.map(|last| last.saturating_sub(slot));
        if age != Some(0) {
            if age.is_some_and(|age| age >= self.span()) {
                return; // Too old, including by exactly a window.
            }
            self.first = Some(self.first.map_or(slot, |first| first.min(slot)));
            match self.last {
                Some(last) if slot < last => {} // Late: nothing to clear.
                Some(last) if slot - last < self.span() => {
                    self.clear_between(last, slot);
                    self.last = Some(slot);
                }
                _ => {
                    self.ring.fill([0.0; K]);
                    self.total = [0.0; K];
                    self.first = Some(slot);
                    self.last = Some(slot);
                }
            }
        }
        if self.ring.is_empty() {
            self.ring = vec![[0.0; K]; self.slots as usize];
        }
        let index = self.index(slot);
        for (k, value) in values.into_iter().enumerate() {
            self.ring[index][k] += value;
            self.total[k] += value;
        }
    }

    /// Returns the averages at `now`, which may lie before the newest slot.
    pub fn average(&self, now: Timestamp) -> [f64; K] {
        let Some(last) = self.last else { return [0.0; K] };
        let expired = self.slot(now).saturating_sub(last).max(0);
        if expired >= self.span() || self.ring.is_empty() {
            return [0.0; K];
        }
        match self.alpha {
            None => self.linear(last, expired),
            Some(alpha) => self.weighted(last, expired, alpha),
        }
    }

    /// Returns true if the newest slot is older than that of `now` by more than the window's length.
    pub fn is_empty(&self, now: Timestamp) -> bool {
        self.last.is_none_or(|last| {
            let age = self.slot(now).saturating_sub(last).saturating_mul(i64::from(self.granularity_secs));
            u64::try_from(age).is_ok_and(|age| Duration::from_secs(age) > self.length)
        })
    }

    /// Returns true if no value lies within the window any more, a second earlier than [`Window::is_empty`].
    pub fn is_silent(&self, now: Timestamp) -> bool {
        self.last.is_none_or(|last| self.slot(now).saturating_sub(last) >= self.span())
    }

    /// Changes length and aggregation. The aggregation takes effect at once, the length as the [module](self)
    /// describes.
    pub fn resize(&mut self, length: Duration, aggregation: Aggregation, now: Timestamp) {
        let length = clamp_length(length);
        if length != self.length {
            let empty = self.is_empty(now);
            let old_slots = self.slots;
            let old_ring = std::mem::take(&mut self.ring);
            self.slots = slots(length, self.granularity_secs);
            self.length = length;
            self.total = [0.0; K];
            let newest = self.last.filter(|_| !empty);
            self.first = newest.map(|last| last - i64::from(old_slots) + 1);
            if let Some(last) = newest.filter(|_| !old_ring.is_empty()) {
                self.copy_newest(last, &old_ring);
            }
        }
        self.alpha = alpha(aggregation, self.slots);
    }

    /// Releases the ring if its contents can no longer be read: after a silence of two windows, so that not even a late
    /// record can bring an old slot back into a window that reaches `now`.
    pub fn release(&mut self, now: Timestamp) {
        if !self.ring.is_empty() && self.last.is_none_or(|last| self.slot(now).saturating_sub(last) >= 2 * self.span())
        {
            self.ring = Vec::new();
            self.total = [0.0; K];
        }
    }

    /// Returns the number of slots in memory.
    #[cfg(test)]
    pub(crate) fn held_slots(&self) -> usize {
        self.ring.capacity()
    }

    fn linear(&self, last: i64, expired: i64) -> [f64; K] {
        let mut sum = self.total;
        let (head, tail) = self.run(last + 1, expired as usize);
        for gone in head.iter().chain(tail) {
            for k in 0..K {
                sum[k] -= gone[k];
            }
        }
        let age = self.first.map_or(i64::MAX, |first| last.saturating_sub(first).saturating_add(1));
        let divisor = age.min(self.span() - expired) as f64;
        sum.map(|sum| (sum / divisor * ROUNDING).round() / ROUNDING)
    }

    fn weighted(&self, last: i64, expired: i64, alpha: f64) -> [f64; K] {
        let mut sum = [0.0; K];
        let mut weight = alpha * (1.0 - alpha).powi(expired as i32);
        let live = self.span() - expired;
        let (head, tail) = self.run(last - live + 1, live as usize);
        for slot in tail.iter().rev().chain(head.iter().rev()) {
            for k in 0..K {
                sum[k] += slot[k] * weight;
            }
            weight *= 1.0 - alpha;
            if weight == 0.0 {
                break; // Underflow: nothing older counts.
            }
        }
        sum
    }

    /// Clears the slots after `last` up to `slot`.
    fn clear_between(&mut self, last: i64, slot: i64) {
        if self.ring.is_empty() {
            return;
        }
        let start = self.index(last + 1);
        for i in 0..(slot - last) as usize {
            let index = if start + i < self.ring.len() { start + i } else { start + i - self.ring.len() };
            let values = std::mem::replace(&mut self.ring[index], [0.0; K]);
            for (total, value) in self.total.iter_mut().zip(values) {
                *total -= value;
            }
        }
    }

    /// Copies the newest slots of a ring of another length. Each keeps its absolute number.
    fn copy_newest(&mut self, last: i64, old: &[[f64; K]]) {
        self.ring = vec![[0.0; K]; self.slots as usize];
        for slot in last - self.span().min(old.len() as i64) + 1..=last {
            let values = old[slot.rem_euclid(old.len() as i64) as usize];
            let index = self.index(slot);
            self.ring[index] = values;
            for (total, value) in self.total.iter_mut().zip(values) {
                *total += value;
            }
        }
    }

    /// Returns `count` slots from `first` on, at most the whole ring, as two contiguous runs. This takes one division
    /// for all of them, which is the largest cost of accessing a slot.
    fn run(&self, first: i64, count: usize) -> (&[[f64; K]], &[[f64; K]]) {
        let start = self.index(first);
        let end = start + count;
        match end.checked_sub(self.ring.len()) {
            None => (&self.ring[start..end], &[]),
            Some(wrapped) => (&self.ring[start..], &self.ring[..wrapped]),
        }
    }

    fn slot(&self, at: Timestamp) -> i64 {
        at.as_secs().div_euclid(i64::from(self.granularity_secs))
    }

    fn index(&self, slot: i64) -> usize {
        slot.rem_euclid(self.span()) as usize
    }

    /// Returns the number of slots. A slot `span` older than another is at least the window's length older.
    fn span(&self) -> i64 {
        i64::from(self.slots)
    }
}

fn clamp_length(length: Duration) -> Duration {
    length.clamp(Duration::from_secs(1), WINDOW_MAX)
}

/// Returns the number of slots that cover `length`, at least one.
pub(crate) fn slots(length: Duration, granularity_secs: u32) -> u32 {
    let secs = length.as_secs() + u64::from(length.subsec_nanos() > 0);
    u32::try_from(secs.div_ceil(u64::from(granularity_secs))).unwrap_or(u32::MAX).max(1)
}

/// Returns the weight of the newest of `slots` slots of a weighted average.
fn alpha(aggregation: Aggregation, slots: u32) -> Option<f64> {
    let alpha = || (1.0 - WEIGHT_OUTSIDE.powf(1.0 / f64::from(slots))).max(ALPHA_MIN);
    (aggregation == Aggregation::WeightedExponential).then(alpha)
}
