//! Start of a workload's current wake, and durations of its last wakes.
//!
//! A wake begins with the first request that finds no pod, and ends when a pod is ready. A wake without requests for
//! [`DROPPED_AFTER`] is dropped without a duration; the next request begins another. The typical duration is the median
//! of the last wakes, so one slow wake, for instance one that waited for a new node, does not change it.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

const REMEMBERED: usize = 9;
/// Time after its last request at which a wake is dropped.
const DROPPED_AFTER: Duration = Duration::from_secs(60);

/// Wakes of one workload that this activator observed.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    state: Mutex<WakeState>,
    /// Signals a ready pod, failing pods, or the deletion of the workload.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct WakeState {
    current: Option<CurrentWake>,
    durations: VecDeque<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct CurrentWake {
    since: Instant,
    last_request: Instant,
}

impl Wakes {
    /// Records that a request waits for the workload. Returns the start of the wake.
    pub(crate) fn record_waiting(&self, now: Instant) -> Instant {
        let mut state = self.state.lock();
        let is_recent = |wake: &CurrentWake| now.saturating_duration_since(wake.last_request) < DROPPED_AFTER;
        let since = state.current.filter(is_recent).map_or(now, |wake| wake.since);
        state.current = Some(CurrentWake { since, last_request: now });
        since
    }

    /// Records a ready pod. Returns the start of the wake, if requests waited for it.
    pub(crate) fn end(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        let since = state.current.take().map(|wake| wake.since);
        if let Some(since) = since {
            if state.durations.len() == REMEMBERED {
                state.durations.pop_front();
            }
            state.durations.push_back(now.saturating_duration_since(since));
        }
        drop(state);
        self.changed.send_replace(());
        since
    }

    pub(crate) fn notify(&self) {
        self.changed.send_replace(());
    }

    /// Returns the typical duration of a wake; `None` if no wake was observed.
    pub(crate) fn typical(&self) -> Option<Duration> {
        let mut durations: Vec<_> = self.state.lock().durations.iter().copied().collect();
        durations.sort_unstable();
        durations.get(durations.len() / 2).copied()
    }

    /// Returns a receiver that changes with the next [`Self::end`] or [`Self::notify`].
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_typical_duration_is_the_median_of_the_last_wakes() {
        let wakes = Wakes::default();
        assert_eq!(wakes.typical(), None);
        let mut now = Instant::now();
        for seconds in [100, 2, 3, 60, 4] {
            assert_eq!(wakes.record_waiting(now), now);
            let begun = now;
            now += Duration::from_secs(seconds);
            for second in 1..seconds {
                assert_eq!(wakes.record_waiting(begun + Duration::from_secs(second)), begun);
            }
            assert_eq!(wakes.end(now), Some(begun));
            assert_eq!(wakes.end(now), None, "a further pod ends no wake");
        }
        assert_eq!(wakes.typical(), Some(Duration::from_secs(4)));
        for _ in 0..REMEMBERED {
            wakes.record_waiting(now);
            wakes.end(now + Duration::from_secs(1));
        }
        assert_eq!(wakes.typical(), Some(Duration::from_secs(1)), "earlier wakes are forgotten");
        let wakes = Wakes::default();
        wakes.record_waiting(now);
        let later = now + DROPPED_AFTER;
        assert_eq!(wakes.record_waiting(later), later, "a wake without waiting requests is dropped");
        wakes.end(later + Duration::from_secs(1));
        assert_eq!(wakes.typical(), Some(Duration::from_secs(1)));
    }
}
