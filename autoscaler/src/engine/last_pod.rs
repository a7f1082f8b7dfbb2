//! Targets whose last pod is being removed.
//!
//! Traffic must not be routed back to pods that are about to end. A patch to zero is therefore recorded before it is
//! sent. If it gets no response, it may still take effect for a while.

use common::RevisionKey as Key;
use dashmap::DashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Time from giving up a write until it can no longer take effect.
const CANCEL_MARGIN: Duration = Duration::from_millis(500);

/// Deadlines until which the last pod of a target may still be removed.
#[derive(Debug, Default)]
pub(crate) struct LastPodRemovals {
    until: DashMap<Key, Instant>,
}

impl LastPodRemovals {
    /// Records that a write removes the last pod, and may take up to `within`.
    pub(crate) fn begin(&self, key: &Key, within: Duration) {
        self.until.insert(key.clone(), Instant::now() + within + CANCEL_MARGIN);
    }

    /// Records the end of that write. Without a response it may still take effect for a while. Returns the time until
    /// it cannot; none: no such write was recorded.
    pub(crate) fn end(&self, key: &Key, answered: bool) -> Option<Duration> {
        let left = self.until.get(key).map(|until| until.saturating_duration_since(Instant::now()))?;
        if answered {
            self.until.remove(key);
            return Some(Duration::ZERO);
        }
        Some(left)
    }

    /// Returns whether the last pod may be removed at any moment.
    pub(crate) fn is_leaving(&self, key: &Key) -> bool {
        self.until.get(key).is_some_and(|until| Instant::now() < *until)
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.until.remove(key);
    }
}
