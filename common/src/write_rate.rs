//! Limits the rate of writes to the API server and orders writes by urgency.
//!
//! A token bucket, as Kubernetes clients have: at most [`Rate::burst`] tokens, [`Rate::qps`] more per second, and one
//! token for each write. Upstream serves writes in order of arrival, so the wake of a workload with held requests waits
//! behind status updates. Here writes have [classes](WriteClass). A higher class goes first, and a lower class leaves
//! some tokens to the higher ones. So a flood of statuses never delays a wake, and fifty simultaneous wakes do not
//! delay each other.
//!
//! Not here: waiting. The caller decides how long a write stays in a low class while it waits for its token.

use std::time::{Duration, Instant};

/// Urgency of a write; the first class is the most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteClass {
    /// Scaling from zero: requests are being held.
    Wake,
    /// Other changes of replicas, and routing changes.
    Scale,
    /// Objects and their statuses.
    Object,
    /// Kubernetes Events.
    Event,
}

impl WriteClass {
    /// Returns the share of a full bucket that this class leaves to higher classes.
    fn reserved_share(self) -> f64 {
        match self {
            Self::Wake => 0.0,
            Self::Scale => 0.25,
            Self::Object => 0.5,
            Self::Event => 0.75,
        }
    }
}

/// Limits of one process's writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Sustained writes per second; positive and finite.
    pub qps: f64,
    /// Writes that may be sent at once; at least 1.
    pub burst: u32,
}

impl Rate {
    /// Rate of upstream's autoscaler: 10 per second and 20 at once, for each of its four client sets.
    pub const AUTOSCALER: Self = Self { qps: 40.0, burst: 80 };
    /// Rate of a process that also does the work of Knative's controller, which may do 45 per second and 90 at once for
    /// each of its four client sets.
    pub const WITH_CONTROLLER: Self = Self { qps: 220.0, burst: 440 };
}

/// Token bucket for writes. Time is an argument.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: Rate,
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    /// Creates a full bucket.
    pub fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, tokens: f64::from(rate.burst), at: now }
    }

    /// Takes a token for a write of this class and returns true, if the write may be sent now.
    pub fn take(&mut self, class: WriteClass, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate.qps).min(f64::from(self.rate.burst));
        self.at = self.at.max(now);
        let enough = self.tokens >= self.needs(class);
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }

    /// Returns the time at which a write of this class may be sent, if nothing else is sent before.
    pub fn ready_at(&self, class: WriteClass) -> Instant {
        let missing = (self.needs(class) - self.tokens).max(0.0);
        // Rounded up, so a check at that time finds the token.
        self.at + Duration::from_secs_f64((missing / self.rate.qps).min(3600.0)) + Duration::from_nanos(1)
    }

    /// Returns the number of tokens that must be available for a write of this class.
    fn needs(&self, class: WriteClass) -> f64 {
        let burst = f64::from(self.rate.burst);
        (1.0 + (burst * class.reserved_share()).floor()).min(burst)
    }
}

#[cfg(test)]
mod tests {
    use super::WriteClass::{Event, Object, Scale, Wake};
    use super::*;
    use crate::election::tests::origin;

    fn taken(bucket: &mut TokenBucket, class: WriteClass, now: Instant) -> u32 {
        (0..).take_while(|_| bucket.take(class, now)).count() as u32
    }

    /// Goal: each class leaves exactly its reserved share of tokens to the higher classes.
    #[test]
    fn lower_classes_leave_tokens_to_higher_ones() {
        let now = origin();
        let mut bucket = TokenBucket::new(Rate { qps: 40.0, burst: 80 }, now);
        let counts = [Event, Object, Scale, Wake].map(|class| taken(&mut bucket, class, now));
        assert_eq!(counts, [20, 20, 20, 20]);
        let mut bucket = TokenBucket::new(Rate { qps: 40.0, burst: 80 }, now);
        assert_eq!(taken(&mut bucket, Wake, now), 80);
    }

    /// Goal: the sustained rate is `qps`, a pause fills the bucket but not more, and a write succeeds at the returned
    /// time.
    #[test]
    fn tokens_are_refilled_at_the_rate() {
        let (start, mut bucket) = (origin(), TokenBucket::new(Rate { qps: 10.0, burst: 4 }, origin()));
        let start = start.max(bucket.at);
        taken(&mut bucket, Wake, start);
        for (class, wait) in [(Wake, 100), (Scale, 200), (Object, 300), (Event, 400)] {
            let ready = bucket.ready_at(class);
            let (least, most) = (Duration::from_millis(wait), Duration::from_millis(wait + 1));
            assert!((start + least..start + most).contains(&ready), "{class:?} after {:?}", ready - start);
            assert!(!bucket.clone().take(class, ready - Duration::from_millis(1)), "{class:?}");
            assert!(bucket.clone().take(class, ready), "{class:?}");
        }
        // Remaining tokens shorten the wait.
        let mut half = TokenBucket::new(Rate { qps: 10.0, burst: 4 }, start);
        assert!(half.take(Wake, start) && half.take(Wake, start));
        for (class, wait) in [(Wake, 0), (Scale, 0), (Object, 100), (Event, 200)] {
            let ready = half.ready_at(class) - start;
            assert_eq!(ready.as_millis(), wait, "{class:?}");
        }
        let later = start + Duration::from_secs(3600);
        assert_eq!(taken(&mut bucket, Wake, later), 4);
        assert_eq!(taken(&mut bucket, Wake, later + Duration::from_millis(250)), 2);
    }

    #[test]
    fn a_bucket_of_one_token_serves_every_class_and_ignores_time_that_goes_back() {
        let now = origin() + Duration::from_secs(10);
        for class in [Wake, Scale, Object, Event] {
            let mut bucket = TokenBucket::new(Rate { qps: 1.0, burst: 1 }, now);
            assert!(bucket.take(class, now) && !bucket.take(class, now), "{class:?}");
            assert!(!bucket.take(class, now - Duration::from_secs(5)));
            assert!(bucket.take(class, bucket.ready_at(class)), "{class:?}");
        }
    }
}
