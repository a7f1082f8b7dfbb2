//! What the load and the scale of one workload were over the last minutes, in little memory.
//!
//! Load comes in as stats, each about a second. The last seconds are kept one by one; every [`STEP`] they become a point,
//! which says their average, the most requests that were held in one of them, and how many pods there were. A point that
//! equals the one before is not kept: it lasts. So an hour of calm is one point, and ten busy minutes are
//! [`POINTS_MAX`] of 24 bytes.
//!
//! # Not here
//!
//! What has had no load for so long that nothing of it is left is not kept at all ([`super::super::journal`]).

use std::collections::VecDeque;

/// Seconds between two points.
pub(crate) const STEP: u32 = 5;
/// Points of one workload at most: ten minutes.
pub(crate) const POINTS_MAX: u32 = 120;
/// Seconds that are averaged.
const RECENT: u32 = STEP;
/// Seconds that are kept: those, the one that runs, and two for whoever is late.
const SECONDS: usize = 8;

/// One step of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Point {
    /// Average requests in flight.
    pub(crate) concurrency: f32,
    /// Average requests a second.
    pub(crate) requests: f32,
    /// Most requests that were held in one second.
    pub(crate) held: u32,
    /// Pods wanted.
    pub(crate) desired: u16,
    /// Pods ready.
    pub(crate) ready: u16,
    /// Whether the decider panicked.
    pub(crate) panic: bool,
}

/// Load over the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Average requests in flight.
    pub(crate) concurrency: f32,
    /// Average requests a second.
    pub(crate) requests: f32,
    /// Most requests that were held in one second.
    pub(crate) held: u32,
}

/// One second.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    at: u32,
    concurrency: f32,
    requests: f32,
    held: u32,
}

/// One workload's. See the [module](self). Times are Unix seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    seconds: [Second; SECONDS],
    /// By the step at whose end they were made.
    points: VecDeque<(u32, Point)>,
}

impl Timeline {
    /// A stat said this of the second `at`. Those of several activators add up.
    pub(crate) fn measured(&mut self, at: u32, concurrency: f32, requests: f32) {
        if let Some(second) = self.second(at) {
            second.concurrency += concurrency;
            second.requests += requests;
        }
    }

    /// So many requests were held in the second `at`.
    pub(crate) fn held(&mut self, at: u32, held: u32) {
        if let Some(second) = self.second(at) {
            second.held = second.held.saturating_add(held);
        }
    }

    /// The second `at`; none: it is over for too long.
    fn second(&mut self, at: u32) -> Option<&mut Second> {
        let second = &mut self.seconds[at as usize % SECONDS];
        if second.at < at {
            *second = Second { at, ..Second::default() };
        }
        (second.at == at).then_some(second)
    }

    /// The load over the last whole seconds before `now`; what was held counts in the one that runs, too.
    pub(crate) fn recent(&self, now: u32) -> Rates {
        let mut rates = Rates::default();
        let within = |second: &&Second| second.at.saturating_add(RECENT) >= now && second.at <= now;
        for second in self.seconds.iter().filter(within) {
            if second.at < now {
                rates.concurrency += second.concurrency / RECENT as f32;
                rates.requests += second.requests / RECENT as f32;
            }
            rates.held = rates.held.max(second.held);
        }
        // What was measured at different moments may differ by less than nothing.
        Rates { concurrency: rates.concurrency.max(0.0), requests: rates.requests.max(0.0), ..rates }
    }

    /// A step ends at `now`, with so many pods.
    pub(crate) fn step(&mut self, now: u32, desired: i32, ready: i32, panic: bool) {
        let (Rates { concurrency, requests, held }, step) = (self.recent(now), now / STEP);
        let pods = |count: i32| u16::try_from(count.max(0)).unwrap_or(u16::MAX);
        let point = Point { concurrency, requests, held, desired: pods(desired), ready: pods(ready), panic };
        if self.points.back().is_none_or(|(_, last)| *last != point) {
            if self.points.len() == self.points.capacity() {
                self.points.reserve_exact(8);
            }
            self.points.push_back((step, point));
        }
        // The one that lasts into the first step is needed.
        while self.points.get(1).is_some_and(|(next, _)| next + POINTS_MAX <= step) {
            self.points.pop_front();
        }
    }

