//! One activator's part in holding one workload. See [`super`] for the rules.
//!
//! [`Holding::handle`] takes in what has happened and answers with what is to be sent, or cut. It has the throttler
//! ([`Pods`]) give up what is claimed before it says so, and grant what it begins to hold after all have confirmed.

mod claims;
mod route;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

pub use self::route::Route;
use super::message::Running;
use super::{DEAD_AFTER, Lots, Message, Peer, Peers, lots};
use crate::destination::Destination;

/// Least time before lots that another activator has claimed are claimed back, unless the list changes.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A sibling that has left and is silent is known so long: longer than what has left takes to end.
const KNOWN_AFTER: Duration = Duration::from_secs(3600);
/// A workload that has had no pods for so long is held by nobody.
const GONE_AFTER: Duration = Duration::from_secs(5);
/// Time without pods after which all activators have seen that, so the listed holder may begin without those out of touch.
const FORGET_AFTER: Duration = Duration::from_secs(6);

/// A workload's pods, as its throttler has them.
pub trait Pods: fmt::Debug + Send + Sync {
    /// Requests go to pods of these lots alone, of which so many slots are taken by siblings. From when this returns
    /// nobody is given a slot elsewhere.
    fn hold(&self, lots: Lots, taken: &Running);
    /// Returns the requests that this activator runs on pods of other lots than these.
    fn running(&self, beside: Lots) -> Running;
}

/// An event that changes who holds the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// All pods that are listed, and the limit of each. The empty list is told, too.
    Pods(BTreeSet<Destination>, u32),
    /// The activators that are ready.
    Members(BTreeSet<Peer>),
    /// A session was opened.
    Connected(Peer),
    /// It has ended.
    Disconnected(Peer),
    /// A message on the present session.
    Received {
        /// The activator at the other end of the session.
        from: Peer,
        /// The message.
        message: Message,
    },
    /// A request has ended on a pod that is not held.
    Ended,
    /// Time has passed. Of use every [`TICK`](super::TICK) while [`Holding::is_open`].
    Tick,
    /// This activator ends: it holds nothing from now on, and what it runs is cut.
    Stop,
}

/// An action that follows from an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// To be sent on the session, after all that was to be sent there before.
    Send {
        /// The activator at the other end of the session.
        to: Peer,
        /// The message.
        message: Message,
    },
    /// Requests of this activator on pods of these lots must end at once; said again with each look until they have.
    Cut(Lots),
}

/// State of one activator about one workload: who holds its lots.
#[derive(Debug)]
pub struct Holding {
    me: Peer,
    /// `namespace/name`.
    workload: Box<str>,
    members: BTreeSet<Peer>,
    members_since: Option<Instant>,
    /// Since when this activator is not among them.
    left_since: Instant,
    /// Pods in each lot, and the limit of each pod.
    pods: [u32; lots::LOTS],
    limit: u32,
    slots_per_holder: u64,
    /// Since when there is no pod; none: there are some.
    empty_since: Option<Instant>,
    /// Nobody can have held it before: it had no pods, and the list has named the same holders since.
    new: bool,
    /// Activators that lots fall to by the list, in turn; and the time since when.
    holders: Vec<Peer>,
    holders_since: Instant,
    siblings: BTreeMap<Peer, Sibling>,
    held: Lots,
    /// Claimed, and not confirmed by all yet.
    gathering: Lots,
    /// Nothing is claimed before.
    retry_at: Instant,
    next_number: u64,
    /// Lots held and slots taken, as the throttler was told last.
    applied: (Lots, Running),
    /// Requests that run here, as siblings were told last.
    told: Running,
    stopped: bool,
}

/// State of another activator.
#[derive(Debug)]
struct Sibling {
    connected: bool,
    known_since: Instant,
    /// Since when it is not in the list.
    gone_since: Option<Instant>,
    /// Lots that were claimed of it last in this session.
    claimed: Option<Lots>,
    /// The claim that it has not answered yet.
    asked: Option<(u64, Lots)>,
    /// Lots that it has confirmed in this session.
    confirmed: Lots,
    /// Its claim, if that waits for an answer.
    deferred: Option<(u64, Lots)>,
    /// Lots that it has, by its last claim in this session.
    has: Lots,
    /// It was confirmed something in this session, and counts what runs here.
    counts: bool,
    /// Requests that it runs on pods that it does not hold.
    running: Running,
}

impl Sibling {
    fn new(now: Instant) -> Self {
        Self {
            connected: false,
            known_since: now,
            gone_since: None,
            claimed: None,
            asked: None,
            confirmed: Lots::NONE,
            deferred: None,
            has: Lots::NONE,
            counts: false,
            running: Running::new(),
        }
    }

    /// Returns true if it has left and was silent for so long that it has stopped wherever it had to.
    fn is_dead(&self, peer: &Peer, peers: &Peers, now: Instant) -> bool {
        let since = |gone: Instant| gone.max(self.known_since).max(peers.heard(peer).unwrap_or(gone));
        let silent = |gone| now.saturating_duration_since(since(gone)) >= peers.dead_after();
        !self.connected && self.gone_since.is_some_and(silent)
    }
}

