//! Simulated cluster: one clock and queue of events ([`Timeline`]), and one random generator.
//!
//! An event for a process ([`Local`]) is lost if the process has died, and waits if it is paused. No code reads
//! a clock or iterates over an unordered collection, so a seed always makes the same run.

use crate::activator::Activator;
use crate::autoscaler::Autoscaler;
use crate::events::{Event, Local, Process, ProcessId};
use crate::faults::Links;
use crate::model::{Endpoint, Id, Object, Objects, Path, Status};
use crate::plan::{END, Fault, Plan};
use crate::summary::{Summary, Without};
use crate::timeline::Timeline;
use autoscaler_core::path_mode::PathMode;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// Interval between two checks of waiting requests.
const CHECK_PERIOD: Duration = Duration::from_millis(500);

/// Entry point of requests: the endpoints known to one node or ingress.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) endpoints: Vec<Vec<Endpoint>>,
}

/// Change of a revision's endpoints in propagation to the entries.
#[derive(Debug)]
pub(crate) struct Change {
    /// Time from which entries learn of the change.
    pub(crate) from: Duration,
    pub(crate) version: u64,
}

#[derive(Debug)]
pub(crate) struct SimulatedPod {
    pub(crate) revision: usize,
    pub(crate) ready: bool,
    pub(crate) terminating: bool,
}

pub(crate) struct Simulation {
    pub(crate) time: Timeline<Event>,
    /// Nanoseconds since the start, for the accounting of activators.
    pub(crate) clock: Arc<AtomicI64>,
    pub(crate) rng: StdRng,
    pub(crate) plan: Plan,
    pub(crate) without: Option<Without>,
    pub(crate) store: Objects,
    pub(crate) store_version: u64,
    pub(crate) links: Links,
    pub(crate) autoscalers: Vec<Autoscaler>,
    pub(crate) activators: Vec<Activator>,
    /// Time since which each activator has been listed as ready.
    pub(crate) ready_since: Vec<Option<Duration>>,
    pub(crate) entries: Vec<Entry>,
    /// Changes of each revision's endpoints, oldest first, that entries are learning or have learned.
    pub(crate) changes: Vec<Vec<Change>>,
    pub(crate) pods: BTreeMap<usize, SimulatedPod>,
    pub(crate) next_pod: usize,
    /// Requests that went directly to a pod, with their revisions.
    pub(crate) direct: BTreeMap<u64, usize>,
    pub(crate) next_request: u64,
    /// Time since which each revision has had requests without a gap.
    pub(crate) traffic_since: Vec<Option<Duration>>,
    /// Time since which each autoscaler's measurements of metrics have failed.
    pub(crate) metrics_cut_at: Vec<Option<Duration>>,
    /// Last scale that each process, in each life, wrote for a revision: the scale, the number of repetitions, and the
    /// time.
    pub(crate) last_writes: BTreeMap<(usize, u32, usize), (i32, u32, Duration)>,
    /// Time for which requests of each revision have waited without faults: for a patch (true) or a pod (false).
    pub(crate) waited: Vec<(bool, Duration)>,
    pub(crate) summary: Summary,
}

