//! Wait before the next attempt to connect. Pure: randomness is an argument.

use rand::{Rng, RngExt};
use std::time::Duration;

/// Factor between consecutive waits.
const FACTOR: f64 = 1.3;
/// Maximum random extension of a wait, as a share of it.
const JITTER: f64 = 0.5;

/// Waits before attempts: none, then `first`, then each 1.3 times as long as the one before, up to `max`.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    max: Duration,
    /// Wait after the next failure; `None`: no wait.
    next: Option<Duration>,
    /// Set if a peer's announcement of a restart still earns an immediate attempt.
    restart_credit: bool,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(5))
    }
}

impl Backoff {
    pub(super) fn new(first: Duration, max: Duration) -> Self {
        Self { first, max: max.max(first), next: None, restart_credit: true }
    }

    /// Returns the wait before the next attempt.
    pub(super) fn wait(&mut self, rng: &mut impl Rng) -> Duration {
        let wait = self.next;
        self.next = Some(wait.map_or(self.first, |wait| wait.mul_f64(FACTOR).min(self.max)));
        wait.map_or(Duration::ZERO, |wait| wait.mul_f64(1.0 + rng.random_range(0.0..=JITTER)))
    }

    /// Records that the connection was alive: the next loss is followed by an immediate attempt.
    pub(super) fn proven(&mut self) {
        self.next = None;
        self.restart_credit = true;
    }

    /// Records that the peer announced a restart.
    pub(super) fn restarting(&mut self) {
        if std::mem::take(&mut self.restart_credit) {
            self.next = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    /// Goal: the first attempt is immediate, waits grow by 1.3 to the bound, and jitter never exceeds a half. A peer
    /// that only ever announces restarts earns one immediate attempt, not a busy loop.
    #[test]
    fn waits_grow_to_a_bound_and_an_announced_restart_skips_one_until_the_next_pong() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut backoff = Backoff::default();
        assert_eq!(backoff.wait(&mut rng), Duration::ZERO);
        let mut base = 0.1;
        for step in 0..30 {
            let wait = backoff.wait(&mut rng).as_secs_f64();
            assert!(wait >= base - 1e-6 && wait <= base * 1.5 + 1e-6, "step {step}: {wait} s for a base of {base} s");
            base = (base * 1.3_f64).min(5.0);
        }
        backoff.proven();
        assert_eq!(backoff.wait(&mut rng), Duration::ZERO, "a proven link is dialled again at once");
        backoff.restarting();
        assert_eq!(backoff.wait(&mut rng), Duration::ZERO);
        backoff.restarting();
        assert!(backoff.wait(&mut rng) >= Duration::from_millis(100), "the second restart in a row waits");
    }
}
