//! The last minutes of one workload: a ring of samples, one for each [`STEP`], and the load of the last seconds.
//!
//! Load arrives in stats of about a second. The last seconds are kept separately. A sample contains their average, the
//! maximum number of held requests, and the number of pods. A workload without load and without pods has no samples.

use serde::Serialize;
use std::collections::VecDeque;

/// Seconds between two samples.
pub(super) const STEP: u32 = 5;
/// Maximum number of samples of one workload: ten minutes.
pub(super) const SAMPLES_MAX: usize = 120;
/// Number of seconds that are averaged.
const RECENT: u32 = STEP;
/// Number of seconds kept: the averaged ones, the current one, and two for late stats.
const SECONDS: usize = 8;

/// Load over the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// Average requests in flight.
    pub(super) concurrency: f32,
    /// Average requests per second.
    pub(super) requests: f32,
    /// Maximum number of requests held in one second.
    pub(super) held: u32,
}

/// Pods and scaling of one workload at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scale {
    pub(super) desired: i32,
    pub(super) ready: i32,
    pub(super) actual: i32,
    /// Set if the decider is in panic mode.
    pub(super) panicking: bool,
}

/// Sample of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// End of the step, Unix seconds.
    pub(super) at: u32,
    /// Load of its seconds.
    pub(super) rates: Rates,
    pub(super) desired: u16,
    pub(super) ready: u16,
    /// Set if the decider was in panic mode.
    pub(super) panic: bool,
}

impl Sample {
    fn is_blank(&self) -> bool {
        *self == Self { at: self.at, ..Self::default() }
    }
}

/// The last minutes, one number for every two samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Recent {
    /// Mean of each pair.
    pub(super) requests_per_second: Vec<f64>,
    /// Maximum of each pair.
    pub(super) held: Vec<u32>,
}

/// Number of samples per number of [`Recent`].
const FOLDED: usize = 2;

/// Load of one second.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    at: u32,
    rates: Rates,
}

/// Ring of one workload. Times are Unix seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    seconds: [Second; SECONDS],
    /// Oldest first.
    pub(super) samples: VecDeque<Sample>,
}

impl Ring {
    /// Adds load to the second `at`. Stats of several activators add up.
    pub(super) fn add(&mut self, at: u32, load: Rates) {
        let second = &mut self.seconds[at as usize % SECONDS];
        if second.at < at {
            *second = Second { at, ..Second::default() };
        }
        // A stat that is too late finds its slot taken by a later second.
        if second.at == at {
            second.rates.concurrency += load.concurrency;
            second.rates.requests += load.requests;
            second.rates.held = second.rates.held.saturating_add(load.held);
        }
    }

    /// Returns the load over the last whole seconds before `now`; held requests of the current second count too.
    pub(super) fn rates(&self, now: u32) -> Rates {
        let mut rates = Rates::default();
        let within = |second: &&Second| second.at.saturating_add(RECENT) >= now && second.at <= now;
        for Second { at, rates: second } in self.seconds.iter().filter(within) {
            if *at < now {
                rates.concurrency += second.concurrency / RECENT as f32;
                rates.requests += second.requests / RECENT as f32;
            }
            rates.held = rates.held.max(second.held);
        }
        // Measurements of different moments may differ by a negative amount.
        Rates { concurrency: rates.concurrency.max(0.0), requests: rates.requests.max(0.0), ..rates }
    }

