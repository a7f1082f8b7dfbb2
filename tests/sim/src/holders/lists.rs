//! Lists of activators and pods at the API server, and their delivery to each activator.

use super::LIST_LAG;
use super::world::{Event, World};
use rand::RngExt;
use std::time::Duration;

impl World {
    /// Delivers the current lists to all activators, each with its own delay.
    pub(super) fn publish(&mut self) {
        self.version += 1;
        (0..self.activators.len()).for_each(|index| self.send_lists(index));
    }

    /// Delivers the lists to one activator, late if it is stalled and has a session with every other one.
    pub(super) fn send_lists(&mut self, at: usize) {
        let (life, version, members) = (self.activators[at].life, self.version, self.listed.clone());
        let pods = self.pods.iter().filter(|(_, pod)| pod.listed).map(|(at, _)| at.clone()).collect();
        let lag = LIST_LAG.mul_f64(self.rng.random_range(0.0..1.0));
        let stalled = self.activators[at].stalled_until.saturating_sub(self.time.now);
        let stalled = if self.is_in_touch(at) { stalled } else { Duration::ZERO };
        self.time.after(lag + stalled, Event::Members { at, life, version, members });
        let lag = LIST_LAG.mul_f64(self.rng.random_range(0.0..1.0));
        self.time.after(lag, Event::Pods { at, life, version, pods });
    }

    /// Returns true if the activator cannot reach another one.
    pub(super) fn is_cut_off(&self, at: usize) -> bool {
        self.cuts.iter().any(|((one, other), faults)| (*one == at || *other == at) && *faults > 0)
    }

    /// Returns true if the activator has a session with every other one that is up.
    pub(super) fn is_in_touch(&self, at: usize) -> bool {
        let others = self.activators.iter().enumerate().filter(|(other, activator)| *other != at && activator.up);
        !self.is_cut_off(at) && others.into_iter().all(|(other, _)| self.activators[at].sessions.contains_key(&other))
    }

    /// Ends a stall. The protocol assumes that an activator without a session with another one receives lists in time.
    pub(super) fn end_stall(&mut self, at: usize) {
        self.activators[at].stalled_until = Duration::ZERO;
        self.send_lists(at);
    }
}
