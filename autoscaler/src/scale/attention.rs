//! Keys of revisions that want a reconcile, each at most once.

use common::RevisionKey;
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use tokio::sync::Notify;

/// A queue of distinct keys in order of their first mention. Clones share it.
///
/// Its bound is the number of revisions: a key that waits already is not queued again, so nothing is ever refused or
/// lost, and whoever pushes never waits.
#[derive(Clone, Debug, Default)]
pub struct Attention {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    order: VecDeque<RevisionKey>,
    known: HashSet<RevisionKey>,
}

impl Attention {
    /// An empty feed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for a reconcile of `key`.
    pub fn push(&self, key: &RevisionKey) {
        let mut waiting = self.shared.waiting.lock();
        if waiting.known.insert(key.clone()) {
            waiting.order.push_back(key.clone());
            drop(waiting);
            self.shared.arrived.notify_one();
        }
    }

    /// The key that waits longest; waits for one. For one consumer at a time.
    ///
    /// # Cancel safety
    /// A key is taken only when the future completes.
    pub async fn next(&self) -> RevisionKey {
        loop {
            if let Some(key) = self.try_next() {
                return key;
            }
            // A push between the look and this await has left a permit, so it is not missed.
            self.shared.arrived.notified().await;
        }
    }

    /// The key that waits longest, if any.
    pub fn try_next(&self) -> Option<RevisionKey> {
        let mut waiting = self.shared.waiting.lock();
        let key = waiting.order.pop_front()?;
        waiting.known.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_test::{assert_pending, assert_ready_eq};

    /// Goal: a key waits once however often it is pushed, order is kept, and a push wakes the consumer.
    #[test]
    fn a_key_waits_once_and_wakes_its_reader() {
        let (feed, a, b) = (Attention::new(), RevisionKey::new("ns", "a"), RevisionKey::new("ns", "b"));
        let reader = feed.clone();
        let mut next = tokio_test::task::spawn(async move { (reader.next().await, reader.next().await) });
        assert_pending!(next.poll());
        for key in [&a, &b, &a, &a] {
            feed.push(key);
        }
        assert!(next.is_woken(), "a push must wake the reader");
        assert_ready_eq!(next.poll(), (a.clone(), b));
        assert_eq!(feed.try_next(), None);
        feed.push(&a);
        assert_eq!(feed.try_next(), Some(a), "a key that was taken can be pushed again");
    }
}
