//! Pods whose slots several activators share: the throttler's part in it. Whose slots are whose, [`crate::slots`] says.
//!
//! # The rule
//!
//! While pods are shared, capacity is what has been granted: every slot that a request has, and every one that is laid out
//! for the head of the queue. A request finds no place, stands in line, and is told to the [`Pool`] as one more that waits;
//! when the pool has a slot, own or borrowed, the slot is laid out, there is one place more, and whoever is woken takes it.
//! So a request without a wait costs no message and no look at all pods, but the lock of its revision.
//!
//! # Nothing is left over
//!
//! [`Inner::settle`] makes things agree after everything that a request can do: as many are told to wait as do, as many
//! slots are in use as the pods' own counts say, and a slot that was laid out for a request that has left goes back. A
//! request on a pod tells its end as on a retired one ([`super::pod`]), whenever it began; so those that run when sharing
//! begins are counted from then on.
//!
//! A request that took its pod while sharing began looks again after it has it: either it sees that pods are shared now,
//! and gives the slot back, or it was counted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::pod::{PodTracker, Slot};
use super::{ContainerConcurrency, Inner, State, Throttler};
use crate::breaker::{Breaker, Capacity};
use crate::destination::{Destination, Destinations};
use crate::slots::{Input, Message, Output, Peer, Peers, Pool, Request};

/// What sharing needs of the world. Called under the revision's lock: must not block, nor call the throttler.
pub trait Siblings: fmt::Debug + Send + Sync {
    /// The time.
    fn now(&self) -> Instant;
    /// Which siblings are in touch.
    fn peers(&self) -> Arc<Peers>;
    /// Sends a message about this revision on the present session, after all that was sent there before.
    fn send(&self, to: &Peer, message: Message);
    /// All requests of this activator on that pod must end at once.
    fn cut(&self, pod: &Destination);
    /// [`Throttler::tell`] is to be called with [`Input::Tick`] then.
    fn due(&self, at: Instant);
}

/// How an activator came to share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// It knew of the revision's pods from the first on, and none has been listed yet.
    NoPods,
    /// It was the only one for so long.
    Alone(Instant),
    /// Others may have sent to the pods.
    Others,
}

/// A revision's pods while they are shared.
#[derive(Debug)]
pub(super) struct Shared {
    pool: Pool,
    siblings: Arc<dyn Siblings>,
    inner: Weak<Inner>,
    /// Slots are granted. Not behind a cluster IP, where there are no pods to grant on, nor without a limit.
    active: bool,
    /// Those that may be sent to, and those that something runs on.
    pods: BTreeMap<Destination, InUse>,
    /// Told to the pool and without a slot, in order of arrival.
    waiting: VecDeque<Request>,
    /// Slots that nobody has taken yet.
    laid_out: Vec<Slot>,
    /// Slots of all pods.
    granted: u32,
    requests: u64,
}

/// A pod, and the slots that are in use there.
#[derive(Debug)]
struct InUse {
    pod: Arc<PodTracker>,
    running: Vec<Request>,
}

impl Throttler {
    /// From now on the pods' slots are shared with `siblings`, by what `pool` says; until [`Throttler::unshare`]. Only
    /// with a limit, and what the pool is told of pods comes from [`Throttler::update`] and [`Throttler::set_addresses`].
    pub fn share(&self, siblings: Arc<dyn Siblings>, pool: Pool, before: Before) {
        let now = siblings.now();
        let mut shared = Shared {
            pool,
            siblings,
            inner: Arc::downgrade(&self.inner),
            active: false,
            pods: BTreeMap::new(),
            waiting: VecDeque::new(),
            laid_out: Vec::new(),
            granted: 0,
            requests: 0,
        };
        {
            let state = self.inner.state.lock();
            match before {
                Before::NoPods => shared.tell_at(Input::Pods(BTreeMap::new()), now),
                Before::Alone(since) => {
                    shared.tell_at(Input::Pods(state.shared_pods()), since);
                    // They are its own before anybody else has a say.
                    shared.tell_at(Input::Tick, now);
                }
                Before::Others => {}
            }
            *self.inner.shared.lock() = Some(Box::new(shared));
        }
        self.inner.change(|_| ());
    }

