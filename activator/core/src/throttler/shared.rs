//! Pods whose slots several activators share: the throttler's part in it. Whose slots are whose, [`crate::slots`] says.
//!
//! # The rule
//!
//! While pods are shared, capacity is what has been granted: every slot that a request has, and every one that is laid out
//! for the head of the queue. A request finds no place, stands in line, and is told to the [`Pool`] as one more that waits;
//! when the pool has a slot, own or borrowed, the slot is laid out, there is one place more, and whoever is woken takes it.
//! So a request without a wait costs no message and no look at all pods.
//!
//! # Open pods
//!
//! While nobody waits, here or at a sibling, own pods are *open* ([`super::open`]): any request takes an idle slot of theirs as it
//! would without sharing, and neither the pool nor the revision's lock knows of it. Capacity is higher by as many. Before the
//! pool is told anything they are closed, and what was taken meanwhile is counted; so it grants what is idle and nothing else.
//!
//! # Nothing is left over
//!
//! [`Inner::settle`] makes things agree after everything that a request can do: as many are told to wait as do, as many
//! slots are in use as the pods' own counts say, and a slot that was laid out for a request that has left goes back. A
//! request on a pod tells its end as on a retired one ([`super::pod`]), whenever it began; so those that run when sharing
//! begins are counted from then on.
//!
//! A slot whose request has left in the midst of things is kept for [`NOTICED_AFTER`]: its connection is closed, and the
//! pod is about to see that. Else whoever is given it next, perhaps at another activator, might meet it there.
//!
//! A request that took its pod while sharing began looks again after it has it: either it sees that pods are shared now,
//! and gives the slot back, or it was counted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::open::OpenPods;
use super::pod::{PodTracker, Slot};
use super::{ContainerConcurrency, Inner, State, Throttler};
use crate::breaker::{Breaker, Capacity};
use crate::destination::{Destination, Destinations};
use crate::slots::{Input, Message, Output, Peer, Peers, Pool, Request};

/// A pod that is reached has noticed by then that a connection was closed.
pub const NOTICED_AFTER: Duration = Duration::from_millis(100);

