//! Sessions between activators, and messages in transit.

use super::Without;
use super::world::{Event, Wire, World, name};
use activator_core::holders::{Input, Message, Peer, Running};
use rand::RngExt;
use std::collections::VecDeque;
use std::time::Duration;

pub(super) fn index_of(peer: &Peer) -> usize {
    let last = peer.to_string().rsplit('.').next().and_then(|last| last.parse::<usize>().ok());
    last.map_or(usize::MAX, |last| last - 1)
}

impl World {
    pub(super) fn connect(&mut self, one: usize, other: usize) {
        self.sessions += 1;
        self.close(other, one);
        for (at, with) in [(one, other), (other, one)] {
            let now = self.time.instant();
            self.activators[at].sessions.insert(with, self.sessions);
            self.activators[at].peers.connected(&name(with), now);
            let beat = self.activators[at].peers.beat(&name(with), now);
            self.handle_input(at, Input::Connected(name(with)));
            self.send(at, with, Wire::Beat(beat));
        }
    }

    pub(super) fn close(&mut self, at: usize, with: usize) {
        if self.activators[at].sessions.remove(&with).is_some() {
            self.activators[at].peers.disconnected(&name(with));
            self.handle_input(at, Input::Disconnected(name(with)));
        }
    }

    /// Sends a message about holders, modified if a rule is disabled.
    pub(super) fn send_message(&mut self, from: usize, to: usize, message: Message) {
        let message = match (self.without, message) {
            (Some(Without::Confirmation), Message::Claim { number, .. }) => {
                let nothing = Message::Confirm { number, running: Running::new() };
                return self.send(to, from, Wire::Holder(nothing));
            }
            (Some(Without::Uses), Message::Confirm { number, .. }) => {
                Message::Confirm { number, running: Running::new() }
            }
            (Some(Without::Return), Message::Running(_)) => return,
            (_, message) => message,
        };
        self.time.trace(|| format!("{from} → {to}: {message:?}"));
        self.send(from, to, Wire::Holder(message));
    }

    pub(super) fn send(&mut self, from: usize, to: usize, wire: Wire) {
        let Some(session) = self.activators[from].sessions.get(&to).copied() else { return };
        self.wires.entry((from, to)).or_default().push_back((session, wire));
        let delay = self.transit_delay();
        self.time.after(delay, Event::Deliver(from, to));
    }

    pub(super) fn deliver(&mut self, from: usize, to: usize) {
        if self.is_cut(from, to) {
            return self.time.after(Duration::from_millis(10), Event::Deliver(from, to));
        }
        let Some((session, wire)) = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { return };
        let present = self.activators[to].sessions.get(&from);
        if present != Some(&session) {
            return;
        }
        let now = self.time.instant();
        match wire {
            Wire::Beat(beat) => self.activators[to].peers.record_beat(&name(from), beat, now),
            Wire::Holder(message) => {
                self.activators[to].peers.record_received(&name(from), now);
                self.handle_input(to, Input::Received { from: name(from), message });
            }
        }
    }

    pub(super) fn is_cut(&self, one: usize, other: usize) -> bool {
        self.cuts.get(&(one.min(other), one.max(other))).is_some_and(|faults| *faults > 0)
    }

    pub(super) fn transit_delay(&mut self) -> Duration {
        self.transit_max.mul_f64(self.rng.random_range(0.05..1.0))
    }
}