    /// Ends that: what runs, runs on, and the pods are divided as they were.
    pub fn unshare(&self) {
        let former = {
            let _state = self.inner.state.lock();
            let mut shared = self.inner.shared.lock();
            self.inner.is_shared.store(false, Ordering::SeqCst);
            shared.take()
        };
        self.inner.change(|_| ());
        if former.is_some_and(|shared| !shared.laid_out.is_empty()) {
            self.inner.change(|_| ()); // Those slots are free now.
        }
    }

    /// Whether pods are shared.
    pub fn is_shared(&self) -> bool {
        self.inner.is_shared.load(Ordering::SeqCst)
    }

    /// Whether sharing is of no use any more: nobody else is there, and all pods are this activator's.
    pub fn is_alone(&self) -> bool {
        let shared = self.inner.shared.lock();
        shared.as_ref().is_none_or(|shared| shared.pool.is_alone(&shared.siblings.peers(), shared.siblings.now()))
    }

    /// Something has happened among siblings, or time has passed. Nothing where pods are not shared.
    pub fn tell(&self, input: Input) {
        self.inner.with_shared(|shared| {
            let now = shared.siblings.now();
            shared.tell_at(input, now);
        });
    }

    /// All addresses that are listed for the revision, whether they may be sent to or not.
    pub fn set_addresses(&self, addresses: BTreeSet<Destination>) {
        self.inner.state.lock().addresses = addresses;
        if self.is_shared() {
            self.inner.change(|_| ());
        }
    }

    /// Every pod's slots as this activator knows them. Empty where pods are not shared.
    pub fn shared_pods(&self) -> Vec<(Destination, crate::slots::PodState)> {
        let shared = self.inner.shared.lock();
        let states = shared.as_ref().map(|shared| shared.pool.pods().map(|(at, state)| (at.clone(), state)).collect());
        states.unwrap_or_default()
    }
}

impl Inner {
    /// Does something with what is shared, makes everything agree, and wakes whoever has a place now.
    pub(super) fn with_shared(&self, what: impl FnOnce(&mut Shared)) {
        let back = {
            let mut guard = self.shared.lock();
            let Some(shared) = guard.as_mut() else { return };
            what(shared);
            shared.settle(&self.breaker)
        };
        self.breaker.grant();
        drop(back);
    }

    /// Makes everything agree with what requests have done.
    pub(super) fn settle(&self) {
        self.with_shared(|_| ());
    }

    /// A request on this pod has ended.
    pub(super) fn shared_slot_ended(&self, pod: &PodTracker) {
        self.with_shared(|shared| {
            let now = shared.siblings.now();
            shared.count(&pod.destination, now);
        });
    }

    /// One of the slots that are laid out.
    pub(super) fn take_laid_out(&self) -> Option<Slot> {
        self.shared.lock().as_mut()?.laid_out.pop()
    }

    /// The first half of a change of pods, before the new ones are looked up: pods that only siblings knew are known from
    /// now on. Says whether slots are to be granted on pods. The caller holds the state's lock.
    pub(super) fn is_to_be_shared(&self, state: &mut State) -> bool {
        let guard = self.shared.lock();
        let Some(shared) = guard.as_ref() else { return false };
        for (at, in_use) in &shared.pods {
            state.known.entry(at.clone()).or_insert_with(|| Arc::clone(&in_use.pod));
        }
        matches!((&state.listed, state.concurrency), (Destinations::Pods(_), ContainerConcurrency::Limited(_)))
    }

    /// The second half, once no place is given and the pods that are known tell ends here. To be settled afterwards.
    pub(super) fn set_shared_pods(&self, state: &State, active: bool) -> Option<Vec<Slot>> {
        let mut guard = self.shared.lock();
        let shared = guard.as_mut()?;
        let now = shared.siblings.now();
        if let ContainerConcurrency::Limited(limit) = state.concurrency {
            shared.pool.set_limit(limit);
        }
        shared.active = active;
        if !active {
            shared.tell_at(Input::Pods(BTreeMap::new()), now);
            shared.pods.clear();
            (shared.waiting, shared.granted) = (VecDeque::new(), 0);
            return Some(std::mem::take(&mut shared.laid_out));
        }
        for (at, pod) in &state.known {
            let new = || InUse { pod: Arc::clone(pod), running: Vec::new() };
            shared.pods.entry(at.clone()).or_insert_with(new);
            shared.count(at, now);
        }
        let pods = state.shared_pods();
        shared.pods.retain(|at, in_use| pods.contains_key(at) || !in_use.running.is_empty());
        shared.tell_at(Input::Pods(pods), now);
        None
    }
}

