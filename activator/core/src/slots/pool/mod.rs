//! One activator's part in granting one revision's slots. See [`super`] for the rules.
//!
//! [`Pool::handle`] takes what has happened and answers with what is to be done, in order. Requests' ways are the hot
//! ones; who grants is looked at only when something about pods or siblings has changed, and on ticks. Nor do requests
//! look at all pods: idle slots stand in an index ([`idle`]).

mod claims;
mod idle;
mod lending;
mod sibling;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use self::idle::Idle;
use self::sibling::Sibling;
use super::event::{Input, Output, Request};
use super::pod::{Pod, PodState};
use super::{Message, Peer, Peers};
use crate::destination::Destination;

/// A pod that somebody else has claimed is not claimed back before, unless the list changes.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A sibling is told of a changed number of idle slots no more often, unless it asks where there are none.
pub const ADVERTISE_EVERY: Duration = Duration::from_millis(5);
/// So many requests ask a sibling at once; more could not be answered before the first ones are. It bounds what a
/// sibling's waiting requests cost in memory here. The others ask when one of them has its slot.
pub const ASKS_MAX: usize = 16;
/// A sibling that claims pods is asked again no more often.
const ASK_AGAIN_EVERY: Duration = Duration::from_millis(5);
/// A pod of which a sibling has declined a loan is claimed of it again after so long, which doubles with each loan that it
/// declines, up to [`RETRY_AFTER`].
const DECLINED_AGAIN: Duration = Duration::from_millis(5);
/// Time between two looks at what only time changes, while there is something to look at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A sibling that has left and is silent is known so long: longer than what has left takes to end.
const KNOWN_AFTER: Duration = Duration::from_secs(3600);
/// An address that was not listed for so long is another pod's when it comes back: nobody grants there any longer.
const GONE_AFTER: Duration = Duration::from_secs(5);
/// When all have seen that. Until then it is remembered, and whoever knows lists for less time takes no pod for new.
const FORGET_AFTER: Duration = Duration::from_secs(6);

/// One revision's slots, as one activator knows them.
#[derive(Debug)]
pub struct Pool {
    me: Peer,
    limit: u32,
    /// The list, and since when it is this one.
    members: BTreeSet<Peer>,
    members_since: Option<Instant>,
    /// Since when this activator is not in it.
    left_since: Instant,
    siblings: BTreeMap<Peer, Sibling>,
    pods: BTreeMap<Destination, Pod>,
    /// Since when this process knows all lists of pods, and whether there was one.
    pods_known_since: Instant,
    has_pods: bool,
    waiting: BTreeSet<(Instant, Request)>,
    waiting_since: BTreeMap<Request, Instant>,
    running: BTreeMap<Request, (Destination, u64)>,
    next_number: u64,
    idle: Idle,
    /// [`Input::Stop`].
    stopped: bool,
}

impl Pool {
    /// No pods, no siblings. `first_number`: numbers are counted from here; larger than any that a former process at the
    /// same address used. `pods_known_since`: since when this process has known what is listed, of all revisions; no later than
    /// now.
    pub fn new(me: Peer, limit: NonZeroU32, first_number: u64, pods_known_since: Instant) -> Self {
        Self {
            me,
            limit: limit.get(),
            members: BTreeSet::new(),
            members_since: None,
            left_since: pods_known_since,
            siblings: BTreeMap::new(),
            pods: BTreeMap::new(),
            pods_known_since,
            has_pods: false,
            waiting: BTreeSet::new(),
            waiting_since: BTreeMap::new(),
            running: BTreeMap::new(),
            next_number: first_number,
            idle: Idle::default(),
            stopped: false,
        }
    }

    /// Takes in what has happened at `now`. `peers` knows of it already.
    pub fn handle(&mut self, input: Input, peers: &Peers, now: Instant) -> Vec<Output> {
        let mut out = Vec::new();
        let mut look = true;
        match input {
            Input::Arrive { request, since } => {
                look = false;
                self.waiting.insert((since, request));
                self.waiting_since.insert(request, since);
            }
            Input::End(request) => {
                look = false;
                self.end(request, &mut out);
            }
            Input::Pods(pods) => self.set_pods(&pods, now),
            Input::Members(members) => self.set_members(members, now),
            Input::Connected(peer) => self.connected(&peer, now, &mut out),
            Input::Disconnected(peer) => self.disconnected(&peer),
            Input::Received { from, message } => {
                look = matches!(message, Message::Claim { .. } | Message::Confirm { .. });
                self.receive(&from, message, peers, now, &mut out);
            }
            Input::Tick => look = self.idle.open,
            Input::Stop => self.stopped = true,
        }
        if look {
            self.look(peers, now, &mut out);
            self.idle.of_all = true;
        }
        self.count(now);
        self.hand_out(now, &mut out);
        self.ask(now, &mut out);
        self.advertise(now, &mut out);
        out
    }

    /// Changes the limit of each pod. Running requests are not disturbed. A [`Input::Tick`] makes it effective.
    pub fn set_limit(&mut self, limit: NonZeroU32) {
        self.limit = limit.get();
        self.idle.of_all = true;
    }

    /// A request has been running on a pod since before slots were granted: it is counted from now on.
    pub fn adopt(&mut self, request: Request, at: &Destination, now: Instant) {
        let number = self.number();
        self.pods.entry(at.clone()).or_insert_with(|| Pod::new(now)).own.insert(number, request);
        self.running.insert(request, (at.clone(), number));
        self.count_at(at, now);
    }

