//! One limit for a workload's pods, whichever activator a client comes to: the shell of [`activator_core::holders`].
//!
//! # What it is
//!
//! [`Holders`] knows the activators of the install, as their Service lists them, and keeps a session with each: an upgraded
//! connection to its data port ([`activator_net::dial`]), so nothing needs a port of its own, and an activator that is not
//! ours tells so by its answer. How pods are used follows from that ([`activator_core::holders::standing`]). While the limit
//! is kept together, each workload that has one has a [`Holding`] beside its throttler ([`link`]).
//!
//! ```text
//! discovery ── activators ──▶ roster ── standing, who is in touch ──▶ links (Holding) ──▶ throttlers
//!                               ▲ opened, said, ended                  │ ▲ messages        where requests go
//!                            session ◀─────────────────────────────────┘ │
//!                               └────────────────────────────────────────┘
//! ```
//!
//! Requests themselves are relayed by [`crate::layers::relay`], over connections like those to pods, with a [`mark`].
//!
//! # Sessions
//!
//! The one with the lower address dials, at once; the other one only after a while, and who is not in the list, since
//! nobody dials it. If both do, the lower one's connection stays. A session on which no beat was heard for
//! [`DEAD_AFTER`](activator_core::holders::DEAD_AFTER) is closed. Where dialling fails, or the session does not last, the
//! next attempt comes ever later.
//!
//! # Who may open one
//!
//! Whose address is that of an activator: it must stand in the list, ready or not, and the connection come from there. Beside
//! that whatever stats ask for: tokens, TLS ([`security`]).
//!
//! # Bounds
//!
//! Of a sibling: frames of 512 KiB, and [`session::QUEUE_MAX`] that wait to be sent to it; beyond, the session ends, which
//! harms nothing.
//!
//! # The end
//!
//! An activator that ends in order leaves the list first, and goes on with what it has: its siblings claim it. When its time
//! is over, nothing is held any more and what still runs is cut, before sessions end: who hears nothing more of it may use its
//! pods a second later.
//!
//! # Cut off
//!
//! Who has lost every sibling that is listed, and does not reach the API server either, cannot know whether it has been
//! taken off the list. It takes itself for one that has left (the contract of [`activator_core::holders`]).

mod dialling;
mod link;
mod mark;
mod roster;
mod security;
mod session;
pub(crate) mod shown;

pub(crate) use self::link::{Link, Relayed, Target};
pub(crate) use self::mark::{FIELD, Mark};
pub(crate) use self::security::Security;
use crate::discovery::Activators;
use activator_core::holders::standing::Standing;
use activator_core::holders::{BEAT, Beat, Holding, Input, Peer, Peers, TICK};
use activator_core::throttler::Throttler;
use activator_net::Pools;
use arc_swap::ArcSwap;
use common::RevisionKey;
use common_runtime::clock::Clock;
use dashmap::DashMap;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use roster::{Before, Roster};
use session::Session;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Asks whether the API server answers.
pub(crate) type AskApi = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

/// Parts of the process that it needs.
pub(crate) struct Parts {
    /// This activator's own address.
    pub(crate) address: IpAddr,
    /// Its data port. Siblings whose own is not known have the same.
    pub(crate) port: u16,
    pub(crate) pools: Arc<Pools>,
    pub(crate) runtime: Handle,
    /// None: there is no API server.
    pub(crate) ask_api: Option<AskApi>,
    pub(crate) security: Security,
    pub(crate) shutdown: CancellationToken,
}