impl State {
    /// All pods that are listed, and whether each may be sent to.
    fn shared_pods(&self) -> BTreeMap<Destination, bool> {
        let Destinations::Pods(proven) = &self.listed else { return BTreeMap::new() };
        let listed = self.addresses.iter().map(|at| (at.clone(), false));
        let usable = proven.iter().map(|at| (at.clone(), !self.failed.contains(at)));
        listed.chain(usable).collect()
    }
}

impl Shared {
    fn tell_at(&mut self, input: Input, now: Instant) {
        for output in self.pool.handle(input, &self.siblings.peers(), now) {
            match output {
                Output::Run { request, pod } => self.lay_out(request, pod),
                Output::Send { to, message } => self.siblings.send(&to, message),
                Output::Cut(request) => {
                    for (at, in_use) in &mut self.pods {
                        let before = in_use.running.len();
                        in_use.running.retain(|running| *running != request);
                        if in_use.running.len() < before {
                            self.siblings.cut(at);
                        }
                    }
                }
            }
        }
        if let Some(due) = self.pool.due(now) {
            self.siblings.due(due);
        }
    }

    /// A request has a slot: whoever is woken next takes it.
    fn lay_out(&mut self, request: Request, at: Destination) {
        match self.waiting.front() == Some(&request) {
            true => _ = self.waiting.pop_front(),
            false => self.waiting.retain(|waiting| *waiting != request),
        }
        // One that a sibling lends may not be listed here yet.
        let new = || InUse { pod: PodTracker::shared(at.clone(), Weak::clone(&self.inner)), running: Vec::new() };
        let in_use = self.pods.entry(at.clone()).or_insert_with(new);
        in_use.running.push(request);
        self.granted += 1;
        self.laid_out.push(in_use.pod.reserve());
    }

    fn new_request(&mut self) -> Request {
        self.requests += 1;
        Request(self.requests)
    }

    /// As many slots are in use on a pod as the pod's own count says.
    fn count(&mut self, at: &Destination, now: Instant) {
        loop {
            let Some(in_use) = self.pods.get_mut(at) else { return };
            let runs = in_use.pod.in_flight() as usize;
            if in_use.running.len() > runs {
                let Some(ended) = in_use.running.pop() else { return };
                self.granted -= 1;
                self.tell_at(Input::End(ended), now);
            } else if in_use.running.len() < runs {
                self.requests += 1;
                let request = Request(self.requests);
                in_use.running.push(request);
                self.granted += 1;
                self.pool.adopt(request, at, now);
            } else {
                return;
            }
        }
    }

    /// As many are told to wait as do, and capacity is what has been granted. Returns slots that nobody wants any more, to
    /// be dropped outside the lock.
    fn settle(&mut self, breaker: &Breaker) -> Vec<Slot> {
        if !self.active {
            return Vec::new();
        }
        let (now, load) = (self.siblings.now(), breaker.load());
        let mut wanted = load.queued.saturating_sub(self.granted.saturating_sub(load.in_flight)) as usize;
        while self.waiting.len() < wanted {
            let (request, granted) = (self.new_request(), self.granted);
            self.waiting.push_back(request);
            self.tell_at(Input::Arrive { request, since: now }, now);
            wanted = wanted.saturating_sub((self.granted - granted) as usize);
        }
        while self.waiting.len() > wanted
            && let Some(request) = self.waiting.pop_back()
        {
            self.tell_at(Input::End(request), now);
        }
        breaker.store_capacity(Capacity::Limited(self.granted));
        let mut back = Vec::new();
        while load.queued == 0 && !self.laid_out.is_empty() {
            let fewer = self.granted.saturating_sub(back.len() as u32 + 1);
            breaker.store_capacity(Capacity::Limited(fewer));
            let load = breaker.load();
            if load.queued > 0 || load.in_flight > fewer {
                breaker.store_capacity(Capacity::Limited(fewer + 1));
                break;
            }
            back.extend(self.laid_out.pop());
        }
        back
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
