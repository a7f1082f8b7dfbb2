//! List of activators, their sessions, and the consequences for all workloads.
//!
//! Everything changes under one lock, and links are notified under it; requests and messages bypass it. A link that is
//! created later gets the current list with the time at which the list became current, because the process has known it
//! since then.

use super::dialling;
use super::link::Link;
use super::session::Session;
use super::{Holders, now};
use crate::discovery::Activators;
use activator_core::holders::session::Frame;
use activator_core::holders::sharing_mode::{Contact, SharingDecider, SharingMode, SharingReport, Siblings};
use activator_core::holders::{DEAD_AFTER, Input, Peer};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// Time without any sibling and without a response of the API server after which an activator acts as if it were not
/// listed. Shorter than the 40 s after which Kubernetes removes the pods of an unreachable node from lists.
const CUT_OFF_AFTER: Duration = Duration::from_secs(10);
/// Interval between two requests to the API server meanwhile.
const ASK_EVERY: Duration = Duration::from_secs(2);

pub(super) struct Membership {
    me: Peer,
    decider: Option<SharingDecider>,
    pub(super) mode: SharingMode,
    siblings: Siblings,
    /// Addresses of all listed activators, ready or not.
    endpoints: BTreeMap<Peer, SocketAddr>,
    sessions: BTreeMap<Peer, Arc<Session>>,
    dialling: BTreeMap<Peer, AbortHandle>,
    /// Activators whose session has ended, with the time since which they are not listed either.
    disconnected: BTreeMap<Peer, Instant>,
    /// Wait before the next attempt to dial, for siblings whose last session ended too soon.
    pub(super) pauses: BTreeMap<Peer, Duration>,
    /// Siblings that the links are connected to.
    connected: BTreeSet<Peer>,
    /// Members that the links know, and since when.
    members: BTreeSet<Peer>,
    members_since: Instant,
    pub(super) pods_known_since: Instant,
    alone_since: Instant,
    reported: SharingReport,
    pub(super) is_shutting_down: bool,
    pub(super) cut_off: bool,
    has_ended: bool,
}

/// History of a workload's pods, at the moment at which its limit becomes shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodHistory {
    /// This activator knew the workload from the start, and none of its pods has been listed yet.
    NoPods,
    /// This activator was the only one since this time.
    Alone(Instant),
    /// Other activators may have sent requests to the pods.
    Others,
}

impl Membership {
    pub(super) fn new(me: Peer, now: Instant) -> Self {
        Self {
            me,
            decider: None,
            mode: SharingMode::Divided,
            siblings: Siblings::default(),
            endpoints: BTreeMap::new(),
            sessions: BTreeMap::new(),
            dialling: BTreeMap::new(),
            disconnected: BTreeMap::new(),
            pauses: BTreeMap::new(),
            connected: BTreeSet::new(),
            members: BTreeSet::new(),
            members_since: now,
            pods_known_since: now,
            alone_since: now,
            reported: SharingReport::default(),
            is_shutting_down: false,
            cut_off: false,
            has_ended: false,
        }
    }

    pub(super) fn set_activators(&mut self, activators: &Activators) {
        let ready = activators.all.iter().filter(|(_, ready)| *ready);
        self.siblings.listed = ready.map(|(address, _)| address.ip()).collect();
        self.endpoints = activators.all.iter().map(|(address, _)| (address.ip(), *address)).collect();
        self.siblings.known = self.endpoints.keys().copied().collect();
        self.siblings.includes_terminating = activators.includes_terminating;
        let (known, sessions) = (&self.siblings.known, &self.sessions);
        self.siblings.contacts.retain(|peer, _| known.contains(peer) || sessions.contains_key(peer));
        self.pauses.retain(|peer, _| known.contains(peer));
        if self.decider.is_none() {
            self.decider = Some(SharingDecider::new(self.me, now()));
        }
    }

