//! The throttler: one revision's pods, and which request goes to which.
//!
//! # The rule
//!
//! A request first gets a place in the revision's [breaker](crate::breaker), whose capacity is what this activator's
//! pods can run ([`assign`], [`capacity`]), then a pod by a [policy] that follows from the container
//! concurrency. With a container concurrency each pod has as many slots, and no pod ever sees more from this activator.
//!
//! # A place means a pod
//!
//! Free slots on the assigned pods are never fewer than free and unused places, because every request that holds a
//! slot holds a place, and the two totals are changed in an order that keeps it so: pods are swapped in before capacity
//! is raised, and capacity is lowered before pods are swapped out. Only a request that was admitted before its pods
//! were taken away can find none; it goes to the head of the queue and is woken when there is one again. It never
//! spins.
//!
//! # Odd cases
//!
//! - A request on a pod that was taken out keeps its place, and capacity is raised by as many: it ends where it runs,
//!   and takes nothing from the pods that came. When it ends, that capacity goes with it.
//! - A pod that comes back while requests still run on it has kept its count.
//! - [`Throttler::mark_failed`] takes a pod out at once, until [`Throttler::restore`] or until an update no longer
//!   lists it. An update that still lists it, made before the failure was known, does not bring it back.
//! - Behind a cluster IP there is one destination without slots; capacity is the ready pods' share.
//! - Shares are computed over all listed pods, and failed ones then left out, so that one activator's bad luck does not
//!   shift the shares of the others.
//! - No pods: the breaker is closed and everyone waits.
//!
//! # Several activators
//!
//! They divide the pods ([`assign`]), or hold them by their lots ([`Pods`], [`crate::holders`]): then pods of other lots are
//! as those that have left, and slots that siblings still use are taken here, too, until they are said to be free.
//! Whoever took a slot of a pod that was given up at that instant sees it, gives the slot back and looks again: so what
//! [`Pods::running`] counts after [`Pods::hold`] is all that will ever run there.
//!
//! # Better than Knative
//!
//! Knative's breaker counts requests on pods that have left against those that came, so one long request can block a
//! replaced pod's successor. Nothing spins between a place and a pod; an empty list does not panic; a failing pod is
//! left at once; the limit and the policy may change while requests run.
//!
//! # Not here
//!
//! Which pods are healthy ([`crate::backends`]), deadlines, and sending.

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

pub use self::permit::{Acquire, Admitted, Permit};
use self::pod::{PodTracker, Slot};
pub use self::policy::ContainerConcurrency;
use self::policy::Policy;
pub use self::subset::{CapacityInputs, Slice, UNLIMITED_PLACES, assign, capacity};
use crate::breaker::{AdmissionError, Breaker, Capacity, Load, TurnedAway};
use crate::destination::{Destination, Destinations};
use crate::holders::{Lots, Pods, Running};
use crate::own_index::Activators;

/// One revision's admission and load balancing. Cheap to clone; clones are the same.
#[derive(Clone, Debug)]
pub struct Throttler {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    breaker: Breaker,
    snapshot: ArcSwap<Snapshot>,
    cursor: Cursor,
    state: Mutex<State>,
}

/// Told when a request has ended on a pod that is not used any more. Must not call the throttler.
pub trait Ended: Send + Sync {
    /// One has.
    fn ended(&self);
}

/// Round robin's place among the pods, on a line apart from what every request reads and none writes.
#[derive(Debug)]
#[repr(align(64))]
struct Cursor(AtomicUsize);

/// What picks work on: immutable, swapped whole.
#[derive(Debug)]
struct Snapshot {
    policy: Policy,
    targets: Targets,
    /// Whether no pod can be sent to by anybody, where lots are held.
    is_cold: Option<bool>,
}

#[derive(Debug)]
enum Targets {
    /// The assigned pods that have not failed, sorted.
    Pods(Vec<Arc<PodTracker>>),
    ClusterIp(Arc<PodTracker>),
}

