//! Pods with a hard limit, shared among activators: the shell of [`activator_core::slots`].
//!
//! # What it is
//!
//! [`Slots`] knows the activators of the install, as their Service lists them, and keeps a session with each: an upgraded
//! connection to its data port ([`activator_net::dial`]), so nothing needs a port of its own, and an activator that is not
//! ours tells so by its answer. How pods are used follows from that ([`activator_core::slots::standing`]). While they are
//! shared, each revision with a hard limit has a [`Pool`] behind its throttler.
//!
//! ```text
//! discovery ── activators ──▶ roster ── standing, who is in touch ──▶ throttlers (Pool)
//!                               ▲ opened, said, ended                    │ ▲ messages
//!                            session ◀───────────────────────────────────┘ │
//!                               └──────────────────────────────────────────┘
//! ```
//!
//! # Sessions
//!
//! The one with the lower address dials, at once; the other one only after a while, and who is not in the list, since
//! nobody dials it. If both do, the lower one's connection stays. A session on which no beat was heard for
//! [`DEAD_AFTER`](activator_core::slots::DEAD_AFTER) is closed. Where dialling fails, or the session does not last, the next
//! attempt comes ever later.
//!
//! # Who may open one
//!
//! Whose address is that of an activator: it must stand in the list, ready or not, and the connection come from there. Beside
//! that whatever stats ask for: tokens, TLS ([`security`]).
//!
//! # Bounds
//!
//! Of a sibling: frames of 64 KiB, [`session::FRAMES_MAX`] of them between two beats of ours, [`session::QUEUE_MAX`] that
//! wait to be sent to it beside what pools say when the session begins (a claim for each pod that they hold); beyond, the
//! session ends, which harms nothing. Claims for revisions that are not known here are answered and [remembered](roster) for
//! some seconds, a bounded number of them.
//!
//! # The end
//!
//! An activator that ends in order leaves the list first, and goes on with what it has: its siblings count it. When its time
//! is over, pools grant nothing any more and cut what still runs, before sessions end: who hears nothing more of it may use its
//! pods a second later.
//!
//! # Cut off
//!
//! Who has lost every sibling that is listed, and does not reach the API server either, cannot know whether it has been
//! taken off the list. It takes itself for one that has left (the contract of [`activator_core::slots`]).

mod dialling;
mod link;
mod roster;
mod security;
mod session;
pub(crate) mod shown;

pub(crate) use self::security::{Demand, Security};
use crate::discovery::Activators;
use activator_core::slots::standing::Standing;
use activator_core::slots::{BEAT, Beat, Input, Peer, Peers, Pool};
use activator_core::throttler::{Before, NOTICED_AFTER, Throttler};
use activator_net::Pools;
use arc_swap::ArcSwap;
use common::RevisionKey;
use common_runtime::clock::Clock;
use dashmap::DashMap;
use futures::future::BoxFuture;
use link::Link;
use parking_lot::Mutex;
use roster::Roster;
use session::Session;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Asks whether the API server answers.
pub(crate) type AskApi = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

/// What it is made of.
pub(crate) struct Parts {
    /// This activator's own address.
    pub(crate) address: IpAddr,
    pub(crate) pools: Arc<Pools>,
    pub(crate) runtime: Handle,
    /// None: there is no API server.
    pub(crate) ask_api: Option<AskApi>,
    pub(crate) security: Security,
    pub(crate) shutdown: CancellationToken,
}

/// All of it. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    me: Peer,
    parts: Parts,
    epoch: Instant,
    /// Numbers of pools begin here: the time in µs, as it was at `epoch`.
    numbers: u64,
    peers: ArcSwap<Peers>,
    /// The present session with each sibling.
    sessions: ArcSwap<BTreeMap<Peer, Arc<Session>>>,
    /// Revisions with a hard limit that are at work.
    revisions: DashMap<RevisionKey, Throttler>,
    roster: Mutex<Roster>,
    /// Something has changed.
    stirred: Notify,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Slots {
    /// Knows nobody, and divides pods, until it is told of activators. Runs until shutdown.
    pub(crate) fn start(parts: Parts) -> Self {
        let (epoch, me) = (now(), Peer::from(parts.address.to_string().as_str()));
        let numbers = Clock::system().now().as_nanos() / 1000;
        let (runtime, shutdown) = (parts.runtime.clone(), parts.shutdown.clone());
        let shared = Arc::new(Shared {
            numbers: u64::try_from(numbers).unwrap_or_default(),
            peers: ArcSwap::from_pointee(Peers::new(epoch)),
            sessions: ArcSwap::default(),
            revisions: DashMap::default(),
            roster: Mutex::new(Roster::new(me.clone(), epoch)),
            stirred: Notify::new(),
            me,
            parts,
            epoch,
        });
        runtime.spawn(beats(Arc::clone(&shared), shutdown));
        Self { shared }
    }

    /// All revisions are known from now on.
    pub(crate) fn set_synced(&self) {
        self.shared.with_roster(Roster::set_synced);
    }

    /// The activators that are listed.
    pub(crate) fn set_activators(&self, activators: &Activators) {
        self.shared.with_roster(|roster, _| roster.set_activators(activators));
    }

    /// This activator is about to end, and others are to grant its pods' slots.
    pub(crate) fn leave(&self) {
        self.shared.with_roster(|roster, _| roster.leaving = true);
    }

    /// A revision has this hard limit. `fresh`: it has not been told of any pod.
    pub(crate) fn enter(&self, key: &RevisionKey, throttler: &Throttler, fresh: bool) {
        self.shared.enter(key, throttler, fresh);
    }

    /// It has none any more. Nothing where another one has taken its place.
    pub(crate) fn exit(&self, key: &RevisionKey, throttler: &Throttler) {
        let _roster = self.shared.roster.lock();
        if self.shared.revisions.remove_if(key, |_, present| present.is(throttler)).is_some() {
            throttler.unshare();
        }
    }

    /// It is no more: nobody is admitted, and what runs gives its slots back. Likewise.
    pub(crate) fn delete(&self, key: &RevisionKey, throttler: &Throttler) {
        let _roster = self.shared.roster.lock();
        if self.shared.revisions.remove_if(key, |_, present| present.is(throttler)).is_some() {
            self.shared.end(throttler.clone());
        }
    }

    /// How pods are used.
    pub(crate) fn standing(&self) -> Standing {
        self.shared.roster.lock().standing()
    }

    /// Answers whoever asks for a session, if the request does.
    pub(crate) fn answer<B, R: Default>(
        &self,
        request: &mut http::Request<B>,
        from: SocketAddr,
    ) -> Option<http::Response<R>> {
        session::answer(&self.shared, request, from)
    }
}

