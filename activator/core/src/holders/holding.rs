//! State machine of one activator for holding one workload. See [`super`] for the rules.
//!
//! [`Holding::handle`] takes an event and returns the messages to send and the requests to cut. It calls the throttler
//! ([`Pods`]) to give up claimed shards before it confirms the claim, and to use new shards after all siblings have
//! confirmed.

mod claims;
mod membership;
mod route;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

pub use self::route::Route;
use super::message::Running;
use super::{DEAD_AFTER, Message, Peer, Peers, Shards, shards};
use crate::destination::Destination;

/// Least time before shards that another activator has claimed are claimed back, unless the list changes.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Time for which a silent sibling that has left the list is remembered: longer than any of its requests can still run.
const REMEMBER_DEAD_FOR: Duration = Duration::from_secs(3600);
/// Time without pods after which an activator releases the workload's shards.
const RELEASE_EMPTY_AFTER: Duration = Duration::from_secs(5);
/// Time without pods after which every activator has observed that and released its shards. The listed holder may then
/// begin without siblings that are out of touch.
const ALL_KNOW_EMPTY_AFTER: Duration = Duration::from_secs(6);

/// Pods of a workload as its throttler manages them.
pub trait Pods: fmt::Debug + Send + Sync {
    /// Restricts new requests to pods of these shards, with the given number of slots taken by siblings. Once this
    /// returns, no request gets a slot on other pods.
    fn hold(&self, shards: Shards, taken: &Running);
    /// Returns the requests that this activator runs on pods outside these shards.
    fn running(&self, outside: Shards) -> Running;
}

/// Event that may change the holder of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// All listed pods, and the limit of each. An empty list is reported, too.
    Pods(BTreeSet<Destination>, u32),
    /// Activators that are ready.
    Members(BTreeSet<Peer>),
    /// A session was opened.
    Connected(Peer),
    /// The session has ended.
    Disconnected(Peer),
    /// A message arrived on the current session.
    Received {
        /// Activator at the other end of the session.
        from: Peer,
        /// The message.
        message: Message,
    },
    /// A request has ended on a pod that is not held.
    Ended,
    /// Time has passed. Needed every [`TICK`](super::TICK) while [`Holding::needs_ticks`].
    Tick,
    /// This activator shuts down: it holds nothing from now on, and its requests are cut.
    Stop,
}

/// Action that follows from an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a message on the session, after all earlier messages of the session.
    Send {
        /// Activator at the other end of the session.
        to: Peer,
        /// The message.
        message: Message,
    },
    /// Cut this activator's requests on pods of these shards at once. Repeated with each event until they have ended.
    Cut(Shards),
}

/// State of one activator for one workload: which activator holds its shards.
#[derive(Debug)]
pub struct Holding {
    me: Peer,
    /// `namespace/name`.
    workload: Box<str>,
    members: BTreeSet<Peer>,
    members_since: Option<Instant>,
    /// Time since which this activator is not in the list.
    left_since: Instant,
    /// Number of pods in each shard, and the limit of each pod.
    pods: [u32; shards::SHARD_COUNT],
    limit: u32,
    slots_per_holder: u64,
    /// Time since which there is no pod; `None` if there are pods.
    empty_since: Option<Instant>,
    /// True if no other activator can have held the workload: it had no pods, and the list has named the same holders
    /// since.
    is_uncontested: bool,
    /// Activators that the shards are assigned to, in turn.
    holders: Vec<Peer>,
    /// Time of the last change of `holders`.
    holders_since: Instant,
    siblings: BTreeMap<Peer, Sibling>,
    held: Shards,
    /// Shards that are claimed but not confirmed by all siblings yet.
    claiming: Shards,
    /// Earliest time of the next claim.
    retry_at: Instant,
    next_number: u64,
    /// Shards held and slots taken, as last passed to the throttler.
    applied: (Shards, Running),
    /// Requests that run here, as last reported to siblings.
    reported: Running,
    stopped: bool,
}

/// State of another activator.
#[derive(Debug)]
struct Sibling {
    connected: bool,
    known_since: Instant,
    /// Time since which the sibling is not in the list.
    gone_since: Option<Instant>,
    /// Shards last claimed from the sibling in this session.
    claimed: Option<Shards>,
    /// Claim that the sibling has not confirmed yet.
    unconfirmed: Option<(u64, Shards)>,
    /// Shards that the sibling has confirmed in this session.
    confirmed: Shards,
    /// Claim of the sibling that still waits for a confirmation.
    deferred: Option<(u64, Shards)>,
    /// Shards of the sibling by its last claim in this session.
    claimed_by_it: Shards,
    /// True if a claim of the sibling was confirmed in this session, so that the sibling counts requests that run here.
    counts: bool,
    /// Requests that the sibling runs on pods that it does not hold.
    running: Running,
}

impl Sibling {
    fn new(now: Instant) -> Self {
        Self {
            connected: false,
            known_since: now,
            gone_since: None,
            claimed: None,
            unconfirmed: None,
            confirmed: Shards::NONE,
            deferred: None,
            claimed_by_it: Shards::NONE,
            counts: false,
            running: Running::new(),
        }
    }

    /// Returns true if the sibling has left the list and has been silent for so long that it must have stopped sending
    /// to pods.
    fn is_dead(&self, peer: &Peer, peers: &Peers, now: Instant) -> bool {
        let since = |gone: Instant| gone.max(self.known_since).max(peers.last_received(peer).unwrap_or(gone));
        let silent = |gone| now.saturating_duration_since(since(gone)) >= peers.dead_after;
        !self.connected && self.gone_since.is_some_and(silent)
    }
}

