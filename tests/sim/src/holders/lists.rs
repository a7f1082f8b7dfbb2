//! What the API server has of activators and pods, and when each activator learns of it.

use super::LIST_LAG;
use super::world::{Event, World};
use rand::RngExt;
use std::time::Duration;

impl World {
    /// Everybody learns of activators and pods as they are now, sooner or later.
    pub(super) fn publish(&mut self) {
        self.version += 1;
        (0..self.activators.len()).for_each(|index| self.tell_list(index));
    }

    /// Late, if it is stalled; never where it is not in touch with somebody.
    pub(super) fn tell_list(&mut self, at: usize) {
        let (life, version, members) = (self.activators[at].life, self.version, self.listed.clone());
        let pods = self.pods.iter().filter(|(_, pod)| pod.listed).map(|(at, _)| at.clone()).collect();
        let lag = LIST_LAG.mul_f64(self.rng.random_range(0.0..1.0));
        let stalled = self.activators[at].stalled_until.saturating_sub(self.now);
        let stalled = if self.is_in_touch(at) { stalled } else { Duration::ZERO };
        self.at(lag + stalled, Event::Members { at, life, version, members });
        let lag = LIST_LAG.mul_f64(self.rng.random_range(0.0..1.0));
        self.at(lag, Event::Pods { at, life, version, pods });
    }

    /// Whether it cannot reach somebody.
    pub(super) fn is_cut_off(&self, at: usize) -> bool {
        self.cuts.iter().any(|((one, other), faults)| (*one == at || *other == at) && *faults > 0)
    }

    /// Whether it has a session with everybody who is up.
    pub(super) fn is_in_touch(&self, at: usize) -> bool {
        let others = self.activators.iter().enumerate().filter(|(other, activator)| *other != at && activator.up);
        !self.is_cut_off(at) && others.into_iter().all(|(other, _)| self.activators[at].sessions.contains_key(&other))
    }

    /// Who is not in touch with somebody learns in time what it would have learned late: the contract.
    pub(super) fn hurry(&mut self, at: usize) {
        self.activators[at].stalled_until = Duration::ZERO;
        self.tell_list(at);
    }
}
