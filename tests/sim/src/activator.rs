//! Activator with the real accounting and throttler for each revision, and with a modeled connection and modeled pods.
//!
//! A request is counted, waits for a slot, runs on a pod for a while, and is no longer counted. Wake-ups are real: a
//! waiting request is polled only after its waker was called. A request whose wake-up is lost stays held, and the run
//! fails.

use crate::events::{Event, Frame, Local, Process, ProcessId};
use crate::model::{Endpoint, Id, Objects};
use crate::plan::{Fault, Revision};
use crate::simulation::Simulation;
use activator_core::accounting::{InFlight, RevisionStats};
use activator_core::destination::{Destination, Destinations};
use activator_core::own_index::own_index;
use activator_core::throttler::{Acquire, Admitted, Permit, Throttler};
use common::RevisionKey;
use common::stat::{Stat, WireStatMessage};
use common::time::Timestamp;
use rand::RngExt;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Namespace of attestations.
pub(crate) const SYSTEM: &str = "zeroscale-system";
/// Maximum number of waiting requests of a revision.
const HELD_MAX: u32 = 10_000;
/// Time without messages after which a connection counts as dead.
const DEAD_AFTER: Duration = Duration::from_secs(3);

pub(crate) struct Activator {
    pub(crate) process: Process,
    pub(crate) name: String,
    /// Autoscaler that the activator is connected to.
    pub(crate) socket: Option<usize>,
    /// Time since which messages on the connection have been lost.
    mute_since: Option<Duration>,
    revisions: Vec<RevisionState>,
    pub(crate) requests: BTreeMap<u64, Request>,
    cache: Objects,
}

struct RevisionState {
    stats: Arc<RevisionStats>,
    throttler: Arc<Throttler>,
}

pub(crate) struct Request {
    pub(crate) revision: usize,
    pub(crate) since: Duration,
    lasts: Duration,
    phase: Phase,
    _in_flight: InFlight,
}

enum Phase {
    Waiting(Pin<Box<Acquire>>, Arc<WakeFlag>),
    Running { _permit: Permit },
}

impl Request {
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Waiting(..))
    }
}

struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Activator {
    pub(crate) fn new(index: usize, revisions: &[Revision], clock: &Arc<AtomicI64>) -> Self {
        let state = |revision: &Revision| RevisionState {
            stats: stats_with(clock),
            throttler: Throttler::new(revision.concurrency, HELD_MAX),
        };
        Self {
            process: Process::default(),
            name: format!("activator-{index}"),
            socket: None,
            mute_since: None,
            revisions: revisions.iter().map(state).collect(),
            requests: BTreeMap::new(),
            cache: Objects::default(),
        }
    }

    /// Returns the number of a revision's requests, and how many of them run on a pod.
    pub(crate) fn load(&self, revision: usize) -> (usize, usize) {
        let requests = || self.requests.values().filter(|request| request.revision == revision);
        (requests().count(), requests().filter(|request| !request.is_held()).count())
    }
}

/// Creates the accounting of a revision, by a clock in nanoseconds.
pub(crate) fn stats_with(clock: &Arc<AtomicI64>) -> Arc<RevisionStats> {
    let clock = clock.clone();
    RevisionStats::new(Arc::new(move || Timestamp::from_nanos(clock.load(Ordering::Relaxed))))
}

/// Creates the entry of one revision in an activator's frame.
pub(crate) fn stat_message(key: &RevisionKey, activator: &str, concurrency: f64, count: f64) -> WireStatMessage {
    let stat = Stat {
        pod_name: activator.to_owned(),
        average_concurrent_requests: concurrency,
        request_count: count,
        ..Stat::default()
    };
    let (namespace, name) = (key.namespace().to_owned(), key.name().to_owned());
    WireStatMessage { namespace, name, stat: Some(stat), ..WireStatMessage::default() }
}

fn address(activator: usize) -> String {
    format!("10.0.1.{activator}")
}

fn destination(pod: usize) -> Destination {
    SocketAddr::from((Ipv4Addr::new(10, 1, (pod >> 8) as u8, pod as u8), 8080)).into()
}

fn pod_of(destination: &Destination) -> usize {
    match destination.address() {
        SocketAddr::V4(address) => {
            let octets = address.ip().octets();
            usize::from(octets[2]) << 8 | usize::from(octets[3])
        }
        SocketAddr::V6(_) => usize::MAX,
    }
}

