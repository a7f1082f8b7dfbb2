//! What activators have answered on the numbers.
//!
//! An answer is remembered from the moment its question was sent: what it says was so at that moment or later. Of two
//! answers the later question's counts, in whatever order they arrive.
//!
//! An answer belongs to the process that gave it. What was answered at an address is forgotten with an answer of another
//! instance, and as soon as the activator there is not ready or is gone: it may be started again, or the address be given
//! to another pod. Whoever does not hear of that in time asks each activator every [`IDENTIFIED_FOR`] who it is.

use super::{Activator, FOREIGN_HOLDS, IDENTIFIED_FOR, PROOF_HOLDS};
use common::ports::answer::Listening;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

/// How a probe on a number ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An activator's.
    Ours(Listening),
    /// Nobody listens there.
    Refused,
    /// Something listens, and it is no activator.
    Foreign,
    /// Nothing came back.
    Silent,
}

/// What is known of an address and number, for one workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It listens there for the workload, and may be added to its slices.
    Proven,
    /// It listens there for the workload; that was long ago, or is coming to its end.
    Listens,
    /// It does not.
    Denied,
    /// It has not been asked, or has not answered.
    Unknown,
}

/// All answers of all activators.
#[derive(Clone, Debug, Default)]
pub struct Proofs {
    answers: BTreeMap<(IpAddr, u16), Answered>,
    processes: BTreeMap<IpAddr, Process>,
}

/// What answers at an address.
#[derive(Clone, Debug)]
struct Process {
    /// Once it has answered.
    instance: Option<String>,
    /// What was asked before concerns another one.
    since: Instant,
    /// When it was asked last and has said which one it is.
    identified: Instant,
}

#[derive(Clone, Debug)]
struct Answered {
    answer: Answer,
    sent: Instant,
    /// Since when something else has answered.
    foreign_since: Option<Instant>,
}

impl Proofs {
    /// Takes an answer to a probe that was sent then. What is silent changes nothing: whoever asks may be cut off.
    pub fn record(&mut self, address: IpAddr, number: u16, answer: Answer, sent: Instant) {
        let process =
            self.processes.entry(address).or_insert(Process { instance: None, since: sent, identified: sent });
        let known = self.answers.get(&(address, number));
        if answer == Answer::Silent || sent < process.since || known.is_some_and(|known| known.sent > sent) {
            return;
        }
        if let Answer::Ours(listening) = &answer {
            let is_another = process.instance.as_ref().is_some_and(|instance| *instance != listening.instance);
            process.instance = Some(listening.instance.clone());
            process.identified = process.identified.max(sent);
            if is_another {
                process.since = sent;
                self.answers.retain(|(at, _), answered| *at != address || answered.sent >= sent);
            }
        }
        let known = self.answers.get(&(address, number));
        let since = known.and_then(|known| known.foreign_since).unwrap_or(sent);
        let foreign_since = (answer == Answer::Foreign).then_some(since);
        self.answers.insert((address, number), Answered { answer, sent, foreign_since });
    }

    /// Follows which activators there are, and forgets what was answered by those that are not ready or gone; and
    /// numbers that are nobody's.
    pub fn follow(&mut self, activators: &[Activator], is_number: impl Fn(u16) -> bool, now: Instant) {
        let runs = |activator: &&Activator| activator.serving.is_on();
        let running: BTreeSet<IpAddr> = activators.iter().filter(runs).map(|activator| activator.address).collect();
        self.answers.retain(|(address, number), _| running.contains(address) && is_number(*number));
        for (address, process) in &mut self.processes {
            if !running.contains(address) {
                *process = Process { instance: None, since: now, identified: now };
            }
        }
        let exists = |address: &IpAddr| activators.iter().any(|activator| activator.address == *address);
        self.processes.retain(|address, _| exists(address));
    }

    /// Whom to ask, on any number, since it has not said for [`IDENTIFIED_FOR`] which process it is: it may have been
    /// started again without anybody having seen it not ready.
    pub fn unidentified(&self, now: Instant) -> Vec<(IpAddr, u16)> {
        let is_due = |process: &Process| process.instance.is_some() && now >= process.identified + IDENTIFIED_FOR;
        let due = self.processes.iter().filter(|(_, process)| is_due(process));
        let number = |address: IpAddr| {
            let mut answers = self.answers.range((address, 0)..=(address, u16::MAX));
            answers.find(|(_, answered)| matches!(answered.answer, Answer::Ours(_))).map(|(key, _)| *key)
        };
        due.filter_map(|(address, _)| number(*address)).collect()
    }

    /// The process that answered last at an address.
    pub fn instance(&self, address: IpAddr) -> Option<&str> {
        self.processes.get(&address)?.instance.as_deref()
    }

    /// What is known, for the workload of this uid.
    pub fn verdict(&self, address: IpAddr, number: u16, uid: &str, now: Instant) -> Verdict {
        let Some(Answered { answer, sent, .. }) = self.answers.get(&(address, number)) else { return Verdict::Unknown };
        match answer {
            Answer::Ours(listening) if listening.uid == uid => {
                let is_fresh = now < *sent + PROOF_HOLDS && listening.is_held;
                if is_fresh { Verdict::Proven } else { Verdict::Listens }
            }
            _ => Verdict::Denied,
        }
    }

    /// Numbers on which something else has answered for a while, at one of these addresses.
    pub fn in_use(&self, ready: &BTreeSet<IpAddr>) -> BTreeSet<u16> {
        let foreign = self.answers.iter().filter(|((address, _), answered)| {
            let since = answered.foreign_since;
            ready.contains(address) && since.is_some_and(|since| answered.sent >= since + FOREIGN_HOLDS)
        });
        foreign.map(|((_, number), _)| *number).collect()
    }
}
