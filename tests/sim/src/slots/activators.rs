//! Processes: they start, end, look at their clocks, and do what their pools say.

use super::Without;
use super::network::index_of;
use super::world::{Activator, Event, Wire, World, name};
use activator_core::slots::{Input, Output};
use rand::RngExt;
use std::time::Duration;

/// Time between two looks of an activator at its clock.
const TICK: Duration = Duration::from_millis(10);
/// Ticks between two beats.
const BEAT_TICKS: u64 = 10;

impl World {
    pub(super) fn start(&mut self, index: usize) {
        if self.activators[index].up {
            return;
        }
        let life = self.activators[index].life + 1;
        self.activators[index] = Activator { up: true, ..self.process(index, life) };
        self.say(|| format!("START {index}"));
        self.at(Duration::ZERO, Event::Tick(index, life));
        (0..self.activators.len()).for_each(|at| self.hurry(at));
        let ready = Duration::from_millis(self.rng.random_range(50..400));
        self.at(ready, Event::List(index, true));
    }

    /// The process is no more, and its requests with it.
    pub(super) fn kill(&mut self, index: usize) {
        self.say(|| format!("KILL {index}"));
        self.activators[index].up = false;
        self.activators[index].life += 1;
        let sessions = std::mem::take(&mut self.activators[index].sessions);
        for (other, session) in sessions {
            if !self.is_cut(index, other) {
                let delay = self.way_delay();
                self.at(delay, Event::Closed { at: other, with: index, session });
            }
        }
        let of_it = self.requests.iter().filter(|(_, client)| client.at == index).map(|(request, _)| *request);
        for request in of_it.collect::<Vec<_>>() {
            self.vacate(request);
            self.summary.gone += 1;
        }
    }

    pub(super) fn tick(&mut self, index: usize) {
        let (life, now) = (self.activators[index].life, self.instant());
        self.at(TICK, Event::Tick(index, life));
        self.activators[index].ticks += 1;
        for other in (0..self.activators.len()).filter(|other| *other != index) {
            let cut = self.is_cut(index, other);
            if let Some(session) = self.activators[index].sessions.get(&other).copied() {
                if self.activators[index].peers.is_silent(&name(other), now) {
                    self.close(index, other);
                    if !cut {
                        self.at(Duration::ZERO, Event::Closed { at: other, with: index, session });
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

    /// Gives an activator's pool what has happened, and does what it says.
    pub(super) fn feed(&mut self, index: usize, input: Input) {
        let now = self.instant();
        let activator = &mut self.activators[index];
        let outputs = activator.pool.handle(input, &activator.peers, now);
        let mut cut = Vec::new();
        for output in outputs {
            match output {
                Output::Run { request, pod } => self.occupy(request, &pod),
                Output::Send { to, message } => self.say_to(index, index_of(&to), message),
                Output::Cut(request) => {
                    self.say(|| format!("{index} cuts {request:?}"));
                    if self.without != Some(Without::Stop) {
                        cut.push(request);
                    }
                }
            }
        }
        for request in cut {
            self.summary.cut += 1;
            self.release(request);
        }
    }
}
