//! Where idle slots are, known without a look at all pods.

use std::collections::BTreeSet;
use std::time::Instant;

use super::Pool;
use crate::destination::Destination;

/// An index of a pool's pods. [`Pool::count`] keeps it true.
#[derive(Debug, Default)]
pub(super) struct Idle {
    /// Pods with idle slots, by when their longest idle one became idle.
    pods: BTreeSet<(Instant, Destination)>,
    /// Pods on which the present call has ended something.
    pub(super) of: Vec<Destination>,
    /// Anything may have changed.
    pub(super) of_all: bool,
    /// [`Pool::is_open`].
    pub(super) open: bool,
    /// [`Pool::claims_at`].
    pub(super) claims_at: Option<Instant>,
}

impl Idle {
    /// The pod of the slot that has been idle longest, of those that `may` be used.
    pub(super) fn longest(&self, may: impl Fn(&Destination) -> bool) -> Option<&Destination> {
        self.pods.iter().map(|(_, at)| at).find(|at| may(at))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }
}

impl Pool {
    /// Makes the index true after what has happened.
    pub(super) fn count(&mut self, now: Instant) {
        let touched = std::mem::take(&mut self.idle.of);
        if !std::mem::take(&mut self.idle.of_all) {
            return touched.iter().for_each(|at| self.count_at(at, now));
        }
        self.idle.pods.clear();
        self.siblings.values_mut().for_each(|sibling| sibling.lendable = 0);
        for pod in self.pods.values_mut() {
            (pod.counted, pod.counted_since) = (0, None);
        }
        for at in self.pods.keys().cloned().collect::<Vec<_>>() {
            self.count_at(&at, now);
        }
        (self.idle.open, self.idle.claims_at) = (self.is_open(), self.claims_at());
    }

    /// The same of one pod, of which nothing but its uses has changed.
    pub(super) fn count_at(&mut self, at: &Destination, now: Instant) {
        let Some(pod) = self.pods.get_mut(at) else { return };
        let (free, since) = (pod.free(self.limit), pod.idle_since(self.limit, now));
        let former = std::mem::replace(&mut pod.counted_since, since);
        if former != since {
            if let Some(former) = former {
                self.idle.pods.remove(&(former, at.clone()));
            }
            if let Some(since) = since {
                self.idle.pods.insert((since, at.clone()));
            }
        }
        let free = u32::try_from(free).unwrap_or(u32::MAX);
        let former = std::mem::replace(&mut pod.counted, free);
        if former != free {
            for peer in &pod.confirmed {
                if let Some(sibling) = self.siblings.get_mut(peer) {
                    sibling.lendable = (sibling.lendable + free).saturating_sub(former);
                }
            }
        }
    }
}
