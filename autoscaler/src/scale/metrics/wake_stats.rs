//! Outcomes of a revision's wakes, and the time for which its pods ran or were saved.
//!
//! A wake begins when a stat requests pods while there are none, or when replicas are raised from zero for another
//! reason. It ends with the first ready pod, or when pods are no longer wanted. Pods are counted at each evaluation,
//! every two seconds; the count is assumed to have been constant since the previous one.

use super::super::PodCounts;
use std::time::Duration;
use tokio::time::Instant;

/// Names of the outcomes, in the order of `common_runtime::telemetry::values::WAKES`.
pub(super) const WAKES: [&str; 3] = ["ready", "failed", "refused"];
/// Names of the kinds of time, in the order of `POD_TIMES`.
pub(super) const POD_TIMES: [&str; 2] = ["run", "saved"];

/// Statistics of one revision, since this process owns it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WakeStats {
    /// Number of wakes by outcome.
    pub(super) wakes: [u64; WAKES.len()],
    /// Total run time of pods, and total time without pods.
    pub(super) times: [Duration; POD_TIMES.len()],
    wake: Wake,
    counted: Option<(Instant, Pods)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wake {
    #[default]
    None,
    /// A stat has requested pods.
    Requested,
    /// The API server has accepted the change of replicas.
    Accepted,
}

#[derive(Clone, Copy, Debug)]
struct Pods {
    all: u32,
    /// Pods that have started.
    running: u32,
}

impl WakeStats {
    /// Records that a stat requests pods while there are none.
    pub(super) fn record_wake_request(&mut self) {
        if self.wake == Wake::None {
            self.wake = Wake::Requested;
        }
    }

    /// Records that replicas were raised from zero.
    pub(super) fn record_scale_up(&mut self) {
        self.wake = Wake::Accepted;
    }

    /// Records that no pods are needed. `slept`: replicas were lowered to zero.
    pub(super) fn record_no_demand(&mut self, slept: bool) {
        match self.wake {
            Wake::Requested => self.end(2),
            Wake::Accepted if slept => self.end(1),
            Wake::None | Wake::Accepted => {}
        }
    }

    /// Records the current number of pods.
    pub(super) fn counted(&mut self, counts: PodCounts, now: Instant) {
        let PodCounts { ready, not_ready, pending, .. } = counts;
        let number = |count: i32| u32::try_from(count).unwrap_or(0);
        if ready > 0 && self.wake != Wake::None {
            self.end(0);
        }
        let pods = Pods { all: number(ready + not_ready), running: number(ready + not_ready - pending) };
        if let Some((since, Pods { all, running })) = self.counted.replace((now, pods)) {
            let time = now.saturating_duration_since(since);
            self.times[0] += time * running;
            self.times[1] += if all == 0 { time } else { Duration::ZERO };
        }
    }

    fn end(&mut self, outcome: usize) {
        self.wakes[outcome] += 1;
        self.wake = Wake::None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common_runtime::telemetry::values;

    #[derive(Clone, Copy)]
    enum Step {
        Requested,
        Raised,
        Ready(i32),
        NoDemand,
        Slept,
    }
    use Step::*;

    /// Goal: each wake ends once, with the right outcome. Method: sequences of events of a revision.
    #[test]
    fn each_wake_ends_once() {
        let rows: [(&[Step], [u64; 3]); 8] = [
            (&[Requested, Requested, Raised, Ready(0), Ready(1), Ready(2)], [1, 0, 0]),
            (&[Raised, Ready(1)], [1, 0, 0]),    // By a schedule.
            (&[Requested, Ready(1)], [1, 0, 0]), // By another writer.
            (&[Requested, Raised, NoDemand, Ready(1)], [1, 0, 0]),
            (&[Requested, Raised, NoDemand, Slept, Ready(0)], [0, 1, 0]),
            (&[Requested, NoDemand, NoDemand], [0, 0, 1]),
            (&[Requested, Raised, Ready(1), Slept, Ready(0), Requested, Raised, Ready(1)], [2, 0, 0]),
            (&[Ready(1), NoDemand, Slept], [0, 0, 0]),
        ];
        for (at, (steps, expected)) in rows.into_iter().enumerate() {
            let (mut wake_stats, now) = (WakeStats::default(), Instant::now());
            for step in steps {
                match *step {
                    Requested => wake_stats.record_wake_request(),
                    Raised => wake_stats.record_scale_up(),
                    Ready(ready) => wake_stats.counted(PodCounts { ready, ..PodCounts::default() }, now),
                    NoDemand => wake_stats.record_no_demand(false),
                    Slept => wake_stats.record_no_demand(true),
                }
            }
            assert_eq!(wake_stats.wakes, expected, "row {at}");
        }
    }

    #[test]
    fn pods_run_for_as_long_as_they_are_counted() {
        let (mut wake_stats, start) = (WakeStats::default(), Instant::now());
        let counts = |ready, not_ready, pending| PodCounts { ready, not_ready, pending, terminating: 0 };
        let rows = [(0, counts(0, 0, 0)), (10, counts(0, 1, 1)), (12, counts(2, 1, 0)), (20, counts(0, 0, 0))];
        for (at, counts) in rows {
            wake_stats.counted(counts, start + Duration::from_secs(at));
        }
        wake_stats.counted(PodCounts::default(), start + Duration::from_secs(23));
        // No pods for 10 s, one pending for 2 s, three running for 8 s, none for 3 s.
        assert_eq!(wake_stats.times, [Duration::from_secs(24), Duration::from_secs(13)]);
    }

    #[test]
    fn label_values_match_the_manual() {
        assert_eq!(WAKES.as_slice(), values::WAKES.iter().map(|(word, _)| *word).collect::<Vec<_>>());
        assert_eq!(POD_TIMES.as_slice(), values::POD_TIMES.iter().map(|(word, _)| *word).collect::<Vec<_>>());
    }
}
