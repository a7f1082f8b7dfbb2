//! What one workload's sleep has saved: pods that would run without it, times the seconds in which they did not.
//!
//! Without a ZeroScaler there would be as many pods as were found at its adoption, at least one, and not fewer than the
//! fewest that it may have: what is given back when it goes. Pods beyond that count for nothing: they are load that was
//! served, not a loss.

/// One workload's. Times are Unix seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Saved {
    pod_seconds: f64,
    /// Since when it is counted; 0: it is not yet.
    since: u32,
    /// When it was last looked at.
    last: u32,
    /// Pods there would be.
    baseline: u16,
    /// Pods that do not run.
    missing: u16,
}

impl Saved {
    /// There would be so many pods without it, from now on.
    pub(crate) fn would_be(&mut self, found: Option<i32>, min: Option<i32>) {
        let most = found.unwrap_or(1).max(min.unwrap_or(0)).max(1);
        self.baseline = u16::try_from(most).unwrap_or(u16::MAX);
    }

    /// There are so many pods at `now`, and from now on.
    pub(crate) fn look(&mut self, actual: i32, now: u32) {
        self.pod_seconds = self.pod_seconds(now);
        if self.since == 0 {
            self.since = now;
        }
        self.last = now;
        self.missing = self.baseline.saturating_sub(u16::try_from(actual.max(0)).unwrap_or(u16::MAX));
    }

    /// Pod-seconds until `now`.
    pub(crate) fn pod_seconds(&self, now: u32) -> f64 {
        self.pod_seconds + f64::from(now.saturating_sub(self.last)) * f64::from(self.missing)
    }

    /// Pods that do not run now.
    pub(crate) fn missing(&self) -> u16 {
        self.missing
    }

    /// Since when it is counted.
    pub(crate) fn since(&self) -> Option<u32> {
        (self.since > 0).then_some(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each second counts the pods that are missing from what there would be, and none that are there beyond it.
    #[test]
    fn what_does_not_run_is_counted_by_the_second() {
        // (found, min) -> pods there would be
        for (found, min, expected) in
            [(None, None, 1), (Some(0), None, 1), (Some(3), Some(1), 3), (Some(1), Some(4), 4)]
        {
            let mut saved = Saved::default();
            saved.would_be(found, min);
            saved.look(0, 100);
            assert_eq!(saved.missing(), expected, "{found:?} {min:?}");
        }
        let mut saved = Saved::default();
        assert_eq!((saved.pod_seconds(50), saved.since()), (0.0, None));
        saved.would_be(Some(2), None);
        for (at, actual, expected) in [(100, 0, 0.0), (110, 1, 20.0), (120, 5, 30.0), (200, 2, 30.0), (300, 0, 30.0)] {
            saved.look(actual, at);
            assert_eq!(saved.pod_seconds(at), expected, "at {at}");
        }
        assert_eq!(saved.pod_seconds(310), 50.0, "up to now");
        saved.look(0, 305);
        assert_eq!(saved.pod_seconds(310), 50.0, "nothing twice");
        assert_eq!(saved.since(), Some(100));
    }
}
