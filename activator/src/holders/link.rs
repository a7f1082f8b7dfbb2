//! Shared limit of one workload: its holders, and the activator that each request waits at.

use super::session::Session;
use super::{Holders, Peer, now};
use activator_core::Destination;
use activator_core::holders::{Holding, Input, Message, Output, Pods, Route, Running, Shards};
use activator_core::throttler::{Ended, Throttler};
use arc_swap::ArcSwap;
use common::RevisionKey;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

pub(crate) struct Link {
    pub(super) key: RevisionKey,
    throttler: Arc<Throttler>,
    shared: Weak<Holders>,
    state: Mutex<LinkState>,
    relay_route: ArcSwap<RelayRoute>,
    /// Set while a decision waits for time to pass.
    needs_ticks: AtomicBool,
    me: Weak<Link>,
}

#[derive(Default)]
struct LinkState {
    /// `None` while the limit is not shared.
    holding: Option<Holding>,
    pods: BTreeSet<Destination>,
    limit: u32,
    /// Set if pods are reached through their Service. Then each activator has its own share of the pods behind it.
    is_behind_service: bool,
    /// Number of requests relayed to each sibling.
    relayed: BTreeMap<Peer, Arc<AtomicU32>>,
}

/// Activators at which requests wait for a pod. Default: this activator.
#[derive(Default)]
struct RelayRoute {
    siblings: Vec<Target>,
    /// Number of pods that this activator holds, if siblings hold others.
    own: u32,
}

/// Sibling that holds the workload or a part of it.
#[derive(Clone)]
pub(crate) struct Target {
    /// Address at which the sibling accepts requests for any workload.
    pub(crate) address: SocketAddr,
    /// Key that marks requests to the sibling.
    pub(crate) key: Arc<str>,
    pods: u32,
    running: Arc<AtomicU32>,
}

/// Guard of a request that was relayed to a sibling.
pub(crate) struct Relayed(Arc<AtomicU32>);

