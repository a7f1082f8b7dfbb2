//! Autoscaler process: its evaluations, and its state for each revision and bucket.
//!
//! Election, wheel, windows, deciders and the forwarding rule are the real ones. The parts of the shell between them
//! (queues, attestations, the map of deciders) are modeled as simply as possible.

use crate::events::{Local, Process, ProcessId};
use crate::lease::TIMING;
use crate::metrics::MetricState;
use crate::model::{Id, Object, Objects};
use crate::probe::Round;
use crate::reconcile::{Controller, Work};
use crate::simulation::Simulation;
use crate::summary::Without;
use crate::writers::{WriteQueue, Writers};
use autoscaler_core::decider::{Decider, Observation};
use autoscaler_core::forwarding::Forwarded;
use autoscaler_core::metrics::{CollectSpec, Metrics};
use autoscaler_core::multiscaler::Wheel;
use autoscaler_core::scale_conflict::ScaleConflict;
use autoscaler_core::scale_status::ScaleStatus;
use common::election::Election;
use common::stat::WireStatMessage;
use common::time::Timestamp;
use common::write_rate::TokenBucket;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum age of an attestation.
const ATTESTED_WITHIN: Duration = Duration::from_secs(3);

pub(crate) struct Autoscaler {
    pub(crate) process: Process,
    pub(crate) identity: String,
    pub(crate) election: Election,
    pub(crate) cache: Objects,
    wheel: Wheel<usize>,
    pub(crate) deciders: BTreeMap<usize, DeciderState>,
    /// Time of the last attestation of each activator.
    pub(crate) attested_at: Vec<Option<Duration>>,
    pub(crate) works: BTreeMap<(Controller, usize), Work>,
    pub(crate) rounds: BTreeMap<usize, Round>,
    /// Queue of writes that wait for tokens.
    pub(crate) write_queue: WriteQueue,
    /// Conflicts with other writers about replicas.
    pub(crate) conflicts: BTreeMap<usize, ScaleConflict>,
    /// Revisions with a pending write that removes the last pod, with the time until which it may be carried out.
    pub(crate) last_pod_removals: BTreeMap<usize, Duration>,
    /// Stats of revisions without an owner, with the time until which they are kept.
    pub(crate) ownerless: Vec<(Duration, WireStatMessage, Option<Forwarded<usize>>)>,
    wheel_at: Option<Duration>,
    pub(crate) elect_at: Option<Duration>,
    /// Pending writes by bucket.
    pub(crate) writers: Vec<Writers>,
    /// Holder of each lease as last published, and true if this process holds it.
    pub(crate) published: Vec<(Option<String>, bool)>,
}

pub(crate) struct DeciderState {
    decider: Decider,
    pub(crate) status: ScaleStatus,
    pub(crate) activators_in_path: bool,
    pub(crate) replicas: Option<i32>,
    pub(crate) metrics: Metrics,
    pub(crate) metric_state: MetricState,
}

/// Origin of the initial state of a decider.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Initial {
    Adopted(i32),
    TakenOver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Tick,
    Poke,
}

impl Autoscaler {
    pub(crate) fn new(index: usize, simulation: &Simulation) -> Self {
        let identity = format!("autoscaler-{index}_10.0.0.{index}");
        let buckets = simulation.plan.buckets;
        Self {
            process: Process::default(),
            election: Election::new(identity.clone(), buckets, TIMING, true, simulation.time.instant()),
            identity,
            cache: Objects::default(),
            wheel: Wheel::new(simulation.time.instant()),
            deciders: BTreeMap::new(),
            attested_at: vec![None; simulation.plan.activators],
            works: BTreeMap::new(),
            rounds: BTreeMap::new(),
            write_queue: WriteQueue::new(TokenBucket::new(simulation.plan.rate, simulation.time.instant())),
            conflicts: BTreeMap::new(),
            last_pod_removals: BTreeMap::new(),
            ownerless: Vec::new(),
            wheel_at: None,
            elect_at: None,
            writers: std::iter::repeat_with(Writers::default).take(buckets).collect(),
            published: vec![(None, false); buckets],
        }
    }
}

