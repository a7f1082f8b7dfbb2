//! When one workload began to wake, and how long its last wakes took.
//!
//! A wake begins with the first request that found no pod, and ends when there is one. One that nobody asks for any more
//! ([`FORGOTTEN`]) is over without a length: the next request begins another. What is usual is the middle one of the last
//! wakes, which one that took long, for a node that had to come, does not move.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Wakes that are remembered.
const KEPT: usize = 9;
/// How long after the last request for it a wake is nobody's any more.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// One workload's wakes, as this activator saw them.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    state: Mutex<State>,
    /// Changes whenever a pod is ready, pods are known to fail, or the workload is deleted.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    running: Option<Running>,
    lengths: VecDeque<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    since: Instant,
    seen: Instant,
}

impl Wakes {
    /// Somebody waits for the workload. Returns since when it wakes.
    pub(crate) fn wait(&self, now: Instant) -> Instant {
        let mut state = self.state.lock();
        let running = state.running.filter(|running| now.saturating_duration_since(running.seen) < FORGOTTEN);
        let since = running.map_or(now, |running| running.since);
        state.running = Some(Running { since, seen: now });
        since
    }

    /// A pod is ready. Returns since when somebody waited for it, if anybody did.
    pub(crate) fn end(&self, now: Instant) -> Option<Instant> {
        let running = {
            let mut state = self.state.lock();
            let running = state.running.take();
            if let Some(running) = running {
                if state.lengths.len() == KEPT {
                    state.lengths.pop_front();
                }
                state.lengths.push_back(now.saturating_duration_since(running.since));
            }
            running
        };
        self.changed.send_replace(());
        running.map(|running| running.since)
    }

    /// There is something new to look at.
    pub(crate) fn tell(&self) {
        self.changed.send_replace(());
    }

    /// How long a wake usually takes; none: it has not been seen.
    pub(crate) fn typical(&self) -> Option<Duration> {
        let mut lengths: Vec<_> = self.state.lock().lengths.iter().copied().collect();
        lengths.sort_unstable();
        lengths.get(lengths.len() / 2).copied()
    }

    /// Wakes whoever listens with the next [`Self::end`] or [`Self::tell`].
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
            // Somebody waits all the time.
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
