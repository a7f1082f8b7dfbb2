//! All decision loops of a process: one table, one timer wheel, one task.
//!
//! An evaluation is synchronous. It takes the revision's lock, reads load and ready pods, decides, and queues the key
//! if the reconciler must act. It can therefore run wherever its cause arises:
//!
//! - **on a tick**, in the task that turns the wheel ([`Multiscaler::run`]), every two seconds for each revision;
//! - **on a poke**, in the task that has just read the stat from its socket ([`Multiscaler::stat_recorded`]). No timer
//!   and no other task lies between a frame and the reconciler's queue;
//! - **on an edit** of the spec, in the reconciler's task ([`Deciders::ensure`]).
//!
//! # Missing reports
//!
//! While activators are in the path, a tick trusts its windows only if every ready activator attests
//! ([`Attestations`]). Otherwise the reported load is a lower bound, which can only raise the scale. A poke needs no
//! attestation: its cause is a stat that shows traffic at a scale of zero, so it can only raise the scale.
//!
//! # Requests in flight
//!
//! A rate counts a request in the second of its arrival, but a request may run, or wait for a pod, longer than the
//! window. By our own rules (standalone) requests in flight need at least one pod, whatever the metric. Upstream may
//! remove the last pod under them.
//!
//! # Not here
//!
//! The rules themselves (`autoscaler_core`), and the set of loops: a reconciler creates and removes them.

#[cfg(test)]
mod tests;

use super::metrics::{DeciderMetrics, RevisionMetrics};
use super::trace::Waking;
use super::{Deciders, Initial, Pods, Requests, RevisionExists, ScaleStatus, Subject, Surroundings};
use crate::collect::Collector;
use crate::ingest::attest::{ATTESTED_WITHIN, Attestations};
use crate::pods::PodIndex;
use autoscaler_core::decider::{Decider, Load, Observation, Unknown};
use autoscaler_core::engine::BlendedScale;
use autoscaler_core::history::{Action, Cause as Because, Entry, EntryOutcome, History};
use autoscaler_core::multiscaler::Wheel;
use common::RevisionKey;
use common::scaling::{DeciderSpec, ScalingMetric};
use common::time::Timestamp;
use common_controller::Priority;
use common_runtime::clock::Clock;
use common_runtime::telemetry::traces::Tracing;
use dashmap::DashMap;
use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Load that needs one pod at any target, because every target is larger.
pub(crate) const LOAD_MIN: f64 = 1e-6;

/// Dependencies of a multiscaler.
#[derive(Clone)]
pub struct Sources {
    /// Measured load.
    pub collector: Arc<Collector>,
    /// Ready pods.
    pub pods: Arc<PodIndex>,
    /// Attestations of the activators.
    pub attestations: Arc<Attestations>,
    /// Wall-clock time.
    pub clock: Clock,
    /// Queue for revisions whose decision changed.
    pub requests: Requests,
    /// Metrics of the decisions.
    pub metrics: DeciderMetrics,
    /// Exporter for the spans of wakes.
    pub tracing: Option<Tracing>,
}

/// All decision loops of a process.
pub struct Multiscaler {
    sources: Sources,
    /// Enables our own rules: an edited scale-down delay takes effect (upstream fixes it at creation), and requests in
    /// flight need a pod even if the metric is requests per second.
    has_own_rules: bool,
    loops: DashMap<RevisionKey, Arc<Mutex<Loop>>>,
    /// Histories of revisions without a loop (such as refused ones), until their keys are forgotten.
    detached_histories: DashMap<RevisionKey, History>,
    wheel: Mutex<Wheel<RevisionKey>>,
    /// Notified when the wheel has changed.
    turned: Notify,
    /// Predicate for existing revisions; none: not set yet.
    exists: OnceLock<RevisionExists>,
}

/// Decision loop of one revision.
struct Loop {
    subject: Subject,
    surroundings: Surroundings,
    decider: Decider,
    status: ScaleStatus,
    /// Set by a request to sleep, until a request arrives or new pods start. The present pods are about to end.
    sent_to_sleep: bool,
    /// Time of the last stat with held or served requests.
    last_served: Option<Instant>,
    history: History,
    /// Number of changes of the history.
    changes: u32,
    metrics: RevisionMetrics,
    waking: Option<Arc<Waking>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Tick,
    Poke,
}

/// Explanation of a revision's scale.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// State of the loop; none for a revision that is refused or given back.
    pub present: Option<Present>,
    /// Decisions and actions as changes, oldest first.
    pub history: Vec<Entry>,
}

