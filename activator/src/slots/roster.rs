//! Who the activators are, who is in touch, and what follows for all revisions.
//!
//! All of it changes under one lock, and pools are told under it; requests and messages go past it.
//!
//! # Odd cases
//!
//! - A sibling may claim a pod of a revision that does not work here yet, because it has learned of it sooner. The claim
//!   is confirmed, since nothing is in use, and told to the pool that comes within [`PLEDGES_KEPT`]. One that comes later
//!   declines its first loan of the pod, and is asked again some milliseconds later. What else a sibling says is dropped,
//!   and a loan is declined: it asks again once the pool that comes claims a pod.
//! - A message finds a revision without this lock, and its pool does not take it in, because it has just begun or ended. Then
//!   it is looked at again under the lock.
//! - A pool that is made later is told of the list as if it had been there when it became this one: the process has known
//!   it since then.

use super::dialling;
use super::session::Session;
use super::{Shared, now};
use crate::discovery::Activators;
use activator_core::Destination;
use activator_core::slots::standing::{Contact, Council, Says, Siblings, Standing};
use activator_core::slots::{DEAD_AFTER, Input, Message, Peer};
use activator_core::throttler::{Before, Throttler};
use common::RevisionKey;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// Claims for revisions that are not known are remembered so long, and so many of them.
const PLEDGES_KEPT: Duration = Duration::from_secs(10);
const PLEDGES_MAX: usize = 4096;
/// Without any sibling and without an answer of the API server for so long, an activator takes itself for one that has
/// left. Shorter than Kubernetes takes to take an unreachable node's pods off lists (40 s).
const CUT_OFF_AFTER: Duration = Duration::from_secs(10);
/// Time between two questions to the API server meanwhile.
const ASK_EVERY: Duration = Duration::from_secs(2);

pub(super) struct Roster {
    me: Peer,
    council: Option<Council>,
    /// The standing that is in effect.
    standing: Standing,
    siblings: Siblings,
    /// Where all are that are listed, ready or not.
    endpoints: BTreeMap<Peer, SocketAddr>,
    sessions: BTreeMap<Peer, Arc<Session>>,
    dialling: BTreeMap<Peer, AbortHandle>,
    /// Whose last session did not last, and how long it is left alone for that.
    pub(super) pauses: BTreeMap<Peer, Duration>,
    /// With whom pools are in touch.
    connected: BTreeSet<Peer>,
    /// The list as pools are told it, and since when.
    members: BTreeSet<Peer>,
    members_since: Instant,
    pods_known_since: Instant,
    alone_since: Instant,
    told: Says,
    pledges: Vec<Pledge>,
    pub(super) leaving: bool,
    pub(super) cut_off: bool,
    has_ended: bool,
}

struct Pledge {
    until: Instant,
    key: RevisionKey,
    to: Peer,
    claim: Message,
}

