//! Admission and load balancing of one revision: which request goes to which pod.
//!
//! # The rule
//!
//! A request first gets a permit of the revision's [breaker](crate::breaker). The breaker's capacity is the number of
//! requests that this activator's pods can run ([`assign`], [`capacity`]). The request then gets a pod by a [policy]
//! that depends on the container concurrency. With a container concurrency each pod has that many slots, and no pod
//! ever receives more from this activator.
//!
//! # A permit implies a pod
//!
//! The assigned pods always have at least as many free slots as there are free and unused permits. Every request that
//! holds a slot holds a permit, and the two totals change in an order that preserves this: pods are swapped in before
//! capacity is raised, and capacity is lowered before pods are swapped out. Only a request that was admitted before its
//! pods were removed can find no slot. It goes to the head of the queue and is woken when there is a slot again. It
//! never spins.
//!
//! # Edge cases
//!
//! - A request on a removed pod keeps its permit, and capacity is raised by the number of such requests. The request
//!   ends where it runs and takes nothing from the new pods. When it ends, that extra capacity goes with it.
//! - A pod that returns while requests still run on it keeps its count.
//! - [`Throttler::mark_failed`] removes a pod at once, until [`Throttler::restore`] or until an update no longer lists
//!   it. An update that still lists it, made before the failure was known, does not bring it back.
//! - A cluster IP is one destination without slots. The capacity is this activator's share of the ready pods.
//! - Shares are computed over all listed pods, and failed pods are left out afterwards, so that failures at one
//!   activator do not shift the shares of the others.
//! - Without pods the breaker is closed and every request waits.
//!
//! # Several activators
//!
//! Several activators divide the pods ([`assign`]), or hold them by shards ([`Pods`], [`crate::holders`]). With shards,
//! pods of other shards are treated like removed pods. Slots that siblings still use are reserved here too, until they
//! are reported free. A request that took a slot of a pod given up at that instant detects this, releases the slot and
//! picks again. So [`Pods::running`] after [`Pods::hold`] covers every request that will ever run there.
//!
//! # Better than Knative
//!
//! Knative's breaker counts requests on removed pods against the new pods, so one long request can block the successor
//! of a replaced pod. Here nothing spins between a permit and a pod, an empty list does not panic, a failing pod is
//! avoided at once, and the limit and the policy may change while requests run.
//!
//! # Not here
//!
//! Health of pods ([`crate::backends`]), deadlines, and sending.

mod permit;
mod pod;
mod policy;
mod subset;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

pub use self::permit::{Acquire, Admitted, Handle, Permit};
use self::pod::{PodTracker, Slot};
use self::policy::Policy;
pub use self::subset::{CapacityInputs, UNLIMITED_CAPACITY, assign, capacity};
use crate::breaker::{AdmissionError, Breaker, Capacity, Load, NotAdmitted};
use crate::destination::{Destination, Destinations};
use crate::holders::{Pods, Running, Shards};
use crate::own_index::Activators;

/// Admission and load balancing of one revision.
#[derive(Debug)]
pub struct Throttler {
    breaker: Breaker,
    snapshot: ArcSwap<Snapshot>,
    cursor: Cursor,
    state: Mutex<ThrottlerState>,
}

/// Callback for the end of a request on a pod that is no longer used. Must not call the throttler.
pub trait Ended: Send + Sync {
    /// Called when such a request has ended.
    fn ended(&self);
}

/// Round-robin cursor. Its own cache line keeps it apart from data that every request reads and none writes.
#[derive(Debug)]
#[repr(align(64))]
struct Cursor(AtomicUsize);

/// Immutable data that picks work on, swapped as a whole.
#[derive(Debug)]
struct Snapshot {
    policy: Policy,
    targets: Targets,
    /// If shards are held: true if no activator has a pod to send to.
    is_cold: Option<bool>,
}

#[derive(Debug)]
enum Targets {
    /// Assigned pods that have not failed, sorted.
    Pods(Vec<Arc<PodTracker>>),
    ClusterIp(Arc<PodTracker>),
}

/// State that snapshots are built from. Changed under its lock, one change at a time.
#[derive(Debug)]
struct ThrottlerState {
    /// Number of requests that a pod may run at once; 0 means no limit.
    concurrency: u32,
    activators: Activators,
    listed: Destinations,
    failed: BTreeSet<Destination>,
    /// Every pod that is still referenced.
    known: BTreeMap<Destination, Arc<PodTracker>>,
    /// Handle with which a pod reports the end of a request after the pod was removed.
    throttler: Weak<Throttler>,
    held: Option<Held>,
    /// Reason why no request may wait, and a flag that is set while other activators hold all pods.
    refusal: Option<AdmissionError>,
    elsewhere: bool,
}

