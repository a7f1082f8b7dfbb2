//! Who grants: claims and confirmations.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{Pool, RETRY_AFTER};
use crate::destination::Destination;
use crate::slots::event::Output;
use crate::slots::pod::{Pod, Role};
use crate::slots::rendezvous::score;
use crate::slots::{Message, Peer, Peers};

impl Pool {
    /// A sibling wants to grant, or grants and wants to lend here.
    pub(super) fn claimed(&mut self, from: &Peer, at: Destination, number: u64, now: Instant, out: &mut Vec<Output>) {
        if let Some(sibling) = self.siblings.get_mut(from) {
            sibling.unheard.0 |= !sibling.asked.is_empty();
        }
        let comes_first = score(&self.me, &at) > score(from, &at);
        let pod = self.pods.entry(at.clone()).or_insert_with(|| Pod::new(now));
        if !pod.is_gathering() || !comes_first {
            return self.confirm_to(from, &at, number, now, out);
        }
        pod.deferred.insert(from.clone(), number);
        // What it confirmed before it claimed is asked again: it yields, and need not be given the pod and give it back.
        if pod.confirmed.remove(from) {
            self.claim(&at, from, out);
        }
    }

    /// Stops granting there, and says whether it did and what this activator uses.
    fn confirm_to(&mut self, to: &Peer, at: &Destination, number: u64, now: Instant, out: &mut Vec<Output>) {
        let Some(pod) = self.pods.get_mut(at) else { return };
        let held = pod.is_held();
        pod.stand_by();
        (pod.retry_at, pod.new) = (now + RETRY_AFTER, false);
        pod.pledged_to = Some(to.clone());
        pod.told.insert(to.clone());
        pod.deferred.remove(to);
        let own = pod.own.keys().copied().collect();
        self.send(to, Message::Confirm { pod: at.clone(), number, held, own }, out);
        self.answer_deferred(at, now, out);
    }

    /// Those that waited for an answer have it, the one that comes first last: it is who is confirmed to from then on.
    fn answer_deferred(&mut self, at: &Destination, now: Instant, out: &mut Vec<Output>) {
        let Some(pod) = self.pods.get_mut(at) else { return };
        let next = pod.deferred.keys().min_by_key(|peer| score(peer, at)).cloned();
        if let Some(peer) = next
            && let Some(number) = pod.deferred.remove(&peer)
        {
            self.confirm_to(&peer, at, number, now, out);
        }
    }

    /// A sibling has answered. What it uses is what it says itself; answers to former claims count for nothing.
    pub(super) fn confirmed(&mut self, from: &Peer, at: &Destination, number: u64, held: bool, own: Vec<u64>) {
        let Some(pod) = self.pods.get_mut(at).filter(|pod| pod.claims.get(from) == Some(&number)) else { return };
        if held && pod.is_gathering() {
            // It may have lent slots to those that have confirmed, if they confirmed to it afterwards: all others are asked
            // again, now that it lends nothing any more.
            pod.ask_again();
        }
        pod.claims.remove(from);
        pod.deferred.remove(from);
        pod.set_loans(from, own);
        pod.confirmed.insert(from.clone());
    }

    /// Those in touch that have neither confirmed nor been asked.
    pub(super) fn unasked<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a Peer> {
        let connected = self.siblings.iter().filter(|(_, sibling)| sibling.connected).map(|(peer, _)| peer);
        connected.filter(move |peer| !pod.confirmed.contains(*peer) && !pod.claims.contains_key(*peer))
    }

    /// Claims it of all of those. Says whether there was one.
    pub(super) fn claim_all(&mut self, at: &Destination, out: &mut Vec<Output>) -> bool {
        let Some(pod) = self.pods.get(at) else { return false };
        let unasked: Vec<Peer> = self.unasked(pod).cloned().collect();
        unasked.iter().for_each(|peer| self.claim(at, peer, out));
        !unasked.is_empty()
    }