/// What snapshots are made of. Changed under its lock, one change at a time.
#[derive(Debug)]
struct State {
    concurrency: ContainerConcurrency,
    activators: Activators,
    listed: Destinations,
    failed: BTreeSet<Destination>,
    /// Every pod somebody still refers to.
    known: BTreeMap<Destination, Arc<PodTracker>>,
    /// For pods to report that a request on them has ended after they were taken out.
    inner: Weak<Inner>,
    held: Option<Held>,
    /// Why nobody may wait, and whether others have all pods.
    refusal: Option<AdmissionError>,
    elsewhere: bool,
}

/// Lots that this activator holds, while one limit is kept by several.
struct Held {
    lots: Lots,
    /// Slots that siblings use of its pods.
    taken: BTreeMap<Destination, Vec<Slot>>,
    ended: Arc<dyn Ended>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("lots", &self.lots).field("taken", &self.taken).finish_non_exhaustive()
    }
}

/// One pod's state, for people to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLoad {
    /// Its address.
    pub destination: Destination,
    /// Requests of this activator on it.
    pub in_flight: u32,
    /// Whether it may be picked: listed, assigned and not failed.
    pub usable: bool,
}

// === impl Throttler ===

impl Throttler {
    /// A throttler without pods: everyone waits, at most `max_held` at once.
    pub fn new(concurrency: ContainerConcurrency, max_held: u32) -> Self {
        let targets = Targets::Pods(Vec::new());
        let snapshot = Snapshot { policy: Policy::of(concurrency), targets, is_cold: None };
        let inner = |inner: &Weak<Inner>| Inner {
            breaker: Breaker::new(Capacity::CLOSED, max_held),
            snapshot: ArcSwap::from_pointee(snapshot),
            cursor: Cursor(AtomicUsize::new(0)),
            state: Mutex::new(State {
                concurrency,
                activators: Activators::Unknown,
                listed: Destinations::NONE,
                failed: BTreeSet::new(),
                known: BTreeMap::new(),
                inner: Weak::clone(inner),
                held: None,
                refusal: None,
                elsewhere: false,
            }),
        };
        Self { inner: Arc::new_cyclic(inner) }
    }

    /// Waits for a place, in order of arrival.
    pub fn acquire(&self) -> Acquire {
        Acquire::new(Arc::clone(&self.inner))
    }