/// Shards that this activator holds while several activators enforce one limit together.
struct Held {
    shards: Shards,
    /// Slots of its pods that siblings use.
    taken: BTreeMap<Destination, Vec<Slot>>,
    ended: Arc<dyn Ended>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("shards", &self.shards).field("taken", &self.taken).finish_non_exhaustive()
    }
}

/// State of one pod, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLoad {
    /// Address of the pod.
    pub destination: Destination,
    /// Requests of this activator on the pod.
    pub in_flight: u32,
    /// True if the pod may be picked: listed, assigned and not failed.
    pub usable: bool,
}

// === impl Throttler ===

impl Throttler {
    /// Creates a throttler without pods: every request waits, at most `max_held` at once. A pod may run `concurrency`
    /// requests at once; 0 means no limit.
    pub fn new(concurrency: u32, max_held: u32) -> Arc<Self> {
        let targets = Targets::Pods(Vec::new());
        let snapshot = Snapshot { policy: Policy::for_concurrency(concurrency, false), targets, is_cold: None };
        Arc::new_cyclic(|throttler| Self {
            breaker: Breaker::new(Capacity::CLOSED, max_held),
            snapshot: ArcSwap::from_pointee(snapshot),
            cursor: Cursor(AtomicUsize::new(0)),
            state: Mutex::new(ThrottlerState {
                concurrency,
                activators: Activators::Unknown,
                listed: Destinations::NONE,
                failed: BTreeSet::new(),
                known: BTreeMap::new(),
                throttler: Weak::clone(throttler),
                held: None,
                refusal: None,
                elsewhere: false,
            }),
        })
    }

    /// Waits for a permit, in order of arrival.
    pub fn acquire(self: &Arc<Self>) -> Acquire {
        Acquire::new(Handle(Arc::clone(self)))
    }

    /// Sets the destinations.
    pub fn update(&self, destinations: Destinations) {
        self.change(|state| {
            state.listed = destinations;
            if let Destinations::Pods(pods) = &mut state.listed {
                pods.sort_unstable();
                pods.dedup();
                state.failed.retain(|failed| pods.binary_search(failed).is_ok());
            } else {
                state.failed.clear();
            }
        });
    }

    /// Sets this activator's position among the revision's activators.
    pub fn set_activators(&self, activators: Activators) {
        self.change(|state| state.activators = activators);
    }

    /// Sets the number of requests that a pod may run at once; 0 means no limit. Running requests are not
    /// interrupted.
    pub fn set_concurrency(&self, concurrency: u32) {
        self.change(|state| state.concurrency = concurrency);
    }

    /// Sets the number of requests that may wait. Requests that already wait stay.
    pub fn set_max_held(&self, max_held: u32) {
        self.breaker.set_queue_limit(max_held);
    }

    /// Refuses requests that wait or would have to wait, while `refusal` is `Some`. See [`Breaker::refuse_waiting`].
    pub fn refuse_waiting(&self, refusal: Option<AdmissionError>) {
        let mut state = self.state.lock();
        state.refusal = refusal;
        self.breaker.refuse_waiting(state.refusal_now());
    }

