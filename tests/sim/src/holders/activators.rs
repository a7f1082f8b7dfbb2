//! Activator processes: start, end, ticks, the execution of the rules' outputs, and the delivery of the API server's
//! lists of activators and pods to each.

use super::network::index_of;
use super::world::{Activator, Client, Event, Wire, World, name};
use super::{LIST_LAG, Without};
use activator_core::holders::{Input, Output, TICK};
use rand::RngExt;
use std::time::Duration;

/// Number of ticks between two beats.
const BEAT_TICKS: u64 = 2;

impl World {
    pub(super) fn start(&mut self, index: usize) {
        if self.activators[index].up {
            return;
        }
        let life = self.activators[index].life + 1;
        self.activators[index] = Activator { up: true, ..self.process(index, life) };
        self.time.trace(|| format!("START {index}"));
        self.time.after(Duration::ZERO, Event::Tick(index, life));
        (0..self.activators.len()).for_each(|at| self.end_stall(at));
        let ready = Duration::from_millis(self.rng.random_range(50..400));
        self.time.after(ready, Event::List(index, true));
    }

    /// Ends the process and its requests.
    pub(super) fn kill(&mut self, index: usize) {
        self.time.trace(|| format!("KILL {index}"));
        self.activators[index].up = false;
        self.activators[index].life += 1;
        let sessions = std::mem::take(&mut self.activators[index].sessions);
        for (other, session) in sessions {
            if !self.is_cut(index, other) {
                let delay = self.transit_delay();
                self.time.after(delay, Event::Closed { at: other, with: index, session });
            }
        }
        let requests: Vec<_> = self.requests.keys().copied().collect();
        for request in requests {
            let Some(Client { home, at, pod, .. }) = self.requests.get(&request) else { continue };
            let (is_home, is_here) = (*home == index, *at == Some(index));
            if is_here && (is_home || pod.is_some()) {
                self.remove_request(request);
                self.summary.gone += 1;
            } else if is_home {
                // The activator that runs the request notices the disconnect later.
                let delay = self.transit_delay();
                self.time.after(delay, Event::ClientLeaves(request));
            } else if is_here {
                // Nothing of the request was sent to a pod, so it can be relayed again.
                let delay = self.transit_delay();
                self.time.after(delay, Event::RouteAgain(request));
            }
        }
        self.activators[index].waiting.clear();
    }

    pub(super) fn tick(&mut self, index: usize) {
        let (life, now) = (self.activators[index].life, self.time.instant());
        self.time.after(TICK, Event::Tick(index, life));
        self.activators[index].ticks += 1;
        for other in (0..self.activators.len()).filter(|other| *other != index) {
            let cut = self.is_cut(index, other);
            if let Some(session) = self.activators[index].sessions.get(&other).copied() {
                if self.activators[index].peers.is_silent(&name(other), now) {
                    self.close(index, other);
                    if !cut {
                        self.time.after(Duration::ZERO, Event::Closed { at: other, with: index, session });
                    }
                } else if self.activators[index].ticks.is_multiple_of(BEAT_TICKS) {
                    let beat = self.activators[index].peers.beat(&name(other), now);
                    self.send(index, other, Wire::Beat(beat));
                }
            } else if self.activators[index].members.contains(&other) && !cut && self.activators[other].up {
                self.connect(index, other);
            }
        }
        self.handle_input(index, Input::Tick);
    }

    /// Passes an input to an activator's rules and executes the outputs.
    pub(super) fn handle_input(&mut self, index: usize, input: Input) {
        let now = self.time.instant();
        let activator = &mut self.activators[index];
        let outputs = activator.holding.handle(input, &activator.peers, &activator.throttler, now);
        for output in outputs {
            match output {
                Output::Send { to, message } => self.send_message(index, index_of(&to), message),
                Output::Cut(_) if self.without == Some(Without::Stop) => {}
                Output::Cut(shards) => {
                    for request in self.activators[index].throttler.within(shards) {
                        self.time.trace(|| format!("{index} cuts {request}"));
                        self.summary.cut += 1;
                        self.end_request(request);
                    }
                }
            }
        }
        self.serve(index);
    }
}

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
