//! Activator processes: start, end, ticks, and the execution of the rules' outputs.

use super::Without;
use super::network::index_of;
use super::world::{Activator, Client, Event, Wire, World, name};
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
