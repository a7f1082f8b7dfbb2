//! Durations of leases, and the margin by which their holder stops early.

use std::time::Duration;

/// Minimum remaining lease time for a write; covers the time that the write may take to arrive.
pub const WRITE_MARGIN: Duration = Duration::from_secs(2);

/// Times of renewal, step-down and takeover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time for which a lease outlives its last renewal; whole seconds, a fraction is dropped.
    pub lease_duration: Duration,
    /// Time for which a holder continues without a renewal; less than the lease duration.
    pub renew_deadline: Duration,
    /// Time between renewals; 1.2 times this is less than the renew deadline.
    pub retry_period: Duration,
}

impl Timing {
    /// Knative's defaults (`config-leader-election`).
    pub const KNATIVE: Self = Self {
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(40),
        retry_period: Duration::from_secs(10),
    };

    /// Standalone's defaults, close to those of Kubernetes' own controllers. The lease is short because no workload in
    /// a crashed owner's share scales from zero until its lease ends. Renewing four leases every 3 s costs little more
    /// than one write per second.
    pub const STANDALONE: Self = Self {
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(3),
    };
}