    /// When a [`Input::Tick`] is next of use. None: not before something happens.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let later = |sibling: &Sibling| {
            let changed = sibling.connected && sibling.lendable != sibling.told.0;
            changed.then(|| sibling.told.1 + ADVERTISE_EVERY)
        };
        let again = |sibling: &Sibling| sibling.unheard.0.then(|| sibling.unheard.1 + ASK_AGAIN_EVERY);
        let of_siblings = self.siblings.values().flat_map(|sibling| later(sibling).into_iter().chain(again(sibling)));
        of_siblings.chain(self.idle.claims_at).chain(self.idle.open.then(|| now + LOOK_EVERY)).min()
    }

    /// Whether this activator grants every pod's slots, alone: nobody else is ready, or has been for longer than those
    /// who leave need to end what they do, and nothing is lent.
    pub fn is_alone(&self, peers: &Peers, now: Instant) -> bool {
        let apart = |(peer, sibling): (&Peer, &Sibling)| sibling.is_dead(peer, peers, now);
        let own = |pod: &Pod| pod.lent() == 0 && (pod.is_held() || !pod.is_listed());
        let only = self.members.len() == 1 && self.members.contains(&self.me);
        only && self.siblings.iter().all(apart) && self.pods.values().all(own)
    }

    /// Whether something is left that time decides. Of a sibling that has left that is what it was lent, and pods that this
    /// activator waits for: with neither, nothing follows from its death.
    fn is_open(&self) -> bool {
        let left = !self.members.contains(&self.me) && !self.pods.is_empty();
        let is_gone = |sibling: &Sibling| sibling.gone_since.is_some() && !sibling.connected;
        let frees = |user: &Peer| self.siblings.get(user).is_some_and(is_gone);
        let waits = |pod: &Pod| pod.is_held() && (!self.lends_to_all(pod) || pod.loans.keys().any(frees));
        let open = |pod: &Pod| pod.is_gathering() || !pod.is_listed() || waits(pod);
        let lost = |(at, pod): (&Destination, &Pod)| !pod.is_held() && self.is_grantor(at);
        let cut = self.stopped && !self.running.is_empty();
        left || cut || self.pods.values().any(open) || self.pods.iter().any(lost)
    }

    /// When a sibling that has declined a loan is next asked again.
    fn claims_at(&self) -> Option<Instant> {
        let held = self.pods.values().filter(|pod| pod.is_held() && !pod.pauses.is_empty());
        held.flat_map(|pod| self.unasked(pod).filter_map(move |peer| Some(pod.pauses.get(peer)?.1))).min()
    }

    /// Whether there is a session with it.
    pub fn is_connected(&self, peer: &Peer) -> bool {
        self.siblings.get(peer).is_some_and(|sibling| sibling.connected)
    }

    /// Requests that wait.
    pub fn queued(&self) -> usize {
        self.waiting.len()
    }

    /// Whether this activator ends: [`Input::Stop`].
    pub fn has_stopped(&self) -> bool {
        self.stopped
    }

    /// Requests that run.
    pub fn in_flight(&self) -> usize {
        self.running.len()
    }

    /// Every pod that is known.
    pub fn pods(&self) -> impl Iterator<Item = (&Destination, PodState)> {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        self.pods.iter().map(move |(at, pod)| {
            let (held, gathering) = (pod.is_held(), pod.is_gathering());
            (at, PodState { held, gathering, in_use: number(pod.in_use()), lent: number(pod.lent()) })
        })
    }

    /// Whether a sibling's request waits for a slot of this activator.
    pub fn is_asked(&self) -> bool {
        self.siblings.values().any(|sibling| sibling.connected && !sibling.asks.is_empty())
    }

    /// Every pod whose slots this activator grants and may use, and how many of them are idle.
    pub fn idle(&self) -> impl Iterator<Item = (&Destination, u32)> {
        self.pods.iter().filter(|(_, pod)| pod.grants()).map(|(at, pod)| (at, pod.counted))
    }

    fn receive(&mut self, from: &Peer, message: Message, peers: &Peers, now: Instant, out: &mut Vec<Output>) {
        let Some(sibling) = self.siblings.get_mut(from).filter(|sibling| sibling.connected) else { return };
        match message {
            Message::Free { slots } => sibling.free = slots,
            // More of them are against the rules, and not kept.
            Message::Ask { .. } if sibling.asks.len() >= ASKS_MAX => {}
            Message::Ask { number, waited } => {
                sibling.asks.push_back((now.checked_sub(waited).unwrap_or(now), number));
            }
            Message::Cancel { number } => sibling.asks.retain(|(_, asked)| *asked != number),
            Message::Lend { number, pod } => {
                sibling.asked.retain(|asked| *asked != number);
                self.borrow(from, pod, number, peers, now, out);
            }
            Message::Return { pod, number, declined } => self.returned(from, &pod, number, declined, now),
            Message::Claim { pod, number } => self.claimed(from, pod, number, now, out),
            Message::Confirm { pod, number, held, own } => self.confirmed(from, &pod, number, held, own),
        }
    }

    fn send(&self, to: &Peer, message: Message, out: &mut Vec<Output>) {
        if self.is_connected(to) {
            out.push(Output::Send { to: to.clone(), message });
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}