impl Target {
    /// Counts a relayed request for as long as the returned guard lives.
    pub(crate) fn enter(&self) -> Relayed {
        self.running.fetch_add(1, Ordering::Relaxed);
        Relayed(self.running.clone())
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Link {
    pub(super) fn new(key: RevisionKey, throttler: Arc<Throttler>, shared: &Arc<Holders>) -> Arc<Self> {
        let state = LinkState { limit: 1, ..LinkState::default() };
        Arc::new_cyclic(|me| Self {
            key,
            throttler,
            shared: Arc::downgrade(shared),
            state: Mutex::new(state),
            relay_route: ArcSwap::default(),
            needs_ticks: AtomicBool::new(false),
            me: me.clone(),
        })
    }

    /// Returns the sibling to relay a request to, or `None` if the request stays here. If there are several holders and
    /// this one has no free slot, the request goes to the holder with the lowest known load. A relayed request stays if
    /// this activator holds a part of the workload.
    pub(crate) fn target(&self, is_relayed: bool) -> Option<Target> {
        let route = self.relay_route.load();
        if is_relayed && route.own > 0 {
            return None;
        }
        let load = |target: &Target| f64::from(target.running.load(Ordering::Relaxed)) / f64::from(target.pods);
        let least = route.siblings.iter().map(|target| (load(target), target));
        let (there, target) = least.min_by(|(one, _), (other, _)| one.total_cmp(other))?;
        if route.own > 0 {
            let own = self.throttler.load();
            let here = f64::from(own.in_flight.saturating_add(own.queued)) / f64::from(route.own);
            if own.queued == 0 && own.in_flight < own.capacity.permits() || here <= there {
                return None;
            }
        }
        Some(target.clone())
    }

    /// Returns true if this activator holds no part of the workload.
    pub(crate) fn is_elsewhere(&self) -> bool {
        let route = self.relay_route.load();
        route.own == 0 && !route.siblings.is_empty()
    }

    /// Returns the shards held here, and the requests of siblings that still run on each pod. Returns `None` if the
    /// limit is not shared.
    pub(crate) fn sharing(&self) -> Option<(Shards, Running)> {
        self.state.lock().holding.as_ref().map(|holding| (holding.held(), holding.taken()))
    }

    pub(crate) fn set_limit(&self, limit: u32) {
        self.change(|state| state.limit = limit);
    }

    /// Sets all listed addresses, usable or not.
    pub(crate) fn set_pods(&self, pods: BTreeSet<Destination>) {
        self.change(|state| state.pods = pods);
    }

    pub(crate) fn set_behind_service(&self, is_behind_service: bool) {
        self.change(|state| state.is_behind_service = is_behind_service);
    }

    fn change(&self, change: impl FnOnce(&mut LinkState)) {
        let mut state = self.state.lock();
        change(&mut state);
        let input = Input::Pods(state.pods.clone(), state.limit);
        self.handle(&mut state, input);
    }

    /// Starts to share the limit. `begin` makes the holding from the listed pods.
    pub(super) fn share(&self, begin: impl FnOnce(Input, &dyn Pods) -> Holding) {
        let mut state = self.state.lock();
        if let Some(me) = self.me.upgrade() {
            self.throttler.hold_shards(me);
        }
        let input = Input::Pods(state.pods.clone(), state.limit);
        state.holding = Some(begin(input.clone(), &*self.throttler));
        self.handle(&mut state, input);
    }

    /// Stops sharing the limit.
    pub(super) fn divide(&self) {
        let mut state = self.state.lock();
        state.holding = None;
        self.needs_ticks.store(false, Ordering::Relaxed);
        self.relay_route.store(Arc::default());
        self.throttler.divide();
        self.throttler.send_elsewhere(false);
    }

    pub(super) fn apply(&self, input: Input) {
        self.handle(&mut self.state.lock(), input);
    }

    pub(super) fn tick(&self) {
        if self.needs_ticks.load(Ordering::Relaxed) {
            self.apply(Input::Tick);
        }
    }

    /// Applies a message. Returns false if the limit is not shared, so the message had no effect.
    pub(super) fn receive(&self, from: &Peer, message: Message) -> bool {
        let mut state = self.state.lock();
        self.handle(&mut state, Input::Received { from: *from, message });
        state.holding.is_some()
    }

    pub(super) fn is_alone(&self, shared: &Holders) -> bool {
        let state = self.state.lock();
        state.holding.as_ref().is_none_or(|holding| holding.is_alone(&shared.peers.load(), now()))
    }

    fn handle(&self, state: &mut LinkState, input: Input) {
        let (Some(shared), Some(holding)) = (self.shared.upgrade(), state.holding.as_mut()) else { return };
        let sessions = shared.sessions.load();
        for output in holding.handle(input, &shared.peers.load(), &*self.throttler, now()) {
            match output {
                Output::Send { to, message } => {
                    sessions.get(&to).into_iter().for_each(|session| session.send_holder(&self.key, message.clone()));
                }
                Output::Cut(shards) => self.cut(shards, &shared),
            }
        }
        self.needs_ticks.store(holding.needs_ticks(), Ordering::Relaxed);
        let (route, ends) = (holding.route(), holding.has_stopped());
        self.apply_route(state, route, ends, &sessions);
    }

    /// Applies a route to new and waiting requests.
    fn apply_route(&self, state: &mut LinkState, route: Route, ends: bool, sessions: &BTreeMap<Peer, Arc<Session>>) {
        let mut relay_route = RelayRoute::default();
        if !state.is_behind_service {
            relay_route.own = route.own;
            for (peer, pods) in route.siblings {
                let Some(session) = sessions.get(&peer) else { continue };
                let running = state.relayed.entry(peer).or_default().clone();
                let (address, key) = (session.relays_to, session.key.clone());
                relay_route.siblings.push(Target { address, key, pods, running });
            }
        }
        state.relayed.retain(|_, running| Arc::strong_count(running) > 1);
        self.relay_route.store(Arc::new(relay_route));
        self.throttler.send_elsewhere(ends || self.is_elsewhere());
    }

    /// Cuts connections on a separate task, because it takes other locks.
    fn cut(&self, shards: Shards, shared: &Holders) {
        let running = self.throttler.running(Shards::NONE).into_keys();
        for pod in running.filter(|pod| shards.intersects(Shards::of_pod(pod))) {
            // A slot belongs to the pod, regardless of the port that the request uses.
            let (pools, address) = (shared.parts.pools.clone(), pod.address().ip());
            let cause = "this activator is no longer listed, or shuts down";
            tracing::warn!(revision = %self.key, %pod, cause, "connections to the pod are cut");
            shared.parts.runtime.spawn(async move { pools.cut(address) });
        }
    }
}

/// Is notified of a request that ended on a pod of another holder. Delegates to a task, because the throttler holds
/// its lock.
impl Ended for Link {
    fn ended(&self) {
        if let (Some(shared), Some(me)) = (self.shared.upgrade(), self.me.upgrade()) {
            shared.ended(me);
        }
    }
}