    /// Refuses requests that wait or would have to wait while `elsewhere` is true: other activators hold all pods, and
    /// the requests are relayed to them.
    pub fn send_elsewhere(&self, elsewhere: bool) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.elsewhere, elsewhere) != elsewhere {
            self.breaker.refuse_waiting(state.refusal_now());
        }
    }

    /// Removes a pod at once, after a refused connection or unacknowledged bytes. Returns true if that changed
    /// anything. A cluster IP stays, since there is no alternative.
    pub fn mark_failed(&self, destination: &Destination) -> bool {
        self.change(|state| match &state.listed {
            Destinations::Pods(pods) if pods.binary_search(destination).is_ok() => {
                state.failed.insert(destination.clone())
            }
            _ => false,
        })
    }

    /// Brings back a pod that had failed. Returns true if that changed anything.
    pub fn restore(&self, destination: &Destination) -> bool {
        self.change(|state| state.failed.remove(destination))
    }

    /// Returns in flight, queued and capacity at one instant. Too expensive for every request: see [`Breaker::load`].
    pub fn load(&self) -> Load {
        self.breaker.load()
    }

    /// Returns true if no activator has a pod to send to.
    pub fn is_cold(&self) -> bool {
        let is_cold = self.snapshot.load().is_cold;
        is_cold.unwrap_or_else(|| self.breaker.capacity() == Capacity::CLOSED)
    }

    /// Switches to shards: from now on requests go only to pods of the shards that this activator holds, at first none.
    /// [`Throttler::divide`] switches back.
    pub fn hold_shards(&self, ended: Arc<dyn Ended>) {
        let taken = BTreeMap::new();
        self.change(|state| state.held = Some(Held { shards: Shards::NONE, taken, ended }));
    }

    /// Returns true if this activator sends by shards under a hard limit.
    pub fn holds_shards(&self) -> bool {
        self.snapshot.load().is_cold.is_some()
    }

    /// Ends sending by shards. Running requests continue, and the pods are divided among the activators again.
    pub fn divide(&self) {
        let former = self.change(|state| state.held.take());
        if former.is_some_and(|held| !held.taken.is_empty()) {
            self.change(|_| ()); // Slots that siblings used are free now.
        }
    }

    /// Returns the counts of refused and abandoned requests.
    pub fn not_admitted(&self) -> NotAdmitted {
        self.breaker.not_admitted()
    }

    /// Returns every pod that may be picked or still runs a request, in order.
    pub fn pods(&self) -> Vec<PodLoad> {
        let state = self.state.lock();
        let snapshot = self.snapshot.load();
        let load = |pod: &Arc<PodTracker>| PodLoad {
            destination: pod.destination.clone(),
            in_flight: pod.in_flight(),
            usable: snapshot.targets.contains(pod),
        };
        state.known.values().map(load).filter(|pod| pod.usable || pod.in_flight > 0).collect()
    }
}

impl Pods for Throttler {
    fn hold(&self, shards: Shards, taken: &Running) {
        let former = self.change(|state| {
            let ThrottlerState { held: Some(held), known: pods, throttler, .. } = state else { return None };
            held.shards = shards;
            let former = std::mem::take(&mut held.taken);
            for (at, count) in taken {
                let pod = tracker(pods, throttler, at);
                held.taken.insert(at.clone(), (0..*count).map(|_| pod.reserve()).collect());
            }
            Some(former)
        });
        // The former slots are dropped outside the lock, since their drop takes it. Then capacity is recomputed,
        // because other requests may use them.
        if former.is_some_and(|former| !former.is_empty()) {
            self.change(|_| ());
        }
    }

    fn running(&self, outside: Shards) -> Running {
        let state = self.state.lock();
        let taken = |at: &Destination| {
            let taken = state.held.as_ref().and_then(|held| held.taken.get(at));
            taken.map_or(0, |slots| u32::try_from(slots.len()).unwrap_or(u32::MAX))
        };
        let elsewhere = state.known.iter().filter(|(at, _)| !outside.contains(Shards::of_pod(at)));
        let own = elsewhere.map(|(at, pod)| (at.clone(), pod.in_flight().saturating_sub(taken(at))));
        own.filter(|(_, count)| *count > 0).collect()
    }
}

impl Throttler {
    /// Changes the state and applies the consequences in the order that the module documentation gives. Wakes no waiter
    /// under the lock.
    fn change<T>(&self, change: impl FnOnce(&mut ThrottlerState) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let snapshot = Arc::new(state.snapshot());
        state.known.values().for_each(|pod| pod.set_retired(!snapshot.targets.contains(pod)));
        let capacity = state.capacity(&snapshot.targets);
        let lowered = capacity.permits() < self.breaker.capacity().permits();
        if lowered {
            self.breaker.store_capacity(capacity);
        }
        self.snapshot.store(snapshot);
        // Waiters get permits even if capacity was lowered: the former capacity may not have been used up.
        let waiters = self.breaker.store_capacity(capacity);
        drop(state);
        if waiters {
            self.breaker.grant();
        }
        result
    }

    /// Removes the permit that was added for a request on a retired pod. Wakes no waiter, since this only lowers
    /// capacity.
    fn retired_slot_ended(&self) {
        let state = self.state.lock();
        self.breaker.store_capacity(state.capacity(&self.snapshot.load().targets));
        let ended = state.held.as_ref().map(|held| Arc::clone(&held.ended));
        drop(state);
        if let Some(ended) = ended {
            ended.ended();
        }
    }
}

