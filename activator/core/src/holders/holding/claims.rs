//! Claims and confirmations of shards.

use std::time::Instant;

use super::{Holding, Output, Pods, RETRY_AFTER};
use crate::holders::message::Running;
use crate::holders::shards::score;
use crate::holders::{Message, Peer, Peers, Shards};

impl Holding {
    /// Handles a claim: a sibling wants to hold these shards, or holds them and needs to know which requests run here.
    pub(super) fn claimed(
        &mut self,
        from: &Peer,
        number: u64,
        shards: Shards,
        pods: &dyn Pods,
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        let comes_first = score(&self.workload, &self.me) > score(&self.workload, from);
        let waits = comes_first && self.claiming.intersects(shards);
        let Some(sibling) = self.siblings.get_mut(from) else { return };
        sibling.deferred = Some((number, shards));
        if waits {
            // Ask the sibling again for shards that it confirmed before it claimed. It then yields, instead of getting
            // the shards and giving them back.
            sibling.confirmed = sibling.confirmed.difference(shards);
            (sibling.claimed, sibling.unconfirmed) = (None, None);
        } else {
            self.confirm_to(from, pods, now, out);
        }
    }

    /// Gives up shards that a sibling has claimed, and reports the requests that this activator runs.
    fn confirm_to(&mut self, to: &Peer, pods: &dyn Pods, now: Instant, out: &mut Vec<Output>) {
        let Some((number, shards)) = self.siblings.get_mut(to).and_then(|sibling| sibling.deferred.take()) else {
            return;
        };
        self.release_shards(shards);
        if shards.intersects(self.own_shards()) {
            (self.retry_at, self.is_uncontested) = (now + RETRY_AFTER, false);
        }
        if let Some(sibling) = self.siblings.get_mut(to) {
            (sibling.claimed_by_it, sibling.counts) = (shards, true);
        }
        self.apply(pods);
        // No request gets a slot there any more, so the number can only fall.
        self.reported = pods.running(self.held);
        let message = Message::Confirm { number, running: self.reported.clone() };
        out.push(Output::Send { to: *to, message });
    }

    /// Stops holding or claiming these shards. Former confirmations of them become void.
    pub(super) fn release_shards(&mut self, shards: Shards) {
        (self.held, self.claiming) = (self.held.difference(shards), self.claiming.difference(shards));
        for sibling in self.siblings.values_mut() {
            sibling.confirmed = sibling.confirmed.difference(shards);
            sibling.unconfirmed = sibling.unconfirmed.map(|(number, claimed)| (number, claimed.difference(shards)));
        }
    }

    /// Confirms claims that had to wait. The claimant with the highest score comes last, because it is the holder from
    /// then on.
    pub(super) fn answer_deferred(&mut self, pods: &dyn Pods, now: Instant, out: &mut Vec<Output>) {
        let next = |holding: &Self| {
            let claimant = |(peer, sibling): (&Peer, &super::Sibling)| {
                let (_, shards) = sibling.deferred?;
                (!holding.claiming.intersects(shards)).then_some(*peer)
            };
            holding.siblings.iter().filter_map(claimant).min_by_key(|peer| score(&holding.workload, peer))
        };
        while let Some(peer) = next(self) {
            self.confirm_to(&peer, pods, now, out);
        }
    }

    /// Handles a confirmation. Its report of running requests replaces the former one. Confirmations of earlier claims
    /// are ignored.
    pub(super) fn confirmed(
        &mut self,
        from: &Peer,
        number: u64,
        running: Running,
        pods: &dyn Pods,
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        let Some(sibling) = self.siblings.get_mut(from) else { return };
        let Some((_, shards)) = sibling.unconfirmed.filter(|(claim, _)| *claim == number) else { return };
        sibling.unconfirmed = None;
        sibling.running = running;
        sibling.confirmed = shards;
        // The sibling has none of these shards any more, so its earlier claims of them are void.
        sibling.claimed_by_it = sibling.claimed_by_it.difference(shards);
        sibling.deferred = sibling.deferred.map(|(number, theirs)| (number, theirs.difference(shards)));
        sibling.deferred = sibling.deferred.filter(|(_, theirs)| !theirs.is_empty());
        self.answer_deferred(pods, now, out);
    }

    /// Claims the held shards and the shards in `claiming` from each connected sibling whose last claim from here
    /// differs, so that every sibling knows the holder.
    pub(super) fn claim(&mut self, out: &mut Vec<Output>) {
        let shards = self.held.union(self.claiming);
        let is_open = |sibling: &super::Sibling| sibling.connected && sibling.claimed.unwrap_or(Shards::NONE) != shards;
        let open = self.siblings.iter().filter(|(_, sibling)| is_open(sibling)).map(|(peer, _)| *peer);
        for peer in open.collect::<Vec<_>>() {
            self.next_number += 1;
            let number = self.next_number;
            if let Some(sibling) = self.siblings.get_mut(&peer) {
                (sibling.claimed, sibling.unconfirmed) = (Some(shards), Some((number, shards)));
            }
            out.push(Output::Send { to: peer, message: Message::Claim { number, shards } });
        }
    }

    /// Begins to hold the shards that all required siblings have confirmed.
    pub(super) fn begin(&mut self, peers: &Peers, now: Instant) {
        let is_excused = |peer: &Peer, sibling: &super::Sibling| {
            self.is_dead(peer, sibling, peers, now) || self.is_uncontested && !sibling.connected
        };
        let required = self.siblings.iter().filter(|(peer, sibling)| !is_excused(peer, sibling));
        let confirmed = required.fold(self.claiming, |all, (_, sibling)| all.intersection(sibling.confirmed));
        if confirmed.is_empty() {
            return;
        }
        self.held = self.held.union(confirmed);
        self.claiming = self.claiming.difference(confirmed);
        self.is_uncontested &= !self.claiming.is_empty();
        self.retry_at = now;
        for sibling in self.siblings.values_mut() {
            sibling.claimed_by_it = sibling.claimed_by_it.difference(confirmed);
        }
    }
}
