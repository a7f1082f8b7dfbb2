//! Wall-clock time that advances as evenly as the monotonic clock.
//!
//! Windows are divided by wall-clock seconds, because stats from other machines carry them. But setting a wall clock
//! must not leave gaps in windows. So the time here is an anchor plus the monotonic time since, and only a large
//! difference moves the anchor. Tests that pause tokio's clock pause this one too.

use common::time::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// Difference from the system's wall clock beyond which the anchor moves: half of the time that a stat may lie in the
/// future.
const DRIFT_MAX: Duration = Duration::from_millis(2_500);

/// Source of wall-clock time. Clones share the anchor.
#[derive(Clone, Debug)]
pub struct Clock {
    start: Instant,
    /// Wall-clock nanoseconds at `start`.
    anchor: Arc<AtomicI64>,
}

impl Clock {
    /// Creates a clock anchored to the system's wall clock.
    pub fn system() -> Self {
        Self::starting_at(system_time())
    }

    /// Creates a clock anchored to a given current time.
    pub fn starting_at(wall: Timestamp) -> Self {
        Self { start: Instant::now(), anchor: Arc::new(AtomicI64::new(wall.as_nanos())) }
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.anchor.load(Ordering::Relaxed)) + self.start.elapsed()
    }

    /// Adopts the system's wall clock and returns true if the difference is so large that the clock must have been set.
    /// Must be called periodically.
    pub fn resync(&self) -> bool {
        let (now, system) = (self.now(), system_time());
        let drift = now.saturating_since(system).max(system.saturating_since(now));
        let was_set = drift > DRIFT_MAX;
        if was_set {
            self.anchor.store((system - self.start.elapsed()).as_nanos(), Ordering::Relaxed);
        }
        was_set
    }
}

#[allow(clippy::disallowed_methods, reason = "the one place where the wall clock comes in")]
fn system_time() -> Timestamp {
    let nanos = match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos),
    };
    Timestamp::from_nanos(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_follows_tokios_clock_and_a_wall_clock_that_was_set() {
        let clock = Clock::starting_at(Timestamp::from_secs(1_000));
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(clock.now(), Timestamp::from_secs(1_007));
        assert!(clock.resync(), "1970 is not now");
        assert!(clock.now() > Timestamp::from_secs(1_700_000_000));
        assert!(!clock.resync(), "the difference is gone");
    }
}