// === impl State ===

impl ThrottlerState {
    fn refusal_now(&self) -> Option<AdmissionError> {
        self.refusal.clone().or_else(|| self.elsewhere.then_some(AdmissionError::Elsewhere))
    }

    /// Returns the pods to pick from, and forgets pods that are no longer referenced.
    fn snapshot(&mut self) -> Snapshot {
        self.known.retain(|_, pod| Arc::strong_count(pod) > 1);
        let shards = self.held.as_ref().filter(|_| self.concurrency > 0).map(|held| held.shards);
        let mut is_cold = None;
        let targets = match &self.listed {
            Destinations::ClusterIp { destination, .. } => {
                Targets::ClusterIp(tracker(&mut self.known, &self.throttler, destination))
            }
            Destinations::Pods(pods) => {
                let is_divided = self.concurrency > 0 && shards.is_none();
                let activators = if is_divided { self.activators } else { Activators::Unknown };
                let usable =
                    assign(pods.len(), activators).map(|at| &pods[at]).filter(|pod| !self.failed.contains(pod));
                let usable: Vec<&Destination> = usable.collect();
                is_cold = shards.map(|_| usable.is_empty());
                let is_own = |pod: &&Destination| shards.is_none_or(|shards| shards.contains(Shards::of_pod(pod)));
                let own = usable.into_iter().filter(is_own);
                Targets::Pods(own.map(|pod| tracker(&mut self.known, &self.throttler, pod)).collect())
            }
        };
        Snapshot { policy: Policy::for_concurrency(self.concurrency, shards.is_some()), targets, is_cold }
    }

    /// Returns the capacity of the pods in use, without the slots of siblings, plus the requests that still run on
    /// retired pods: a long request on a removed pod takes nothing from the new pods.
    fn capacity(&self, targets: &Targets) -> Capacity {
        let retired = |pod: &&Arc<PodTracker>| pod.is_retired();
        let retired: u32 = self.known.values().filter(retired).map(|pod| pod.in_flight()).sum();
        let slots = self.held.iter().flat_map(|held| held.taken.values()).map(Vec::len).sum::<usize>();
        let taken = u32::try_from(slots).unwrap_or(u32::MAX);
        match self.pod_capacity(targets) {
            // A slot that siblings use of a retired pod counts as a request that runs there.
            Capacity::Limited(permits) if permits > 0 => {
                Capacity::Limited(permits.saturating_add(retired).saturating_sub(taken))
            }
            other => other,
        }
    }

    /// Returns the number of requests that the pods in use can run; closed without pods.
    fn pod_capacity(&self, targets: &Targets) -> Capacity {
        let (assigned, backends) = match (targets, &self.listed) {
            (Targets::Pods(pods), _) => (pods.len(), pods.len()),
            (Targets::ClusterIp(_), Destinations::ClusterIp { ready, .. }) => (0, *ready as usize),
            (Targets::ClusterIp(_), Destinations::Pods(_)) => return Capacity::CLOSED,
        };
        let permits = capacity(CapacityInputs {
            container_concurrency: self.concurrency,
            backends: i64::try_from(backends).unwrap_or(UNLIMITED_CAPACITY),
            assigned: u32::try_from(assigned).unwrap_or(u32::MAX),
            activators: self.activators.count().unwrap_or(0),
        });
        match (self.concurrency, u32::try_from(permits)) {
            (_, Err(_) | Ok(0)) => Capacity::CLOSED,
            (0, Ok(_)) => Capacity::Unlimited,
            (_, Ok(permits)) => Capacity::Limited(permits),
        }
    }
}

/// Returns the tracker of the pod at a destination, and creates it if there is none.
fn tracker(
    pods: &mut BTreeMap<Destination, Arc<PodTracker>>,
    throttler: &Weak<Throttler>,
    at: &Destination,
) -> Arc<PodTracker> {
    Arc::clone(pods.entry(at.clone()).or_insert_with(|| PodTracker::new(at.clone(), Weak::clone(throttler))))
}

impl Targets {
    fn contains(&self, pod: &Arc<PodTracker>) -> bool {
        match self {
            Self::Pods(pods) => pods.iter().any(|other| Arc::ptr_eq(other, pod)),
            Self::ClusterIp(only) => Arc::ptr_eq(only, pod),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
