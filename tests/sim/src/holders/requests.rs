//! Requests of clients: they arrive, are relayed, get a slot, and end. Pods count the requests that they run.

use super::network::index_of;
use super::world::{Client, Event, Request, World};
use activator_core::Destination;
use activator_core::holders::{Input, Route};
use rand::RngExt;
use std::time::Duration;

/// Fraction of the requests of a run that take seconds.
pub(super) const LONG: f64 = 0.01;
/// Time until a request that was sent back is relayed again.
const AGAIN: Duration = Duration::from_millis(5);

impl World {
    pub(super) fn arrive(&mut self, index: usize) {
        let gap = match self.even {
            true => self.gap,
            false => self.gap.mul_f64(-self.rng.random_range(f64::MIN_POSITIVE..1.0).ln()),
        };
        if self.time.now + gap < self.arrivals_end {
            self.time.at(gap, Event::Arrive(index));
        }
        if !self.activators[index].up {
            return;
        }
        self.next_request += 1;
        let request = self.next_request;
        self.arrivals.push(self.time.now);
        let client = Client { home: index, at: Some(index), since: self.time.now, on: None };
        self.requests.insert(request, client);
        if self.rough && self.rng.random_bool(0.03) {
            let patience = Duration::from_millis(self.rng.random_range(0..200));
            self.time.at(patience, Event::Leave(request));
        }
        self.activators[index].waiting.push_back(request);
        self.overflow(index);
        self.serve(index);
    }

    /// Relays a request for which this activator has no free slot to the least loaded holder, if there are several
    /// holders.
    fn overflow(&mut self, index: usize) {
        let activator = &self.activators[index];
        let Route { siblings, own } = activator.holding.route();
        if own == 0 || activator.waiting.len() <= activator.throttler.free().len() {
            return;
        }
        let of = |load: usize, pods: u32| load as f64 / f64::from(pods);
        let here = of(activator.waiting.len() + activator.throttler.in_flight(), own);
        let others = siblings.iter().map(|(peer, pods)| {
            let to = index_of(peer);
            (of(activator.relayed.get(&to).copied().unwrap_or_default() as usize, *pods), to)
        });
        if let Some((_, to)) = others.min_by(|a, b| a.0.total_cmp(&b.0)).filter(|(load, _)| *load < here)
            && let Some(request) = self.activators[index].waiting.pop_back()
        {
            self.relay(request, index, to);
        }
    }

    /// Gives slots to waiting requests, as far as there are any. Relays them if another activator holds the workload.
    pub(super) fn serve(&mut self, index: usize) {
        let Route { siblings, own } = self.activators[index].holding.route();
        if let (Some((first, _)), 0) = (siblings.first(), own) {
            let to = index_of(first);
            for request in std::mem::take(&mut self.activators[index].waiting) {
                match self.requests.get(&request).map(|client| client.home) {
                    Some(home) if home == index => self.relay(request, index, to),
                    // A request is relayed at most once.
                    Some(home) => self.send_back(request, home),
                    None => {}
                }
            }
            return;
        }
        while let Some(request) = self.activators[index].waiting.front().copied() {
            let free = self.activators[index].throttler.free();
            let idle_since = |at: &Destination| self.pods.get(at)?.slots.iter().filter_map(|slot| slot.err()).min();
            let longest = free.into_iter().min_by_key(|at| idle_since(at).unwrap_or(Duration::MAX));
            let Some(at) = longest else { return };
            self.activators[index].waiting.pop_front();
            self.occupy(request, index, &at);
        }
    }

    fn relay(&mut self, request: Request, from: usize, to: usize) {
        let Some(client) = self.requests.get_mut(&request) else { return };
        client.at = None;
        self.summary.relayed += 1;
        *self.activators[from].relayed.entry(to).or_default() += 1;
        let delay = self.way_delay();
        self.time.at(delay, Event::Come(request, to));
    }

    fn send_back(&mut self, request: Request, home: usize) {
        if let Some(client) = self.requests.get_mut(&request) {
            client.at = None;
        }
        let delay = self.way_delay();
        self.time.at(delay + AGAIN, Event::Again(request));
        self.time.say(|| format!("{request} goes back to {home}"));
        self.summary.sent_back += 1;
    }

    /// Handles a request that is back at its home activator: it waits there or is relayed.
    pub(super) fn again(&mut self, request: Request) {
        let Some(home) = self.requests.get(&request).map(|client| client.home) else { return };
        self.forget_relayed(home);
        self.wait_at(request, home);
    }

    pub(super) fn come(&mut self, request: Request, at: usize) {
        let Some(home) = self.requests.get(&request).map(|client| client.home) else { return };
        if self.is_cut(home, at) || !self.activators[at].up {
            return self.send_back(request, home); // The request was not sent or not accepted.
        }
        self.wait_at(request, at);
    }

    fn wait_at(&mut self, request: Request, at: usize) {
        if !self.activators[at].up {
            self.vacate(request);
            return;
        }
        if let Some(client) = self.requests.get_mut(&request) {
            client.at = Some(at);
        }
        self.activators[at].waiting.push_back(request);
        self.serve(at);
    }

    /// Counts one relayed request less. With several holders, which one it was matters little: the largest count falls.
    fn forget_relayed(&mut self, home: usize) {
        if let Some(most) = self.activators[home].relayed.values_mut().max() {
            *most = most.saturating_sub(1);
        }
    }

    /// Starts a request on a pod.
    fn occupy(&mut self, request: Request, index: usize, at: &Destination) {
        let (now, limit) = (self.time.now, self.limit);
        let Some(client) = self.requests.get_mut(&request) else { return };
        client.on = Some(at.clone());
        let (home, wait) = (client.home, now.saturating_sub(client.since));
        self.waits.push((home, wait));
        self.time.say(|| format!("{index} runs {request} on {at}", at = at.as_str()));
        self.activators[index].throttler.begin(request, at.clone());
        let Some(pod) = self.pods.get_mut(at) else { return };
        pod.served += 1;
        let longest = pod.slots.iter_mut().filter(|slot| slot.is_err()).min_by_key(|slot| slot.err());
        match longest {
            Some(slot) => *slot = Ok(request),
            None => {
                let at = at.as_str();
                return self
                    .time
                    .break_rule(format!("no pod above its limit: {at} runs {limit} and {request} of {index}"));
            }
        }
        let long = self.rough && self.rng.random_bool(LONG);
        let work = if long { Duration::from_millis(self.rng.random_range(500..4000)) } else { self.work };
        self.time.at(work, Event::Finish(request));
    }

    /// Removes a request from its pod, or from waiting.
    pub(super) fn vacate(&mut self, request: Request) -> Option<Client> {
        let client = self.requests.remove(&request)?;
        if let Some(pod) = client.on.as_ref().and_then(|at| self.pods.get_mut(at)) {
            let now = self.time.now;
            pod.slots.iter_mut().filter(|slot| **slot == Ok(request)).for_each(|slot| *slot = Err(now));
        }
        if client.at != Some(client.home) {
            self.forget_relayed(client.home);
        }
        Some(client)
    }

    pub(super) fn release(&mut self, request: Request) -> bool {
        let Some(client) = self.vacate(request) else { return false };
        let Some(at) = client.at else { return true };
        self.activators[at].waiting.retain(|waiting| *waiting != request);
        match self.activators[at].throttler.end(request) {
            true => self.feed(at, Input::Ended),
            false => self.serve(at),
        }
        true
    }
}
