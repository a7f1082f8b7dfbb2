//! Time-weighted concurrency and arrivals, window by window.
//!
//! ```text
//! advance(t):  d = t - last; if d > 0: elapsed += d, area += concurrency * d, last = t
//! report(t):   advance(t); average = area / elapsed (0 if nothing elapsed); area, elapsed and count restart at 0
//! ```
//!
//! A request counts in the window in which it arrives, and weighs in every window that it overlaps. The divisor is the
//! time that really passed, not the nominal window. An event with a timestamp before the last one does not move the
//! time, but it still counts.
//!
//! Areas are kept in whole nanoseconds, so that a day of a thousand concurrent requests loses nothing to rounding.

use common::time::Timestamp;

/// Counts of one source. The concurrency carries over from window to window; the rest restarts with each report.
#[derive(Clone, Debug)]
pub struct RequestStats {
    last: Timestamp,
    elapsed_nanos: u64,
    area_nanos: i128,
    concurrency: i64,
    count: u64,
}

/// Measurements of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RequestReport {
    /// Mean number of requests in flight, weighted by time.
    pub average_concurrency: f64,
    /// Number of requests that arrived.
    pub request_count: f64,
}

impl RequestStats {
    /// Creates counts with nothing in flight. The first window begins at `start`.
    pub fn new(start: Timestamp) -> Self {
        Self { last: start, elapsed_nanos: 0, area_nanos: 0, concurrency: 0, count: 0 }
    }

    /// Records the arrival of a request.
    pub fn enter(&mut self, at: Timestamp) {
        self.advance(at);
        self.concurrency += 1;
        self.count += 1;
    }

    /// Records the end of a request.
    pub fn leave(&mut self, at: Timestamp) {
        self.advance(at);
        self.concurrency -= 1;
    }

    /// Returns the number of requests in flight.
    pub fn concurrency(&self) -> i64 {
        self.concurrency
    }

    /// Ends the window and returns its measurements.
    pub fn report(&mut self, at: Timestamp) -> RequestReport {
        self.advance(at);
        let elapsed = std::mem::take(&mut self.elapsed_nanos);
        let area = std::mem::take(&mut self.area_nanos);
        let average_concurrency = if elapsed == 0 { 0.0 } else { area as f64 / elapsed as f64 };
        RequestReport { average_concurrency, request_count: std::mem::take(&mut self.count) as f64 }
    }

    fn advance(&mut self, at: Timestamp) {
        if at <= self.last {
            return;
        }
        let gap = u64::try_from(at.saturating_since(self.last).as_nanos()).unwrap_or(u64::MAX);
        self.elapsed_nanos = self.elapsed_nanos.saturating_add(gap);
        self.area_nanos += i128::from(self.concurrency) * i128::from(gap);
        self.last = at;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(millis: i64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    proptest! {
        /// Goal: the averages of all windows, weighted by their lengths, add up to the total time of all requests.
        #[test]
        fn nothing_is_lost_between_windows(
            spans in prop::collection::vec((0i64..5_000, 0i64..5_000), 0..40),
            mut cuts in prop::collection::vec(1i64..10_000, 0..10),
        ) {
            let mut events: Vec<(i64, i64)> = Vec::new();
            for (start, length) in &spans {
                events.push((*start, 1));
                events.push((start + length, -1));
            }
            events.sort_by_key(|(at, change)| (*at, -change));
            cuts.push(10_000);
            cuts.sort_unstable();
            let (mut stats, mut events) = (RequestStats::new(ms(0)), events.into_iter().peekable());
            let (mut total, mut count, mut begin) = (0.0, 0.0, 0);
            for cut in cuts {
                while let Some((at, change)) = events.next_if(|(at, _)| *at <= cut) {
                    if change > 0 { stats.enter(ms(at)) } else { stats.leave(ms(at)) }
                }
                let report = stats.report(ms(cut));
                total += report.average_concurrency * (cut - begin) as f64;
                count += report.request_count;
                begin = cut;
            }
            let expected: i64 = spans.iter().map(|(_, length)| length).sum();
            prop_assert!((total - expected as f64).abs() < 1e-3, "{total} ms instead of {expected}");
            prop_assert_eq!((count, stats.concurrency()), (spans.len() as f64, 0));
        }
    }
}