impl Simulation {
    pub(crate) fn start_autoscaler(&mut self, index: usize) {
        let mut fresh = Autoscaler::new(index, self);
        if let Some(old) = self.autoscalers.get_mut(index) {
            fresh.process.life = old.process.life;
            *old = fresh;
        } else {
            self.autoscalers.push(fresh);
        }
        self.relist(ProcessId::Autoscaler(index));
        self.schedule(ProcessId::Autoscaler(index), Duration::from_secs(1), Local::Scrape);
        self.schedule(ProcessId::Autoscaler(index), Duration::from_secs(1), Local::ForeignWrites);
    }

    pub(crate) fn autoscaler_event(&mut self, index: usize, event: Local) {
        match event {
            Local::Notify(id) => self.autoscaler_observes(index, id),
            Local::WheelDue => self.run_wheel(index),
            Local::Elect => {
                self.autoscalers[index].elect_at = None;
                self.elect(index);
            }
            Local::LeaseAnswer { lease, sent, answer } => self.settle_lease(index, lease, sent, answer),
            Local::Pass(controller, revision) => self.pass(index, controller, revision),
            Local::Timer(controller, revision) => self.timer(index, controller, revision),
            Local::WriteAnswer { controller, revision, answer } => {
                self.settle_write(index, (controller, revision), answer)
            }
            Local::TokensReady => self.retry_writes(index),
            Local::ForeignWrites => self.foreign_writes(index),
            Local::Measure { revision, series } => self.measure(index, revision, series),
            Local::WriteEnded(bucket) => self.end_write(index, bucket),
            Local::IdleTimeout { bucket, wait } => self.idle_timeout(index, bucket, wait),
            Local::Probe(revision) => self.probe(index, revision),
            Local::Frame(frame) => self.frame(index, frame),
            Local::Scrape => self.scrape(index),
            Local::Report | Local::Request { .. } | Local::Finish(_) => {}
        }
    }

    fn autoscaler_observes(&mut self, index: usize, id: Id) {
        let now = self.time.instant();
        let stored = self.store.get(id).cloned();
        let autoscaler = &mut self.autoscalers[index];
        if let Id::Lease(bucket) = id {
            let record = stored.and_then(|(_, object)| match object {
                Object::Lease(record) => Some(record),
                _ => None,
            });
            autoscaler.election.observe(bucket, record, now, &mut self.rng);
            return self.elect(index);
        }
        let Some((version, object)) = stored else { return };
        autoscaler.cache.put(id, version, object);
        match id {
            Id::Target(r) | Id::Status(r) => self.enqueue(index, (Controller::Autoscaler, r)),
            Id::Path(r) | Id::Private(r) => {
                self.enqueue(index, (Controller::Autoscaler, r));
                self.enqueue(index, (Controller::Serverless, r));
            }
            Id::Public(r) => self.enqueue(index, (Controller::Serverless, r)),
            Id::Activators => {
                (0..self.plan.revisions.len()).for_each(|r| self.enqueue(index, (Controller::Serverless, r)));
            }
            Id::Lease(_) => {}
        }
    }

    fn run_wheel(&mut self, index: usize) {
        self.autoscalers[index].wheel_at = None;
        let due = self.autoscalers[index].wheel.due(self.time.instant());
        for revision in due.into_iter().flat_map(|(_, revisions)| revisions) {
            self.evaluate(index, revision, Cause::Tick);
        }
        self.schedule_wheel(index);
    }

    /// Schedules the next tick of the wheel.
    fn schedule_wheel(&mut self, index: usize) {
        let autoscaler = &mut self.autoscalers[index];
        let next = autoscaler.wheel.next_due();
        let Some(at) = next.map(|at| at.saturating_duration_since(self.time.epoch).max(self.time.now)) else { return };
        if autoscaler.wheel_at.is_none_or(|known| at < known) {
            autoscaler.wheel_at = Some(at);
            self.schedule(ProcessId::Autoscaler(index), at - self.time.now, Local::WheelDue);
        }
    }

