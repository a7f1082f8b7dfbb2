//! Claims and confirmations of lots.

use std::time::Instant;

use super::{Holding, Output, Pods, RETRY_AFTER};
use crate::holders::lots::score;
use crate::holders::message::Running;
use crate::holders::{Lots, Message, Peer, Peers};

impl Holding {
    /// Handles a claim: a sibling wants to hold these lots, or holds them and needs to know which requests run here.
    pub(super) fn claimed(
        &mut self,
        from: &Peer,
        number: u64,
        lots: Lots,
        pods: &dyn Pods,
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        let comes_first = score(&self.workload, &self.me) > score(&self.workload, from);
        let waits = comes_first && self.claiming.intersects(lots);
        let Some(sibling) = self.siblings.get_mut(from) else { return };
        sibling.deferred = Some((number, lots));
        if waits {
            // Ask the sibling again for lots that it confirmed before it claimed. It then yields, instead of getting
            // the lots and giving them back.
            sibling.confirmed = sibling.confirmed.difference(lots);
            (sibling.claimed, sibling.unconfirmed) = (None, None);
        } else {
            self.confirm_to(from, pods, now, out);
        }
    }

    /// Gives up lots that a sibling has claimed, and reports the requests that this activator runs.
    fn confirm_to(&mut self, to: &Peer, pods: &dyn Pods, now: Instant, out: &mut Vec<Output>) {
        let Some((number, lots)) = self.siblings.get_mut(to).and_then(|sibling| sibling.deferred.take()) else {
            return;
        };
        self.release_lots(lots);
        if lots.intersects(self.mine()) {
            (self.retry_at, self.is_uncontested) = (now + RETRY_AFTER, false);
        }
        if let Some(sibling) = self.siblings.get_mut(to) {
            (sibling.claimed_by_it, sibling.counts) = (lots, true);
        }
        self.apply(pods);
        // No request gets a slot there any more, so the number can only fall.
        self.reported = pods.running(self.held);
        let message = Message::Confirm { number, running: self.reported.clone() };
        out.push(Output::Send { to: *to, message });
    }

    /// Stops holding or claiming these lots. Former confirmations of them become void.
    pub(super) fn release_lots(&mut self, lots: Lots) {
        (self.held, self.claiming) = (self.held.difference(lots), self.claiming.difference(lots));
        for sibling in self.siblings.values_mut() {
            sibling.confirmed = sibling.confirmed.difference(lots);
            sibling.unconfirmed = sibling.unconfirmed.map(|(number, claimed)| (number, claimed.difference(lots)));
        }
    }

    /// Confirms claims that had to wait. The claimant with the highest score comes last, because it is the holder from
    /// then on.
    pub(super) fn answer_deferred(&mut self, pods: &dyn Pods, now: Instant, out: &mut Vec<Output>) {
        let ready = |holding: &Self| {
            let of = |(peer, sibling): (&Peer, &super::Sibling)| {
                let (_, lots) = sibling.deferred?;
                (!holding.claiming.intersects(lots)).then_some(*peer)
            };
            holding.siblings.iter().filter_map(of).min_by_key(|peer| score(&holding.workload, peer))
        };
        while let Some(peer) = ready(self) {
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
        let Some((_, lots)) = sibling.unconfirmed.filter(|(claim, _)| *claim == number) else { return };
        sibling.unconfirmed = None;
        sibling.running = running;
        sibling.confirmed = lots;
        // The sibling has none of these lots any more, so its earlier claims of them are void.
        sibling.claimed_by_it = sibling.claimed_by_it.difference(lots);
        sibling.deferred = sibling.deferred.map(|(number, theirs)| (number, theirs.difference(lots)));
        sibling.deferred = sibling.deferred.filter(|(_, theirs)| !theirs.is_empty());
        self.answer_deferred(pods, now, out);
    }

    /// Claims the held lots and the lots in `claiming` from each connected sibling whose last claim from here differs,
    /// so that every sibling knows the holder.
    pub(super) fn claim(&mut self, out: &mut Vec<Output>) {
        let lots = self.held.union(self.claiming);
        let is_open = |sibling: &super::Sibling| sibling.connected && sibling.claimed.unwrap_or(Lots::NONE) != lots;
        let open = self.siblings.iter().filter(|(_, sibling)| is_open(sibling)).map(|(peer, _)| *peer);
        for peer in open.collect::<Vec<_>>() {
            self.next_number += 1;
            let number = self.next_number;
            if let Some(sibling) = self.siblings.get_mut(&peer) {
                (sibling.claimed, sibling.unconfirmed) = (Some(lots), Some((number, lots)));
            }
            out.push(Output::Send { to: peer, message: Message::Claim { number, lots } });
        }
    }

    /// Begins to hold the lots that all required siblings have confirmed.
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