impl Holding {
    /// Knows no pods and no siblings. `first_number`: claims are numbered from here; larger than any number that a former
    /// process at the same address used. `empty_since`: since when it is certain that there were no pods, if it is.
    pub fn new(me: Peer, workload: &str, first_number: u64, empty_since: Option<Instant>, now: Instant) -> Self {
        Self {
            me,
            workload: workload.into(),
            members: BTreeSet::new(),
            members_since: None,
            left_since: now,
            pods: [0; lots::LOTS],
            limit: 1,
            slots_per_holder: lots::SLOTS_PER_HOLDER,
            empty_since: Some(empty_since.unwrap_or(now)),
            new: false,
            holders: Vec::new(),
            holders_since: now,
            siblings: BTreeMap::new(),
            held: Lots::NONE,
            gathering: Lots::NONE,
            retry_at: now,
            next_number: first_number,
            applied: (Lots::NONE, Running::new()),
            told: Running::new(),
            stopped: false,
        }
    }

    /// With another bound than [`lots::SLOTS_PER_HOLDER`]: for those who want to see several holders of a few pods.
    #[must_use]
    pub fn with_slots_per_holder(self, slots_per_holder: u64) -> Self {
        Self { slots_per_holder, ..self }
    }

    /// Takes in what has happened at `now`. `peers` knows of it already.
    pub fn handle(&mut self, input: Input, peers: &Peers, pods: &dyn Pods, now: Instant) -> Vec<Output> {
        let mut out = Vec::new();
        match input {
            Input::Pods(listed, limit) => self.set_pods(&listed, limit, now),
            Input::Members(members) => self.set_members(members, now),
            Input::Connected(peer) => self.connected(&peer, now),
            Input::Disconnected(peer) => self.disconnected(&peer),
            Input::Received { from, message } => self.receive(&from, message, pods, now, &mut out),
            Input::Ended => self.tell_running(pods, &mut out),
            Input::Tick => {}
            Input::Stop => self.stopped = true,
        }
        self.look(peers, pods, now, &mut out);
        self.apply(pods);
        out
    }

    /// Lots that this activator holds.
    pub fn held(&self) -> Lots {
        self.held
    }

    /// Returns the requests that siblings run on pods that they do not hold any more.
    pub fn taken(&self) -> Running {
        let mut taken = Running::new();
        for (pod, count) in self.siblings.values().flat_map(|sibling| &sibling.running) {
            *taken.entry(pod.clone()).or_default() += count;
        }
        taken
    }

    /// Returns true if there is a session with it.
    pub fn is_connected(&self, peer: &Peer) -> bool {
        self.siblings.get(peer).is_some_and(|sibling| sibling.connected)
    }

    /// Returns true if all is held here, and no other activator is ready, or was within the time that one that leaves needs
    /// to end its requests.
    pub fn is_alone(&self, peers: &Peers, now: Instant) -> bool {
        let apart =
            |(peer, sibling): (&Peer, &Sibling)| sibling.is_dead(peer, peers, now) && sibling.running.is_empty();
        let only = self.members.len() == 1 && self.members.contains(&self.me);
        only && self.siblings.iter().all(apart) && (self.held == Lots::ALL || self.empty_since.is_some())
    }

    /// Returns true while a decision waits for time to pass.
    pub fn is_open(&self) -> bool {
        let left = !self.members.contains(&self.me) && !self.members.is_empty();
        let frees = |sibling: &Sibling| !sibling.connected && !sibling.running.is_empty();
        let wanting = !self.is_empty() && !self.held.contains(self.mine());
        let gone = self.is_empty() && !self.held.is_empty();
        left || self.stopped || wanting || gone || self.siblings.values().any(frees)
    }

    /// Returns true once this activator ends: requests that wait here have to wait elsewhere.
    pub fn has_stopped(&self) -> bool {
        self.stopped
    }

    fn is_empty(&self) -> bool {
        self.empty_since.is_some()
    }

    fn receive(&mut self, from: &Peer, message: Message, pods: &dyn Pods, now: Instant, out: &mut Vec<Output>) {
        if !self.is_connected(from) {
            return;
        }
        match message {
            Message::Claim { number, lots } => self.claimed(from, number, lots, pods, now, out),
            Message::Confirm { number, running } => self.confirmed(from, number, running, pods, now, out),
            Message::Running(running) => {
                if let Some(sibling) = self.siblings.get_mut(from) {
                    sibling.running = running;
                }
            }
        }
    }

    /// Those siblings count less that were told more.
    fn tell_running(&mut self, pods: &dyn Pods, out: &mut Vec<Output>) {
        let running = pods.running(self.held);
        if running == self.told {
            return;
        }
        for (to, _) in self.siblings.iter().filter(|(_, sibling)| sibling.connected && sibling.counts) {
            out.push(Output::Send { to: to.clone(), message: Message::Running(running.clone()) });
        }
        self.told = running;
    }

    /// The throttler does as this says.
    fn apply(&mut self, pods: &dyn Pods) {
        let mut taken = self.taken();
        taken.retain(|pod, _| self.held.meets(Lots::of(pod)));
        let now = (self.held, taken);
        if now != self.applied {
            pods.hold(now.0, &now.1);
            self.applied = now;
        }
    }

    /// Lots that fall to this activator by the list.
    fn mine(&self) -> Lots {
        self.of(&self.me)
    }

    /// Lots that fall to `peer` by the list.
    fn of(&self, peer: &Peer) -> Lots {
        let nth = self.holders.iter().position(|holder| holder == peer);
        let lots = nth.into_iter().flat_map(|nth| (nth..lots::LOTS).step_by(self.holders.len()));
        lots.fold(Lots::NONE, |all, lot| all.and(Lots::nth(lot)))
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