/// State of a revision's loop.
#[derive(Clone, Debug)]
pub struct Present {
    /// Latest decision.
    pub status: ScaleStatus,
    /// Inputs of the decision.
    pub subject: Subject,
    /// Surroundings as last observed by the reconciler.
    pub surroundings: Surroundings,
    /// Set if the decider is in panic mode.
    pub panicking: bool,
}

/// Summary of a revision's loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LoopSummary {
    /// Desired pods, after bounds and scale to zero if the reconciler has acted.
    pub desired: Option<i32>,
    /// Set if the decider is in panic mode.
    pub panicking: bool,
    /// Counter that changes with each new decision or action.
    pub changes: u32,
}

impl Multiscaler {
    /// Creates a multiscaler without loops. `has_own_rules`: apply our rules where they differ from upstream's.
    pub fn new(sources: Sources, has_own_rules: bool) -> Self {
        let wheel = Mutex::new(Wheel::new(Instant::now().into_std()));
        let (loops, detached_histories, turned) = (DashMap::new(), DashMap::new(), Notify::new());
        Self { sources, has_own_rules, loops, detached_histories, wheel, turned, exists: OnceLock::new() }
    }

    /// Returns the revisions that have a loop.
    pub fn keys(&self) -> Vec<RevisionKey> {
        self.loops.iter().map(|entry| entry.key().clone()).collect()
    }

    /// Returns the summary of a revision's loop; none: it has none.
    pub fn summary(&self, key: &RevisionKey) -> Option<LoopSummary> {
        let entry = self.get(key)?;
        let state = entry.lock();
        let acted = state.history.entries().rev().find_map(|entry| match &entry.outcome {
            EntryOutcome::Action(action) => Some(action.wanted),
            _ => None,
        });
        let desired = acted.flatten().or(state.status.desired);
        Some(LoopSummary { desired, panicking: state.decider.is_panicking(), changes: state.changes })
    }

    /// Turns the wheel until `shutdown`.
    pub async fn run(&self, shutdown: CancellationToken) {
        loop {
            let due = self.wheel.lock().due(Instant::now().into_std());
            for (phase, keys) in due {
                keys.iter().for_each(|key| self.evaluate(key, Cause::Tick));
                self.sources.metrics.ticked(Instant::now().into_std().saturating_duration_since(phase));
            }
            let next = self.wheel.lock().next_due().map(Instant::from_std);
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.turned.notified() => {}
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
        }
    }

    /// Handles a recorded stat of this concurrency. Evaluates at once if the stat wakes the revision; `trace` names
    /// the span of the waking request, if it is traced.
    pub fn stat_recorded(&self, key: &RevisionKey, average_concurrency: f64, trace: &str) {
        let Some(entry) = self.get(key) else { return };
        let mut state = entry.lock();
        if average_concurrency > 0.0 {
            (state.last_served, state.sent_to_sleep) = (Some(Instant::now()), false);
        }
        if !state.status.wakes(average_concurrency, state.surroundings.replicas == Some(0)) {
            return;
        }
        state.metrics.record_wake_request(Instant::now());
        if let Some(tracing) = self.sources.tracing.as_ref().filter(|_| !trace.is_empty() && state.waking.is_none()) {
            state.waking = Waking::begin(tracing, trace, key).map(Arc::new);
        }
        drop(state);
        self.evaluate(key, Cause::Poke);
    }

    /// Requests a reconcile of an owned revision that is not measured yet, as after a change of leader, because of a
    /// stat: a revision with traffic is reconciled before the others. Names arrive over the network, so names that do
    /// not exist are ignored.
    pub fn request_unmeasured(&self, key: &RevisionKey) {
        if self.exists.get().is_some_and(|exists| exists(key)) {
            self.sources.requests.add(key.clone(), Priority::Normal);
        }
    }

    /// Returns the state and history of a revision's decisions; none: nothing is known of it.
    pub fn explain(&self, key: &RevisionKey) -> Option<Explanation> {
        let entries = |history: &History| history.entries().cloned().collect();
        let Some(entry) = self.get(key) else {
            let history = self.detached_histories.get(key)?;
            return Some(Explanation { present: None, history: entries(&history) });
        };
        let state = entry.lock();
        let present = Present {
            status: state.status,
            subject: state.subject.clone(),
            surroundings: state.surroundings,
            panicking: state.decider.is_panicking(),
        };
        Some(Explanation { present: Some(present), history: entries(&state.history) })
    }

    /// Returns the histogram of a revision's scrape durations; none if it has no loop.
    pub fn scrapes(&self, key: &RevisionKey) -> Option<Histogram> {
        Some(self.get(key)?.lock().metrics.scrapes())
    }

