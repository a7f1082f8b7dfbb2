//! Model of an activator's throttler: its running requests and free slots, with one limit for each pod.

use super::world::RequestId;
use activator_core::Destination;
use activator_core::holders::{Pods, Running, Shards};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

#[derive(Debug)]
pub(super) struct Throttler(Mutex<ThrottlerState>);

#[derive(Debug)]
struct ThrottlerState {
    limit: u32,
    usable: BTreeSet<Destination>,
    shards: Shards,
    taken: Running,
    running: BTreeMap<RequestId, Destination>,
}

impl Throttler {
    pub(super) fn new(limit: u32) -> Self {
        let state = ThrottlerState {
            limit,
            usable: BTreeSet::new(),
            shards: Shards::NONE,
            taken: Running::new(),
            running: BTreeMap::new(),
        };
        Self(Mutex::new(state))
    }

    fn with<T>(&self, run: impl FnOnce(&mut ThrottlerState) -> T) -> T {
        run(&mut self.0.lock().expect("nobody panics"))
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
                state.shards.contains(Shards::of_pod(pod)) && used.get(*pod).copied().unwrap_or_default() < state.limit
            };
            state.usable.iter().filter(free).cloned().collect()
        })
    }

    pub(super) fn begin(&self, request: RequestId, pod: Destination) {
        self.with(|state| state.running.insert(request, pod));
    }

    /// Ends a request. Returns true if another activator holds the pod.
    pub(super) fn end(&self, request: RequestId) -> bool {
        self.with(|state| {
            state.running.remove(&request).is_some_and(|pod| !state.shards.contains(Shards::of_pod(&pod)))
        })
    }

    /// Returns the requests that run on pods of these shards.
    pub(super) fn within(&self, shards: Shards) -> Vec<RequestId> {
        self.with(|state| {
            let running = state.running.iter().filter(|(_, pod)| shards.contains(Shards::of_pod(pod)));
            running.map(|(request, _)| *request).collect()
        })
    }

    pub(super) fn in_flight(&self) -> usize {
        self.with(|state| state.running.len())
    }
}

impl Pods for Throttler {
    fn hold(&self, shards: Shards, taken: &Running) {
        self.with(|state| (state.shards, state.taken) = (shards, taken.clone()));
    }

    fn running(&self, outside: Shards) -> Running {
        self.with(|state| {
            let mut running = Running::new();
            for pod in state.running.values().filter(|pod| !outside.contains(Shards::of_pod(pod))) {
                *running.entry(pod.clone()).or_default() += 1;
            }
            running
        })
    }
}
