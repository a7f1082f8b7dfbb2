//! How long a container that ended waits before it is started again.
//!
//! The first restart is immediate; each further one waits [`Backoff::first`], doubling up to [`Backoff::most`]. A run
//! of twice the longest delay forgets what was before, as in the kubelet.

use std::time::Duration;

/// Delays between restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first delay; Kubernetes: 10 s.
    pub first: Duration,
    /// The longest; Kubernetes: 5 min.
    pub most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(10), most: Duration::from_secs(300) }
    }
}

/// The delays of one container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restarts {
    backoff: Backoff,
    next: Duration,
}

impl Restarts {
    /// None so far.
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self { backoff, next: Duration::ZERO }
    }

    /// The delay after a run that took `ran`.
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
