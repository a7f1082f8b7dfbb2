//! Slots on their way: to the request that has waited longest, here or at a sibling, and back.

use std::time::Instant;

use super::{ADVERTISE_EVERY, ASK_AGAIN_EVERY, ASKS_MAX, DECLINED_AGAIN, Pool, RETRY_AFTER, Sibling};
use crate::destination::Destination;
use crate::slots::event::{Output, Request};
use crate::slots::pod::Pod;
use crate::slots::{Message, Peer, Peers};

impl Pool {
    pub(super) fn end(&mut self, request: Request, out: &mut Vec<Output>) {
        if let Some(since) = self.waiting_since.remove(&request) {
            self.waiting.remove(&(since, request));
        }
        let Some((at, number)) = self.running.remove(&request) else { return };
        let Some(pod) = self.pods.get_mut(&at) else { return };
        pod.own.remove(&number);
        self.idle.of.push(at.clone());
        for to in pod.told.clone() {
            self.send(&to, Message::Return { pod: at.clone(), number, declined: false }, out);
        }
    }

    /// Idle slots go to whoever has waited longest: a request of this activator, or of a sibling.
    pub(super) fn hand_out(&mut self, now: Instant, out: &mut Vec<Output>) {
        while !self.idle.is_empty() {
            let own = self.waiting.first().map(|(since, _)| (*since, None));
            let asks = self.siblings.iter().filter(|(_, sibling)| sibling.connected);
            let asks = asks.filter_map(|(peer, sibling)| Some((sibling.asks.front()?.0, Some(peer.clone()))));
            let mut candidates: Vec<(Instant, Option<Peer>)> = own.into_iter().chain(asks).collect();
            candidates.sort();
            let found = candidates.into_iter().find_map(|(_, who)| {
                let at = self.longest_idle(who.as_ref())?;
                Some((who, at))
            });
            let Some((who, at)) = found else { break };
            match who {
                None => self.run_first(&at, None, out),
                Some(to) => self.lend_first(&to, at.clone(), out),
            }
            self.count_at(&at, now);
        }
    }

    /// The pod of the slot that has been idle longest, of those that a sibling may be lent, or of all.
    fn longest_idle(&self, borrower: Option<&Peer>) -> Option<Destination> {
        let may = |pod: &Pod, borrower: &Peer| pod.confirmed.contains(borrower);
        let may = |at: &Destination| borrower.is_none_or(|peer| self.pods.get(at).is_some_and(|pod| may(pod, peer)));
        self.idle.longest(may).cloned()
    }

    /// The first in line has a slot: an own one, or the loan of a number.
    fn run_first(&mut self, at: &Destination, loan: Option<u64>, out: &mut Vec<Output>) {
        let Some((_, request)) = self.waiting.pop_first() else { return };
        self.waiting_since.remove(&request);
        let number = loan.unwrap_or_else(|| self.number());
        if let Some(pod) = self.pods.get_mut(at) {
            pod.take_idle();
            pod.own.insert(number, request);
        }
        self.running.insert(request, (at.clone(), number));
        out.push(Output::Run { request, pod: at.clone() });
    }

    fn lend_first(&mut self, to: &Peer, at: Destination, out: &mut Vec<Output>) {
        let asked = self.siblings.get_mut(to).and_then(|sibling| sibling.asks.pop_front());
        let (Some((_, number)), Some(pod)) = (asked, self.pods.get_mut(&at)) else { return };
        pod.take_idle();
        pod.loans.entry(to.clone()).or_default().insert(number);
        self.send(to, Message::Lend { number, pod: at }, out);
    }

    /// Asks for as many slots as requests wait, no more and no less: of those that advertise most, or of all.
    pub(super) fn ask(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.take_back_unheard(now, out);
        let needed = self.waiting.len().min(ASKS_MAX);
        if needed == 0 && self.siblings.values().all(|sibling| sibling.asked.is_empty()) {
            return;
        }
        let connected = self.siblings.iter().filter(|(_, sibling)| sibling.connected);
        let mut order: Vec<(u32, Peer)> = connected.map(|(peer, sibling)| (sibling.free, peer.clone())).collect();
        order.sort_by(|a, b| b.cmp(a));
        let free: usize = order.iter().map(|(free, _)| *free as usize).sum();
        let mut left = needed;
        for (free_there, peer) in order {
            let wanted = if free >= needed { left.min(free_there as usize) } else { needed };
            left -= left.min(wanted);
            self.ask_for(&peer, wanted, now, out);
        }
    }

