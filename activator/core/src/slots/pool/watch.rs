//! What lists and time decide: which pods to claim, who is dead, and when to stop.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::{FORGET_AFTER, GONE_AFTER, KNOWN_AFTER, Pool, Sibling};
use crate::destination::Destination;
use crate::slots::event::Output;
use crate::slots::pod::{Pod, Role};
use crate::slots::rendezvous::grantor;
use crate::slots::{DEAD_AFTER, Peer, Peers, STOP_AFTER};

impl Pool {
    pub(super) fn set_pods(&mut self, pods: &BTreeMap<Destination, bool>, now: Instant) {
        let unchanged = self.members_since.is_some_and(|since| now.saturating_duration_since(since) >= DEAD_AFTER);
        let long = now.saturating_duration_since(self.pods_known_since) >= FORGET_AFTER;
        let new = unchanged && long && self.has_pods;
        self.has_pods = true;
        for (at, pod) in &mut self.pods {
            pod.unlisted_since = (!pods.contains_key(at)).then(|| pod.unlisted_since.unwrap_or(now));
        }
        for (at, usable) in pods {
            let known = self.pods.contains_key(at);
            let pod = self.pods.entry(at.clone()).or_insert_with(|| Pod::new(now));
            (pod.unlisted_since, pod.usable) = (None, *usable);
            pod.new |= new && !known;
        }
    }

    pub(super) fn set_members(&mut self, members: BTreeSet<Peer>, now: Instant) {
        if members == self.members {
            return;
        }
        if self.members.contains(&self.me) && !members.contains(&self.me) {
            self.left_since = now;
        }
        for (at, pod) in &mut self.pods {
            (pod.retry_at, pod.new) = (now, false);
            pod.pauses.clear();
            if grantor(at, &members) != grantor(at, &self.members) {
                pod.grantor_since = now;
            }
        }
        for peer in members.iter().filter(|peer| **peer != self.me) {
            self.siblings.entry(peer.clone()).or_insert_with(|| Sibling::new(now));
        }
        (self.members, self.members_since) = (members, Some(now));
        for (peer, sibling) in &mut self.siblings {
            sibling.gone_since = (!self.members.contains(peer)).then(|| sibling.gone_since.unwrap_or(now));
        }
    }

    pub(super) fn connected(&mut self, peer: &Peer, now: Instant, out: &mut Vec<Output>) {
        if *peer == self.me {
            return;
        }
        self.disconnected(peer);
        let gone = (!self.members.contains(peer)).then_some(now);
        let sibling = self.siblings.entry(peer.clone());
        let sibling = sibling.or_insert_with(|| Sibling { gone_since: gone, ..Sibling::new(now) });
        sibling.connected = true;
        let of_mine = self.pods.iter().filter(|(_, pod)| pod.role != Role::Bystander).map(|(at, _)| at.clone());
        for at in of_mine.collect::<Vec<_>>() {
            self.claim(&at, peer, out);
        }
    }

    /// What it uses stays counted until it says otherwise, or is dead.
    pub(super) fn disconnected(&mut self, peer: &Peer) {
        if let Some(sibling) = self.siblings.get_mut(peer) {
            let (known_since, gone_since) = (sibling.known_since, sibling.gone_since);
            *sibling = Sibling { gone_since, ..Sibling::new(known_since) };
        }
        for pod in self.pods.values_mut() {
            pod.claims.remove(peer);
            pod.confirmed.remove(peer);
            pod.deferred.remove(peer);
            pod.pauses.remove(peer);
            pod.told.remove(peer);
        }
    }

    /// Everything that time, lists and confirmations decide.
    pub(super) fn look(&mut self, peers: &Peers, now: Instant, out: &mut Vec<Output>) {
        for at in self.pods.keys().cloned().collect::<Vec<_>>() {
            self.look_at(&at, peers, now, out);
        }
        let forgotten = |pod: &Pod| pod.is_unlisted_for(FORGET_AFTER, now) && pod.in_use() == 0;
        self.pods.retain(|_, pod| !forgotten(pod));
        let long_gone = |sibling: &Sibling| {
            sibling.gone_since.is_some_and(|gone| now.saturating_duration_since(gone) >= KNOWN_AFTER)
        };
        self.siblings.retain(|peer, sibling| !(long_gone(sibling) && sibling.is_dead(peer, peers, now)));
    }

    fn look_at(&mut self, at: &Destination, peers: &Peers, now: Instant, out: &mut Vec<Output>) {
        let is_grantor = self.is_grantor(at);
        let Some(pod) = self.pods.get(at) else { return };
        match pod.role {
            _ if (pod.is_held() || !pod.own.is_empty()) && self.is_given_up(at, pod, peers, now) => {
                self.stop(at, now, out);
            }
            // Bystander => (Bystander | Gathering | Holder)
            Role::Bystander if is_grantor && !self.stopped && pod.is_listed() && now >= pod.retry_at => {
                self.gather(at, peers, now, out)
            }
            Role::Bystander => {}
            // Gathering => (Bystander | Gathering | Holder)
            Role::Gathering if !is_grantor || self.stopped || !pod.is_listed() => self.give_up(at, now, out),
            Role::Gathering => {
                self.claim_all(at, out);
                self.begin_if_confirmed(at, peers, now, out);
            }
            Role::Holder if pod.is_unlisted_for(GONE_AFTER, now) => self.give_up(at, now, out),
            // Holder => Holder. It ends when it is claimed, or the pod is gone.
            Role::Holder => {
                let dead = if is_grantor { self.dead_for(pod, peers, now) } else { BTreeSet::new() };
                if let Some(pod) = self.pods.get_mut(at) {
                    pod.loans.retain(|user, _| !dead.contains(user));
                }
                self.claim_again(at, now, out);
            }
        }
    }

    pub(super) fn is_grantor(&self, at: &Destination) -> bool {
        grantor(at, &self.members) == Some(&self.me)
    }

    pub(super) fn lends_to_all(&self, pod: &Pod) -> bool {
        self.siblings.iter().all(|(peer, sibling)| !sibling.connected || pod.confirmed.contains(peer))
    }

    /// Whether the one that its list names may believe this activator dead, and take over what it grants and uses there.
    /// Or this one ends.
    pub(super) fn is_given_up(&self, at: &Destination, pod: &Pod, peers: &Peers, now: Instant) -> bool {
        if self.stopped {
            return true;
        }
        let stays = self.members.contains(&self.me) || self.members.is_empty();
        let lost = |peer: &Peer| {
            let since = pod.grantor_since.max(self.left_since);
            let since = since.max(peers.acknowledged(peer).unwrap_or(since));
            now.saturating_duration_since(since) >= STOP_AFTER
        };
        !stays && grantor(at, &self.members).is_some_and(lost)
    }

    fn stop(&mut self, at: &Destination, now: Instant, out: &mut Vec<Output>) {
        self.give_up(at, now, out);
        out.extend(self.pods.get(at).into_iter().flat_map(|pod| pod.own.values().copied().map(Output::Cut)));
    }
}
