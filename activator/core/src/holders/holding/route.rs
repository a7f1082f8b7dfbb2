//! Routing of requests from this activator's own clients.

use std::collections::BTreeMap;

use super::{Holding, Sibling};
use crate::holders::{Peer, Shards};

/// Activators that admit requests of a workload. Without siblings it is this activator: it holds the workload, or must
/// wait until another one does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Siblings with the number of pods that each holds.
    pub siblings: Vec<(Peer, u32)>,
    /// Number of pods of this activator, if siblings hold others.
    pub own: u32,
}

impl Holding {
    /// Returns the current route of requests. A shard belongs to the activator that has claimed it, or else to the
    /// activator that the list names. Requests cannot be relayed to a sibling that is out of touch, so they wait here.
    pub fn route(&self) -> Route {
        let (mut own, mut pods_of) = (0, BTreeMap::<&Peer, u32>::new());
        // Without pods, use the activator that the list assigns the first shard to.
        let used = self.pods.iter().enumerate().filter(|(_, pods)| **pods > 0).map(|(shard, pods)| (shard, *pods));
        let first = self.is_empty().then_some((0, 1));
        for (shard, pods) in used.chain(first) {
            match self.holder(shard) {
                Some((peer, sibling)) if sibling.connected => *pods_of.entry(peer).or_default() += pods,
                Some(_) => {}
                None => own += pods,
            }
        }
        if pods_of.is_empty() {
            return Route::default();
        }
        Route { siblings: pods_of.into_iter().map(|(peer, pods)| (*peer, pods)).collect(), own }
    }

    /// Returns the sibling that has a shard, or `None` if this activator has it or no holder is known.
    fn holder(&self, shard: usize) -> Option<(&Peer, &Sibling)> {
        let one = Shards::nth(shard);
        if self.held.union(self.claiming).intersects(one) {
            return None;
        }
        let has = |sibling: &Sibling| sibling.connected && sibling.claimed_by_it.intersects(one) && !self.is_empty();
        let listed = self.siblings.get_key_value(self.holders.get(shard % self.holders.len().max(1))?);
        let claimant = || self.siblings.iter().find(|(_, sibling)| has(sibling));
        listed.filter(|(_, sibling)| has(sibling)).or_else(claimant).or(listed)
    }
}
