//! Shared concurrency limits: one limit for a workload's pods across all activators. Shell of
//! [`activator_core::holders`].
//!
//! # Overview
//!
//! [`Holders`] learns the activators of the install from their Service and keeps a session with each. A session is an
//! upgraded connection to the data port ([`activator_net::dial`]), so it needs no port of its own, and foreign
//! activators reveal themselves by their response. The use of pods follows from that
//! ([`activator_core::holders::sharing_mode`]). While limits are shared, each workload with a limit has a [`Holding`]
//! beside its throttler ([`link`]).
//!
//! ```text
//! discovery ── activators ──▶ membership ── mode, connected peers ──▶ links (Holding) ──▶ throttlers
//!                               ▲ opened, reported, ended              │ ▲ messages        request routing
//!                            session ◀─────────────────────────────────┘ │
//!                               └────────────────────────────────────────┘
//! ```
//!
//! [`crate::layers::relay`] relays the requests, over connections like those to pods, with a [`mark`].
//!
//! # Sessions
//!
//! The activator with the lower address dials at once. The other one dials only after a delay, unless it is not listed
//! itself, for then no sibling dials it. If both dial, the connection of the lower address stays. A session without a
//! beat for [`DEAD_AFTER`](activator_core::holders::DEAD_AFTER) is closed. If dialling fails or sessions end early, the
//! interval between attempts grows.
//!
//! # Access
//!
//! The connection must come from the address of a listed activator, ready or not. In addition, sessions have the same
//! requirements as stats: tokens, TLS ([`security`]).
//!
//! # Bounds
//!
//! Per sibling: frames of 512 KiB, and [`session::QUEUE_MAX`] messages in the send queue. If a bound is exceeded, the
//! session ends, which is harmless.
//!
//! # Shutdown
//!
//! An activator that shuts down is removed from the list first and continues with its requests, while its siblings
//! claim its workloads. After its shutdown time it holds nothing, and the requests that still run are cut before its
//! sessions end. So a sibling that no longer hears from it may use its pods a second later.
//!
//! # Isolation
//!
//! An activator that has lost every listed sibling and cannot reach the API server cannot know whether it is still
//! listed. It behaves as if it were not listed (the contract of [`activator_core::holders`]).

mod dialling;
mod link;
mod mark;
mod membership;
mod security;
mod session;

pub(crate) use self::link::{Link, Relayed, Target};
pub(crate) use self::mark::{FIELD, Mark};
pub(crate) use self::security::Security;
pub(crate) use self::session::answer;
use crate::discovery::Activators;
use activator_core::holders::session::Frame;
use activator_core::holders::sharing_mode::SharingMode;
use activator_core::holders::{BEAT, Holding, Input, Peer, Peers, TICK};
use activator_core::throttler::Throttler;
use activator_net::Pools;
use arc_swap::ArcSwap;
use common::RevisionKey;
use common_runtime::clock::Clock;
use common_runtime::telemetry::{self, FamilyText, catalog};
use dashmap::DashMap;
use futures::future::BoxFuture;
use membership::{Membership, PodHistory};
use parking_lot::Mutex;
use session::Session;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Function that checks whether the API server responds.
pub(crate) type AskApi = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

pub(crate) struct Parts {
    pub(crate) address: IpAddr,
    /// Data port of this activator. A sibling whose port is unknown is assumed to have the same.
    pub(crate) port: u16,
    pub(crate) pools: Arc<Pools>,
    pub(crate) runtime: Handle,
    /// `None`: there is no API server.
    pub(crate) ask_api: Option<AskApi>,
    pub(crate) security: Security,
    pub(crate) shutdown: CancellationToken,
}

pub(crate) struct Holders {
    me: Peer,
    parts: Parts,
    epoch: Instant,
    /// Base of claim numbers: the wall-clock time in µs at `epoch`.
    numbers: u64,
    /// Key that proves that a request was relayed by an activator.
    key: String,
    peers: ArcSwap<Peers>,
    /// Current session with each sibling.
    sessions: ArcSwap<BTreeMap<Peer, Arc<Session>>>,
    /// Active workloads with a hard limit.
    links: DashMap<RevisionKey, Arc<Link>>,
    membership: Mutex<Membership>,
    /// Workloads with requests that ended on pods that are not held here.
    ended: Mutex<Vec<Arc<Link>>>,
    /// Wakes the task `beats`.
    changed_notify: Notify,
}

impl Holders {
    /// Starts with no known activator and divided pods. Runs until shutdown.
    pub(crate) fn start(parts: Parts) -> Arc<Self> {
        let (epoch, me) = (now(), parts.address);
        let numbers = Clock::system().now().as_nanos() / 1000;
        let (runtime, shutdown) = (parts.runtime.clone(), parts.shutdown.clone());
        let holders = Arc::new(Self {
            numbers: u64::try_from(numbers).unwrap_or_default(),
            peers: ArcSwap::from_pointee(Peers::new(epoch)),
            sessions: ArcSwap::default(),
            key: format!("{:032x}", rand::random::<u128>()),
            links: DashMap::default(),
            membership: Mutex::new(Membership::new(me, epoch)),
            ended: Mutex::default(),
            changed_notify: Notify::new(),
            me,
            parts,
            epoch,
        });
        runtime.spawn(beats(Arc::clone(&holders), shutdown));
        holders
    }

    pub(crate) fn set_synced(self: &Arc<Self>) {
        self.with_membership(|membership, now| membership.pods_known_since = now);
    }

    pub(crate) fn set_activators(self: &Arc<Self>, activators: &Activators) {
        self.with_membership(|membership, _| membership.set_activators(activators));
    }

