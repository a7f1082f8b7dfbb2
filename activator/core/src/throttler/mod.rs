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
//! # Shared pods
//!
//! Several activators divide the pods ([`assign`]), or share them all under one limit ([`Throttler::share`]): then a slot
//! is laid out before the place for it is made, and the place goes with it, as on a retired pod ([`shared`]).
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

mod open;
mod permit;
mod pod;
mod policy;
mod shared;
mod subset;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use self::open::OpenPods;
pub use self::permit::{Acquire, Admitted, Permit};
use self::pod::PodTracker;
pub use self::policy::ContainerConcurrency;
use self::policy::Policy;
use self::shared::Shared;
pub use self::shared::{Before, NOTICED_AFTER, Siblings};
pub use self::subset::{CapacityInputs, Slice, UNLIMITED_PLACES, assign, capacity};
use crate::breaker::{AdmissionError, Breaker, Capacity, Load, TurnedAway};
use crate::destination::{Destination, Destinations};
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
    /// Whether slots are granted by what follows.
    is_shared: AtomicBool,
    /// Own pods of whose slots any request takes one, while nobody waits.
    open: OpenPods,
    shared: Mutex<Option<Box<Shared>>>,
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
    /// Slots are laid out for those who have a place.
    is_shared: bool,
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
    /// All that are listed, proven or not.
    addresses: BTreeSet<Destination>,
    failed: BTreeSet<Destination>,
    /// Every pod somebody still refers to.
    known: BTreeMap<Destination, Arc<PodTracker>>,
    /// For pods to report that a request on them has ended after they were taken out.
    inner: Weak<Inner>,
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
        let snapshot = Snapshot { policy: Policy::of(concurrency), targets, is_shared: false };
        let inner = |inner: &Weak<Inner>| Inner {
            breaker: Breaker::new(Capacity::CLOSED, max_held),
            snapshot: ArcSwap::from_pointee(snapshot),
            cursor: Cursor(AtomicUsize::new(0)),
            state: Mutex::new(State {
                concurrency,
                activators: Activators::Unknown,
                listed: Destinations::NONE,
                addresses: BTreeSet::new(),
                failed: BTreeSet::new(),
                known: BTreeMap::new(),
                inner: Weak::clone(inner),
            }),
            is_shared: AtomicBool::new(false),
            open: OpenPods::default(),
            shared: Mutex::new(None),
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
        self.inner.breaker.refuse_waiting(refusal);
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

    /// In flight, queued and capacity at one instant; where pods are shared, the capacity of all of them. Not for every
    /// request: see [`Breaker::load`].
    pub fn load(&self) -> Load {
        let load = self.inner.breaker.load();
        let shared = self.inner.is_shared().then(|| self.inner.state.lock());
        let capacity = shared.map(|state| state.places(&self.inner.snapshot.load().targets));
        Load { capacity: capacity.unwrap_or(load.capacity), ..load }
    }

    /// Whether no pod can be sent to.
    pub fn is_cold(&self) -> bool {
        match self.inner.is_shared() {
            true => matches!(&self.inner.snapshot.load().targets, Targets::Pods(pods) if pods.is_empty()),
            false => self.inner.breaker.capacity() == Capacity::CLOSED,
        }
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

// === impl Inner ===

impl Inner {
    /// Changes the state and makes what follows from it effective, in the order that the module's text gives. Nobody is
    /// woken under the lock.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let is_shared = self.is_to_be_shared(&mut state);
        let snapshot = Arc::new(state.snapshot(is_shared));
        if is_shared {
            if !self.is_shared.swap(true, Ordering::SeqCst) {
                self.breaker.store_capacity(Capacity::CLOSED);
            }
            state.known.values().for_each(|pod| pod.set_retired(true));
            self.snapshot.store(snapshot);
            self.set_shared_pods(&state, true);
            drop(state);
            self.settle();
            return result;
        }
        let laid_out = self.is_shared.swap(false, Ordering::SeqCst).then(|| self.set_shared_pods(&state, false));
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
        drop(laid_out);
        result
    }

    /// A request on a retired pod has ended: the place that was added for it goes. Wakes nobody, since it only lowers,
    /// unless pods are shared.
    fn retired_slot_ended(&self, pod: &PodTracker) {
        if self.is_shared() {
            return self.shared_slot_ended(pod);
        }
        let state = self.state.lock();
        self.breaker.store_capacity(state.capacity(&self.snapshot.load().targets));
    }

    fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::SeqCst)
    }
}

// === impl State ===

impl State {
    /// The pods to pick from. Pods that nobody refers to any longer are forgotten.
    fn snapshot(&mut self, is_shared: bool) -> Snapshot {
        self.known.retain(|_, pod| Arc::strong_count(pod) > 1);
        let targets = match &self.listed {
            Destinations::ClusterIp { destination, .. } => {
                Targets::ClusterIp(known(&mut self.known, &self.inner, destination))
            }
            Destinations::Pods(pods) => {
                let share = match self.concurrency {
                    ContainerConcurrency::Limited(_) if !is_shared => assign(pods.len(), self.activators),
                    _ => assign(pods.len(), Activators::Unknown),
                };
                let usable = share.positions().map(|at| &pods[at]).filter(|pod| !self.failed.contains(pod));
                Targets::Pods(usable.map(|pod| known(&mut self.known, &self.inner, pod)).collect())
            }
        };
        Snapshot { policy: Policy::of(self.concurrency), targets, is_shared }
    }

    /// Tells every known pod whether it is still in use.
    fn mark_retired(&self, targets: &Targets) {
        self.known.values().for_each(|pod| pod.set_retired(!targets.contains(pod)));
    }

    /// What the pods in use can run, and as much as still runs on retired ones: a long request on a pod that is leaving
    /// takes nothing from those that came.
    fn capacity(&self, targets: &Targets) -> Capacity {
        let retired = |pod: &&Arc<PodTracker>| pod.is_retired();
        let retired: u32 = self.known.values().filter(retired).map(|pod| pod.in_flight()).sum();
        match self.places(targets) {
            Capacity::Limited(places) if places > 0 => Capacity::Limited(places.saturating_add(retired)),
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
