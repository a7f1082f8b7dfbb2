//! Observations of one revision since the last report, for display: held requests, and wakes with their phases.
//!
//! A held request increments a count. A wake is recorded at its end, by the first of its requests that gets a response.
//! The report of each second ([`super::stats`]) takes both. Nothing waits for the report, and unreported data is
//! bounded: [`WAKES_MAX`] wakes, of which the oldest are dropped first.
//!
//! A failed wake is recorded with its reason, once for all requests that waited for it ([`QUIET`]).

use crate::metrics::cold_start::ColdStart;
use common::stat::{Observations, ObservedWake, WAKES_MAX};
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Time after a failure in which further failures belong to the same wake.
const QUIET: Duration = Duration::from_secs(5);
/// Maximum length of a recorded reason, in bytes.
const REASON_MAX: usize = 200;

#[derive(Debug, Default)]
pub(crate) struct UnreportedObservations(Mutex<ObservationState>);

#[derive(Debug, Default)]
struct ObservationState {
    ended: VecDeque<(Instant, ObservedWake)>,
    failed: Option<Instant>,
    /// Number of requests that were waiting at the last report.
    waiting: u32,
    /// Service ports to report: ports with silent connections, and ports on which pods speak first.
    silent: BTreeSet<u16>,
    pod_speaks_first: BTreeSet<u16>,
}

impl UnreportedObservations {
    /// Records a wake that ended with a response.
    pub(super) fn answered(&self, cold: &ColdStart) {
        self.0.lock().end(cold, "");
    }

    /// Records the refusal of a request that waited for a wake. It is the end of `cold`, and of all steps that were not
    /// reached.
    pub(super) fn failed(&self, cold: &ColdStart, reason: &str) {
        let (mut state, now) = (self.0.lock(), cold.first_byte);
        if state.failed.replace(now).is_none_or(|before| now.saturating_duration_since(before) >= QUIET) {
            state.end(cold, &reason[..reason.floor_char_boundary(REASON_MAX)]);
        }
    }

    /// Records that a connection to this Service port ended without a byte while the revision slept.
    pub(crate) fn silent(&self, port: u16) {
        self.0.lock().silent.insert(port);
    }

    pub(crate) fn pod_speaks_first(&self, port: u16) {
        self.0.lock().pod_speaks_first.insert(port);
    }

    /// Returns everything since the last call, or `None` if there is nothing. `held` requests began to wait since then,
    /// `waiting` still wait.
    pub(super) fn take(&self, held: u32, waiting: u32, now: Instant) -> Option<Box<Observations>> {
        let mut state = self.0.lock();
        let held = held.saturating_add(std::mem::replace(&mut state.waiting, waiting));
        let ports = |ports: &mut BTreeSet<u16>| std::mem::take(ports).into_iter().map(u32::from).collect::<Vec<_>>();
        let (silent, pod_speaks_first) = (ports(&mut state.silent), ports(&mut state.pod_speaks_first));
        if held == 0 && state.ended.is_empty() && silent.is_empty() && pod_speaks_first.is_empty() {
            return None;
        }
        let ago = |at| u32::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(u32::MAX);
        let wakes = state.ended.drain(..).map(|(at, wake)| ObservedWake { ended_ms_ago: ago(at), ..wake });
        Some(Box::new(Observations { held, wakes: wakes.collect(), silent, pod_speaks_first }))
    }
}

impl ObservationState {
    fn end(&mut self, cold: &ColdStart, failed: &str) {
        if self.ended.len() == WAKES_MAX {
            self.ended.pop_front();
        }
        let phases = cold.phases();
        let wake = ObservedWake {
            signal_us: micros(phases.signal),
            start_us: micros(phases.scale),
            probe_us: micros(phases.probe),
            forward_us: micros(phases.release + phases.answer),
            failed: failed.to_owned(),
            ..ObservedWake::default()
        };
        self.ended.push_back((cold.first_byte, wake));
    }
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::RevisionKey;

    fn cold(received: Instant, ms: [u64; 5]) -> ColdStart {
        let [signalled, address_known, probed, released, first_byte] =
            ms.map(|ms| received + Duration::from_millis(ms));
        let key = RevisionKey::new("ns", "app");
        ColdStart { key, received, signalled: Some(signalled), address_known, probed, released, first_byte }
    }

    /// Goal: a request that no longer waits is not reported again.
    #[test]
    fn a_request_counts_as_held_in_each_second_in_which_it_waits() {
        let (unreported, now) = (UnreportedObservations::default(), Instant::now());
        // (began to wait, still waiting) -> held
        for (row, expected) in [((0, 0), None), ((5, 2), Some(5)), ((1, 3), Some(3)), ((0, 0), Some(3)), ((0, 0), None)]
        {
            assert_eq!(unreported.take(row.0, row.1, now).map(|reported| reported.held), expected, "{row:?}");
        }
    }

    /// Goal: wakes have phases that add up; their number is bounded, and the oldest are lost. A failure is reported
    /// once for all requests that waited.
    #[test]
    fn wakes_are_reported_once_with_their_phases() {
        let (unreported, start) = (UnreportedObservations::default(), Instant::now());
        for _ in 0..=WAKES_MAX {
            unreported.answered(&cold(start, [1, 5, 9, 10, 12]));
        }
        let at = |ms| start + Duration::from_millis(ms);
        let reported = unreported.take(0, 0, at(1012)).expect("wakes");
        let expected = ObservedWake {
            ended_ms_ago: 1000,
            signal_us: 1000,
            start_us: 4000,
            probe_us: 4000,
            forward_us: 3000,
            ..ObservedWake::default()
        };
        assert_eq!(reported.wakes, vec![expected; WAKES_MAX]);
        assert_eq!(unreported.take(0, 0, at(2000)), None);

        let long = "é".repeat(REASON_MAX);
        for ms in [3000, 3001, 7000] {
            unreported.failed(&cold(start, [2, ms, ms, ms, ms]), &long);
        }
        let late = ColdStart { received: at(9000), ..cold(start, [2, 12_500, 12_600, 12_600, 12_600]) };
        unreported.failed(&late, "timeout");
        let wakes = unreported.take(0, 0, at(13_000)).expect("failures").wakes;
        let lengths: Vec<_> = wakes.iter().map(|wake| [wake.signal_us, wake.start_us, wake.probe_us]).collect();
        assert_eq!(lengths, [[2000, 2_998_000, 0], [0, 3_500_000, 100_000]]);
        assert!(wakes[0].failed.len() <= REASON_MAX && wakes[1].failed == "timeout");
    }
}