    /// Takes back what was asked of a sibling whose pool may be newer than the questions. They are asked again with other
    /// numbers: a former one may have been heard, and its loan be on its way. Once in a while for a crowd of claims.
    fn take_back_unheard(&mut self, now: Instant, out: &mut Vec<Output>) {
        let mut former = Vec::new();
        for (peer, sibling) in &mut self.siblings {
            let (unheard, since) = sibling.unheard;
            if unheard && now.saturating_duration_since(since) >= ASK_AGAIN_EVERY {
                sibling.unheard = (false, now);
                former.extend(sibling.asked.drain(..).map(|number| (peer.clone(), number)));
            }
        }
        former.into_iter().for_each(|(peer, number)| self.send(&peer, Message::Cancel { number }, out));
    }

    fn ask_for(&mut self, peer: &Peer, wanted: usize, now: Instant, out: &mut Vec<Output>) {
        while let Some(sibling) = self.siblings.get_mut(peer) {
            let asked = sibling.asked.len();
            if asked > wanted {
                let number = sibling.asked.pop_back().unwrap_or_default();
                self.send(peer, Message::Cancel { number }, out);
            } else if asked < wanted {
                let since = self.waiting.iter().nth(asked).map_or(now, |(since, _)| *since);
                let number = self.number();
                if let Some(sibling) = self.siblings.get_mut(peer) {
                    sibling.asked.push_back(number);
                }
                self.send(peer, Message::Ask { number, waited: now.saturating_duration_since(since) }, out);
            } else {
                return;
            }
        }
    }

    pub(super) fn advertise(&mut self, now: Instant, out: &mut Vec<Output>) {
        let tell = |(peer, sibling): (&Peer, &Sibling)| {
            let slots = sibling.lendable;
            let in_vain = slots == 0 && !sibling.asks.is_empty();
            let due = in_vain || now.saturating_duration_since(sibling.told.1) >= ADVERTISE_EVERY;
            (sibling.connected && slots != sibling.told.0 && due).then(|| (peer.clone(), slots))
        };
        let told: Vec<(Peer, u32)> = self.siblings.iter().filter_map(tell).collect();
        for (peer, slots) in told {
            if let Some(sibling) = self.siblings.get_mut(&peer) {
                sibling.told = (slots, now);
            }
            self.send(&peer, Message::Free { slots }, out);
        }
    }

    /// A loan has come: it is used, or goes back at once.
    pub(super) fn borrow(
        &mut self,
        from: &Peer,
        at: Destination,
        number: u64,
        peers: &Peers,
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        let fits = self.pods.get(&at).is_some_and(|pod| {
            let lends = !pod.is_held() && pod.pledged_to.as_ref() == Some(from);
            lends && (!pod.is_listed() || pod.usable) && !self.is_given_up(&at, pod, peers, now)
        });
        if let Some(pod) = self.pods.get_mut(&at).filter(|_| fits) {
            // Who lends grants, so nobody else does, or counts what is used here.
            pod.told.retain(|peer| peer == from);
        }
        if fits && !self.waiting.is_empty() {
            self.run_first(&at, Some(number), out);
        } else {
            self.send(from, Message::Return { pod: at, number, declined: !fits }, out);
        }
    }

    /// A sibling uses a slot no longer, or could not.
    pub(super) fn returned(&mut self, from: &Peer, at: &Destination, number: u64, declined: bool, now: Instant) {
        let Some(pod) = self.pods.get_mut(at) else { return };
        pod.end_loan(from, number);
        self.idle.of.push(at.clone());
        let confirmed = pod.confirmed.contains(from);
        if confirmed && !declined {
            pod.pauses.remove(from);
        } else if confirmed && pod.is_held() {
            // It has not proven the pod yet, or cannot reach it, or has confirmed to somebody else since: asked again, soon at
            // first.
            self.idle.of_all = true;
            pod.confirmed.remove(from);
            let former = pod.pauses.get(from).map(|(long, _)| *long);
            let long = former.map_or(DECLINED_AGAIN, |long| (long * 2).min(RETRY_AFTER));
            pod.pauses.insert(from.clone(), (long, now + long));
        }
    }
}
