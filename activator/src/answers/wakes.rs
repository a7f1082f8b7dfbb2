//! Start of a workload's current wake, and durations of its last wakes.
//!
//! A wake begins with the first request that finds no pod, and ends when a pod is ready. A wake without requests for
//! [`FORGOTTEN`] is dropped without a duration; the next request begins another. The typical duration is the median of
//! the last wakes, so one slow wake, for instance one that waited for a new node, does not change it.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Number of remembered durations.
const KEPT: usize = 9;
/// Time after its last request at which a wake is dropped.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Wakes of one workload that this activator observed.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    state: Mutex<WakeState>,
    /// Signals a ready pod, failing pods, or the deletion of the workload.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct WakeState {
    running: Option<Running>,
    lengths: VecDeque<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    since: Instant,
    last_request: Instant,
}

impl Wakes {
    /// Records that a request waits for the workload. Returns the start of the wake.
    pub(crate) fn wait(&self, now: Instant) -> Instant {
        let mut state = self.state.lock();
        let running = state.running.filter(|running| now.saturating_duration_since(running.last_request) < FORGOTTEN);
        let since = running.map_or(now, |running| running.since);
        state.running = Some(Running { since, last_request: now });
        since
    }

    /// Records a ready pod. Returns the start of the wake, if requests waited for it.
    pub(crate) fn end(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        let since = state.running.take().map(|running| running.since);
        if let Some(since) = since {
            if state.lengths.len() == KEPT {
                state.lengths.pop_front();
            }
            state.lengths.push_back(now.saturating_duration_since(since));
        }
        drop(state);
        self.changed.send_replace(());
        since
    }

    /// Notifies subscribers that the workload's state changed.
    pub(crate) fn tell(&self) {
        self.changed.send_replace(());
    }

    /// Returns the typical duration of a wake; `None` if no wake was observed.
    pub(crate) fn typical(&self) -> Option<Duration> {
        let mut lengths: Vec<_> = self.state.lock().lengths.iter().copied().collect();
        lengths.sort_unstable();
        lengths.get(lengths.len() / 2).copied()
    }

    /// Returns a receiver that changes with the next [`Self::end`] or [`Self::tell`].
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_one_of_the_last_wakes_is_what_is_usual() {
        let wakes = Wakes::default();
        assert_eq!(wakes.typical(), None);
        let mut now = Instant::now();
        for seconds in [100, 2, 3, 60, 4] {
            assert_eq!(wakes.wait(now), now);
            let begun = now;
            now += Duration::from_secs(seconds);
            // Requests wait all the time.
            for second in 1..seconds {
                assert_eq!(wakes.wait(begun + Duration::from_secs(second)), begun);
            }
            assert_eq!(wakes.end(now), Some(begun));
            assert_eq!(wakes.end(now), None, "another pod: no wake");
        }
        assert_eq!(wakes.typical(), Some(Duration::from_secs(4)));
        for _ in 0..KEPT {
            wakes.wait(now);
            wakes.end(now + Duration::from_secs(1));
        }
        assert_eq!(wakes.typical(), Some(Duration::from_secs(1)), "what was before is forgotten");
    }

    #[test]
    fn a_wake_that_nobody_waits_for_is_over() {
        let (wakes, now) = (Wakes::default(), Instant::now());
        wakes.wait(now);
        let later = now + FORGOTTEN;
        assert_eq!(wakes.wait(later), later);
        wakes.end(later + Duration::from_secs(1));
        assert_eq!(wakes.typical(), Some(Duration::from_secs(1)));
    }
}