/// All of it. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Holders {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    me: Peer,
    parts: Parts,
    epoch: Instant,
    /// Claims are numbered from here: the time in µs, as it was at `epoch`.
    numbers: u64,
    /// Key that proves that a request was relayed by an activator.
    key: String,
    peers: ArcSwap<Peers>,
    /// The present session with each sibling.
    sessions: ArcSwap<BTreeMap<Peer, Arc<Session>>>,
    /// Workloads with a hard limit that are at work.
    links: DashMap<RevisionKey, Arc<Link>>,
    roster: Mutex<Roster>,
    /// Workloads of which a request has ended on a pod that is not held here.
    ended: Mutex<Vec<Arc<Link>>>,
    /// Something has changed.
    stirred: Notify,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Holders {
    /// Knows nobody, and divides pods, until it is told of activators. Runs until shutdown.
    pub(crate) fn start(parts: Parts) -> Self {
        let (epoch, me) = (now(), Peer::from(parts.address.to_string().as_str()));
        let numbers = Clock::system().now().as_nanos() / 1000;
        let (runtime, shutdown) = (parts.runtime.clone(), parts.shutdown.clone());
        let shared = Arc::new(Shared {
            numbers: u64::try_from(numbers).unwrap_or_default(),
            peers: ArcSwap::from_pointee(Peers::new(epoch)),
            sessions: ArcSwap::default(),
            key: format!("{:032x}", rand::random::<u128>()),
            links: DashMap::default(),
            roster: Mutex::new(Roster::new(me.clone(), epoch)),
            ended: Mutex::default(),
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

    /// This activator is about to end, and others are to hold what it holds.
    pub(crate) fn leave(&self) {
        self.shared.with_roster(|roster, _| roster.leaving = true);
    }

    /// A workload has a hard limit. `fresh`: it has not been told of any pod.
    pub(crate) fn enter(&self, key: &RevisionKey, throttler: &Throttler, fresh: bool) -> Arc<Link> {
        let roster = self.shared.roster.lock();
        let link = Link::new(key.clone(), throttler.clone(), &self.shared);
        if roster.limits_are_kept() {
            roster.share(&self.shared, &link, if fresh { Before::NoPods } else { Before::Others });
        }
        // Not before it knows all siblings: messages find it here without the roster's lock.
        if let Some(former) = self.shared.links.insert(key.clone(), link.clone()) {
            former.divide();
        }
        link
    }

    /// It has none any more, or is no more.
    pub(crate) fn exit(&self, link: &Arc<Link>) {
        let _roster = self.shared.roster.lock();
        self.shared.links.remove_if(link.key(), |_, present| Arc::ptr_eq(present, link));
        link.divide();
    }

    /// Reads the mark of a relayed request or connection; none: it is not relayed.
    pub(crate) fn relayed(&self, mark: &str) -> Option<Mark> {
        Mark::read(mark, &self.shared.key)
    }

    /// Returns true if another activator has this address.
    pub(crate) fn knows(&self, address: IpAddr) -> bool {
        let peer = Peer::from(address.to_canonical().to_string().as_str());
        self.shared.roster.lock().knows(&peer)
    }

    /// Returns how pods with a hard limit are used.
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

    /// Returns the link of a workload that has a hard limit and is at work.
    fn link(&self, key: &RevisionKey) -> Option<Arc<Link>> {
        self.links.get(key).map(|entry| entry.value().clone())
    }

    fn all(&self) -> Vec<Arc<Link>> {
        self.links.iter().map(|entry| entry.value().clone()).collect()
    }

    /// Returns one that knows no other activator. `empty_since`: since when it is certain that the workload has had no pods, if it is.
    fn holding(&self, key: &RevisionKey, empty_since: Option<Instant>) -> Holding {
        let since_epoch = now().saturating_duration_since(self.epoch).as_micros();
        let numbers = self.numbers.saturating_add(u64::try_from(since_epoch).unwrap_or_default());
        Holding::new(self.me.clone(), key.as_str(), numbers, empty_since, now())
    }

    /// A request of it has ended on a pod that is not held here. Whoever counts it is told soon.
    fn ended(&self, link: Arc<Link>) {
        self.ended.lock().push(link);
        self.stirred.notify_one();
    }

    fn tell_all(&self, input: &Input) {
        self.all().iter().for_each(|link| link.tell(input.clone()));
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
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut isolation, mut beaten) = (roster::Isolation::default(), now());
    loop {
        let is_quiet = shared.roster.lock().is_quiet();
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = shared.stirred.notified() => {
                let ended = std::mem::take(&mut *shared.ended.lock());
                ended.iter().for_each(|link| link.tell(Input::Ended));
                continue;
            }
            _ = ticks.tick(), if !is_quiet => {}
        }
        shared.all().iter().for_each(|link| link.tick());
        let sessions = shared.sessions.load_full();
        if now().saturating_duration_since(beaten) + TICK / 2 >= BEAT {
            beaten = now();
            sessions.values().for_each(|session| session.send_beat(shared.beat(&session.peer)));
        }
        let peers = shared.peers.load_full();
        let silent = sessions.values().filter(|session| peers.is_silent(&session.peer, now()));
        silent.for_each(|session| session.end("nothing was heard"));
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