    /// Whether it says that for all of its time nothing has happened.
    pub(crate) fn is_blank(&self, now: u32) -> bool {
        self.points.len() <= 1
            && self.points.back().is_none_or(|(at, last)| *last == Point::default() && at + POINTS_MAX <= now / STEP)
            && self.recent(now) == Rates::default()
    }

    /// A point for each step up to `now`, oldest first, with the time at which it ends. `born`: nothing is known from
    /// before; between then and the first point nothing happened.
    pub(crate) fn points(&self, born: u32, now: u32) -> Vec<(u32, Point)> {
        let last = now / STEP;
        let first = (last.saturating_sub(POINTS_MAX) + 1).max(born / STEP + 1);
        let mut kept = self.points.iter().peekable();
        let mut standing = Point::default();
        (first..=last)
            .map(|step| {
                while let Some((_, point)) = kept.next_if(|(at, _)| *at <= step) {
                    standing = *point;
                }
                (step * STEP, standing)
            })
            .collect()
    }

    /// Bytes that it takes beside itself.
    #[cfg(test)]
    pub(crate) fn heap(&self) -> usize {
        self.points.capacity() * size_of::<(u32, Point)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: load is the average of the last five whole seconds, summed over activators; held requests are a peak, seen at
    /// once. Method: two activators report seven seconds.
    #[test]
    fn the_last_seconds_are_averaged() {
        let mut timeline = Timeline::default();
        for at in 100..107 {
            timeline.measured(at, 2.0, 10.0);
            timeline.measured(at, 1.0, 5.0);
            timeline.held(at, at - 100);
        }
        assert_eq!(timeline.recent(106), Rates { concurrency: 3.0, requests: 15.0, held: 6 });
        assert_eq!(timeline.recent(108), Rates { concurrency: 2.4, requests: 12.0, held: 6 });
        assert_eq!(timeline.recent(112), Rates::default(), "it is over");
        timeline.measured(98, 50.0, 50.0);
        assert_eq!(timeline.recent(106).requests, 15.0, "what is too old does not count as new");
    }

    /// Goal: equal points last, all of them are told, and what is older than the range is not kept.
    #[test]
    fn points_last_until_another_comes() {
        let mut timeline = Timeline::default();
        let born = 1_000;
        for now in (1_005..=1_100).step_by(5) {
            timeline.step(now, 2, if now < 1_050 { 1 } else { 2 }, false);
        }
        assert_eq!(timeline.points.len(), 2);
        let points = timeline.points(born, 1_103);
        let told: Vec<_> = points.iter().map(|(at, point)| (*at, point.ready)).collect();
        assert_eq!(told.len(), 20);
        assert_eq!((told[0], told[8], told[9], told[19]), ((1_005, 1), (1_045, 1), (1_050, 2), (1_100, 2)));

        for now in (1_105..3_000).step_by(5) {
            timeline.step(now, 0, 0, false);
        }
        assert_eq!(timeline.points.len(), 1, "what is over is forgotten");
        assert_eq!(timeline.points(born, 3_000).len() as u32, POINTS_MAX);
        assert!(timeline.is_blank(2_995) && !timeline.is_blank(1_200));
    }

    /// Goal: the busiest workload takes what the header says.
    #[test]
    fn a_busy_workload_takes_three_kibibytes() {
        let mut timeline = Timeline::default();
        for now in (5..10_000).step_by(5) {
            timeline.measured(now - 1, now as f32, 1.0);
            timeline.step(now, 1, 1, false);
        }
        assert_eq!(timeline.points.len() as u32, POINTS_MAX + 1);
        assert!(size_of::<Timeline>() + timeline.heap() <= 4096, "{}", size_of::<Timeline>() + timeline.heap());
    }
}
