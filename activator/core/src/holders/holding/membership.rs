//! Decisions that depend on the lists of activators and pods, and on time: claims, dead siblings, and stopping.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{ALL_KNOW_EMPTY_AFTER, DEAD_AFTER, Holding, Output, Pods, RELEASE_EMPTY_AFTER, REMEMBER_DEAD_FOR, Sibling};
use crate::destination::Destination;
use crate::holders::shards::{self, Shards, index_of};
use crate::holders::{Peer, Peers, STOP_AFTER};

impl Holding {
    pub(super) fn set_pods(&mut self, listed: &BTreeSet<Destination>, limit: u32, now: Instant) {
        self.pods = [0; shards::SHARD_COUNT];
        listed.iter().for_each(|pod| self.pods[index_of(pod)] += 1);
        self.limit = limit;
        let has_lasted = |since: Instant, time| now.saturating_duration_since(since) >= time;
        let settled = self.members_since.is_some_and(|since| has_lasted(since, DEAD_AFTER));
        self.empty_since = match (self.empty_since, listed.is_empty()) {
            (since, true) => Some(since.unwrap_or(now)),
            (Some(since), false) => {
                self.is_uncontested = settled && has_lasted(since, ALL_KNOW_EMPTY_AFTER);
                None
            }
            (None, false) => None,
        };
        self.rank(now);
    }

    pub(super) fn set_members(&mut self, members: BTreeSet<Peer>, now: Instant) {
        if members == self.members {
            return;
        }
        if self.members.contains(&self.me) && !members.contains(&self.me) {
            self.left_since = now;
        }
        (self.retry_at, self.is_uncontested) = (now, false);
        for peer in members.iter().filter(|peer| **peer != self.me) {
            self.siblings.entry(*peer).or_insert_with(|| Sibling::new(now));
        }
        (self.members, self.members_since) = (members, Some(now));
        for (peer, sibling) in &mut self.siblings {
            sibling.gone_since = (!self.members.contains(peer)).then(|| sibling.gone_since.unwrap_or(now));
        }
        self.rank(now);
    }

    /// Determines the activators that the list assigns shards to.
    fn rank(&mut self, now: Instant) {
        let pods = self.pods.iter().map(|pods| *pods as usize).sum();
        let count = shards::holder_count(pods, self.limit, self.slots_per_holder);
        let holders = shards::holders(&self.workload, &self.members, count);
        if holders != self.holders {
            (self.holders, self.holders_since, self.is_uncontested) = (holders, now, false);
        }
    }

    pub(super) fn connected(&mut self, peer: &Peer, now: Instant) {
        if *peer == self.me {
            return;
        }
        self.disconnected(peer);
        let gone = (!self.members.contains(peer)).then_some(now);
        let new = || Sibling { gone_since: gone, ..Sibling::new(now) };
        self.siblings.entry(*peer).or_insert_with(new).connected = true;
    }

    /// Ends the sibling's session. Its requests stay counted until it reports otherwise or is dead.
    pub(super) fn disconnected(&mut self, peer: &Peer) {
        if let Some(sibling) = self.siblings.get_mut(peer) {
            let running = std::mem::take(&mut sibling.running);
            *sibling = Sibling { gone_since: sibling.gone_since, running, ..Sibling::new(sibling.known_since) };
        }
    }

    /// Makes all decisions that depend on time, lists and confirmations.
    pub(super) fn advance(&mut self, peers: &Peers, pods: &dyn Pods, now: Instant, out: &mut Vec<Output>) {
        self.stop(peers, pods, now, out);
        let is_gone = |since: Instant| now.saturating_duration_since(since) >= RELEASE_EMPTY_AFTER;
        let gone = if self.empty_since.is_some_and(is_gone) { Shards::ALL } else { Shards::NONE };
        let mine = if self.stopped { Shards::NONE } else { self.own_shards() };
        self.release_shards(gone.union(self.claiming.difference(mine)));
        self.forget_dead(mine, peers, now);
        let wanted = mine.difference(self.held).difference(self.claiming);
        if !wanted.is_empty() && !self.is_empty() && now >= self.retry_at && self.may_claim(peers, now) {
            self.claiming = self.claiming.union(wanted);
        }
        self.claim(out);
        self.begin(peers, now);
        self.answer_deferred(pods, now, out);
    }

    /// Forgets requests of dead activators, and removes activators that have been gone for long.
    fn forget_dead(&mut self, mine: Shards, peers: &Peers, now: Instant) {
        let dead = self.siblings.iter().filter(|(peer, sibling)| self.is_dead(peer, sibling, peers, now));
        for peer in dead.map(|(peer, _)| *peer).collect::<Vec<_>>() {
            let Some(sibling) = self.siblings.get_mut(&peer) else { continue };
            sibling.running.retain(|pod, _| !mine.intersects(Shards::of_pod(pod)));
            let since = sibling.gone_since.unwrap_or(now);
            if now.saturating_duration_since(since) >= REMEMBER_DEAD_FOR {
                self.siblings.remove(&peer);
            }
        }
    }

    /// Returns true if the list has named this activator for long enough and all required siblings can confirm.
    /// Otherwise the current holder keeps the workload.
    fn may_claim(&self, peers: &Peers, now: Instant) -> bool {
        let mut silent = self.siblings.iter().filter(|(_, sibling)| !sibling.connected);
        self.is_uncontested
            || self.is_settled(peers, now) && silent.all(|(peer, sibling)| self.is_dead(peer, sibling, peers, now))
    }

    /// Returns true if the list has named the same holders for so long that an activator that has left and lost touch
    /// with them has stopped. (Such an activator checks the holders that its own list names, and needs time to learn
    /// which they are.)
    fn is_settled(&self, peers: &Peers, now: Instant) -> bool {
        now.saturating_duration_since(self.holders_since) >= peers.dead_after
    }

    pub(super) fn is_dead(&self, peer: &Peer, sibling: &Sibling, peers: &Peers, now: Instant) -> bool {
        self.is_settled(peers, now) && sibling.is_dead(peer, peers, now)
    }

    /// Gives up shards and cuts requests if the listed holders may consider this activator dead and take them over, or
    /// if this activator shuts down.
    fn stop(&mut self, peers: &Peers, pods: &dyn Pods, now: Instant, out: &mut Vec<Output>) {
        let shards = self.shards_to_give_up(peers, now);
        if shards.is_empty() {
            return;
        }
        self.release_shards(shards);
        self.apply(pods);
        let running = pods.running(Shards::NONE).keys().fold(Shards::NONE, |all, pod| all.union(Shards::of_pod(pod)));
        let cut = running.intersection(shards);
        if !cut.is_empty() {
            out.push(Output::Cut(cut));
        }
    }

    fn shards_to_give_up(&self, peers: &Peers, now: Instant) -> Shards {
        if self.stopped {
            return Shards::ALL;
        }
        if self.members.contains(&self.me) || self.members.is_empty() {
            return Shards::NONE;
        }
        let is_lost = |peer: &&Peer| {
            let since = self.holders_since.max(self.left_since);
            let since = since.max(peers.acknowledged(peer).unwrap_or(since));
            now.saturating_duration_since(since) >= STOP_AFTER
        };
        let lost = self.holders.iter().filter(is_lost);
        lost.fold(Shards::NONE, |all, peer| all.union(self.listed_shards(peer)))
    }
}
