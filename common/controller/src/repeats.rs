//! Suppresses messages that were reported recently. Pure: time is an argument.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;
use tokio::time::Instant;

/// Time for which a message is not repeated. Kubernetes keeps an event for an hour.
const QUIET: Duration = Duration::from_secs(300);
/// Maximum number of remembered messages. Beyond it all are forgotten: repeating a message is better than losing one.
const REMEMBERED_MAX: usize = 4096;

/// Recently reported messages, as hashes.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    last_reports: HashMap<u64, Instant>,
}

impl Repeats {
    /// Returns true and records `message` unless it was reported recently.
    pub(crate) fn is_new(&mut self, message: &impl Hash, now: Instant) -> bool {
        let mut hasher = DefaultHasher::new();
        message.hash(&mut hasher);
        let hash = hasher.finish();
        let fresh = |at: &Instant| now.duration_since(*at) < QUIET;
        if self.last_reports.get(&hash).is_some_and(fresh) {
            return false;
        }
        if self.last_reports.len() >= REMEMBERED_MAX {
            self.last_reports.retain(|_, at| fresh(at));
        }
        if self.last_reports.len() >= REMEMBERED_MAX {
            self.last_reports.clear();
        }
        self.last_reports.insert(hash, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_message_is_reported_once_in_five_minutes_and_the_memory_is_bounded() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        for second in 0..1500 {
            let at = now + Duration::from_secs(second);
            assert_eq!(repeats.is_new(&("ns/a", "no"), at), second % 300 == 0, "{second}");
        }
        assert!(repeats.is_new(&("ns/a", "other"), now) && repeats.is_new(&("ns/b", "no"), now));
        for n in 0..3 * REMEMBERED_MAX {
            assert!(repeats.is_new(&n, now), "no new message is suppressed");
            assert!(repeats.last_reports.len() <= REMEMBERED_MAX);
        }
    }
}
