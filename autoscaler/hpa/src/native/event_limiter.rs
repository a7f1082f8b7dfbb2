//! How many events of one type, Normal or Warning, an object may have: [`BURST`] at once, and then one each [`REFILL`],
//! as upstream's recorder allows. So what was done is told also of an object whose metric fails.
//!
//! A metric that fails makes two events each 15 s, for as long as it fails; what users need is in the conditions.
//! Upstream also merges equal events into one with a count, which is left out.

use common::RevisionKey as Key;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Events at once.
const BURST: f64 = 25.0;
/// Time to the next one, once they are used up.
const REFILL: Duration = Duration::from_secs(300);

/// What each object may still say: Normal events, then warnings.
#[derive(Debug, Default)]
pub(crate) struct EventLimiter(HashMap<Key, [(f64, Instant); 2]>);

impl EventLimiter {
    /// Whether an event about an object may be written at `now`.
    pub(crate) fn admits(&mut self, key: &Key, warning: bool, now: Instant) -> bool {
        let types = self.0.entry(key.clone()).or_insert([(BURST, now); 2]);
        let (left, at) = &mut types[usize::from(warning)];
        let gained = now.saturating_duration_since(*at).as_secs_f64() / REFILL.as_secs_f64();
        (*left, *at) = ((*left + gained).min(BURST), now);
        let admitted = *left >= 1.0;
        if admitted {
            *left -= 1.0;
        }
        admitted
    }

    /// An object is gone.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_admitted_and_then_one_each_five_minutes() {
        let (mut event_limiter, key) = (EventLimiter::default(), Key::new("ns", "web"));
        let start = Instant::now();
        let mut admitted = |seconds: u64| event_limiter.admits(&key, true, start + Duration::from_secs(seconds));
        assert_eq!((0..40).filter(|_| admitted(0)).count(), 25);
        assert!(!admitted(299) && admitted(301) && !admitted(302));
        assert!(EventLimiter::default().admits(&key, true, start), "each object for itself");
    }

    #[tokio::test(start_paused = true)]
    async fn each_type_is_admitted_for_itself() {
        let (mut event_limiter, key, now) = (EventLimiter::default(), Key::new("ns", "web"), Instant::now());
        for life in ["first", "second"] {
            let mut admitted = |warning| (0..40).filter(|_| event_limiter.admits(&key, warning, now)).count();
            assert_eq!((admitted(true), admitted(false), admitted(true)), (25, 25, 0), "{life}");
            event_limiter.forget(&key);
        }
    }
}
