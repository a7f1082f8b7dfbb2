//! Delay before an ended container is restarted.
//!
//! The first restart is immediate. The second one waits for the first delay, which then doubles with each restart up to
//! the longest. As in the kubelet, a run of twice the longest delay resets the delay.

use std::time::Duration;

/// First and longest delay in Kubernetes.
pub(crate) const DELAYS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

/// Restart delays of one container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restarts {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Restarts {
    pub(crate) fn new((first, longest): (Duration, Duration)) -> Self {
        Self { first, longest, next: Duration::ZERO }
    }

    /// Returns the delay after a run that lasted `ran`.
    pub(crate) fn after(&mut self, ran: Duration) -> Duration {
        if ran >= self.longest * 2 {
            self.next = Duration::ZERO;
        }
        let delay = self.next;
        self.next = if delay.is_zero() { self.first } else { (delay * 2).min(self.longest) };
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_and_a_long_run_resets_them() {
        let mut restarts = Restarts::new(DELAYS);
        let delays: Vec<_> = (0..8).map(|_| restarts.after(Duration::from_secs(1)).as_secs()).collect();
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(restarts.after(Duration::from_secs(600)), Duration::ZERO);
        assert_eq!(restarts.after(Duration::from_secs(1)), Duration::from_secs(10));
    }
}
