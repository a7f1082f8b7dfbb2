//! Where a request of this activator's own clients has its turn.

use std::collections::BTreeMap;

use super::{Holding, Sibling};
use crate::holders::{Lots, Peer};

/// Activators that give requests their turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// This activator: it holds the workload, or has to wait until somebody does.
    Here,
    /// These siblings, and this activator if it has a part: how many pods each holds.
    There {
        /// Each sibling's.
        siblings: Vec<(Peer, u32)>,
        /// This activator's.
        own: u32,
    },
}

impl Holding {
    /// Returns where requests go now. A lot is with whoever has claimed it, or else falls to whom the list names. With a sibling
    /// that is out of touch nobody can have a turn: then requests wait here.
    pub fn route(&self) -> Route {
        let (mut own, mut of) = (0, BTreeMap::<&Peer, u32>::new());
        // Without pods it is the one that the first of them falls to.
        let lots = self.pods.iter().enumerate().filter(|(_, pods)| **pods > 0).map(|(lot, pods)| (lot, *pods));
        let first = self.is_empty().then_some((0, 1));
        for (lot, pods) in lots.chain(first) {
            match self.holder(lot) {
                Some((peer, sibling)) if sibling.connected => *of.entry(peer).or_default() += pods,
                Some(_) => {}
                None => own += pods,
            }
        }
        if of.is_empty() {
            return Route::Here;
        }
        Route::There { siblings: of.into_iter().map(|(peer, pods)| (peer.clone(), pods)).collect(), own }
    }

    /// The sibling that a lot is with; none: it is with this activator, or nobody is known.
    fn holder(&self, lot: usize) -> Option<(&Peer, &Sibling)> {
        let one = Lots::nth(lot);
        if self.held.and(self.gathering).meets(one) {
            return None;
        }
        let has = |sibling: &Sibling| sibling.connected && sibling.has.meets(one) && !self.is_empty();
        let listed = self.siblings.get_key_value(self.holders.get(lot % self.holders.len().max(1))?);
        let claimant = || self.siblings.iter().find(|(_, sibling)| has(sibling));
        listed.filter(|(_, sibling)| has(sibling)).or_else(claimant).or(listed)
    }
}