impl Simulation {
    pub(crate) fn new(seed: u64, without: Option<Without>, verbose: bool) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let plan = Plan::new(&mut rng);
        let count = plan.revisions.len();
        let clock = Arc::new(AtomicI64::new(0));
        let entry = || Entry { endpoints: vec![Vec::new(); count] };
        let mut simulation = Self {
            time: Timeline::new(verbose),
            activators: (0..plan.activators).map(|index| Activator::new(index, &plan.revisions, &clock)).collect(),
            autoscalers: Vec::new(),
            clock,
            rng,
            without,
            store: Objects::default(),
            store_version: 0,
            links: Links::default(),
            ready_since: vec![Some(Duration::ZERO); plan.activators],
            entries: std::iter::repeat_with(entry).take(plan.entries).collect(),
            changes: std::iter::repeat_with(Vec::new).take(count).collect(),
            pods: BTreeMap::new(),
            next_pod: 0,
            direct: BTreeMap::new(),
            next_request: 0,
            traffic_since: vec![None; count],
            metrics_cut_at: vec![None; plan.autoscalers],
            last_writes: BTreeMap::new(),
            waited: vec![(false, Duration::ZERO); count],
            summary: Summary::default(),
            plan,
        };
        simulation.set_up();
        simulation
    }

    /// Sets up a cluster in which everything was just created, with the activators in every path.
    fn set_up(&mut self) {
        self.time.trace(|| format!("{:#?}", self.plan));
        let activators: Vec<usize> = (0..self.plan.activators).collect();
        let proxied: Vec<Endpoint> = activators.iter().copied().map(Endpoint::Activator).collect();
        self.put(Id::Activators, Object::Ready(activators));
        for revision in 0..self.plan.revisions.len() {
            let found = self.plan.revisions[revision].found;
            let path = Path { mode: PathMode::Proxy, activators: 2, proxy_since: None };
            self.put(Id::Status(revision), Object::Status(Status::default()));
            self.put(Id::Path(revision), Object::Path(path));
            self.put(Id::Private(revision), Object::Ready(Vec::new()));
            self.put(Id::Public(revision), Object::Public(proxied.clone()));
            self.put(Id::Target(revision), Object::Target(found));
            for entry in &mut self.entries {
                entry.endpoints[revision].clone_from(&proxied);
            }
            self.time.after(Duration::from_millis(500), Event::Traffic(revision));
        }
        (0..self.plan.autoscalers).for_each(|index| self.start_autoscaler(index));
        (0..self.plan.activators).for_each(|index| self.start_activator(index));
        for index in 0..self.plan.faults.len() {
            let at = self.plan.faults[index].at;
            self.time.after(at, Event::BeginFault(index));
        }
        self.time.after(CHECK_PERIOD, Event::CheckWaits);
    }

    /// Runs to the end, or to the first violated invariant.
    pub(crate) fn run(&mut self) {
        while let Some(event) = self.time.next(END) {
            self.clock.store(i64::try_from(self.time.now.as_nanos()).unwrap_or(i64::MAX), Ordering::Relaxed);
            self.summary.events += 1;
            self.handle(event);
            self.judge_entries();
            self.track_traffic();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::To(to, life, event) => self.deliver(to, life, event),
            Event::WriteLease { by, life, lease, op, sent } => self.lease_written(by, life, lease, op, sent),
            Event::Write { by, life, timing, controller, revision, step } => {
                self.written(by, life, timing, (controller, revision), step);
            }
            Event::ReconcileDeployment(revision) => self.deploy(revision),
            Event::PodReady(pod) => {
                if let Some(found) = self.pods.get_mut(&pod).filter(|found| !found.terminating) {
                    found.ready = true;
                    let revision = found.revision;
                    self.time.trace(|| format!("pod {pod} of revision {revision} is ready"));
                    self.publish_pods(revision);
                }
            }
            Event::PodGone(pod) => {
                self.time.trace(|| format!("pod {pod} is gone"));
                self.pods.remove(&pod);
            }
            Event::EntryLearns { entry, revision, version, endpoints } => {
                if !self.changes[revision].iter().any(|change| change.version == version) {
                    return; // Overtaken by a newer change.
                }
                self.time.trace(|| format!("entry {entry} routes revision {revision} to {endpoints:?}"));
                self.entries[entry].endpoints[revision] = endpoints;
            }
            Event::ActivatorReady(index, life) => {
                if self.activators[index].process.life == life {
                    self.ready_since[index] = Some(self.time.now);
                    self.publish_activators();
                }
            }
            Event::Traffic(revision) => self.traffic(revision),
            Event::Arrive { revision, lasts } => {
                self.summary.requests += 1;
                self.arrive(revision, lasts);
            }
            Event::FinishDirect(request) => {
                self.direct.remove(&request);
                self.summary.served += 1;
            }
            Event::RivalWrite(revision) => self.rival_write(revision),
            Event::BeginFault(index) => self.begin(index),
            Event::EndFault(index) => self.end(index),
            Event::CheckWaits => {
                self.judge_waits(CHECK_PERIOD);
                self.time.after(CHECK_PERIOD, Event::CheckWaits);
            }
        }
    }

    fn deliver(&mut self, to: ProcessId, life: u32, event: Local) {
        let process = self.process(to);
        if process.life != life || process.down {
            return;
        }
        if process.paused {
            return process.backlog.push(event);
        }
        if let Local::Notify(_) = event
            && self.misses_changes(to)
        {
            return; // The process lists all objects again after the fault.
        }
        match to {
            ProcessId::Autoscaler(index) => self.autoscaler_event(index, event),
            ProcessId::Activator(index) => self.activator_event(index, event),
        }
    }

    fn misses_changes(&self, id: ProcessId) -> bool {
        match id {
            ProcessId::Autoscaler(index) => self.links.api_answer_lost(index),
            ProcessId::Activator(_) => self.links.is_active(Fault::StopApi),
        }
    }

    pub(crate) fn process(&mut self, id: ProcessId) -> &mut Process {
        match id {
            ProcessId::Autoscaler(index) => &mut self.autoscalers[index].process,
            ProcessId::Activator(index) => &mut self.activators[index].process,
        }
    }

    /// Delivers an event to a process after `delay`, if the process is still in the same life.
    pub(crate) fn schedule(&mut self, to: ProcessId, delay: Duration, event: Local) {
        let life = self.process(to).life;
        self.time.after(delay, Event::To(to, life, event));
    }
}