    /// Records that this activator shuts down, so that siblings take over its workloads.
    pub(crate) fn begin_shutdown(self: &Arc<Self>) {
        self.with_membership(|membership, _| membership.is_shutting_down = true);
    }

    /// Registers a workload with a hard limit. `fresh`: no pod of it was ever listed.
    pub(crate) fn enter(self: &Arc<Self>, key: &RevisionKey, throttler: &Arc<Throttler>, fresh: bool) -> Arc<Link> {
        let membership = self.membership.lock();
        let link = Link::new(key.clone(), throttler.clone(), self);
        if membership.mode.shares_limits() {
            membership.share(self, &link, if fresh { PodHistory::NoPods } else { PodHistory::Others });
        }
        // Insert only after the link knows all siblings: messages find it here without the membership's lock.
        if let Some(former) = self.links.insert(key.clone(), link.clone()) {
            former.divide();
        }
        link
    }

    /// Removes a workload that has no hard limit any more, or was deleted.
    pub(crate) fn exit(&self, link: &Arc<Link>) {
        let _membership = self.membership.lock();
        self.links.remove_if(&link.key, |_, present| Arc::ptr_eq(present, link));
        link.divide();
    }

    /// Reads the mark of a relayed request or connection; `None` if it was not relayed.
    pub(crate) fn relayed(&self, mark: &str) -> Option<Mark> {
        Mark::read(mark, &self.key)
    }

    /// Reports whether another activator has this address.
    pub(crate) fn knows(&self, address: IpAddr) -> bool {
        self.membership.lock().knows(&address.to_canonical())
    }

    pub(crate) fn sharing_mode(&self) -> SharingMode {
        self.membership.lock().mode
    }

    fn with_membership<T>(self: &Arc<Self>, change: impl FnOnce(&mut Membership, Instant) -> T) -> T {
        let mut membership = self.membership.lock();
        let changed = change(&mut membership, now());
        membership.apply_changes(self, now());
        drop(membership);
        self.changed_notify.notify_one();
        changed
    }

    fn link(&self, key: &RevisionKey) -> Option<Arc<Link>> {
        self.links.get(key).map(|entry| entry.value().clone())
    }

    fn all(&self) -> Vec<Arc<Link>> {
        self.links.iter().map(|entry| entry.value().clone()).collect()
    }

    /// Returns a holding that knows no other activator. `empty_since`: time since which the workload certainly had no
    /// pods, if known.
    fn holding(&self, key: &RevisionKey, empty_since: Option<Instant>) -> Holding {
        let since_epoch = now().saturating_duration_since(self.epoch).as_micros();
        let numbers = self.numbers.saturating_add(u64::try_from(since_epoch).unwrap_or_default());
        Holding::new(self.me, key.as_str(), numbers, empty_since, now())
    }

    /// Records that a request ended on a pod that is not held here. The pod's holder is informed soon.
    fn ended(&self, link: Arc<Link>) {
        self.ended.lock().push(link);
        self.changed_notify.notify_one();
    }

    fn apply_to_all(&self, input: &Input) {
        self.all().iter().for_each(|link| link.apply(input.clone()));
    }

    fn change_peers(&self, change: impl Fn(&mut Peers)) {
        self.peers.rcu(|peers| {
            let mut peers = Peers::clone(peers);
            change(&mut peers);
            peers
        });
    }

    fn beat(&self, to: &Peer) -> Frame {
        Frame::Beat(self.peers.load().beat(to, now()))
    }
}

/// Registers the metric for the current use of pods with a hard limit.
pub(crate) fn register_metric(registry: &telemetry::Metrics, holders: &Arc<Holders>) {
    const MODES: [(SharingMode, &str); 4] = [
        (SharingMode::Undecided, "undecided"),
        (SharingMode::Alone, "alone"),
        (SharingMode::Divided, "divided"),
        (SharingMode::Shared, "shared"),
    ];
    let holders = holders.clone();
    registry.collect(move || {
        let now = holders.sharing_mode();
        vec![FamilyText::new(catalog::POD_SHARING, MODES, move |(mode, word), encoder| {
            let labels = [("standing", word)];
            encoder.encode_family(&labels)?.encode_gauge(&i64::from(mode == now))
        })]
    });
}

/// Sends beats and applies decisions that depend on time.
async fn beats(shared: Arc<Holders>, shutdown: CancellationToken) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut isolation, mut beaten) = (membership::Isolation::default(), now());
    loop {
        let is_quiet = shared.membership.lock().is_quiet();
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = shared.changed_notify.notified() => {
                let ended = std::mem::take(&mut *shared.ended.lock());
                ended.iter().for_each(|link| link.apply(Input::Ended));
                continue;
            }
            _ = ticks.tick(), if !is_quiet => {}
        }
        shared.all().iter().for_each(|link| link.tick());
        let sessions = shared.sessions.load_full();
        if now().saturating_duration_since(beaten) + TICK / 2 >= BEAT {
            beaten = now();
            sessions.values().for_each(|session| session.send(shared.beat(&session.peer)));
        }
        let peers = shared.peers.load_full();
        let silent = sessions.values().filter(|session| peers.is_silent(&session.peer, now()));
        silent.for_each(|session| session.end("the other activator is silent"));
        let cut_off = isolation.check(&shared, now());
        let mut membership = shared.membership.lock();
        membership.cut_off = cut_off;
        membership.apply_changes(&shared, now());
    }
    shared.membership.lock().end(&shared);
}

/// Returns the time in the type that the cores use.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests;
