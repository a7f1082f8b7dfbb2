//! Activator processes: start, end, ticks, and the execution of the rules' outputs.

use super::Without;
use super::network::index_of;
use super::world::{Activator, Event, Wire, World, name};
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
        self.time.say(|| format!("START {index}"));
        self.time.at(Duration::ZERO, Event::Tick(index, life));
        (0..self.activators.len()).for_each(|at| self.hurry(at));
        let ready = Duration::from_millis(self.rng.random_range(50..400));
        self.time.at(ready, Event::List(index, true));
    }

    /// Ends the process and its requests.
    pub(super) fn kill(&mut self, index: usize) {
        self.time.say(|| format!("KILL {index}"));
        self.activators[index].up = false;
        self.activators[index].life += 1;
        let sessions = std::mem::take(&mut self.activators[index].sessions);
        for (other, session) in sessions {
            if !self.is_cut(index, other) {
                let delay = self.way_delay();
                self.time.at(delay, Event::Closed { at: other, with: index, session });
            }
        }
        let of_it: Vec<_> = self.requests.iter().map(|(request, client)| (*request, client.home, client.at)).collect();
        for (request, home, at) in of_it {
            let waits = self.requests.get(&request).is_some_and(|client| client.on.is_none());
            if at == Some(index) && (home == index || !waits) {
                self.vacate(request);
                self.summary.gone += 1;
            } else if home == index {
                let delay = self.way_delay(); // The client's disconnect reaches the activator that runs the request.
                self.time.at(delay, Event::Leave(request));
            } else if at == Some(index) {
                let delay = self.way_delay(); // Nothing of the request was sent to a pod, so it is relayed again.
                self.time.at(delay, Event::Again(request));
            }
        }
        self.activators[index].waiting.clear();
    }

    pub(super) fn tick(&mut self, index: usize) {
        let (life, now) = (self.activators[index].life, self.time.instant());
        self.time.at(TICK, Event::Tick(index, life));
        self.activators[index].ticks += 1;
        for other in (0..self.activators.len()).filter(|other| *other != index) {
            let cut = self.is_cut(index, other);
            if let Some(session) = self.activators[index].sessions.get(&other).copied() {
                if self.activators[index].peers.is_silent(&name(other), now) {
                    self.close(index, other);
                    if !cut {
                        self.time.at(Duration::ZERO, Event::Closed { at: other, with: index, session });
                    }
                } else if self.activators[index].ticks.is_multiple_of(BEAT_TICKS) {
                    let beat = self.activators[index].peers.beat(&name(other), now);
                    self.send(index, other, Wire::Beat(beat));
                }
            } else if self.activators[index].members.contains(&other) && !cut && self.activators[other].up {
                self.connect(index, other);
            }
        }
        self.feed(index, Input::Tick);
    }

    /// Passes an event to an activator and executes the outputs.
    pub(super) fn feed(&mut self, index: usize, input: Input) {
        let now = self.time.instant();
        let activator = &mut self.activators[index];
        let outputs = activator.holding.handle(input, &activator.peers, &activator.throttler, now);
        for output in outputs {
            match output {
                Output::Send { to, message } => self.say_to(index, index_of(&to), message),
                Output::Cut(_) if self.without == Some(Without::Stop) => {}
                Output::Cut(lots) => {
                    for request in self.activators[index].throttler.within(lots) {
                        self.time.say(|| format!("{index} cuts {request}"));
                        self.summary.cut += 1;
                        self.release(request);
                    }
                }
            }
        }
        self.serve(index);
    }
}