    /// Reports whether the activator at this address may open a session.
    pub(super) fn knows(&self, peer: &Peer) -> bool {
        *peer != self.me && !self.has_ended && (self.endpoints.contains_key(peer) || self.sessions.contains_key(peer))
    }

    pub(super) fn record_dial(&mut self, peer: &Peer, foreign: bool) {
        if !self.sessions.contains_key(peer) && self.siblings.known.contains(peer) {
            let contact = if foreign { Contact::Foreign } else { Contact::Unknown };
            self.siblings.contacts.insert(*peer, contact);
        }
    }

    /// Registers a session. Returns false if another session with the sibling stays instead.
    pub(super) fn opened(&mut self, shared: &Arc<Holders>, session: &Arc<Session>) -> bool {
        if let Some(former) = self.sessions.get(&session.peer).cloned() {
            // The connection dialled by the lower address stays; of two from the same side, the newer one stays.
            let by_lower = |session: &Session| session.dialled == is_lower(&self.me, &session.peer);
            if by_lower(&former) && !by_lower(session) {
                return false;
            }
            former.end("another connection replaces the session");
            self.ended(shared, &former);
        }
        let peer = &session.peer;
        self.sessions.insert(*peer, session.clone());
        shared.sessions.store(Arc::new(self.sessions.clone()));
        shared.change_peers(|peers| peers.connected(peer, now()));
        self.siblings.contacts.insert(*peer, Contact::Session(SharingReport::default()));
        session.send(Frame::Report(self.reported));
        true
    }

    pub(super) fn record_report(&mut self, session: &Arc<Session>, report: SharingReport) {
        if self.is_present(session) {
            self.siblings.contacts.insert(session.peer, Contact::Session(report));
        }
    }

    fn is_present(&self, session: &Arc<Session>) -> bool {
        self.sessions.get(&session.peer).is_some_and(|present| Arc::ptr_eq(present, session))
    }

    /// Removes a session. No message of it is delivered afterwards.
    pub(super) fn ended(&mut self, shared: &Arc<Holders>, session: &Arc<Session>) {
        session.shut();
        if !self.is_present(session) {
            return;
        }
        let peer = &session.peer;
        match now().saturating_duration_since(session.began) >= dialling::SESSION_MIN {
            true => _ = self.pauses.remove(peer),
            false => _ = self.pauses.insert(*peer, dialling::next_backoff(self.pauses.get(peer).copied())),
        }
        self.sessions.remove(peer);
        self.disconnected.insert(*peer, now());
        shared.sessions.store(Arc::new(self.sessions.clone()));
        shared.change_peers(|peers| peers.disconnected(peer));
        self.siblings.contacts.remove(peer);
        if self.connected.remove(peer) {
            shared.apply_to_all(&Input::Disconnected(*peer));
        }
    }

    pub(super) fn apply_changes(&mut self, shared: &Arc<Holders>, now: Instant) {
        self.set_members(shared, now);
        let Some(decider) = &mut self.decider else { return };
        let before = self.mode;
        let held_alone = || shared.all().iter().all(|link| link.is_alone(shared));
        let after = decider.decide(&self.siblings, held_alone, now);
        let report = decider.report(&self.siblings, now);
        if before != after {
            let foreign: Vec<String> = decider.foreign(&self.siblings, now).map(Peer::to_string).collect();
            let siblings = self.siblings.listed.iter().filter(|peer| **peer != self.me).count();
            tracing::info!(?before, standing = ?after, siblings, ?foreign, "use of pods with a hard limit");
            self.mode = after;
            self.change(shared, before, after, now);
        }
        if report != self.reported {
            self.reported = report;
            self.sessions.values().for_each(|session| session.send(Frame::Report(report)));
        }
        if after == SharingMode::Shared {
            self.connect_links(shared);
        }
        self.dial(shared);
        self.cut_dead(shared, now);
    }