impl Shared {
    /// Changes what is known of siblings, and does what follows.
    fn with_roster<T>(self: &Arc<Self>, change: impl FnOnce(&mut Roster, Instant) -> T) -> T {
        let mut roster = self.roster.lock();
        let changed = change(&mut roster, now());
        roster.reconsider(self, now());
        drop(roster);
        self.stirred.notify_one();
        changed
    }

    fn enter(self: &Arc<Self>, key: &RevisionKey, throttler: &Throttler, fresh: bool) {
        let roster = self.roster.lock();
        let former = self.revision(key);
        if former.as_ref().is_some_and(|former| former.is(throttler)) {
            return;
        }
        if let Some(former) = former {
            self.end(former);
        }
        if roster.pools_are_used() {
            let before = if fresh { Before::NoPods } else { Before::Others };
            roster.share(self, key, throttler, before);
        }
        // Not before it has a pool that knows all siblings: messages find it here without the roster's lock.
        self.revisions.insert(key.clone(), throttler.clone());
    }

    /// Ends the sharing of one that is no more, once its last request has: else a slot that a sibling has lent would be in
    /// use there for ever, for a revision that is made anew under its name.
    fn end(&self, former: Throttler) {
        if former.load().in_flight == 0 {
            return former.unshare();
        }
        self.parts.runtime.spawn(async move {
            while former.load().in_flight > 0 {
                tokio::time::sleep(NOTICED_AFTER).await;
                former.tell(Input::Tick); // It stands in no table any more, where others would.
            }
            tokio::time::sleep(NOTICED_AFTER).await;
            former.tell(Input::Tick);
            former.unshare();
        });
    }

    /// One that has a hard limit and is at work.
    fn revision(&self, key: &RevisionKey) -> Option<Throttler> {
        self.revisions.get(key).map(|entry| entry.value().clone())
    }

    /// A pool that knows nobody.
    fn pool(&self, pods_known_since: Instant) -> Pool {
        let since_epoch = now().saturating_duration_since(self.epoch).as_micros();
        let numbers = self.numbers.saturating_add(u64::try_from(since_epoch).unwrap_or_default());
        // The limit itself is the throttler's.
        Pool::new(self.me.clone(), NonZeroU32::MIN, numbers, pods_known_since)
    }

    fn link(self: &Arc<Self>, key: &RevisionKey) -> Arc<Link> {
        Arc::new(Link::new(key.clone(), Arc::clone(self)))
    }

    fn tell_all(&self, input: &Input) {
        let all: Vec<Throttler> = self.revisions.iter().map(|entry| entry.value().clone()).collect();
        all.iter().for_each(|throttler| throttler.tell(input.clone()));
    }

    fn change_peers(&self, change: impl Fn(&mut Peers)) {
        self.peers.rcu(|peers| {
            let mut peers = Peers::clone(peers);
            change(&mut peers);
            peers
        });
    }

    fn beat(&self, to: &Peer) -> Beat {
        self.peers.load().beat(to, now())
    }
}

/// Beats, and what time decides.
async fn beats(shared: Arc<Shared>, shutdown: CancellationToken) {
    let mut ticks = tokio::time::interval(BEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut isolation = roster::Isolation::default();
    loop {
        let is_quiet = shared.roster.lock().is_quiet();
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = shared.stirred.notified(), if is_quiet => continue,
            _ = ticks.tick(), if !is_quiet => {}
        }
        let (sessions, peers) = (shared.sessions.load_full(), shared.peers.load_full());
        for session in sessions.values() {
            session.begin_interval();
            match peers.is_silent(&session.peer, now()) {
                true => session.end("nothing was heard"),
                false => session.send_beat(shared.beat(&session.peer)),
            }
        }
        let cut_off = isolation.look(&shared, now());
        let mut roster = shared.roster.lock();
        roster.cut_off = cut_off;
        roster.reconsider(&shared, now());
    }
    shared.roster.lock().end(&shared);
}

/// The time, as the cores have it.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests;