    /// Handles a change of the wall clock. The contents of the windows belong to another time, so the windows must
    /// fill again before anything is scaled down.
    pub fn clock_was_set(&self) {
        for key in self.keys() {
            let Some(entry) = self.get(&key) else { continue };
            let ready = self.sources.pods.ready(&key).unwrap_or(0);
            let mut state = entry.lock();
            self.sources.collector.clear(&key);
            state.decider = self.decider(&state.subject.spec, ready).taken_over();
            state.status.warm_up_left = Some(state.subject.spec.stable_window);
        }
    }

    fn evaluate(&self, key: &RevisionKey, cause: Cause) {
        let Some(entry) = self.get(key) else { return };
        let Sources { pods, attestations, clock, requests, .. } = &self.sources;
        let now = clock.now();
        let mut guard = entry.lock();
        let state = &mut *guard;
        // Pods that are about to end do not count.
        let ready = pods.ready(key).map(|ready| if state.sent_to_sleep { 0 } else { ready });
        let attested =
            cause == Cause::Poke || !state.surroundings.activators_in_path || attestations.attested(Instant::now());
        let deciding = state.waking.as_ref().filter(|_| cause == Cause::Poke).map(|waking| waking.deciding());
        let load = self.load(key, state.subject.spec.metric, now);
        let decision = state.decider.decide(&state.subject.spec, &Observation { now, ready, load, attested });
        if let Some(deciding) = deciding {
            deciding.decided(&decision);
        }
        state.changes += u32::from(state.history.record(now, &decision));
        state.metrics.set_pods(pods.counts(key), Instant::now());
        self.sources.metrics.decided(&decision);
        let inform = state.status.apply(&decision, attested);
        match &decision {
            Ok(recommendation) => {
                state.metrics.set(recommendation);
                if recommendation.desired == 0 {
                    state.metrics.record_no_demand(false);
                    state.waking = None;
                }
                if inform {
                    tracing::debug!(%key, ?recommendation, "decided");
                }
            }
            Err(unknown) => tracing::trace!(%key, %unknown, "nothing can be decided"),
        }
        drop(guard);
        if inform {
            requests.add(key.clone(), Priority::Normal);
        }
    }

    /// Returns the load of a revision. By our own rules, requests in flight amount to at least [`LOAD_MIN`], whatever
    /// the metric.
    fn load(&self, key: &RevisionKey, metric: ScalingMetric, now: Timestamp) -> Result<Load, Unknown> {
        let load = self.sources.collector.load(key, metric, now)?;
        if metric == ScalingMetric::Concurrency || !self.has_own_rules {
            return Ok(load);
        }
        let in_flight = self.sources.collector.load(key, ScalingMetric::Concurrency, now)?;
        let least = |rate: f64, in_flight: f64| if in_flight > 0.0 { rate.max(LOAD_MIN) } else { rate };
        Ok(Load { stable: least(load.stable, in_flight.stable), panic: least(load.panic, in_flight.panic) })
    }

    /// Creates a decider for a revision with this number of ready pods.
    fn decider(&self, spec: &DeciderSpec, ready: u32) -> Decider {
        let decider = Decider::new(spec, ready, self.sources.clock.now());
        if self.has_own_rules { decider.with_live_delay() } else { decider }
    }

    fn create(&self, key: &RevisionKey, subject: Subject, initial: Initial) -> Loop {
        let Sources { pods, metrics, .. } = &self.sources;
        let spec = &subject.spec;
        let mut decider = self.decider(spec, pods.ready(key).unwrap_or(0));
        let (mut status, mut surroundings) = (ScaleStatus::initial(spec), Surroundings::default());
        match initial {
            Initial::Unknown => {}
            Initial::Adopted(replicas) => {
                status = ScaleStatus::adopted(spec, replicas);
                surroundings.replicas = Some(replicas);
            }
            Initial::TakenOver => {
                decider = decider.taken_over();
                status = ScaleStatus::taken_over(spec);
            }
        }
        Loop {
            decider,
            status,
            sent_to_sleep: false,
            last_served: None,
            surroundings,
            history: self.detached_histories.remove(key).map(|(_, history)| history).unwrap_or_default(),
            changes: 0,
            metrics: metrics.revision(key, &subject.labels, spec.metric),
            waking: None,
            subject,
        }
    }

    fn get(&self, key: &RevisionKey) -> Option<Arc<Mutex<Loop>>> {
        self.loops.get(key).map(|entry| entry.value().clone())
    }
}

impl Deciders for Multiscaler {
    fn set_existing(&self, exists: RevisionExists) {
        let _ = self.exists.set(exists);
    }