    /// Claims one that is held of those that have declined a loan, when their pause is over.
    pub(super) fn claim_again(&mut self, at: &Destination, now: Instant, out: &mut Vec<Output>) {
        let Some(pod) = self.pods.get(at) else { return };
        let is_due = |peer: &&Peer| pod.pauses.get(*peer).is_none_or(|(_, until)| *until <= now);
        let due: Vec<Peer> = self.unasked(pod).filter(is_due).cloned().collect();
        due.iter().for_each(|peer| self.claim(at, peer, out));
    }

    pub(super) fn claim(&mut self, at: &Destination, of: &Peer, out: &mut Vec<Output>) {
        if !self.is_connected(of) {
            return;
        }
        let number = self.number();
        if let Some(pod) = self.pods.get_mut(at) {
            pod.claims.insert(of.clone(), number);
        }
        self.send(of, Message::Claim { pod: at.clone(), number }, out);
    }

    /// Begins to gather, if it has been the one that its list names for long enough, and all can answer who have to: else
    /// whoever holds the pod had better keep it.
    pub(super) fn gather(&mut self, at: &Destination, peers: &Peers, now: Instant, out: &mut Vec<Output>) {
        let Some(pod) = self.pods.get(at) else { return };
        let dead = self.dead_for(pod, peers, now);
        let mut silent = self.siblings.iter().filter(|(_, sibling)| !sibling.connected).map(|(peer, _)| peer);
        let may = pod.is_watched(peers, now) && silent.all(|peer| dead.contains(peer));
        if !may && !pod.new {
            return;
        }
        if let Some(pod) = self.pods.get_mut(at) {
            (pod.role, pod.excused) = (Role::Gathering, dead);
        }
        self.claim_all(at, out);
        self.begin_if_confirmed(at, peers, now, out);
    }

    /// Gathering => (Gathering | Holder)
    pub(super) fn begin_if_confirmed(&mut self, at: &Destination, peers: &Peers, now: Instant, out: &mut Vec<Output>) {
        let Some(pod) = self.pods.get(at) else { return };
        let dead = self.dead_for(pod, peers, now);
        let open = |peer: &Peer, connected: bool| {
            !pod.confirmed.contains(peer) && !dead.contains(peer) && (connected || !pod.new)
        };
        if self.siblings.iter().any(|(peer, sibling)| open(peer, sibling.connected)) {
            return;
        }
        if dead.is_subset(&pod.excused) {
            return self.begin(at, now, out);
        }
        // Who died meanwhile may have held it.
        if let Some(pod) = self.pods.get_mut(at) {
            pod.excused = dead;
            pod.ask_again();
        }
        if !self.claim_all(at, out) {
            self.begin(at, now, out);
        }
    }

    fn begin(&mut self, at: &Destination, now: Instant, out: &mut Vec<Output>) {
        let Some(pod) = self.pods.get_mut(at) else { return };
        pod.role = Role::Holder;
        pod.pledged_to = None;
        pod.told.clear();
        (pod.retry_at, pod.new) = (now, false);
        self.answer_deferred(at, now, out);
    }

    /// Neither grants nor gathers any longer. Who has claimed it meanwhile has its answer.
    pub(super) fn give_up(&mut self, at: &Destination, now: Instant, out: &mut Vec<Output>) {
        let Some(pod) = self.pods.get_mut(at) else { return };
        pod.stand_by();
        self.answer_deferred(at, now, out);
    }

    /// Siblings that have stopped at a pod.
    pub(super) fn dead_for(&self, pod: &Pod, peers: &Peers, now: Instant) -> BTreeSet<Peer> {
        if !pod.is_watched(peers, now) {
            return BTreeSet::new();
        }
        let dead = self.siblings.iter().filter(|(peer, sibling)| sibling.is_dead(peer, peers, now));
        dead.map(|(peer, _)| peer.clone()).collect()
    }
}
