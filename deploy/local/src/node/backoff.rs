//! Delay before an ended container is restarted.
//!
//! The first restart is immediate. Each further one waits [`Backoff::first`], doubling up to [`Backoff::most`]. As in
//! the kubelet, a run of twice the longest delay resets the delay.

use std::time::Duration;

/// Delays between restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// First delay; Kubernetes: 10 s.
    pub first: Duration,
    /// Longest delay; Kubernetes: 5 min.
    pub most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(10), most: Duration::from_secs(300) }
    }
}

/// Restart delays of one container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restarts {
    backoff: Backoff,
    next: Duration,
}

impl Restarts {
    /// Starts without earlier restarts.
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self { backoff, next: Duration::ZERO }
    }

    /// Returns the delay after a run that lasted `ran`.
    pub(crate) fn after(&mut self, ran: Duration) -> Duration {
        if ran >= self.backoff.most * 2 {
            self.next = Duration::ZERO;
        }
        let delay = self.next;
        self.next = if delay.is_zero() { self.backoff.first } else { (delay * 2).min(self.backoff.most) };
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_and_a_long_run_forgets_them() {
        let mut restarts = Restarts::new(Backoff::default());
        let delays: Vec<_> = (0..8).map(|_| restarts.after(Duration::from_secs(1)).as_secs()).collect();
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(restarts.after(Duration::from_secs(600)), Duration::ZERO);
        assert_eq!(restarts.after(Duration::from_secs(1)), Duration::from_secs(10));
    }
}
