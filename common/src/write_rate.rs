//! How fast the API server is written to, and which write goes first.
//!
//! A bucket of tokens, as clients of Kubernetes have: [`Rate::burst`] at most, [`Rate::qps`] more each second, one for
//! each write. Upstream serves it in order of arrival, so a request that is held for a sleeping service waits behind
//! statuses. Here writes have [classes](WriteClass): a higher one goes first, and a lower one leaves some tokens to the
//! higher ones, so that a flood of statuses never delays a wake-up, and fifty wake-ups at once do not delay each other.
//! How long a write stays in a low class is the business of whoever waits for its token.

use std::time::{Duration, Instant};

/// How urgent a write is; the first goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteClass {
    /// Replicas from zero: requests are being held.
    Wake,
    /// Any other change of replicas, and of where the traffic goes.
    Scale,
    /// Objects and their statuses.
    Object,
    /// Kubernetes Events.
    Event,
}

impl WriteClass {
    /// Share of a full bucket that is left to higher classes.
    fn leaves(self) -> f64 {
        match self {
            Self::Wake => 0.0,
            Self::Scale => 0.25,
            Self::Object => 0.5,
            Self::Event => 0.75,
        }
    }
}

/// How fast a process may write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Writes each second in the long run; positive and finite.
    pub qps: f64,
    /// Writes at once; at least 1.
    pub burst: u32,
}

impl Rate {
    /// What upstream's autoscaler may do: 10 each second, 20 at once, with each of its four client sets.
    pub const AUTOSCALER: Self = Self { qps: 40.0, burst: 80 };
    /// Where the process does the part of Knative's controller as well, which may do 45 and 90 with each of four.
    pub const WITH_CONTROLLER: Self = Self { qps: 220.0, burst: 440 };
}

/// Tokens for writes. Time is an argument.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: Rate,
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, tokens: f64::from(rate.burst), at: now }
    }

    /// Takes a token for a write of this class, if it may be sent now.
    pub fn take(&mut self, class: WriteClass, now: Instant) -> bool {
        self.refill(now);
        let enough = self.tokens >= self.needs(class);
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }

    /// When a write of this class may be sent, if nothing else is sent before.
    pub fn ready_at(&self, class: WriteClass) -> Instant {
        let missing = (self.needs(class) - self.tokens).max(0.0);
        // Rounded up, so that a look at that time finds the token there.
        self.at + Duration::from_secs_f64((missing / self.rate.qps).min(3600.0)) + Duration::from_nanos(1)
    }

    /// Tokens that must be there for a write of this class.
    fn needs(&self, class: WriteClass) -> f64 {
        let burst = f64::from(self.rate.burst);
        (1.0 + (burst * class.leaves()).floor()).min(burst)
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate.qps).min(f64::from(self.rate.burst));
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods, reason = "an origin for made-up instants; nothing here waits")]
    fn origin() -> Instant {
        Instant::now()
    }

    fn taken(bucket: &mut TokenBucket, class: WriteClass, now: Instant) -> u32 {
        (0..).take_while(|_| bucket.take(class, now)).count() as u32
    }

    /// Goal: each class leaves to the higher ones what is theirs, to the token.
    #[test]
    fn lower_classes_leave_tokens_to_higher_ones() {
        let now = origin();
        let mut bucket = TokenBucket::new(Rate { qps: 40.0, burst: 80 }, now);
        let counts = [WriteClass::Event, WriteClass::Object, WriteClass::Scale, WriteClass::Wake]
            .map(|class| taken(&mut bucket, class, now));
        assert_eq!(counts, [20, 20, 20, 20]);
        let mut bucket = TokenBucket::new(Rate { qps: 40.0, burst: 80 }, now);
        assert_eq!(taken(&mut bucket, WriteClass::Wake, now), 80);
    }

    /// Goal: the long run is the rate, a pause fills the bucket and no more, and the time told is when it works.
    #[test]
    fn tokens_come_back_at_the_rate() {
        let (start, mut bucket) = (origin(), TokenBucket::new(Rate { qps: 10.0, burst: 4 }, origin()));
        let start = start.max(bucket.at);
        taken(&mut bucket, WriteClass::Wake, start);
        for (class, wait) in
            [(WriteClass::Wake, 100), (WriteClass::Scale, 200), (WriteClass::Object, 300), (WriteClass::Event, 400)]
        {
            let ready = bucket.ready_at(class);
            let (least, most) = (Duration::from_millis(wait), Duration::from_millis(wait + 1));
            assert!((start + least..start + most).contains(&ready), "{class:?} after {:?}", ready - start);
            assert!(!bucket.clone().take(class, ready - Duration::from_millis(1)), "{class:?}");
            assert!(bucket.clone().take(class, ready), "{class:?}");
        }
        // What is left shortens the wait.
        let mut half = TokenBucket::new(Rate { qps: 10.0, burst: 4 }, start);
        assert!(half.take(WriteClass::Wake, start) && half.take(WriteClass::Wake, start));
        for (class, wait) in
            [(WriteClass::Wake, 0), (WriteClass::Scale, 0), (WriteClass::Object, 100), (WriteClass::Event, 200)]
        {
            let ready = half.ready_at(class) - start;
            assert_eq!(ready.as_millis(), wait, "{class:?}");
        }
        let later = start + Duration::from_secs(3600);
        assert_eq!(taken(&mut bucket, WriteClass::Wake, later), 4);
        assert_eq!(taken(&mut bucket, WriteClass::Wake, later + Duration::from_millis(250)), 2);
    }

    /// Goal: a bucket of one token serves every class, and a clock that goes back gives nothing away.
    #[test]
    fn the_smallest_bucket_serves_all_and_time_that_goes_back_changes_nothing() {
        let now = origin() + Duration::from_secs(10);
        for class in [WriteClass::Wake, WriteClass::Scale, WriteClass::Object, WriteClass::Event] {
            let mut bucket = TokenBucket::new(Rate { qps: 1.0, burst: 1 }, now);
            assert!(bucket.take(class, now) && !bucket.take(class, now), "{class:?}");
            assert!(!bucket.take(class, now - Duration::from_secs(5)));
            assert!(bucket.take(class, bucket.ready_at(class)), "{class:?}");
        }
    }
}