    fn all_attested(&self, index: usize) -> bool {
        let autoscaler = &self.autoscalers[index];
        let ready = autoscaler.cache.ready_activators();
        let fresh = |activator: &usize| {
            autoscaler.attested_at[*activator].is_some_and(|at| self.time.now <= at + ATTESTED_WITHIN)
        };
        self.without == Some(Without::Attestation) || (!ready.is_empty() && ready.iter().all(fresh))
    }

    pub(crate) fn evaluate(&mut self, index: usize, revision: usize, cause: Cause) {
        let (now, all_attested) = (self.timestamp(), self.all_attested(index));
        let spec = &self.plan.revisions[revision].spec;
        let autoscaler = &mut self.autoscalers[index];
        let ready = autoscaler.cache.ready_pods(revision).len() as u32;
        let Some(state) = autoscaler.deciders.get_mut(&revision) else { return };
        let attested = cause == Cause::Poke || !state.activators_in_path || all_attested;
        let load = state.metrics.load(spec.metric, now);
        state.metrics.release(now);
        let decision = state.decider.decide(spec, &Observation { now, ready: Ok(ready), load, attested });
        let before = state.status.desired;
        let inform = state.status.apply(&decision, attested);
        if let Ok(recommendation) = &decision {
            self.judge_decision(index, revision, before, recommendation);
        }
        if inform {
            self.time.trace(|| format!("autoscaler {index} decides on revision {revision} by {cause:?}: {decision:?}"));
            self.enqueue_urgent(index, revision);
        }
    }

    /// Creates the decider of a revision, with its state, unless it exists.
    pub(crate) fn ensure_decider(&mut self, index: usize, revision: usize, initial: Initial) {
        if self.autoscalers[index].deciders.contains_key(&revision) {
            return;
        }
        let now = self.timestamp();
        let plan = &self.plan.revisions[revision];
        let spec = &plan.spec;
        let ready = self.autoscalers[index].cache.ready_pods(revision).len() as u32;
        let mut decider = Decider::new(spec, ready, now).with_live_delay();
        let (status, replicas) = match initial {
            Initial::Adopted(found) => (ScaleStatus::adopted(spec, found), Some(found)),
            Initial::TakenOver => {
                decider = decider.taken_over();
                (ScaleStatus::taken_over(spec), None)
            }
        };
        let metrics = Metrics::new(&CollectSpec {
            stable_window: spec.stable_window,
            panic_window: spec.panic_window,
            aggregation: spec.aggregation,
            scrape_target: plan.scraped.then(String::new),
        });
        self.time.trace(|| format!("autoscaler {index} starts to decide on revision {revision}: {initial:?}"));
        let metric_state = MetricState::default();
        let state = DeciderState { decider, status, activators_in_path: false, replicas, metrics, metric_state };
        let autoscaler = &mut self.autoscalers[index];
        autoscaler.deciders.insert(revision, state);
        autoscaler.wheel.insert(revision);
        self.schedule_wheel(index);
    }

    /// Drops the state of a revision that another process owns.
    pub(crate) fn drop_revision(&mut self, index: usize, revision: usize) {
        self.last_writes.remove(&(index, self.autoscalers[index].process.life, revision));
        let autoscaler = &mut self.autoscalers[index];
        autoscaler.wheel.remove(&revision);
        autoscaler.rounds.remove(&revision);
        autoscaler.conflicts.remove(&revision);
        if autoscaler.deciders.remove(&revision).is_some() {
            self.time.trace(|| format!("autoscaler {index} drops revision {revision}"));
        }
    }

    pub(crate) fn timestamp(&self) -> Timestamp {
        Timestamp::from_secs(1_700_000_000) + self.time.now
    }
}