/// What sharing needs of the world. Called under the revision's lock: must not block, nor call the throttler.
pub trait Siblings: fmt::Debug + Send + Sync {
    /// The time.
    fn now(&self) -> Instant;
    /// Which siblings are in touch.
    fn peers(&self) -> Arc<Peers>;
    /// Sends a message about this revision on the present session, after all that was sent there before.
    fn send(&self, to: &Peer, message: Message);
    /// All requests of this activator on that pod must end at once, since it ends (`stopped`), or has left and lost touch with
    /// who takes over.
    fn cut(&self, pod: &Destination, stopped: bool);
    /// [`Throttler::tell`] is to be called with [`Input::Tick`] then, or sooner: one tick is due at a time, the earliest.
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
    /// Those that nobody may take any more, to be dropped outside the lock.
    withdrawn: Vec<Slot>,
    /// Those whose requests have left, and until when they are kept.
    kept: VecDeque<(Instant, Slot)>,
    /// Pods whose idle slots any request may take.
    opened: Vec<Arc<PodTracker>>,
    /// Slots that are in use, of all pods, and those that are laid out.
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
            withdrawn: Vec::new(),
            kept: VecDeque::new(),
            opened: Vec::new(),
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
            self.inner.open.set(&[]);
            shared.take()
        };
        self.inner.change(|_| ());
        let has_slots =
            |shared: &Shared| !(shared.laid_out.is_empty() && shared.withdrawn.is_empty() && shared.kept.is_empty());
        if former.is_some_and(|shared| has_slots(&shared)) {
            self.inner.change(|_| ()); // They are free now.
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

    /// What a sibling says. It comes back where pods are not shared, or not with that one yet.
    ///
    /// # Errors
    /// The message, of which nothing was taken in.
    pub fn receive(&self, from: &Peer, message: Message) -> Result<(), Message> {
        let mut message = Some(message);
        self.inner.with_shared(|shared| {
            if let Some(message) = message.take_if(|_| shared.pool.is_connected(from)) {
                let now = shared.siblings.now();
                shared.tell_at(Input::Received { from: from.clone(), message }, now);
            }
        });
        message.map_or(Ok(()), Err)
    }

    /// Whether it is the same, or a clone of it.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
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
        self.inner.settle(); // What was taken from open pods is counted.
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
            shared.close(&self.open, &self.breaker);
            what(shared);
            let back = shared.settle(&self.breaker);
            if back.is_empty() {
                shared.open(&self.open, &self.breaker);
            }
            back
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

    /// Keeps a slot whose request has left.
    pub(super) fn keep(&self, slot: Slot) {
        let mut slot = Some(slot);
        self.with_shared(|shared| {
            let until = shared.siblings.now() + NOTICED_AFTER;
            shared.kept.extend(slot.take().map(|slot| (until, slot)));
        });
    }

    /// A slot of an own pod, while they are open: the one after which the last one was taken, or the next that is free.
    pub(super) fn take_open(&self) -> Option<Slot> {
        self.open.any().then(|| self.open.take(&self.cursor.0))?
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
        shared.close(&self.open, &self.breaker);
        if let ContainerConcurrency::Limited(limit) = state.concurrency {
            shared.pool.set_limit(limit);
        }
        shared.active = active;
        if !active {
            shared.tell_at(Input::Pods(BTreeMap::new()), now);
            let running = std::mem::take(&mut shared.pods).into_values().flat_map(|in_use| in_use.running);
            let told: Vec<Request> = running.chain(std::mem::take(&mut shared.waiting)).collect();
            told.into_iter().for_each(|request| shared.tell_at(Input::End(request), now));
            shared.granted = 0;
            let mut back = std::mem::take(&mut shared.laid_out);
            back.append(&mut shared.withdrawn);
            back.extend(shared.kept.drain(..).map(|(_, slot)| slot));
            return Some(back);
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
    /// Own idle slots are for any request, without a look at anything but the pod: while nobody waits, here or at a sibling.
    /// Capacity is what has been granted, and these.
    fn open(&mut self, open: &OpenPods, breaker: &Breaker) {
        if !self.active || !self.laid_out.is_empty() || !self.waiting.is_empty() || self.pool.is_asked() {
            return;
        }
        let (mut pods, mut idle) = (std::mem::take(&mut self.opened), 0);
        pods.clear();
        for (at, free) in self.pool.idle() {
            let Some(in_use) = self.pods.get(at) else { continue };
            in_use.pod.set_open(u32::try_from(in_use.running.len()).unwrap_or(u32::MAX).saturating_add(free));
            idle += free;
            pods.push(Arc::clone(&in_use.pod));
        }
        if !pods.is_empty() {
            open.set(&pods);
            breaker.store_capacity(Capacity::Limited(self.places().saturating_add(idle)));
        }
        self.opened = pods;
    }

    /// Everything is as the pool has it again: what was taken meanwhile is counted, and nothing more is taken.
    fn close(&mut self, open: &OpenPods, breaker: &Breaker) {
        if !open.any() {
            return;
        }
        open.close();
        let now = self.siblings.now();
        for pod in std::mem::take(&mut self.opened) {
            pod.set_retired(true);
            self.count(&pod.destination, now);
        }
        breaker.store_capacity(Capacity::Limited(self.places()));
    }

    /// Slots that requests have, or may take.
    fn places(&self) -> u32 {
        let nobodys = self.withdrawn.len() + self.kept.len();
        self.granted.saturating_sub(u32::try_from(nobodys).unwrap_or(u32::MAX))
    }

    fn tell_at(&mut self, input: Input, now: Instant) {
        let mut cut = BTreeSet::new();
        for output in self.pool.handle(input, &self.siblings.peers(), now) {
            match output {
                Output::Run { request, pod } => self.lay_out(request, pod),
                Output::Send { to, message } => self.siblings.send(&to, message),
                Output::Cut(request) => _ = cut.insert(request),
            }
        }
        if !cut.is_empty() {
            self.cut(&cut);
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

    /// Requests must end: their connections break, or nobody gets the slots that were laid out for them. Either way their ends
    /// are told as any others.
    fn cut(&mut self, requests: &BTreeSet<Request>) {
        let stopped = self.pool.has_stopped();
        let runs = |in_use: &InUse| in_use.running.iter().any(|request| requests.contains(request));
        for (at, _) in self.pods.iter().filter(|(_, in_use)| runs(in_use)) {
            self.siblings.cut(at, stopped);
            self.withdrawn.extend(self.laid_out.extract_if(.., |slot| slot.destination() == at));
        }
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
        let mut wanted = load.queued.saturating_sub(self.places().saturating_sub(load.in_flight)) as usize;
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
        let kept = self.places();
        let mut back = std::mem::take(&mut self.withdrawn);
        while self.kept.front().is_some_and(|(until, _)| *until <= now) {
            back.extend(self.kept.pop_front().map(|(_, slot)| slot));
        }
        breaker.store_capacity(Capacity::Limited(kept));
        let mut returned = 0;
        while load.queued == 0 && !self.laid_out.is_empty() {
            let fewer = kept.saturating_sub(returned + 1);
            breaker.store_capacity(Capacity::Limited(fewer));
            let load = breaker.load();
            if load.queued > 0 || load.in_flight > fewer {
                breaker.store_capacity(Capacity::Limited(fewer + 1));
                break;
            }
            back.extend(self.laid_out.pop());
            returned += 1;
        }
        // Said again each time: a tick that comes sooner takes the place of a later one.
        if let Some((until, _)) = self.kept.front() {
            self.siblings.due(*until);
        }
        back
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
