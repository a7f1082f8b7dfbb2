//! How a number comes back: held, closing, closed, nobody's. The rules and why are in [`super`].
//!
//! What has been seen of a number counts from the moment that this process has seen its line in that state, and is begun
//! again by whoever owns it next. An activator that exists and does not answer holds a number back, for as long as it
//! does either: numbers are not scarce.

use super::{Activator, Answer, FOLLOWED_IN, Proofs, SETTLE, Serving};
use common::ports::ledger::{Entry, State};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Numbers on their way back.
#[derive(Clone, Debug, Default)]
pub struct Retiring {
    numbers: BTreeMap<u16, Seen>,
}

#[derive(Clone, Debug)]
struct Seen {
    uid: Arc<str>,
    state: State,
    /// When this process saw the line in its state.
    since: Instant,
    /// When no slice had it, and every activator had said what the step waits for.
    settled: Option<Instant>,
    /// When a list of slices, begun [`SETTLE`] after that, had been read and none had it.
    unlisted: Option<Instant>,
    /// Those activators, and which process it was.
    said: BTreeMap<IpAddr, Option<String>>,
}

impl Seen {
    /// From when on activators are asked. One that was starting when the number was closed has noticed by then.
    fn ask_at(&self) -> Instant {
        if self.state == State::Closed { self.since + SETTLE } else { self.since }
    }

    /// Whether an activator has said what the step waits for: that it has seen the number closing; or, once it is
    /// closed, that it does not listen there. (One that is not ready may be about to.)
    fn is_said(&self, answer: &Answer, serving: Serving) -> bool {
        match (answer, self.state) {
            (Answer::Ours(listening), State::Closing) => {
                *listening.uid == *self.uid && listening.state == State::Closing
            }
            (Answer::Refused, State::Closed) => serving == Serving::Ready,
            _ => false,
        }
    }
}

/// What is to become of a line that nobody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, before this moment or until something more is known.
    Wait(Option<Instant>),
    /// A list of slices is to be read from the API server, for [`Retiring::looked_up`].
    LookUp,
    /// Another state; none: the line goes.
    To(Option<State>),
}

impl Retiring {
    /// The next step of a line that nobody wants, or has wanted for as long as `patience`.
    pub fn step(&mut self, number: u16, entry: &Entry, patience: Duration, now: Instant) -> Step {
        let fresh = || {
            let (uid, state) = (entry.uid.clone(), entry.state);
            Seen { uid, state, since: now, settled: None, unlisted: None, said: BTreeMap::new() }
        };
        let mut is_news = !self.numbers.contains_key(&number);
        let seen = self.numbers.entry(number).or_insert_with(fresh);
        if seen.uid != entry.uid || seen.state != entry.state {
            (*seen, is_news) = (fresh(), true);
        }
        let (at, step) = match (entry.state, seen.settled) {
            (State::Held, _) => (seen.since + patience, Step::To(Some(State::Closing))),
            (State::Closing, Some(settled)) => match seen.unlisted {
                None => (settled + SETTLE, Step::LookUp),
                Some(unlisted) => (unlisted + FOLLOWED_IN, Step::To(Some(State::Closed))),
            },
            (State::Closed, Some(settled)) => (settled, Step::To(None)),
            (State::Closing | State::Closed, None) => {
                // Whoever looks next finds whom to ask; nothing else may happen that would make one look.
                return Step::Wait(Some(seen.ask_at()).filter(|at| is_news || now < *at));
            }
        };
        if now < at { Step::Wait(Some(at)) } else { step }
    }

    /// What a list of slices says of a number, which was asked for at `begun` and has been read: whether one has it.
    pub fn looked_up(&mut self, number: u16, is_listed: bool, begun: Instant, now: Instant) {
        let Some(seen) = self.numbers.get_mut(&number) else { return };
        if is_listed {
            // By a slice that this process has not heard of. It counts from now on that none has it.
            (seen.settled, seen.unlisted) = (seen.settled.map(|_| now), None);
        } else if seen.settled.is_some_and(|settled| settled + SETTLE <= begun) {
            seen.unlisted.get_or_insert(now);
        }
    }

    /// Looks at what the activators, all that exist, have answered on the numbers on their way back, and which numbers
    /// slices still have. Who has to be asked is returned.
    pub fn look(
        &mut self,
        activators: &[Activator],
        listed: &BTreeSet<u16>,
        proofs: &Proofs,
        now: Instant,
    ) -> Vec<(IpAddr, u16)> {
        let mut ask = Vec::new();
        let due = |seen: &Seen| seen.state != State::Held && now >= seen.ask_at();
        for (number, seen) in self.numbers.iter_mut().filter(|(_, seen)| due(seen)) {
            let mut said = BTreeMap::new();
            for Activator { address, serving } in activators {
                let answer = proofs.answer_since(*address, *number, seen.ask_at());
                match answer.filter(|(answer, _)| seen.is_said(answer, *serving)) {
                    Some((_, instance)) => _ = said.insert(*address, instance.map(str::to_owned)),
                    None => ask.push((*address, *number)),
                }
            }
            let is_left = !activators.is_empty() && !listed.contains(number);
            let is_complete = is_left && said.len() == activators.len();
            // Whoever has come, or come back, is one more to hear; whoever has gone needs no hearing.
            let is_known = said.iter().all(|(address, instance)| seen.said.get(address) == Some(instance));
            let settled = seen.settled.filter(|_| is_known).or(Some(now)).filter(|_| is_complete);
            seen.unlisted = seen.unlisted.filter(|_| settled == seen.settled);
            (seen.settled, seen.said) = (settled, said);
        }
        ask
    }

    /// Keeps to numbers that are on their way back.
    pub fn retain(&mut self, keep: impl Fn(u16, &str) -> bool) {
        self.numbers.retain(|number, seen| keep(*number, &seen.uid));
    }
}