impl Roster {
    pub(super) fn new(me: Peer, now: Instant) -> Self {
        Self {
            me,
            council: None,
            standing: Standing::Divided,
            siblings: Siblings::default(),
            endpoints: BTreeMap::new(),
            sessions: BTreeMap::new(),
            dialling: BTreeMap::new(),
            pauses: BTreeMap::new(),
            connected: BTreeSet::new(),
            members: BTreeSet::new(),
            members_since: now,
            pods_known_since: now,
            alone_since: now,
            told: Says::default(),
            pledges: Vec::new(),
            leaving: false,
            cut_off: false,
            has_ended: false,
        }
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    /// While nothing is decided nobody is granted anything.
    pub(super) fn pools_are_used(&self) -> bool {
        matches!(self.standing(), Standing::Undecided | Standing::Shared)
    }

    pub(super) fn set_synced(&mut self, now: Instant) {
        self.pods_known_since = now;
    }

    pub(super) fn set_activators(&mut self, activators: &Activators) {
        let name = |address: &SocketAddr| Peer::from(address.ip().to_string().as_str());
        let ready = activators.all.iter().filter(|(_, ready)| *ready);
        self.siblings.listed = ready.map(|(address, _)| name(address)).collect();
        self.endpoints = activators.all.iter().map(|(address, _)| (name(address), *address)).collect();
        self.siblings.known = self.endpoints.keys().cloned().collect();
        self.siblings.shows_leaving = activators.shows_leaving;
        let (known, sessions) = (&self.siblings.known, &self.sessions);
        self.siblings.contacts.retain(|peer, _| known.contains(peer) || sessions.contains_key(peer));
        self.pauses.retain(|peer, _| known.contains(peer));
        if self.council.is_none() {
            self.council = Some(Council::new(self.me.clone(), now()));
        }
    }

    /// Whether an activator at this address may open a session.
    pub(super) fn knows(&self, peer: &Peer) -> bool {
        *peer != self.me && !self.has_ended && (self.endpoints.contains_key(peer) || self.sessions.contains_key(peer))
    }

    /// What an attempt to dial has shown.
    pub(super) fn answered(&mut self, peer: &Peer, foreign: bool) {
        if !self.sessions.contains_key(peer) && self.siblings.known.contains(peer) {
            let contact = if foreign { Contact::Foreign } else { Contact::Unknown };
            self.siblings.contacts.insert(peer.clone(), contact);
        }
    }

    /// A session was agreed on. False: another one stays.
    pub(super) fn opened(&mut self, shared: &Arc<Shared>, session: &Arc<Session>) -> bool {
        if let Some(former) = self.sessions.get(&session.peer).cloned() {
            // The lower one's connection stays, and of one side's the newer one.
            let by_lower = |session: &Session| session.dialled == (self.me < session.peer);
            if by_lower(&former) && !by_lower(session) {
                return false;
            }
            former.end("another connection takes its place");
            self.ended(shared, &former);
        }
        let peer = &session.peer;
        self.sessions.insert(peer.clone(), session.clone());
        shared.sessions.store(Arc::new(self.sessions.clone()));
        shared.change_peers(|peers| peers.connected(peer, now()));
        self.siblings.contacts.insert(peer.clone(), Contact::Session(Says::default()));
        session.send_says(self.told);
        true
    }

    /// A sibling has said how it stands.
    pub(super) fn said(&mut self, session: &Arc<Session>, says: Says) {
        if self.is_present(session) {
            self.siblings.contacts.insert(session.peer.clone(), Contact::Session(says));
        }
    }

    fn is_present(&self, session: &Arc<Session>) -> bool {
        self.sessions.get(&session.peer).is_some_and(|present| Arc::ptr_eq(present, session))
    }

    /// A session is no more. Nothing is delivered from it any longer.
    pub(super) fn ended(&mut self, shared: &Arc<Shared>, session: &Arc<Session>) {
        session.shut();
        if !self.is_present(session) {
            return;
        }
        let peer = &session.peer;
        match now().saturating_duration_since(session.began) >= dialling::LASTS {
            true => _ = self.pauses.remove(peer),
            false => _ = self.pauses.insert(peer.clone(), dialling::longer(self.pauses.get(peer).copied())),
        }
        self.sessions.remove(peer);
        shared.sessions.store(Arc::new(self.sessions.clone()));
        shared.change_peers(|peers| peers.disconnected(peer));
        self.siblings.contacts.remove(peer);
        self.pledges.retain(|pledge| pledge.to != *peer);
        if self.connected.remove(peer) {
            shared.tell_all(&Input::Disconnected(peer.clone()));
        }
    }

    /// Puts into effect what follows from what has changed.
    pub(super) fn reconsider(&mut self, shared: &Arc<Shared>, now: Instant) {
        self.pledges.retain(|pledge| now < pledge.until);
        self.set_members(shared, now);
        let Some(council) = &mut self.council else { return };
        let before = self.standing;
        let pools_alone = || shared.revisions.iter().all(|entry| entry.value().is_alone());
        let after = council.judge(&self.siblings, pools_alone, now);
        let says = council.says(&self.siblings, now);
        if before != after {
            let foreign: Vec<&str> = council.foreign(&self.siblings, now).map(Peer::as_str).collect();
            let siblings = self.siblings.listed.iter().filter(|peer| **peer != self.me).count();
            tracing::info!(?before, standing = ?after, siblings, ?foreign, "pods with a hard limit");
            self.standing = after;
            self.change(shared, before, after, now);
        }
        if says != self.told {
            self.told = says;
            self.sessions.values().for_each(|session| session.send_says(says));
        }
        if after == Standing::Shared {
            self.connect_pools(shared);
        }
        self.dial(shared);
    }

    fn set_members(&mut self, shared: &Arc<Shared>, now: Instant) {
        let mut members = self.siblings.listed.clone();
        if self.leaving || self.cut_off {
            members.remove(&self.me);
        }
        if members != self.members {
            (self.members, self.members_since) = (members, now);
            if self.standing() == Standing::Shared {
                shared.tell_all(&Input::Members(self.members.clone()));
            }
        }
    }

    /// Another standing.
    fn change(&mut self, shared: &Arc<Shared>, before: Standing, after: Standing, now: Instant) {
        if after == Standing::Alone {
            self.alone_since = now;
        }
        let used = |standing| matches!(standing, Standing::Undecided | Standing::Shared);
        let all = shared.revisions.iter().map(|entry| (entry.key().clone(), entry.value().clone()));
        let all: Vec<(RevisionKey, Throttler)> = all.collect();
        match (used(before), used(after)) {
            (false, true) => {
                let alone = Before::Alone(self.alone_since.checked_sub(DEAD_AFTER).unwrap_or(self.alone_since));
                let how = if before == Standing::Alone { alone } else { Before::Others };
                all.iter().for_each(|(key, throttler)| self.share(shared, key, throttler, how));
            }
            (true, false) => all.iter().for_each(|(_, throttler)| throttler.unshare()),
            (true, true) => shared.tell_all(&Input::Members(self.members.clone())),
            (false, false) => {}
        }
        if before == Standing::Shared {
            // What was said on them holds no longer.
            self.connected.clear();
            for session in std::mem::take(&mut self.sessions).into_values() {
                session.shut();
                session.end("pods are shared no longer");
                shared.change_peers(|peers| peers.disconnected(&session.peer));
                self.siblings.contacts.remove(&session.peer);
            }
            shared.sessions.store(Arc::default());
        }
    }

    /// Pools are in touch with all who share as well, after those have been told that we do.
    fn connect_pools(&mut self, shared: &Arc<Shared>) {
        for (peer, session) in &self.sessions {
            let shares = matches!(self.siblings.contacts.get(peer), Some(Contact::Session(Says { shares: true, .. })));
            if shares && self.connected.insert(peer.clone()) {
                session.connect(|| shared.tell_all(&Input::Connected(peer.clone())));
            }
        }
    }

    /// Gives a revision a pool.
    pub(super) fn share(&self, shared: &Arc<Shared>, key: &RevisionKey, throttler: &Throttler, before: Before) {
        let mut pool = shared.pool(self.pods_known_since);
        let peers = shared.peers.load_full();
        let is_shared = self.standing() == Standing::Shared;
        match before {
            Before::Alone(since) => _ = pool.handle(Input::Members([self.me.clone()].into()), &peers, since),
            _ if is_shared => _ = pool.handle(Input::Members(self.members.clone()), &peers, self.members_since),
            _ => {}
        }
        throttler.share(shared.link(key), pool, before);
        if self.has_ended {
            throttler.tell(Input::Stop);
        }
        if is_shared {
            throttler.tell(Input::Members(self.members.clone()));
            self.connected.iter().for_each(|peer| throttler.tell(Input::Connected(peer.clone())));
            for pledge in self.pledges.iter().filter(|pledge| pledge.key == *key) {
                throttler.tell(Input::Received { from: pledge.to.clone(), message: pledge.claim.clone() });
            }
        }
    }

    /// A message about a revision that does not work here, or that did not take it in.
    pub(super) fn received_about_unknown(
        &mut self,
        shared: &Shared,
        session: &Session,
        key: RevisionKey,
        message: Message,
    ) {
        // It may work since a moment ago.
        let left = match shared.revision(&key) {
            Some(throttler) => throttler.receive(&session.peer, message).err(),
            None => Some(message),
        };
        let Some(message) = left else { return };
        match message {
            Message::Claim { pod, number } => {
                let confirm = Message::Confirm { pod: pod.clone(), number, held: false, own: Vec::new() };
                session.send_slots(&key, confirm);
                self.pledge(key, &session.peer, pod, number);
            }
            Message::Lend { number, pod } => {
                session.send_slots(&key, Message::Return { pod, number, declined: true });
            }
            _ => {}
        }
    }

    fn pledge(&mut self, key: RevisionKey, to: &Peer, pod: Destination, number: u64) {
        if self.pledges.len() < PLEDGES_MAX {
            let claim = Message::Claim { pod, number };
            self.pledges.push(Pledge { until: now() + PLEDGES_KEPT, key, to: to.clone(), claim });
        }
    }

    /// Dials whoever is listed and has no session, and nobody else.
    fn dial(&mut self, shared: &Arc<Shared>) {
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
                let at_once = self.me < *peer || !self.members.contains(&self.me);
                let pause = self.pauses.get(peer).copied();
                let task = dialling::run(Arc::clone(shared), peer.clone(), *address, at_once, pause);
                self.dialling.insert(peer.clone(), shared.parts.runtime.spawn(task).abort_handle());
            }
        }
    }

    /// This activator ends: nothing is granted any more, what runs on shared pods is cut, and then sessions end.
    pub(super) fn end(&mut self, shared: &Shared) {
        self.has_ended = true;
        shared.tell_all(&Input::Stop);
        self.sessions.values().for_each(|session| session.end("this activator ends"));
        std::mem::take(&mut self.dialling).into_values().for_each(|task| task.abort());
    }

    /// Whether nothing happens by itself: this one is alone, or knows of nobody.
    pub(super) fn is_quiet(&self) -> bool {
        let only = self.siblings.known.iter().all(|peer| *peer == self.me);
        let is_alone = self.standing() == Standing::Alone || self.council.is_none();
        only && is_alone && self.sessions.is_empty()
    }

    /// Whether somebody else is listed and nobody is in touch.
    fn has_lost_all(&self) -> bool {
        self.sessions.is_empty() && self.siblings.listed.iter().any(|peer| *peer != self.me)
    }
}

/// Whether this activator reaches neither siblings nor the API server.
#[derive(Default)]
pub(super) struct Isolation {
    /// Since when neither has answered.
    since: Option<Instant>,
    asked: Option<Instant>,
    answered: Arc<AtomicBool>,
}

impl Isolation {
    /// Looks again; asks the API server while there is nobody else to ask.
    pub(super) fn look(&mut self, shared: &Arc<Shared>, now: Instant) -> bool {
        let roster = shared.roster.lock();
        let lost = roster.standing() == Standing::Shared && roster.has_lost_all();
        let Some(ask) = shared.parts.ask_api.as_ref().filter(|_| lost) else {
            *self = Self::default();
            return false;
        };
        drop(roster);
        if self.answered.swap(false, Ordering::Relaxed) {
            self.since = None;
        }
        let since = *self.since.get_or_insert(now);
        if self.asked.is_none_or(|asked| now.saturating_duration_since(asked) >= ASK_EVERY) {
            self.asked = Some(now);
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
