//! Responses of activators to probes of their port numbers.
//!
//! A response counts from the moment at which its probe was sent: its contents were true at that moment or later. Of
//! two responses the one to the later probe counts, in whatever order they arrive.
//!
//! A response belongs to the process that gave it. The responses at an address are discarded when another instance
//! responds there, and as soon as the activator there is not ready or gone: it may be restarted, or its address given
//! to another pod. In case an owner does not learn of that in time, it asks each activator every [`IDENTIFIED_FOR`] for
//! its identity.

use super::{Activator, FOREIGN_HOLDS, IDENTIFIED_FOR, PROOF_HOLDS};
use common::ports::Listening;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

/// Result of a probe of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NumberResponse {
    /// An activator responded.
    Ours(Listening),
    /// No process listens there.
    Refused,
    /// A process that is not an activator listens there.
    Foreign,
}

/// Knowledge about an address and number, for one workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The activator listens there for the workload, and may be added to its slices.
    Proven,
    /// The activator listens there for the workload, but the response is old, or the line is released.
    Listens,
    /// The activator does not listen there for the workload.
    Denied,
    /// There was no probe or no response.
    Unknown,
}

/// All responses of all activators.
#[derive(Clone, Debug, Default)]
pub struct Proofs {
    responses: BTreeMap<(IpAddr, u16), RecordedResponse>,
    processes: BTreeMap<IpAddr, Process>,
}

/// Process at an address.
#[derive(Clone, Debug)]
struct Process {
    /// Instance of the process, once it has responded.
    instance: Option<String>,
    /// Time of the earliest valid probe. Earlier probes concern another process.
    since: Instant,
    /// Time of the last probe whose response identified the process.
    identified: Instant,
}

#[derive(Clone, Debug)]
struct RecordedResponse {
    response: NumberResponse,
    sent: Instant,
    /// Time since which another process has responded.
    foreign_since: Option<Instant>,
}

impl Proofs {
    /// Records the response to a probe sent at `sent`. A missing response is no result, since the prober itself may be
    /// disconnected.
    pub fn record(&mut self, address: IpAddr, number: u16, response: NumberResponse, sent: Instant) {
        let process =
            self.processes.entry(address).or_insert(Process { instance: None, since: sent, identified: sent });
        let known = self.responses.get(&(address, number));
        if sent < process.since || known.is_some_and(|known| known.sent > sent) {
            return;
        }
        if let NumberResponse::Ours(listening) = &response {
            let is_another = process.instance.as_ref().is_some_and(|instance| *instance != listening.instance);
            process.instance = Some(listening.instance.clone());
            process.identified = process.identified.max(sent);
            if is_another {
                process.since = sent;
                self.responses.retain(|(at, _), recorded| *at != address || recorded.sent >= sent);
            }
        }
        let known = self.responses.get(&(address, number));
        let since = known.and_then(|known| known.foreign_since).unwrap_or(sent);
        let foreign_since = (response == NumberResponse::Foreign).then_some(since);
        self.responses.insert((address, number), RecordedResponse { response, sent, foreign_since });
    }

    /// Updates the list of activators. Discards responses of activators that are not ready or gone, and of numbers that
    /// no workload has.
    pub fn follow(&mut self, activators: &[Activator], is_number: impl Fn(u16) -> bool, now: Instant) {
        let runs = |activator: &&Activator| activator.serving.takes_requests();
        let running: BTreeSet<IpAddr> = activators.iter().filter(runs).map(|activator| activator.address).collect();
        self.responses.retain(|(address, number), _| running.contains(address) && is_number(*number));
        for (address, process) in &mut self.processes {
            if !running.contains(address) {
                *process = Process { instance: None, since: now, identified: now };
            }
        }
        let exists = |address: &IpAddr| activators.iter().any(|activator| activator.address == *address);
        self.processes.retain(|address, _| exists(address));
    }

    /// Returns probes for activators that have not identified themselves for [`IDENTIFIED_FOR`], each on any number.
    /// They may have been restarted without being observed as not ready.
    pub fn unidentified(&self, now: Instant) -> Vec<(IpAddr, u16)> {
        let is_due = |process: &Process| process.instance.is_some() && now >= process.identified + IDENTIFIED_FOR;
        let due = self.processes.iter().filter(|(_, process)| is_due(process));
        let number = |address: IpAddr| {
            let mut responses = self.responses.range((address, 0)..=(address, u16::MAX));
            responses.find(|(_, recorded)| matches!(recorded.response, NumberResponse::Ours(_))).map(|(key, _)| *key)
        };
        due.filter_map(|(address, _)| number(*address)).collect()
    }

    /// Returns the instance that responded last at an address.
    pub fn instance(&self, address: IpAddr) -> Option<&str> {
        self.processes.get(&address)?.instance.as_deref()
    }

    /// Returns the verdict for the workload with this uid.
    pub fn verdict(&self, address: IpAddr, number: u16, uid: &str, now: Instant) -> Verdict {
        let Some(RecordedResponse { response, sent, .. }) = self.responses.get(&(address, number)) else {
            return Verdict::Unknown;
        };
        match response {
            NumberResponse::Ours(listening) if listening.uid == uid => {
                let is_fresh = now < *sent + PROOF_HOLDS && listening.is_held;
                if is_fresh { Verdict::Proven } else { Verdict::Listens }
            }
            _ => Verdict::Denied,
        }
    }

    /// Returns the numbers on which another process has responded for a while, at one of these addresses.
    pub fn in_use(&self, ready: &BTreeSet<IpAddr>) -> BTreeSet<u16> {
        let foreign = self.responses.iter().filter(|((address, _), recorded)| {
            let since = recorded.foreign_since;
            ready.contains(address) && since.is_some_and(|since| recorded.sent >= since + FOREIGN_HOLDS)
        });
        foreign.map(|((_, number), _)| *number).collect()
    }
}