    /// Ends a step at `now`. Samples without load and pods are kept only beside others.
    pub(super) fn sample(&mut self, now: u32, scale: Scale) {
        let pods = |count: i32| u16::try_from(count.max(0)).unwrap_or(u16::MAX);
        let (desired, ready, panic) = (pods(scale.desired), pods(scale.ready), scale.panicking);
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { at: now, rates: self.rates(now), desired, ready, panic });
        if self.samples.iter().all(Sample::is_blank) {
            self.samples = VecDeque::new();
        }
    }

    /// Returns the last minutes; none: there was no load.
    pub(super) fn recent(&self) -> Option<Recent> {
        let blank = std::iter::repeat_n(Rates::default(), SAMPLES_MAX - self.samples.len());
        let all: Vec<Rates> = blank.chain(self.samples.iter().map(|sample| sample.rates)).collect();
        if all.iter().all(|rates| rates.requests == 0.0 && rates.held == 0) {
            return None;
        }
        let mean = |some: &[Rates]| some.iter().map(|rates| rates.requests).sum::<f32>() / some.len() as f32;
        Some(Recent {
            requests_per_second: all.chunks(FOLDED).map(|some| rounded(mean(some))).collect(),
            held: all
                .chunks(FOLDED)
                .map(|some| some.iter().map(|rates| rates.held).max().unwrap_or_default())
                .collect(),
        })
    }
}

/// Rounds a rate for display.
pub(super) fn rounded(value: f32) -> f64 {
    (f64::from(value) * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: load is the average of the last five whole seconds, summed over activators; held requests are a peak,
    /// visible at once. Method: two activators report for seven seconds.
    #[test]
    fn the_last_seconds_are_averaged() {
        let mut ring = Ring::default();
        for at in 100..107 {
            ring.add(at, Rates { concurrency: 2.0, requests: 10.0, held: at - 100 });
            ring.add(at, Rates { concurrency: 1.0, requests: 5.0, held: 0 });
        }
        assert_eq!(ring.rates(106), Rates { concurrency: 3.0, requests: 15.0, held: 6 });
        assert_eq!(ring.rates(108), Rates { concurrency: 2.4, requests: 12.0, held: 6 });
        assert_eq!(ring.rates(112), Rates::default(), "no load for five seconds");
        ring.add(98, Rates { concurrency: 50.0, requests: 50.0, held: 0 });
        assert_eq!(ring.rates(106).requests, 15.0, "a stat that is too late does not count as new");
    }

    /// Goal: ten minutes are kept in at most four kibibytes, and nothing without load and pods.
    #[test]
    fn ten_minutes_are_kept() {
        let mut ring = Ring::default();
        let one = Scale { desired: 2, ready: 1, actual: 1, panicking: false };
        (1_005..=3_000).step_by(5).for_each(|now| ring.sample(now, one));
        let samples: Vec<_> = ring.samples.iter().map(|sample| (sample.at, sample.desired, sample.ready)).collect();
        assert_eq!((samples.len(), samples[0], samples[SAMPLES_MAX - 1]), (SAMPLES_MAX, (2_405, 2, 1), (3_000, 2, 1)));
        assert!(size_of::<Ring>() + ring.samples.capacity() * size_of::<Sample>() <= 4096);
        let left = (1..=SAMPLES_MAX as u32).map(|n| {
            ring.sample(3_000 + 5 * n, Scale::default());
            ring.samples.len()
        });
        assert_eq!(left.filter(|left| *left == 0).count(), 1, "the last sample with pods has been dropped");
    }

    #[test]
    fn the_last_minutes_are_folded_and_padded() {
        let sample =
            |(requests, held)| Sample { rates: Rates { requests, held, concurrency: 0.0 }, ..Sample::default() };
        let ring =
            |samples: &[(f32, u32)]| Ring { samples: samples.iter().copied().map(sample).collect(), ..Ring::default() };
        let recent = ring(&[(0.0, 1), (3.0, 4), (1.0, 0), (2.0, 0)]).recent().expect("load");
        assert_eq!((recent.held.len(), recent.requests_per_second.len()), (60, 60));
        assert_eq!((&recent.held[57..], &recent.requests_per_second[57..]), (&[0, 4, 0][..], &[0.0, 1.5, 1.5][..]));
        let idle = Ring { samples: [Sample { ready: 3, ..Sample::default() }].into(), ..Ring::default() };
        assert_eq!(idle.recent(), None);
    }
}