impl Simulation {
    pub(crate) fn start_activator(&mut self, index: usize) {
        let life = self.activators[index].process.life;
        let mut fresh = Activator::new(index, &self.plan.revisions, &self.clock);
        fresh.process.life = life;
        self.activators[index] = fresh;
        self.connect(index);
        self.relist(ProcessId::Activator(index));
        let phase = Duration::from_millis(self.rng.random_range(1..1000));
        self.schedule(ProcessId::Activator(index), phase, Local::Report);
    }

    pub(crate) fn activator_event(&mut self, index: usize, event: Local) {
        match event {
            Local::Notify(id) => self.activator_observes(index, id),
            Local::Report => self.report(index),
            Local::Request { id, revision, lasts } => self.receive(index, id, revision, lasts),
            Local::Finish(id) => {
                self.activators[index].requests.remove(&id);
                self.summary.served += 1;
                self.poll(index);
            }
            _ => {}
        }
    }

    fn activator_observes(&mut self, index: usize, id: Id) {
        let Some((version, object)) = self.store.get(id).cloned() else { return };
        let activator = &mut self.activators[index];
        if !activator.cache.put(id, version, object) {
            return;
        }
        match id {
            Id::Private(revision) => {
                let pods = activator.cache.ready_pods(revision).iter().map(|pod| destination(*pod)).collect();
                activator.revisions[revision].throttler.update(Destinations::Pods(pods));
            }
            Id::Public(revision) => {
                let addresses: Vec<String> = activator
                    .cache
                    .public(revision)
                    .iter()
                    .map(|endpoint| match endpoint {
                        Endpoint::Activator(other) => address(*other),
                        Endpoint::Pod(pod) => destination(*pod).to_string(),
                    })
                    .collect();
                let own = own_index(&address(index), addresses.iter().map(String::as_str));
                activator.revisions[revision].throttler.set_activators(own);
            }
            _ => {}
        }
        self.poll(index);
    }

    fn receive(&mut self, index: usize, id: u64, revision: usize, lasts: Duration) {
        let activator = &mut self.activators[index];
        let state = &activator.revisions[revision];
        let entered = state.stats.enter();
        let phase = Phase::Waiting(Box::pin(state.throttler.acquire()), Arc::new(WakeFlag(AtomicBool::new(true))));
        let request = Request { revision, since: self.time.now, lasts, phase, _in_flight: entered.in_flight };
        let signal = if entered.first { state.stats.signal() } else { None };
        activator.requests.insert(id, request);
        if let Some(signal) = signal {
            let message = self.message(index, revision, 1.0, 1.0);
            if self.send(index, vec![message]) {
                signal.confirm();
            }
        }
        self.poll(index);
    }

