//! How long leases last, and how early their holder stops.

use std::time::Duration;

/// A holder writes only while its lease is certain to last for this long: the time that a write may take to land.
pub const WRITE_MARGIN: Duration = Duration::from_secs(2);

/// When leases are renewed, given up and taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a lease outlives its last renewal; whole seconds, a fraction is dropped.
    pub lease_duration: Duration,
    /// How long a holder goes on without a renewal; less than the lease duration.
    pub renew_deadline: Duration,
    /// Time between renewals; 1.2 times that is less than the renew deadline.
    pub retry_period: Duration,
}

impl Timing {
    /// Knative's defaults (`config-leader-election`).
    pub const KNATIVE: Self = Self {
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(40),
        retry_period: Duration::from_secs(10),
    };

    /// Standalone's: what Kubernetes' own controllers use, give or take. While a crashed owner's lease runs no sleeping
    /// service of its share wakes, so the lease is short; four leases at 3 s cost little more than one write a second.
    pub const STANDALONE: Self = Self {
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(3),
    };
}
