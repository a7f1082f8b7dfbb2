//! Requests of clients: they arrive, are relayed, run in a slot of a pod, and end.

use super::network::index_of;
use super::world::{Client, Event, RequestId, World};
use activator_core::Destination;
use activator_core::holders::{Input, Route};
use rand::RngExt;
use std::time::Duration;

/// Share of requests that take seconds.
pub(super) const LONG_SHARE: f64 = 0.01;
/// Time after which a request that was sent back is relayed again.
const RETRY_DELAY: Duration = Duration::from_millis(5);

impl World {
    pub(super) fn arrive(&mut self, index: usize) {
        let gap = match self.even {
            true => self.gap,
            false => self.gap.mul_f64(-self.rng.random_range(f64::MIN_POSITIVE..1.0).ln()),
        };
        if self.time.now + gap < self.arrivals_end {
            self.time.after(gap, Event::Arrive(index));
        }
        if !self.activators[index].up {
            return;
        }
        self.next_request += 1;
        let request = self.next_request;
        self.arrivals.push(self.time.now);
        let client = Client { home: index, at: Some(index), since: self.time.now, pod: None };
        self.requests.insert(request, client);
        if self.rough && self.rng.random_bool(0.03) {
            let patience = Duration::from_millis(self.rng.random_range(0..200));
            self.time.after(patience, Event::ClientLeaves(request));
        }
        self.activators[index].waiting.push_back(request);
        self.overflow(index);
        self.serve(index);
    }

    /// Relays a request to a less loaded holder, if there are several and this one has no free slot.
    fn overflow(&mut self, index: usize) {
        let activator = &self.activators[index];
        let Route { siblings, own } = activator.holding.route();
        if own == 0 || activator.waiting.len() <= activator.throttler.free().len() {
            return;
        }
        let load_per_pod = |load: usize, pods: u32| load as f64 / f64::from(pods);
        let here = load_per_pod(activator.waiting.len() + activator.throttler.in_flight(), own);
        let others = siblings.iter().map(|(peer, pods)| {
            let to = index_of(peer);
            let relayed = activator.relayed.get(&to).copied().unwrap_or_default();
            (load_per_pod(relayed as usize, *pods), to)
        });
        if let Some((_, to)) = others.min_by(|a, b| a.0.total_cmp(&b.0)).filter(|(load, _)| *load < here)
            && let Some(request) = self.activators[index].waiting.pop_back()
        {
            self.relay(request, index, to);
        }
    }

    /// Assigns free slots to waiting requests. Relays the requests if another activator holds the workload.
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
            let longest_idle = free.into_iter().min_by_key(|at| idle_since(at).unwrap_or(Duration::MAX));
            let Some(at) = longest_idle else { return };
            self.activators[index].waiting.pop_front();
            self.start_on_pod(request, index, &at);
        }
    }

    fn relay(&mut self, request: RequestId, from: usize, to: usize) {
        let Some(client) = self.requests.get_mut(&request) else { return };
        client.at = None;
        self.summary.relayed += 1;
        *self.activators[from].relayed.entry(to).or_default() += 1;
        let delay = self.transit_delay();
        self.time.after(delay, Event::RelayArrives(request, to));
    }

    fn send_back(&mut self, request: RequestId, home: usize) {
        if let Some(client) = self.requests.get_mut(&request) {
            client.at = None;
        }
        let delay = self.transit_delay();
        self.time.after(delay + RETRY_DELAY, Event::RouteAgain(request));
        self.time.trace(|| format!("{request} returns to {home}"));
        self.summary.sent_back += 1;
    }

    /// Handles a request that has returned to the activator where it arrived: it waits there or is relayed.
    pub(super) fn route_again(&mut self, request: RequestId) {
        let Some(home) = self.requests.get(&request).map(|client| client.home) else { return };
        self.forget_relayed(home);
        self.queue_at(request, home);
    }

    pub(super) fn receive_relayed(&mut self, request: RequestId, at: usize) {
        let Some(home) = self.requests.get(&request).map(|client| client.home) else { return };
        if self.is_cut(home, at) || !self.activators[at].up {
            return self.send_back(request, home); // The request was not sent or not accepted.
        }
        self.queue_at(request, at);
    }

    fn queue_at(&mut self, request: RequestId, at: usize) {
        if !self.activators[at].up {
            self.remove_request(request);
            return;
        }
        if let Some(client) = self.requests.get_mut(&request) {
            client.at = Some(at);
        }
        self.activators[at].waiting.push_back(request);
        self.serve(at);
    }

    /// Counts one relayed request less. Its holder is not known, so the largest count falls.
    fn forget_relayed(&mut self, home: usize) {
        if let Some(most) = self.activators[home].relayed.values_mut().max() {
            *most = most.saturating_sub(1);
        }
    }

    /// Starts a request on a pod.
    fn start_on_pod(&mut self, request: RequestId, index: usize, at: &Destination) {
        let (now, limit) = (self.time.now, self.limit);
        let Some(client) = self.requests.get_mut(&request) else { return };
        client.pod = Some(at.clone());
        let (home, wait) = (client.home, now.saturating_sub(client.since));
        self.waits.push((home, wait));
        self.time.trace(|| format!("{index} runs {request} on {at}", at = at.as_str()));
        self.activators[index].throttler.begin(request, at.clone());
        let Some(pod) = self.pods.get_mut(at) else { return };
        pod.served += 1;
        let longest_idle = pod.slots.iter_mut().filter(|slot| slot.is_err()).min_by_key(|slot| slot.err());
        match longest_idle {
            Some(slot) => *slot = Ok(request),
            None => {
                let what = format!("no pod above its limit: {} runs {limit} and {request} of {index}", at.as_str());
                return self.time.violate(what);
            }
        }
        let long = self.rough && self.rng.random_bool(LONG_SHARE);
        let work = if long { Duration::from_millis(self.rng.random_range(500..4000)) } else { self.work };
        self.time.after(work, Event::Finish(request));
    }

    /// Removes a request, and frees its slot.
    pub(super) fn remove_request(&mut self, request: RequestId) -> Option<Client> {
        let client = self.requests.remove(&request)?;
        if let Some(pod) = client.pod.as_ref().and_then(|at| self.pods.get_mut(at)) {
            let now = self.time.now;
            pod.slots.iter_mut().filter(|slot| **slot == Ok(request)).for_each(|slot| *slot = Err(now));
        }
        if client.at != Some(client.home) {
            self.forget_relayed(client.home);
        }
        Some(client)
    }

    /// Ends a request. Returns false if it has ended before.
    pub(super) fn end_request(&mut self, request: RequestId) -> bool {
        let Some(client) = self.remove_request(request) else { return false };
        let Some(at) = client.at else { return true };
        self.activators[at].waiting.retain(|waiting| *waiting != request);
        match self.activators[at].throttler.end(request) {
            true => self.handle_input(at, Input::Ended),
            false => self.serve(at),
        }
        true
    }
}