    /// Takes over a new set of destinations.
    pub fn update(&self, destinations: Destinations) {
        self.inner.change(|state| {
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

    /// Takes over this activator's place among the revision's activators.
    pub fn set_activators(&self, activators: Activators) {
        self.inner.change(|state| state.activators = activators);
    }

    /// Changes how many requests a pod may run at once. Running ones are not interrupted.
    pub fn set_concurrency(&self, concurrency: ContainerConcurrency) {
        self.inner.change(|state| state.concurrency = concurrency);
    }

    /// Changes how many requests may wait. Those who wait already stay.
    pub fn set_max_held(&self, max_held: u32) {
        self.inner.breaker.set_queue_limit(max_held);
    }

    /// While `Some`, whoever waits or would have to is refused. See [`Breaker::refuse_waiting`].
    pub fn refuse_waiting(&self, refusal: Option<AdmissionError>) {
        let mut state = self.inner.state.lock();
        state.refusal = refusal;
        self.inner.breaker.refuse_waiting(state.refusal_now());
    }

    /// While `elsewhere`, others have all pods: whoever waits or would have to is refused, to be relayed.
    pub fn send_elsewhere(&self, elsewhere: bool) {
        let mut state = self.inner.state.lock();
        if std::mem::replace(&mut state.elsewhere, elsewhere) != elsewhere {
            self.inner.breaker.refuse_waiting(state.refusal_now());
        }
    }

    /// Takes a pod out at once, after a refused connection or unacknowledged bytes. Says whether that changed anything.
    /// A cluster IP stays: there is nothing else to send to.
    pub fn mark_failed(&self, destination: &Destination) -> bool {
        self.inner.change(|state| match &state.listed {
            Destinations::Pods(pods) if pods.binary_search(destination).is_ok() => {
                state.failed.insert(destination.clone())
            }
            _ => false,
        })
    }

    /// Brings back a pod that had failed. Says whether that changed anything.
    pub fn restore(&self, destination: &Destination) -> bool {
        self.inner.change(|state| state.failed.remove(destination))
    }

    /// In flight, queued and capacity at one instant. Not for every request: see [`Breaker::load`].
    pub fn load(&self) -> Load {
        self.inner.breaker.load()
    }

    /// Whether no pod can be sent to, by whichever activator.
    pub fn is_cold(&self) -> bool {
        let is_cold = self.inner.snapshot.load().is_cold;
        is_cold.unwrap_or_else(|| self.inner.breaker.capacity() == Capacity::CLOSED)
    }

    /// From now on it sends to pods of the lots that it is said to hold, at first none, until [`Throttler::divide`].
    pub fn hold_lots(&self, ended: Arc<dyn Ended>) {
        let taken = BTreeMap::new();
        self.inner.change(|state| state.held = Some(Held { lots: Lots::NONE, taken, ended }));
    }

    /// Whether it goes by lots.
    pub fn holds_lots(&self) -> bool {
        self.inner.snapshot.load().is_cold.is_some()
    }

    /// Ends that: what runs, runs on, and the pods are divided as they were.
    pub fn divide(&self) {
        let former = self.inner.change(|state| state.held.take());
        if former.is_some_and(|held| !held.taken.is_empty()) {
            self.inner.change(|_| ()); // Their slots are free now.
        }
    }

    /// Whether it is the same, or a clone of it.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Refused and abandoned so far.
    pub fn turned_away(&self) -> TurnedAway {
        self.inner.breaker.turned_away()
    }

    /// Every pod that may be picked or still runs something, in order.
    pub fn pods(&self) -> Vec<PodLoad> {
        let state = self.inner.state.lock();
        let snapshot = self.inner.snapshot.load();
        let load = |pod: &Arc<PodTracker>| PodLoad {
            destination: pod.destination.clone(),
            in_flight: pod.in_flight(),
            usable: snapshot.targets.contains(pod),
        };
        state.known.values().map(load).filter(|pod| pod.usable || pod.in_flight > 0).collect()
    }
}

impl Pods for Throttler {
    fn hold(&self, lots: Lots, taken: &Running) {
        let former = self.inner.change(|state| {
            let State { held: Some(held), known: pods, inner, .. } = state else { return None };
            held.lots = lots;
            let former = std::mem::take(&mut held.taken);
            for (at, count) in taken {
                let pod = known(pods, inner, at);
                held.taken.insert(at.clone(), (0..*count).map(|_| pod.reserve()).collect());
            }
            Some(former)
        });
        // Outside the lock, that of their ends. Then there is room for others.
        if former.is_some_and(|former| !former.is_empty()) {
            self.inner.change(|_| ());
        }
    }

    fn running(&self, beside: Lots) -> Running {
        let state = self.inner.state.lock();
        let taken = |at: &Destination| {
            let taken = state.held.as_ref().and_then(|held| held.taken.get(at));
            taken.map_or(0, |slots| u32::try_from(slots.len()).unwrap_or(u32::MAX))
        };
        let elsewhere = state.known.iter().filter(|(at, _)| !beside.contains(Lots::of(at)));
        let own = elsewhere.map(|(at, pod)| (at.clone(), pod.in_flight().saturating_sub(taken(at))));
        own.filter(|(_, count)| *count > 0).collect()
    }
}

// === impl Inner ===

impl Inner {
    /// Changes the state and makes what follows from it effective, in the order that the module's text gives. Nobody is
    /// woken under the lock.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let snapshot = Arc::new(state.snapshot());
        state.mark_retired(&snapshot.targets);
        let capacity = state.capacity(&snapshot.targets);
        let lowered = capacity.places() < self.breaker.capacity().places();
        if lowered {
            self.breaker.store_capacity(capacity);
        }
        self.snapshot.store(snapshot);
        // Waiters get places from what was lowered too: the one before may not have been used up.
        let waiters = self.breaker.store_capacity(capacity);
        drop(state);
        if waiters {
            self.breaker.grant();
        }
        result
    }

    /// A request on a retired pod has ended: the place that was added for it goes. Wakes nobody, since it only lowers.
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

impl State {
    fn refusal_now(&self) -> Option<AdmissionError> {
        self.refusal.clone().or_else(|| self.elsewhere.then_some(AdmissionError::Elsewhere))
    }

    /// The pods to pick from. Pods that nobody refers to any longer are forgotten.
    fn snapshot(&mut self) -> Snapshot {
        self.known.retain(|_, pod| Arc::strong_count(pod) > 1);
        let lots = match self.concurrency {
            ContainerConcurrency::Limited(_) => self.held.as_ref().map(|held| held.lots),
            ContainerConcurrency::Unlimited => None,
        };
        let mut is_cold = None;
        let targets = match &self.listed {
            Destinations::ClusterIp { destination, .. } => {
                Targets::ClusterIp(known(&mut self.known, &self.inner, destination))
            }
            Destinations::Pods(pods) => {
                let share = match self.concurrency {
                    ContainerConcurrency::Limited(_) if lots.is_none() => assign(pods.len(), self.activators),
                    _ => assign(pods.len(), Activators::Unknown),
                };
                let usable = share.positions().map(|at| &pods[at]).filter(|pod| !self.failed.contains(pod));
                let usable: Vec<&Destination> = usable.collect();
                is_cold = lots.map(|_| usable.is_empty());
                let own = usable.into_iter().filter(|pod| lots.is_none_or(|lots| lots.contains(Lots::of(pod))));
                Targets::Pods(own.map(|pod| known(&mut self.known, &self.inner, pod)).collect())
            }
        };
        let policy = if lots.is_some() { Policy::in_turn(self.concurrency) } else { Policy::of(self.concurrency) };
        Snapshot { policy, targets, is_cold }
    }

    /// Tells every known pod whether it is still in use.
    fn mark_retired(&self, targets: &Targets) {
        self.known.values().for_each(|pod| pod.set_retired(!targets.contains(pod)));
    }

    /// What the pods in use can run, without what siblings run there, and as much as still runs on retired ones: a long
    /// request on a pod that is leaving takes nothing from those that came.
    fn capacity(&self, targets: &Targets) -> Capacity {
        let retired = |pod: &&Arc<PodTracker>| pod.is_retired();
        let retired: u32 = self.known.values().filter(retired).map(|pod| pod.in_flight()).sum();
        let slots = self.held.iter().flat_map(|held| held.taken.values()).map(Vec::len).sum::<usize>();
        let taken = u32::try_from(slots).unwrap_or(u32::MAX);
        match self.places(targets) {
            // What is taken of a retired pod counts as what runs there.
            Capacity::Limited(places) if places > 0 => {
                Capacity::Limited(places.saturating_add(retired).saturating_sub(taken))
            }
            other => other,
        }
    }

    /// What the pods in use can run; no pods come to none.
    fn places(&self, targets: &Targets) -> Capacity {
        let (assigned, backends) = match (targets, &self.listed) {
            (Targets::Pods(pods), _) => (pods.len(), pods.len()),
            (Targets::ClusterIp(_), Destinations::ClusterIp { ready, .. }) => (0, *ready as usize),
            (Targets::ClusterIp(_), Destinations::Pods(_)) => return Capacity::CLOSED,
        };
        let places = capacity(CapacityInputs {
            container_concurrency: self.concurrency.to_number(),
            backends: i64::try_from(backends).unwrap_or(UNLIMITED_PLACES),
            assigned: u32::try_from(assigned).unwrap_or(u32::MAX),
            activators: self.activators.count().unwrap_or(0),
        });
        match (self.concurrency, u32::try_from(places)) {
            (_, Err(_) | Ok(0)) => Capacity::CLOSED,
            (ContainerConcurrency::Unlimited, Ok(_)) => Capacity::Unlimited,
            (ContainerConcurrency::Limited(_), Ok(places)) => Capacity::Limited(places),
        }
    }
}

/// The pod at a destination, with the count it has.
fn known(pods: &mut BTreeMap<Destination, Arc<PodTracker>>, inner: &Weak<Inner>, at: &Destination) -> Arc<PodTracker> {
    Arc::clone(pods.entry(at.clone()).or_insert_with(|| PodTracker::new(at.clone(), Weak::clone(inner))))
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
