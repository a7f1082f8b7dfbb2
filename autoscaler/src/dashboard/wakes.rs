//! The last wakes of one workload, with their phases. An activator reports the phases. The autoscaler's own share of
//! the time between the signal and the first address is the phase `scale`, and the rest is `pod`.
//!
//! | phase | until |
//! |---|---|
//! | signal | the autoscaler has been notified |
//! | scale | its change of the replicas is accepted |
//! | pod | the address of a pod is known |
//! | probe | a probe of it passes |
//! | forward | its response begins |

use common::stat::ObservedWake;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;

/// Number of wakes kept.
pub(super) const KEPT: usize = 6;
/// Longest reason that is kept, in bytes.
const REASON_MAX: usize = 200;
pub(super) const PHASES: [&str; 5] = ["signal", "scale", "pod", "probe", "forward"];
/// Maximum duration of a phase: a day.
const LONGEST_US: u64 = 86_400_000_000;
/// Tolerance for clock differences and network delays between two machines.
const TOLERANCE_MS: i64 = 1_000;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wake {
    /// Arrival of its first request, Unix milliseconds.
    pub(super) at_ms: i64,
    /// Duration of each of [`PHASES`], in seconds.
    pub(super) phases: [f32; 5],
    /// Reason of its failure.
    pub(super) failed: Option<Box<str>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Wakes {
    /// Oldest first.
    pub(super) last: VecDeque<Wake>,
    /// Time when the target was last given its first pods, Unix milliseconds, and the seconds since the request for
    /// them.
    scaled: Option<(i64, f32)>,
}

impl Wakes {
    /// Records that the target was given its first pods at `now_ms`, `took` after they were requested.
    pub(super) fn scaled(&mut self, now_ms: i64, took: Duration) {
        self.scaled = Some((now_ms, took.as_secs_f32()));
    }

    /// Records an activator's report of a wake, received at `now_ms`.
    pub(super) fn record(&mut self, wake: &ObservedWake, now_ms: i64) {
        let micros =
            [wake.signal_us, wake.start_us, wake.probe_us, wake.forward_us].map(|micros| micros.min(LONGEST_US));
        let [signal, start, probe, forward] = micros.map(|micros| Duration::from_micros(micros).as_secs_f32());
        let ended_ms = now_ms - i64::from(wake.ended_ms_ago);
        let at_ms = ended_ms.saturating_sub(i64::try_from(micros.iter().sum::<u64>() / 1_000).unwrap_or(i64::MAX));
        let own = self.scaled.filter(|(at, _)| (at_ms - TOLERANCE_MS..=ended_ms + TOLERANCE_MS).contains(at));
        let scale = own.map_or(0.0, |(_, took)| took.clamp(0.0, start));
        let failed = &wake.failed[..wake.failed.floor_char_boundary(REASON_MAX)];
        let failed = (!failed.is_empty()).then(|| failed.into());
        let wake = Wake { at_ms, phases: [signal, scale, start - scale, probe, forward], failed };
        // Another activator has reported the same wake, or another request that waited for it.
        if let Some(last) = self.last.back_mut().filter(|last| last.overlaps(&wake)) {
            return last.merge(wake);
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(wake);
    }

    /// Returns the size of its heap data.
    #[cfg(test)]
    pub(super) fn heap(&self) -> usize {
        self.last.capacity() * size_of::<Wake>()
            + self.last.iter().filter_map(|w| w.failed.as_ref()).map(|f| f.len()).sum::<usize>()
    }
}

impl Wake {
    fn ended_ms(&self) -> i64 {
        self.at_ms.saturating_add((self.seconds() * 1e3) as i64)
    }

    /// Returns whether both may be one wake.
    fn overlaps(&self, other: &Self) -> bool {
        let begins_before = |one: &Self, end: i64| one.at_ms <= end.saturating_add(TOLERANCE_MS);
        begins_before(self, other.ended_ms()) && begins_before(other, self.ended_ms())
    }

    /// Merges another report of this wake. The wake lasts from the first request to the first response, and has failed
    /// only if no request got a response.
    fn merge(&mut self, other: Self) {
        match (&self.failed, &other.failed) {
            (Some(_), None) => *self = other,
            (None, Some(_)) => {}
            _ => {
                let ended_ms = self.ended_ms().min(other.ended_ms());
                if other.at_ms < self.at_ms {
                    *self = other;
                }
                let length = Duration::from_millis(u64::try_from(ended_ms - self.at_ms).unwrap_or(0)).as_secs_f32();
                let before: f32 = self.phases[..4].iter().sum();
                self.phases[4] = self.phases[4].min((length - before).max(0.0));
            }
        }
    }

    pub(super) fn seconds(&self) -> f64 {
        self.phases.iter().map(|seconds| f64::from(*seconds)).sum()
    }

    pub(super) fn to_json(&self) -> Value {
        let round = |seconds: f64| (seconds * 1e6).round() / 1e6;
        let phases: Vec<_> = PHASES
            .iter()
            .zip(self.phases)
            .map(|(name, seconds)| json!({"name": name, "seconds": round(f64::from(seconds))}))
            .collect();
        let mut wake = json!({
            "at": jiff::Timestamp::from_millisecond(self.at_ms).unwrap_or_default().to_string(),
            "seconds": round(self.seconds()),
            "phases": phases,
            "outcome": if self.failed.is_some() { "failed" } else { "answered" },
        });
        if let Some(reason) = &self.failed {
            wake["reason"] = json!(reason);
        }
        wake
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed_wake(start_us: u64) -> ObservedWake {
        ObservedWake {
            ended_ms_ago: 400,
            signal_us: 1_000,
            start_us,
            probe_us: 200_000,
            forward_us: 9_000,
            ..ObservedWake::default()
        }
    }

    /// Goal: the autoscaler's own share is separated from the time to the first address if it belongs to the same wake,
    /// and never exceeds that time. Phases add up, and the wake begins with its first request.
    #[test]
    fn a_wake_combines_the_reports_of_both_planes() {
        let now_ms = 1_000_000;
        // (the autoscaler's share: when, seconds) -> (scale, pod) of 0.5 s
        let rows = [
            (None, [0.0, 0.5]),
            (Some((now_ms - 900, 0.02)), [0.02, 0.48]),
            (Some((now_ms - 900, 3.0)), [0.5, 0.0]),
            (Some((now_ms - 60_000, 0.02)), [0.0, 0.5]),
        ];
        for (own, expected) in rows {
            let mut wakes = Wakes::default();
            if let Some((at, took)) = own {
                wakes.scaled(at, Duration::from_secs_f32(took));
            }
            wakes.record(&observed_wake(500_000), now_ms);
            let wake = wakes.last.front().expect("one");
            assert_eq!([wake.phases[1], wake.phases[2]], expected, "{own:?}");
            assert!((wake.seconds() - 0.71).abs() < 1e-6, "{}", wake.seconds());
            assert_eq!(wake.at_ms, now_ms - 400 - 710);
        }
    }

    /// Goal: reports of one wake by several activators, or of several requests, are merged; another wake is separate.
    #[test]
    fn reports_of_one_wake_are_merged() {
        let mut wakes = Wakes::default();
        let failed = |ms| ObservedWake { failed: "timeout".into(), ended_ms_ago: ms, ..ObservedWake::default() };
        wakes.record(&failed(300), 1_000_000); // This request timed out while others kept waiting.
        wakes.record(&observed_wake(500_000), 1_000_000); // From 998 890 to 999 600.
        wakes.record(&ObservedWake { forward_us: 5_000, ..observed_wake(500_000) }, 999_990); // An earlier one.
        wakes.record(&failed(0), 1_000_000);
        let [wake] = wakes.last.iter().collect::<Vec<_>>()[..] else { panic!("one wake: {wakes:?}") };
        assert!(wake.failed.is_none() && (wake.seconds() - 0.706).abs() < 0.0015, "{wake:?}");
        wakes.record(&observed_wake(500_000), 1_060_000);
        assert_eq!(wakes.last.len(), 2);
    }

    #[test]
    fn the_last_wakes_are_kept_and_absurd_values_are_bounded() {
        let mut wakes = Wakes::default();
        for micros in 1..=10 {
            wakes.record(&observed_wake(micros), 5_000_000 + 10_000 * i64::try_from(micros).expect("small"));
        }
        assert_eq!(wakes.last.len(), KEPT);
        let failed = "ä".repeat(REASON_MAX);
        wakes.record(&ObservedWake { start_us: u64::MAX, probe_us: u64::MAX, failed, ..ObservedWake::default() }, 0);
        let last = wakes.last.back().expect("one");
        assert!(last.failed.as_ref().is_some_and(|reason| reason.len() <= REASON_MAX));
        assert_eq!(last.to_json()["outcome"], "failed");
        assert!(wakes.heap() < 1024, "{}", wakes.heap());
    }
}