    /// Cuts connections to dead siblings so that requests relayed to them go elsewhere. The kernel of a stalled sibling
    /// may acknowledge bytes forever.
    fn cut_dead(&mut self, shared: &Holders, now: Instant) {
        let (sessions, listed) = (&self.sessions, &self.siblings.listed);
        self.disconnected.retain(|peer, since| {
            if listed.contains(peer) {
                *since = now;
            }
            let silent_for = now.saturating_duration_since(*since);
            let is_dead = silent_for >= DEAD_AFTER && !sessions.contains_key(peer);
            // Repeated, because a request that is cut returns to the sibling until its link considers the holder dead,
            // too.
            if is_dead {
                let (pools, address) = (shared.parts.pools.clone(), *peer);
                shared.parts.runtime.spawn(async move { pools.cut(address) });
            }
            silent_for < DEAD_AFTER * 4 && !sessions.contains_key(peer)
        });
    }

    fn set_members(&mut self, shared: &Arc<Holders>, now: Instant) {
        let mut members = self.siblings.listed.clone();
        if self.is_shutting_down || self.cut_off {
            members.remove(&self.me);
        }
        if members != self.members {
            (self.members, self.members_since) = (members, now);
            if self.mode == SharingMode::Shared {
                shared.apply_to_all(&Input::Members(self.members.clone()));
            }
        }
    }

    fn change(&mut self, shared: &Arc<Holders>, before: SharingMode, after: SharingMode, now: Instant) {
        if after == SharingMode::Alone {
            self.alone_since = now;
        }
        let all = shared.all();
        match (before.shares_limits(), after.shares_limits()) {
            (false, true) => {
                let alone = PodHistory::Alone(self.alone_since.checked_sub(DEAD_AFTER).unwrap_or(self.alone_since));
                let how = if before == SharingMode::Alone { alone } else { PodHistory::Others };
                all.iter().for_each(|link| self.share(shared, link, how));
            }
            (true, false) => all.iter().for_each(|link| link.divide()),
            (true, true) => shared.apply_to_all(&Input::Members(self.members.clone())),
            (false, false) => {}
        }
        if before == SharingMode::Shared {
            // Messages of these sessions are no longer valid.
            self.connected.clear();
            for session in std::mem::take(&mut self.sessions).into_values() {
                session.shut();
                session.end("limits are no longer shared");
                shared.change_peers(|peers| peers.disconnected(&session.peer));
                self.siblings.contacts.remove(&session.peer);
            }
            shared.sessions.store(Arc::default());
        }
    }

    /// Connects links to all siblings that share limits, too. Those must have been sent this activator's report before.
    fn connect_links(&mut self, shared: &Arc<Holders>) {
        for (peer, session) in &self.sessions {
            let shares =
                matches!(self.siblings.contacts.get(peer), Some(Contact::Session(SharingReport { shares: true, .. })));
            if shares && self.connected.insert(*peer) {
                shared.apply_to_all(&Input::Connected(*peer));
                session.connected.send_replace(true);
            }
        }
    }

    /// Starts to share a workload's limit.
    pub(super) fn share(&self, shared: &Arc<Holders>, link: &Link, before: PodHistory) {
        let (peers, is_shared) = (shared.peers.load_full(), self.mode == SharingMode::Shared);
        link.share(|pods, throttler| {
            let empty_since = match before {
                PodHistory::NoPods => Some(self.pods_known_since),
                PodHistory::Alone(since) => Some(since),
                PodHistory::Others => None,
            };
            let mut holding = shared.holding(&link.key, empty_since);
            let mut apply = |input, at| _ = holding.handle(input, &peers, throttler, at);
            match before {
                // The pods belong to this activator until siblings claim them.
                PodHistory::Alone(since) => {
                    apply(Input::Members([self.me].into()), since);
                    apply(pods, since);
                    apply(Input::Tick, now());
                }
                _ if is_shared => apply(Input::Members(self.members.clone()), self.members_since),
                _ => {}
            }
            holding
        });
        if self.has_ended {
            link.apply(Input::Stop);
        }
        if is_shared {
            link.apply(Input::Members(self.members.clone()));
            self.connected.iter().for_each(|peer| link.apply(Input::Connected(*peer)));
        }
    }

