//! Clients: they come, have a slot, and leave. Pods count what they run.

use super::world::{Client, Event, World};
use activator_core::Destination;
use activator_core::slots::{Input, Request};
use rand::RngExt;
use std::time::Duration;

/// So many requests of one run for seconds.
pub(super) const LONG: f64 = 0.01;

impl World {
    pub(super) fn arrive(&mut self, index: usize) {
        let gap = match self.even {
            true => self.gap,
            false => self.gap.mul_f64(-self.rng.random_range(f64::MIN_POSITIVE..1.0).ln()),
        };
        if self.now + gap < self.arrivals_end {
            self.at(gap, Event::Arrive(index));
        }
        if !self.activators[index].up {
            return;
        }
        self.next_request += 1;
        let request = Request(self.next_request);
        self.arrivals.push(self.now);
        self.requests.insert(request, Client { at: index, since: self.now, on: None });
        if self.rough && self.rng.random_bool(0.03) {
            let patience = Duration::from_millis(self.rng.random_range(0..200));
            self.at(patience, Event::Leave(request));
        }
        let since = self.instant();
        self.feed(index, Input::Arrive { request, since });
    }

    /// A request begins on a pod.
    pub(super) fn occupy(&mut self, request: Request, at: &Destination) {
        let (now, limit) = (self.now, self.limit);
        let Some(client) = self.requests.get_mut(&request) else {
            return self.break_rule(format!("who has gone has no slot: {request:?}"));
        };
        client.on = Some(at.clone());
        let (index, wait) = (client.at, now.saturating_sub(client.since));
        self.waits.push((index, wait));
        self.say(|| format!("{index} runs {request:?} on {at}", at = at.as_str()));
        let Some(pod) = self.pods.get_mut(at) else { return };
        pod.served += 1;
        let holder = pod.holder;
        let longest = pod.slots.iter_mut().filter(|slot| slot.is_err()).min_by_key(|slot| slot.err());
        match longest {
            Some(slot) => *slot = Ok(request),
            None => {
                let at = at.as_str();
                return self
                    .break_rule(format!("no pod above its limit: {at} runs {limit} and {request:?} of {index}"));
            }
        }
        self.summary.borrowed += u64::from(holder != Some(index));
        let long = self.rough && self.rng.random_bool(LONG);
        let work = if long { Duration::from_millis(self.rng.random_range(500..4000)) } else { self.work };
        self.at(work, Event::Finish(request));
    }

    /// The request has left its pod, or waits no longer.
    pub(super) fn vacate(&mut self, request: Request) -> Option<Client> {
        let client = self.requests.remove(&request)?;
        if let Some(pod) = client.on.as_ref().and_then(|at| self.pods.get_mut(at)) {
            let now = self.now;
            pod.slots.iter_mut().filter(|slot| **slot == Ok(request)).for_each(|slot| *slot = Err(now));
        }
        Some(client)
    }

    pub(super) fn release(&mut self, request: Request) -> bool {
        let Some(client) = self.vacate(request) else { return false };
        self.feed(client.at, Input::End(request));
        true
    }
}