    fn ensure(&self, key: &RevisionKey, subject: Subject, initial: Initial) {
        if let Some(entry) = self.get(key) {
            let mut state = entry.lock();
            if state.subject == subject {
                return;
            }
            if (&state.subject.labels, state.subject.spec.metric) != (&subject.labels, subject.spec.metric) {
                state.metrics = self.sources.metrics.revision(key, &subject.labels, subject.spec.metric);
            }
            state.subject = subject;
            drop(state);
            self.evaluate(key, Cause::Tick);
        } else {
            // The reconciler runs each key once at a time, so this loop is not created concurrently.
            let created = self.create(key, subject, initial);
            self.loops.insert(key.clone(), Arc::new(Mutex::new(created)));
            self.wheel.lock().insert(key.clone());
            self.turned.notify_one();
        }
    }

    fn observe(&self, key: &RevisionKey, surroundings: Surroundings) {
        let Some(entry) = self.get(key) else { return };
        let mut state = entry.lock();
        if state.surroundings.replicas == Some(0) && surroundings.replicas.is_some_and(|replicas| replicas > 0) {
            state.sent_to_sleep = false; // The sleep is over: the new pods count.
        }
        state.surroundings = surroundings;
    }

    fn status(&self, key: &RevisionKey) -> Option<ScaleStatus> {
        Some(self.get(key)?.lock().status)
    }

    fn waking(&self, key: &RevisionKey) -> Option<Arc<Waking>> {
        self.get(key)?.lock().waking.clone()
    }

    fn is_serving(&self, key: &RevisionKey) -> Option<bool> {
        let Sources { attestations, clock, .. } = &self.sources;
        let entry = self.get(key)?;
        let state = entry.lock();
        let attested = !state.surroundings.activators_in_path || attestations.attested(Instant::now());
        let load = self.load(key, state.subject.spec.metric, clock.now()).ok()?;
        // A short panic window is empty between the start of a second and its first stat.
        let served_recently = state.last_served.is_some_and(|at| at.elapsed() < ATTESTED_WITHIN);
        let serving = load.panic > 0.0 || served_recently;
        (attested || serving).then_some(serving)
    }

    fn forget_load(&self, key: &RevisionKey) {
        let Some(entry) = self.get(key) else { return };
        let mut state = entry.lock();
        self.sources.collector.clear(key);
        // A decider created with its ready pods would keep them.
        state.decider = self.decider(&state.subject.spec, 0);
        state.sent_to_sleep = true;
        let unattested = state.status.unattested;
        state.status = ScaleStatus { unattested, ..ScaleStatus::adopted(&state.subject.spec, 0) };
    }

    fn requested(&self, key: &RevisionKey, replicas: i32) {
        if let Some(entry) = self.get(key) {
            entry.lock().metrics.set_requested(replicas);
        }
    }

    fn record_action(&self, key: &RevisionKey, action: Action) {
        let now = self.sources.clock.now();
        match self.get(key) {
            Some(entry) => {
                let mut state = entry.lock();
                if action.patched
                    && action.replicas == Some(0)
                    && let Some(took) = state.metrics.woken(Instant::now())
                    && let Some(observer) = self.sources.collector.observer.get()
                {
                    observer.woken(key, took);
                }
                if action.patched && action.wanted == Some(0) {
                    state.metrics.record_no_demand(true);
                }
                state.conclude_trace(&action);
                state.changes += u32::from(state.history.act(now, action));
            }
            None => _ = self.detached_histories.entry(key.clone()).or_default().act(now, action),
        }
    }

    fn blended(&self, key: &RevisionKey, scale: &BlendedScale) {
        let now = self.sources.clock.now();
        if let Some(entry) = self.get(key) {
            let mut state = entry.lock();
            state.changes += u32::from(state.history.blend(now, scale));
        }
    }

    fn remove(&self, key: &RevisionKey) {
        self.wheel.lock().remove(key);
        if let Some((_, entry)) = self.loops.remove(key) {
            self.detached_histories.insert(key.clone(), std::mem::take(&mut entry.lock().history));
        }
    }

    fn forget(&self, key: &RevisionKey) {
        self.remove(key);
        self.detached_histories.remove(key);
    }
}

impl Loop {
    /// Ends the spans of a wake if this action concludes it. An action that left the target at zero replicas does not,
    /// because its reconcile may have begun before the wake.
    fn conclude_trace(&mut self, action: &Action) {
        match action.because {
            Because::Obstacle(obstacle) => {
                if let Some(waking) = self.waking.take() {
                    waking.failed(obstacle.explain());
                }
            }
            Because::Rule(_) if action.patched || action.replicas != Some(0) => self.waking = None,
            Because::Rule(_) => {}
        }
    }
}
