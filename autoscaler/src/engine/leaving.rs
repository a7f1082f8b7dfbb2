//! Targets whose last pod is being taken.
//!
//! Whoever leads the traffic must not lead it back to pods that are about to go. So a patch to zero is noted before it
//! is sent; if it was not answered, it may still be carried out for a while.

use common::RevisionKey as Key;
use dashmap::DashMap;
use std::time::Duration;
use tokio::time::Instant;

/// From the moment a write is given up to the moment when it is certain not to be carried out.
const CANCEL_MARGIN: Duration = Duration::from_millis(500);

/// Until when the last pod of each may still be taken.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    until: DashMap<Key, Instant>,
}

impl Leaving {
    /// The last pod is being taken, by a write that may take so long.
    pub(crate) fn begin(&self, key: &Key, within: Duration) {
        self.until.insert(key.clone(), Instant::now() + within + CANCEL_MARGIN);
    }

    /// That write was answered; or was not, and may still be carried out for a while. Returns after how long it is
    /// over; none: no such write was begun.
    pub(crate) fn end(&self, key: &Key, answered: bool) -> Option<Duration> {
        let left = self.until.get(key).map(|until| until.saturating_duration_since(Instant::now()))?;
        if answered {
            self.until.remove(key);
            return Some(Duration::ZERO);
        }
        Some(left)
    }

    /// Whether the last pod may be taken at any moment.
    pub(crate) fn is_leaving(&self, key: &Key) -> bool {
        self.until.get(key).is_some_and(|until| Instant::now() < *until)
    }

    /// Forgets one.
    pub(crate) fn forget(&self, key: &Key) {
        self.until.remove(key);
    }
}