    /// Returns the address at which a sibling accepts relayed requests.
    pub(super) fn relays_to(&self, peer: &Peer, port: u16) -> SocketAddr {
        self.endpoints.get(peer).copied().unwrap_or(SocketAddr::new(*peer, port))
    }

    /// Dials exactly the listed siblings without a session.
    fn dial(&mut self, shared: &Arc<Holders>) {
        if self.has_ended {
            return;
        }
        let wanted =
            |peer: &Peer| *peer != self.me && self.endpoints.contains_key(peer) && !self.sessions.contains_key(peer);
        self.dialling.retain(|peer, task| {
            let goes_on = wanted(peer) && !task.is_finished();
            if !goes_on {
                task.abort();
            }
            goes_on
        });
        let missing: Vec<_> = self.endpoints.iter().filter(|(peer, _)| wanted(peer)).collect();
        for (peer, address) in missing {
            if !self.dialling.contains_key(peer) {
                let at_once = is_lower(&self.me, peer) || !self.members.contains(&self.me);
                let pause = self.pauses.get(peer).copied();
                let task = dialling::run(Arc::clone(shared), *peer, *address, at_once, pause);
                self.dialling.insert(*peer, shared.parts.runtime.spawn(task).abort_handle());
            }
        }
    }

    /// Ends this activator's part: it holds nothing any more, requests on pods with a limit are cut, then sessions end.
    pub(super) fn end(&mut self, shared: &Holders) {
        self.has_ended = true;
        shared.apply_to_all(&Input::Stop);
        self.sessions.values().for_each(|session| session.end("this activator shuts down"));
        std::mem::take(&mut self.dialling).into_values().for_each(|task| task.abort());
    }

    /// Reports whether no tick is needed: this activator is alone, or knows no other.
    pub(super) fn is_quiet(&self) -> bool {
        let only = self.siblings.known.iter().all(|peer| *peer == self.me);
        let is_alone = self.mode == SharingMode::Alone || self.decider.is_none();
        only && is_alone && self.sessions.is_empty() && self.disconnected.is_empty()
    }
}

/// Reports whether `me` dials `peer` at once. Both sides must agree, so every version compares addresses as text.
pub(super) fn is_lower(me: &Peer, peer: &Peer) -> bool {
    me.to_string() < peer.to_string()
}

/// Detects that this activator reaches neither siblings nor the API server.
#[derive(Default)]
pub(super) struct Isolation {
    /// Time since which neither has responded.
    silent_since: Option<Instant>,
    last_request: Option<Instant>,
    answered: Arc<AtomicBool>,
}

impl Isolation {
    /// Updates the state and reports whether this activator is isolated. Asks the API server only if no sibling is
    /// reachable.
    pub(super) fn check(&mut self, shared: &Arc<Holders>, now: Instant) -> bool {
        let membership = shared.membership.lock();
        let has_siblings = membership.siblings.listed.iter().any(|peer| *peer != membership.me);
        let lost = membership.mode == SharingMode::Shared && membership.sessions.is_empty() && has_siblings;
        let Some(ask) = shared.parts.ask_api.as_ref().filter(|_| lost) else {
            *self = Self::default();
            return false;
        };
        drop(membership);
        if self.answered.swap(false, Ordering::Relaxed) {
            self.silent_since = None;
        }
        let since = *self.silent_since.get_or_insert(now);
        if self.last_request.is_none_or(|at| now.saturating_duration_since(at) >= ASK_EVERY) {
            self.last_request = Some(now);
            let (answered, asking) = (self.answered.clone(), ask());
            shared.parts.runtime.spawn(async move {
                if tokio::time::timeout(CUT_OFF_AFTER, asking).await.unwrap_or(false) {
                    answered.store(true, Ordering::Relaxed);
                }
            });
        }
        now.saturating_duration_since(since) >= CUT_OFF_AFTER
    }
}