impl Holding {
    /// Creates a state without pods and siblings. Claims are numbered from `first_number`, which must exceed any number
    /// that a former process at the same address used. `empty_since` is the time since which there are certainly no
    /// pods, if known.
    pub fn new(me: Peer, workload: &str, first_number: u64, empty_since: Option<Instant>, now: Instant) -> Self {
        Self {
            me,
            workload: workload.into(),
            members: BTreeSet::new(),
            members_since: None,
            left_since: now,
            pods: [0; shards::SHARD_COUNT],
            limit: 1,
            slots_per_holder: shards::SLOTS_PER_HOLDER,
            empty_since: Some(empty_since.unwrap_or(now)),
            is_uncontested: false,
            holders: Vec::new(),
            holders_since: now,
            siblings: BTreeMap::new(),
            held: Shards::NONE,
            claiming: Shards::NONE,
            retry_at: now,
            next_number: first_number,
            applied: (Shards::NONE, Running::new()),
            reported: Running::new(),
            stopped: false,
        }
    }

    /// Replaces the bound [`shards::SLOTS_PER_HOLDER`], for tests that need several holders for few pods.
    #[must_use]
    pub fn with_slots_per_holder(self, slots_per_holder: u64) -> Self {
        Self { slots_per_holder, ..self }
    }

    /// Processes an event at `now`. `peers` must already reflect the event.
    pub fn handle(&mut self, input: Input, peers: &Peers, pods: &dyn Pods, now: Instant) -> Vec<Output> {
        let mut out = Vec::new();
        match input {
            Input::Pods(listed, limit) => self.set_pods(&listed, limit, now),
            Input::Members(members) => self.set_members(members, now),
            Input::Connected(peer) => self.connected(&peer, now),
            Input::Disconnected(peer) => self.disconnected(&peer),
            Input::Received { from, message } => self.receive(&from, message, pods, now, &mut out),
            Input::Ended => self.report_running(pods, &mut out),
            Input::Tick => {}
            Input::Stop => self.stopped = true,
        }
        self.advance(peers, pods, now, &mut out);
        self.apply(pods);
        out
    }

    /// Returns the shards that this activator holds.
    pub fn held(&self) -> Shards {
        self.held
    }

    /// Returns the requests that siblings run on pods that they no longer hold.
    pub fn taken(&self) -> Running {
        let mut taken = Running::new();
        for (pod, count) in self.siblings.values().flat_map(|sibling| &sibling.running) {
            *taken.entry(pod.clone()).or_default() += count;
        }
        taken
    }

    /// Returns true if no other activator is ready, every sibling is dead and has no running requests, and this
    /// activator holds all shards or there are no pods.
    pub fn is_alone(&self, peers: &Peers, now: Instant) -> bool {
        let is_gone =
            |(peer, sibling): (&Peer, &Sibling)| sibling.is_dead(peer, peers, now) && sibling.running.is_empty();
        let is_only = self.members.len() == 1 && self.members.contains(&self.me);
        is_only && self.siblings.iter().all(is_gone) && (self.held == Shards::ALL || self.empty_since.is_some())
    }

    /// Returns true while a decision depends on the passing of time, so that [`Input::Tick`] is needed.
    pub fn needs_ticks(&self) -> bool {
        let left = !self.members.contains(&self.me) && !self.members.is_empty();
        let may_free_slots = |sibling: &Sibling| !sibling.connected && !sibling.running.is_empty();
        let wanting = !self.is_empty() && !self.held.contains(self.own_shards());
        let gone = self.is_empty() && !self.held.is_empty();
        left || self.stopped || wanting || gone || self.siblings.values().any(may_free_slots)
    }

    /// Returns true once this activator shuts down. Requests that wait here have to wait at another activator.
    pub fn has_stopped(&self) -> bool {
        self.stopped
    }

    fn is_empty(&self) -> bool {
        self.empty_since.is_some()
    }

    fn receive(&mut self, from: &Peer, message: Message, pods: &dyn Pods, now: Instant, out: &mut Vec<Output>) {
        if !self.siblings.get(from).is_some_and(|sibling| sibling.connected) {
            return;
        }
        match message {
            Message::Claim { number, shards } => self.claimed(from, number, shards, pods, now, out),
            Message::Confirm { number, running } => self.confirmed(from, number, running, pods, now, out),
            Message::Running(running) => {
                if let Some(sibling) = self.siblings.get_mut(from) {
                    sibling.running = running;
                }
            }
        }
    }

    /// Reports fewer running requests to the siblings that count them.
    fn report_running(&mut self, pods: &dyn Pods, out: &mut Vec<Output>) {
        let running = pods.running(self.held);
        if running == self.reported {
            return;
        }
        for (to, _) in self.siblings.iter().filter(|(_, sibling)| sibling.connected && sibling.counts) {
            out.push(Output::Send { to: *to, message: Message::Running(running.clone()) });
        }
        self.reported = running;
    }

    /// Applies the held shards and taken slots to the throttler.
    fn apply(&mut self, pods: &dyn Pods) {
        let mut taken = self.taken();
        taken.retain(|pod, _| self.held.intersects(Shards::of_pod(pod)));
        let now = (self.held, taken);
        if now != self.applied {
            pods.hold(now.0, &now.1);
            self.applied = now;
        }
    }

    /// Returns the shards that the list assigns to this activator.
    fn own_shards(&self) -> Shards {
        self.listed_shards(&self.me)
    }

    fn listed_shards(&self, peer: &Peer) -> Shards {
        let nth = self.holders.iter().position(|holder| holder == peer);
        let shards = nth.into_iter().flat_map(|nth| (nth..shards::SHARD_COUNT).step_by(self.holders.len()));
        shards.fold(Shards::NONE, |all, shard| all.union(Shards::nth(shard)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
