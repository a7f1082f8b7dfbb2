//! Simulated cluster: one clock, one queue of events, one random generator; activators, sessions, pods and requests.

use super::faults::Fault;
use super::requests::LONG_SHARE;
use super::throttler::Throttler;
use super::{ARRIVALS, END, Summary, TRANSIT_MAX, Without};
use crate::timeline::Timeline;
use activator_core::Destination;
use activator_core::holders::shards::SHARD_COUNT;
use activator_core::holders::{Beat, Holding, Input, Message, Peer, Peers};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Number of a request.
pub(super) type RequestId = u64;

pub(super) struct World {
    pub(super) time: Timeline<Event>,
    pub(super) rng: StdRng,
    pub(super) without: Option<Without>,
    pub(super) limit: u32,
    pub(super) slots_per_holder: u64,
    pub(super) activators: Vec<Activator>,
    pub(super) pods: BTreeMap<Destination, SimulatedPod>,
    /// List of activators at the API server.
    pub(super) listed: BTreeSet<usize>,
    pub(super) version: u64,
    /// Pairs that cannot reach each other, lower number first, with the number of faults that cause it.
    pub(super) cuts: BTreeMap<(usize, usize), u32>,
    /// Messages in transit.
    pub(super) wires: BTreeMap<(usize, usize), VecDeque<(u64, Wire)>>,
    pub(super) sessions: u64,
    pub(super) requests: BTreeMap<RequestId, Client>,
    pub(super) next_request: u64,
    /// Maximum transit time between activators.
    pub(super) transit_max: Duration,
    /// Mean time between two requests at an activator, and duration of a request.
    pub(super) gap: Duration,
    pub(super) work: Duration,
    /// True if requests arrive at equal intervals.
    pub(super) even: bool,
    pub(super) arrivals_begin: Duration,
    pub(super) arrivals_end: Duration,
    /// True if clients disconnect and some requests take long.
    pub(super) rough: bool,
    /// Time from which there are no faults.
    pub(super) fault_free_since: Duration,
    /// Waiting times of requests that got a slot, with their activator.
    pub(super) waits: Vec<(usize, Duration)>,
    /// Times of arrival, for [`super::figures()`].
    pub(super) arrivals: Vec<Duration>,
    /// Last holder of each shard.
    pub(super) holders: [Option<usize>; SHARD_COUNT],
    pub(super) summary: Summary,
}

pub(super) struct Activator {
    pub(super) up: bool,
    pub(super) life: u32,
    pub(super) peers: Peers,
    pub(super) holding: Holding,
    pub(super) throttler: Throttler,
    /// Requests that wait here for a slot, in order.
    pub(super) waiting: VecDeque<RequestId>,
    /// Number of requests relayed to each other activator.
    pub(super) relayed: BTreeMap<usize, u32>,
    /// Current session with each other activator.
    pub(super) sessions: BTreeMap<usize, u64>,
    /// List of activators as known here.
    pub(super) members: BTreeSet<usize>,
    /// Versions of the last received lists of activators and pods.
    pub(super) list_versions: (u64, u64),
    pub(super) stalled_until: Duration,
    /// Pods to which the activator sends no requests.
    pub(super) failed: BTreeSet<Destination>,
    pub(super) ticks: u64,
}

pub(super) struct SimulatedPod {
    pub(super) listed: bool,
    /// Request in each slot, or the time since which the slot is idle.
    pub(super) slots: Vec<Result<RequestId, Duration>>,
    pub(super) served: u64,
}

pub(super) struct Client {
    /// Activator at which the request arrived.
    pub(super) home: usize,
    /// Activator at which the request waits or runs; `None` while it is in transit.
    pub(super) at: Option<usize>,
    pub(super) since: Duration,
    /// Pod that runs the request.
    pub(super) pod: Option<Destination>,
}

#[derive(Clone, Debug)]
pub(super) enum Wire {
    Beat(Beat),
    Holder(Message),
}

