//! Own pods whose idle slots are for any request: the short way past a shared pool ([`super::shared`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;

use super::pod::{PodTracker, Slot};

#[derive(Debug, Default)]
pub(super) struct OpenPods {
    any: AtomicBool,
    /// Those that are open, or were the last time that any was.
    pods: ArcSwap<Vec<Arc<PodTracker>>>,
}

impl OpenPods {
    /// Whether any is. False as soon as they are about to be closed.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::SeqCst)
    }

    /// These are open from now on, and no others; none: none is.
    pub(super) fn set(&self, pods: &[Arc<PodTracker>]) {
        let same = |former: &[Arc<PodTracker>]| {
            former.len() == pods.len() && former.iter().zip(pods).all(|(one, other)| Arc::ptr_eq(one, other))
        };
        if !same(&self.pods.load()) {
            self.pods.store(Arc::new(pods.to_vec()));
        }
        self.any.store(!pods.is_empty(), Ordering::SeqCst);
    }

    /// They are closed next, each by itself.
    pub(super) fn close(&self) {
        self.any.store(false, Ordering::SeqCst);
    }

    /// An idle slot, the pods in turn.
    pub(super) fn take(&self, cursor: &AtomicUsize) -> Option<Slot> {
        let pods = self.pods.load();
        let first = cursor.fetch_add(1, Ordering::Relaxed);
        (0..pods.len()).find_map(|n| pods[first.wrapping_add(n) % pods.len()].try_reserve_open())
    }
}
