//! Model of an activator's throttler: its running requests and free slots, with one limit for each pod.

use super::world::Request;
use activator_core::Destination;
use activator_core::holders::{Lots, Pods, Running};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

#[derive(Debug)]
pub(super) struct Throttler(Mutex<ThrottlerState>);

#[derive(Debug)]
struct ThrottlerState {
    limit: u32,
    usable: BTreeSet<Destination>,
    lots: Lots,
    taken: Running,
    running: BTreeMap<Request, Destination>,
}

impl Throttler {
    pub(super) fn new(limit: u32) -> Self {
        let state = ThrottlerState {
            limit,
            usable: BTreeSet::new(),
            lots: Lots::NONE,
            taken: Running::new(),
            running: BTreeMap::new(),
        };
        Self(Mutex::new(state))
    }

    fn with<T>(&self, what: impl FnOnce(&mut ThrottlerState) -> T) -> T {
        what(&mut self.0.lock().expect("nobody panics"))
    }

    /// Sets the pods that may receive requests.
    pub(super) fn set_usable(&self, usable: BTreeSet<Destination>) {
        self.with(|state| state.usable = usable);
    }

    /// Returns the pods with a free slot.
    pub(super) fn free(&self) -> Vec<Destination> {
        self.with(|state| {
            let mut used = state.taken.clone();
            state.running.values().for_each(|pod| *used.entry(pod.clone()).or_default() += 1);
            let free = |pod: &&Destination| {
                state.lots.contains(Lots::of_pod(pod)) && used.get(*pod).copied().unwrap_or_default() < state.limit
            };
            state.usable.iter().filter(free).cloned().collect()
        })
    }

    pub(super) fn begin(&self, request: Request, pod: Destination) {
        self.with(|state| state.running.insert(request, pod));
    }

    /// Ends a request. Returns true if another activator holds the pod.
    pub(super) fn end(&self, request: Request) -> bool {
        self.with(|state| state.running.remove(&request).is_some_and(|pod| !state.lots.contains(Lots::of_pod(&pod))))
    }

    /// Returns the requests that run on pods of these lots.
    pub(super) fn within(&self, lots: Lots) -> Vec<Request> {
        self.with(|state| {
            let of = state.running.iter().filter(|(_, pod)| lots.contains(Lots::of_pod(pod)));
            of.map(|(request, _)| *request).collect()
        })
    }

    pub(super) fn in_flight(&self) -> usize {
        self.with(|state| state.running.len())
    }
}

impl Pods for Throttler {
    fn hold(&self, lots: Lots, taken: &Running) {
        self.with(|state| (state.lots, state.taken) = (lots, taken.clone()));
    }

    fn running(&self, outside: Lots) -> Running {
        self.with(|state| {
            let mut running = Running::new();
            for pod in state.running.values().filter(|pod| !outside.contains(Lots::of_pod(pod))) {
                *running.entry(pod.clone()).or_default() += 1;
            }
            running
        })
    }
}