/// Event of the cluster. `life` and the number beside an activator tell which of its lives the event belongs to.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Arrive(usize),
    RelayArrives(RequestId, usize),
    RouteAgain(RequestId),
    Finish(RequestId),
    ClientLeaves(RequestId),
    Deliver(usize, usize),
    Closed { at: usize, with: usize, session: u64 },
    Tick(usize, u32),
    Members { at: usize, life: u32, version: u64, members: BTreeSet<usize> },
    Pods { at: usize, life: u32, version: u64, pods: BTreeSet<Destination> },
    PodProven(usize, Destination),
    BeginFault(Fault),
    EndFault(Fault),
    Start(usize),
    List(usize, bool),
    NoticeDown(usize),
}

pub(super) fn name(index: usize) -> Peer {
    Peer::from([10, 1, 0, index as u8 + 1])
}

impl World {
    /// Creates the cluster of a seed, with faults.
    pub(super) fn new(seed: u64, without: Option<Without>, verbose: bool) -> Self {
        let mut world = Self::bare(seed, without, verbose);
        let (activators, pods) = (world.rng.random_range(1..=5), world.rng.random_range(1..=6));
        world.limit = world.rng.random_range(1..=3);
        // In some runs a few pods need several holders.
        world.slots_per_holder = if world.rng.random_bool(0.3) { 2 } else { 1000 };
        world.work = Duration::from_millis(world.rng.random_range(20..80));
        world.even = world.rng.random_bool(0.3);
        let load = world.rng.random_range(0.2..0.9);
        let mean = world.work.as_secs_f64() * (1.0 - LONG_SHARE) + LONG_SHARE * 2.25;
        let rate = load * f64::from(world.limit * pods) / mean / activators as f64;
        world.gap = Duration::from_secs_f64(1.0 / rate);
        (world.arrivals_end, world.rough) = (ARRIVALS, true);
        world.populate(activators, pods);
        world.plan_faults();
        world
    }

    /// Creates a cluster without activators and pods.
    pub(super) fn bare(seed: u64, without: Option<Without>, verbose: bool) -> Self {
        Self {
            time: Timeline::new(verbose),
            rng: StdRng::seed_from_u64(seed),
            without,
            limit: 1,
            slots_per_holder: activator_core::holders::shards::SLOTS_PER_HOLDER,
            activators: Vec::new(),
            pods: BTreeMap::new(),
            listed: BTreeSet::new(),
            version: 0,
            cuts: BTreeMap::new(),
            wires: BTreeMap::new(),
            sessions: 0,
            requests: BTreeMap::new(),
            next_request: 0,
            transit_max: TRANSIT_MAX,
            gap: Duration::from_millis(25),
            work: Duration::from_millis(50),
            even: false,
            arrivals_begin: Duration::from_millis(500),
            arrivals_end: Duration::ZERO,
            rough: false,
            fault_free_since: Duration::ZERO,
            waits: Vec::new(),
            arrivals: Vec::new(),
            holders: [None; SHARD_COUNT],
            summary: Summary::default(),
        }
    }

    /// Adds the initial activators and pods.
    pub(super) fn populate(&mut self, activators: usize, pods: u32) {
        for index in 0..activators {
            self.activators.push(self.process(index, 0));
            self.time.after(Duration::ZERO, Event::Start(index));
            let phase = self.gap.mul_f64((index as f64 + self.rng.random_range(0.0..1.0)) / activators as f64);
            self.time.after(self.arrivals_begin + phase, Event::Arrive(index));
        }
        (0..pods).for_each(|_| _ = self.add_pod());
    }