    /// Polls all woken requests until none is left.
    fn poll(&mut self, index: usize) {
        loop {
            let activator = &mut self.activators[index];
            let woken = activator.requests.iter().find_map(|(id, request)| match &request.phase {
                Phase::Waiting(_, woken) if woken.0.swap(false, Ordering::Relaxed) => Some(*id),
                _ => None,
            });
            let Some((id, request)) = woken.and_then(|id| Some((id, activator.requests.get_mut(&id)?))) else {
                return;
            };
            let Phase::Waiting(acquire, woken) = &mut request.phase else { return };
            let waker = Waker::from(woken.clone());
            match acquire.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => {}
                Poll::Ready(Err(_refused)) => {
                    activator.requests.remove(&id);
                }
                Poll::Ready(Ok(admitted)) => self.send_to_pod(index, id, admitted),
            }
        }
    }

    fn send_to_pod(&mut self, index: usize, id: u64, mut admitted: Admitted) {
        let Some(request) = self.activators[index].requests.get(&id) else { return };
        let throttler = &self.activators[index].revisions[request.revision].throttler;
        let phase = loop {
            match admitted.pick(&mut self.rng) {
                Ok(permit) if self.pods.contains_key(&pod_of(permit.destination())) => {
                    break Phase::Running { _permit: permit };
                }
                Ok(permit) => {
                    throttler.mark_failed(&permit.destination().clone());
                    admitted = permit.give_up_pod();
                }
                Err(admitted) => {
                    let woken = Arc::new(WakeFlag(AtomicBool::new(true)));
                    break Phase::Waiting(Box::pin(admitted.requeue()), woken);
                }
            }
        };
        let Some(request) = self.activators[index].requests.get_mut(&id) else { return };
        let runs = matches!(phase, Phase::Running { .. });
        let lasts = request.lasts;
        request.phase = phase;
        if runs {
            self.schedule(ProcessId::Activator(index), lasts, Local::Finish(id));
        }
    }

    /// Sends the periodic report: the stats of every tracked revision, and an attestation.
    fn report(&mut self, index: usize) {
        self.schedule(ProcessId::Activator(index), Duration::from_secs(1), Local::Report);
        self.connect(index);
        let reports: Vec<_> = (0..self.plan.revisions.len())
            .filter_map(|revision| Some((revision, self.activators[index].revisions[revision].stats.report()?)))
            .collect();
        let (mut messages, mut signals) = (Vec::new(), Vec::new());
        for (revision, report) in reports {
            messages.push(self.message(index, revision, report.average_concurrency, report.request_count));
            signals.extend(report.signal);
        }
        messages.push(common::wire::attestation(SYSTEM, &self.activators[index].name));
        if self.send(index, messages) {
            signals.into_iter().for_each(|signal| signal.confirm());
        }
    }

    fn message(&self, index: usize, revision: usize, concurrency: f64, count: f64) -> WireStatMessage {
        stat_message(&self.plan.revisions[revision].key, &self.activators[index].name, concurrency, count)
    }

    /// Opens a connection if the current one is dead or missing, and an autoscaler is up.
    fn connect(&mut self, index: usize) {
        let activator = &self.activators[index];
        let dead = activator.mute_since.is_some_and(|since| self.time.now >= since + DEAD_AFTER);
        let gone = activator.socket.is_none_or(|autoscaler| self.autoscalers[autoscaler].process.down);
        if !dead && !gone {
            return;
        }
        let up: Vec<usize> = (0..self.autoscalers.len()).filter(|i| !self.autoscalers[*i].process.down).collect();
        let socket = (!up.is_empty() && !self.links.is_active(Fault::CutStats(index)))
            .then(|| up[self.rng.random_range(0..up.len())]);
        let activator = &mut self.activators[index];
        activator.socket = socket;
        activator.mute_since = None;
    }

    /// Sends messages. Returns true if a connection has accepted them, even if they are lost later.
    fn send(&mut self, index: usize, messages: Vec<WireStatMessage>) -> bool {
        self.connect(index);
        let Some(autoscaler) = self.activators[index].socket else { return false };
        if self.links.is_active(Fault::CutStats(index)) {
            self.activators[index].mute_since.get_or_insert(self.time.now);
            return true;
        }
        let (copies, latest) =
            if self.links.is_active(Fault::SpoilStats(index)) { (self.rng.random_range(0..=2), 2500) } else { (1, 20) };
        for _ in 0..copies {
            let delay = Duration::from_millis(self.rng.random_range(1..=latest));
            let frame = Frame { messages: messages.clone(), forwarded: None };
            self.schedule(ProcessId::Autoscaler(autoscaler), delay, Local::Frame(frame));
        }
        true
    }

    /// Delivers a client's request to one of the endpoints of an entry.
    pub(crate) fn arrive(&mut self, revision: usize, lasts: Duration) {
        let entry = self.rng.random_range(0..self.entries.len());
        let mut endpoints = self.entries[entry].endpoints[revision].clone();
        self.next_request += 1;
        let id = self.next_request;
        while !endpoints.is_empty() {
            match endpoints.swap_remove(self.rng.random_range(0..endpoints.len())) {
                Endpoint::Activator(index) if !self.activators[index].process.down => {
                    let request = Local::Request { id, revision, lasts };
                    self.schedule(ProcessId::Activator(index), Duration::from_millis(1), request);
                    return;
                }
                Endpoint::Pod(pod) if self.pods.contains_key(&pod) => {
                    self.direct.insert(id, revision);
                    self.time.after(lasts, Event::FinishDirect(id));
                    return;
                }
                Endpoint::Activator(_) | Endpoint::Pod(_) => {} // Connection refused: the client tries another address.
            }
        }
        self.summary.unreachable += 1;
    }
}