    /// Creates a process that is not up yet and has no state.
    pub(super) fn process(&self, index: usize, life: u32) -> Activator {
        let mut peers = Peers::new(self.time.instant());
        if self.without == Some(Without::Second) {
            peers = peers.with_dead_after(Duration::from_millis(1));
        }
        let holding = Holding::new(name(index), "ns/app", u64::from(life) << 32, None, self.time.instant());
        Activator {
            up: false,
            life,
            peers,
            holding: holding.with_slots_per_holder(self.slots_per_holder),
            throttler: Throttler::new(self.limit),
            waiting: VecDeque::new(),
            relayed: BTreeMap::new(),
            sessions: BTreeMap::new(),
            members: BTreeSet::new(),
            list_versions: (0, 0),
            stalled_until: Duration::ZERO,
            failed: BTreeSet::new(),
            ticks: 0,
        }
    }

    pub(super) fn add_pod(&mut self) -> Destination {
        let [high, low] = u16::try_from(self.pods.len() + 1).unwrap_or_default().to_be_bytes();
        let slots = vec![Err(self.time.now); self.limit as usize];
        let at: Destination = std::net::SocketAddr::from(([10, 0, high, low], 8012)).into();
        let new = SimulatedPod { listed: true, slots, served: 0 };
        self.pods.entry(at.clone()).or_insert(new).listed = true;
        self.publish();
        at
    }

    pub(super) fn run(&mut self) {
        while let Some(event) = self.time.next(END.max(self.arrivals_end)) {
            self.summary.events += 1;
            self.handle(event);
            self.judge_holders();
        }
        if self.time.violation.is_none() {
            self.judge_end();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive(index) => self.arrive(index),
            Event::RelayArrives(request, at) => self.receive_relayed(request, at),
            Event::RouteAgain(request) => self.route_again(request),
            Event::Finish(request) => {
                if self.end_request(request) {
                    self.summary.served += 1;
                }
            }
            Event::ClientLeaves(request) => {
                if self.end_request(request) {
                    self.summary.gone += 1;
                }
            }
            Event::Deliver(from, to) => self.deliver(from, to),
            Event::Closed { at, with, session } => {
                if self.activators[at].sessions.get(&with) == Some(&session) {
                    self.close(at, with);
                }
            }
            Event::Tick(index, life) if self.activators[index].life == life && self.activators[index].up => {
                self.tick(index);
                self.judge_waiting();
            }
            Event::Members { at, life, version, members } if self.activators[at].life == life => {
                if version > self.activators[at].list_versions.0 && self.activators[at].up {
                    self.activators[at].list_versions.0 = version;
                    self.activators[at].members = members.clone();
                    self.time.trace(|| format!("{at} lists {members:?}"));
                    let is_unlisted = !members.contains(&at);
                    if !(is_unlisted && self.is_cut_off(at) && self.without == Some(Without::Stop)) {
                        self.handle_input(at, Input::Members(members.into_iter().map(name).collect()));
                    }
                }
            }
            Event::Pods { at, life, version, pods } if self.activators[at].life == life => {
                if version > self.activators[at].list_versions.1 && self.activators[at].up {
                    self.activators[at].list_versions.1 = version;
                    let usable = pods.difference(&self.activators[at].failed).cloned().collect();
                    self.activators[at].throttler.set_usable(usable);
                    self.handle_input(at, Input::Pods(pods, self.limit));
                }
            }
            Event::Tick(..) | Event::Members { .. } | Event::Pods { .. } => {}
            Event::PodProven(index, pod) => {
                if self.activators[index].failed.remove(&pod) {
                    self.publish();
                }
            }
            Event::BeginFault(fault) => self.begin(fault),
            Event::EndFault(fault) => self.end(&fault),
            Event::Start(index) => self.start(index),
            Event::NoticeDown(index) if self.activators[index].up => {}
            Event::NoticeDown(index) => self.handle(Event::List(index, false)),
            Event::List(index, ready) => {
                let up = self.activators[index].up;
                let changed = match ready {
                    true => up && self.listed.insert(index),
                    false => self.listed.remove(&index),
                };
                if changed {
                    self.publish();
                }
            }
        }
    }
}
