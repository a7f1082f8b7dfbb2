//! Turns a decision into an outcome, and the outcome into the replicas patch or the obstacle that prevents it.

use super::conflicts::Conflicts;
use super::front_end::{FrontEnd, Notices};
use super::parts::Parts;
use super::refusals::RETRY_WITHIN;
use super::scaler::Change;
use super::workload::{PathState, Previous, Workload};
use crate::cluster::error::Error;
use crate::metric_engine;
use crate::scale::{Deciders, Failing, Initial, ScaleStatus, Subject, Surroundings};
use autoscaler_core::active::Active;
use autoscaler_core::engine::BlendedScale;
use autoscaler_core::engine::blend::Input as Blend;
use autoscaler_core::history::{Action, Cause, Obstacle};
use autoscaler_core::manual_requests::{self, Step};
use autoscaler_core::path_mode::PathMode;
use autoscaler_core::scale_to_zero::{self, Input as ToZero, ProbeNeed, ProbeResult, Reason};
use common::RevisionKey as Key;
use common::annotations::{METRIC_CONCURRENCY, METRIC_RPS};
use common::scaling::ScalingMetric;
use common::time::Timestamp;
use common_controller::WriteError;
use std::fmt::Display;
use std::time::Duration;

/// Requeue delay of an operator's request that waits for the load to be known.
const WAITS_FOR: Duration = Duration::from_secs(2);

/// Minimum patience with failing pods for which no request waits.
const GIVES_UP_AFTER: Duration = Duration::from_secs(10);

/// Scale decision of a reconcile.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScaleDecision {
    /// Desired pods; `None` if unknown.
    pub(super) desired: Option<i32>,
    pub(super) excess_burst_capacity: i32,
    /// The path stays unchanged while pods are wanted.
    pub(super) keeps_path: bool,
    /// Action taken on an operator's request to wake or sleep, if there is one.
    pub(super) step: Option<Step>,
    /// The workload falls asleep for a reason other than idleness: an operator requested it, its pods were removed and
    /// no request waits, or its pods fail. Failing pods are reported elsewhere, and that sleep may end sooner.
    pub(super) sleeps: bool,
}

impl ScaleDecision {
    /// Nothing is known.
    pub(super) const UNKNOWN: Self =
        Self { desired: None, excess_burst_capacity: -1, keeps_path: false, step: None, sleeps: false };
}

/// Demand of decider and metrics for one workload.
struct Demand {
    decision: Option<ScaleStatus>,
    /// Pods that the load needs; `None` if unknown.
    load: Option<i32>,
    /// Blend of load and metrics; `None` if the load alone decides.
    blended: Option<BlendedScale>,
    /// Reason why the pods do not serve, if they fail.
    failing: Option<Failing>,
}

impl Demand {
    /// Returns the desired pods, or `None` if unknown.
    fn desired(&self) -> Option<i32> {
        self.blended.as_ref().map_or(self.load, |blended| blended.desired)
    }
}

/// A due change of replicas, and its causes.
#[derive(Clone, Copy)]
struct DueChange<'a> {
    to: i32,
    reason: Reason,
    desired: Option<i32>,
    step: Option<Step>,
    load: Option<i32>,
    /// Entry for the history.
    planned: &'a Action,
}

/// Decides the scale of workloads, and patches their replicas.
pub(super) struct Scaling {
    pub(super) parts: Parts,
    pub(super) conflicts: Conflicts,
}

impl Scaling {
    fn deciders(&self) -> &dyn Deciders {
        &*self.parts.ports.deciders
    }

    /// Combines decider, metrics and rules into an outcome, and patches the replicas if needed.
    pub(super) async fn decide<F: FrontEnd>(
        &self,
        front_end: &F,
        key: &Key,
        subject: &F::Subject,
        (workload, previous): (&Workload, Previous),
        now: Timestamp,
    ) -> Result<ScaleDecision, Error> {
        let Workload { parameters, target, .. } = workload;
        let current = target.current();
        let demand = self.demand(key, workload, previous.has_scale, now);
        // Another writer scaled the target to zero during a wake, and no request waits. Treat the workload as put to
        // sleep.
        let is_abandoned = workload.waits_for_decision
            && previous.active.is_activating()
            && current == 0
            && demand.desired() == Some(0);
        let active = if is_abandoned { Active::False(Duration::ZERO) } else { previous.active };
        // A proof that activators are in the path is needed only to remove the pods of an inactive workload.
        let probe = match active {
            Active::False(_) if current > 0 => front_end.probe_result(key, subject),
            _ => ProbeResult::NotProbed,
        };
        let zero_input = scale_to_zero_input(workload, &demand, active, probe);
        let step = self.step_for_request(key, workload, &zero_input, demand.load);
        let outcome = match step {
            _ if workload.paused => manual_requests::paused(current),
            Some(step) => {
                let activation_scale = parameters.decider.activation_scale;
                scale_to_zero::decide(&manual_requests::applied(zero_input, step, activation_scale))
            }
            None => scale_to_zero::decide(&zero_input),
        };
        if matches!(outcome.probe, ProbeNeed::Probe | ProbeNeed::Retry) {
            front_end.request_probe(key, subject);
        }
        let reason = match step {
            Some(step) => step.reason(outcome.reason),
            None => demand.blended.as_ref().map_or(outcome.reason, |blended| outcome.reason.refined_by(blended)),
        };
        let planned = Action::planned(outcome.wanted_scale, current, parameters.bounds, reason);
        let blocked = |obstacle| Action { because: Cause::Obstacle(obstacle), ..planned };
        match outcome.patch {
            None => {
                self.parts.scaler.clear_refusal(key);
                self.deciders().record_action(key, planned);
            }
            Some(_) if !workload.may_scale => {
                self.deciders().record_action(key, blocked(Obstacle::ServicePending));
            }
            Some(to) if self.is_contested(key, current, to) => {
                self.deciders().record_action(key, blocked(Obstacle::Contested));
            }
            Some(to) => {
                let (desired, load) = (zero_input.desired, demand.load);
                let due = DueChange { to, reason, desired, step, load, planned: &planned };
                self.patch(front_end, key, subject, workload, &due).await?;
            }
        }
        if let Some(after) = outcome.requeue {
            self.parts.writes.decisions.add_after(key.clone(), after);
        }
        if let Some(desired) = outcome.wanted_scale {
            self.deciders().requested(key, desired);
        }
        let Demand { decision, failing, .. } = demand;
        Ok(ScaleDecision {
            desired: outcome.wanted_scale,
            excess_burst_capacity: decision.map_or(-1, |decision| decision.excess_burst_capacity),
            keeps_path: workload.paused || decision.is_some_and(|decision| decision.warm_up_left.is_some()),
            step,
            sleeps: outcome.wanted_scale == Some(0)
                && (is_abandoned || failing.is_some() || matches!(step, Some(Step::Sleep { .. }))),
        })
    }

    /// Updates decider and pod index with the workload, and returns the current demand.
    fn demand(&self, key: &Key, workload: &Workload, has_scale: bool, now: Timestamp) -> Demand {
        self.parts.ports.pods.track(key, workload.pods.clone(), workload.owner());
        let subject = Subject { spec: workload.parameters.decider.clone(), labels: workload.labels.clone() };
        let surroundings = surroundings(workload, workload.target.current());
        // Called twice: `ensure` evaluates an edited spec immediately and needs current surroundings, and a loop
        // created by `ensure` does not have any yet.
        self.deciders().observe(key, surroundings);
        // `ensure` uses this only to create a loop. If a scale was already reported then, the revision was scaled
        // before, and its windows are empty.
        self.deciders().ensure(key, subject, if has_scale { Initial::TakenOver } else { workload.initial });
        self.deciders().observe(key, surroundings);
        // Read once, before a patch: the patch may remove those pods.
        let failing = self.parts.ports.pods.failing(key);
        let decision = self.deciders().status(key);
        let load = decision.and_then(|decision| decision.desired);
        let blended = self.blend(key, workload, now, load);
        if let Some(blended) = &blended {
            self.deciders().blended(key, blended);
        }
        Demand { decision, load, blended, failing }
    }

    /// Blends load and metrics. Returns `None` if the load alone decides.
    fn blend(&self, key: &Key, workload: &Workload, now: Timestamp, load: Option<i32>) -> Option<BlendedScale> {
        let followed = workload.metrics.as_ref().and_then(|plan| Some((plan, workload.selector()?)));
        let Some((plan, selector)) = followed else {
            self.parts.engine.forget(key);
            return None;
        };
        let (current, parameters) = (workload.target.current(), &workload.parameters);
        self.parts.engine.follow(key, metric_engine::Subject { plan: plan.clone(), selector }, current);
        let load_name = match parameters.decider.metric {
            ScalingMetric::Concurrency => METRIC_CONCURRENCY,
            ScalingMetric::Rps => METRIC_RPS,
        };
        let (bounds, behavior) = (parameters.bounds, plan.behavior.as_ref());
        self.parts.engine.blend(key, &Blend { now, current, bounds, load, load_name, measured: None, behavior })
    }

    /// Patches the replicas, and reports the result.
    async fn patch<F: FrontEnd>(
        &self,
        front_end: &F,
        key: &Key,
        subject: &F::Subject,
        workload: &Workload,
        due: &DueChange<'_>,
    ) -> Result<(), Error> {
        let Workload { target, target_key, kind, .. } = workload;
        let (current, DueChange { to, step, planned, .. }) = (target.current(), *due);
        // Requests wait for more pods. However this reconcile ends, another attempt must follow soon.
        if to > current {
            self.parts.writes.decisions.add_after(key.clone(), RETRY_WITHIN);
        }
        let waking = self.deciders().waking(key);
        let patching = waking.map(|waking| waking.patching(target_key.object.name(), current, to));
        // While the patch waits for its turn, new requests may arrive that need the pods which it would remove. A
        // forced sleep has discarded the load, so it is not compared.
        let is_still_due = || match step {
            _ if to > current => true,
            Some(Step::Sleep { .. }) => self.deciders().is_serving(key) == Some(false),
            _ => !self.wants_more(key, workload, due.load, to),
        };
        let why = due.reason.explain_change(due.desired, to);
        let change = Change { to, why, is_still_due: &is_still_due };
        let patched = self.parts.scaler.patch(key, kind, target_key, target, change).await;
        if let Some(patching) = patching {
            let error = patched.as_ref().err();
            patching.answered(error.map_or(Some(200), Error::status), error.map(|error| error as &dyn Display));
        }
        match &patched {
            Ok(_) => self.deciders().record_action(key, Action { patched: true, ..*planned }),
            Err(Error::Write(WriteError::Outdated { .. })) => {} // The next reconcile follows at once.
            Err(error) => {
                let because = Cause::Obstacle(error.obstacle());
                self.deciders().record_action(key, Action { because, ..*planned });
            }
        }
        front_end.scaled(key, subject, patched.map_err(Error::during("error scaling target"))?);
        if let Some(message) = self.conflicts.written(key, workload, to) {
            tracing::warn!(revision = %key, to, message, "another writer keeps changing the replicas");
            front_end.warn(subject, "ReplicasContested", message);
        }
        self.deciders().observe(key, surroundings(workload, to));
        if let Some(plan) = &workload.metrics {
            self.parts.engine.scaled(key, plan.behavior.as_ref(), current, to);
        }
        Ok(())
    }

    /// Returns the observations to report: a refusal, another writer, foreign pods.
    pub(super) fn notices(&self, key: &Key, workload: &Workload) -> Notices {
        let (refused, contest) = (self.parts.scaler.refusals.reported(key), self.conflicts.explain(key, workload));
        let foreign_controllers = self.parts.ports.pods.foreign_pods(key).map(|foreign| foreign.controllers);
        Notices { unmeasured: None, refused, contest, foreign_controllers }
    }

    /// Returns true if the load has grown since the decision (`load`) and now needs more than `to` pods.
    fn wants_more(&self, key: &Key, workload: &Workload, load: Option<i32>, to: i32) -> bool {
        let desired = self.deciders().status(key).and_then(|decision| decision.desired);
        desired > load && desired.is_some_and(|desired| workload.parameters.bounds.clamp(desired) > to)
    }

    /// Returns the action for an operator's wake or sleep request, if there is one. Has side effects: forgets the past
    /// load if the sleep requires it, and requeues the key while the load is unknown.
    fn step_for_request(&self, key: &Key, workload: &Workload, input: &ToZero, load: Option<i32>) -> Option<Step> {
        let request = workload.request.as_ref()?;
        let step = manual_requests::step(&manual_requests::Input {
            wanted: request.wanted,
            age: request.age,
            is_begun: request.is_begun,
            paused: workload.paused,
            replicas: input.current_replicas,
            active: input.active,
            min: input.bounds.min.max(i32::from(!input.scale_to_zero)),
            load,
            desired: input.desired,
            serving: self.deciders().is_serving(key),
        });
        match step {
            Step::Sleep { forget: true } => self.deciders().forget_load(key),
            // Whether requests are being served is known with the next tick, which may cause no reconcile by itself.
            Step::Wait => self.parts.writes.decisions.add_after(key.clone(), WAITS_FOR),
            _ => {}
        }
        Some(step)
    }

    /// Returns true if the scale must wait because another writer keeps changing it back; the key is then requeued.
    /// Requests are assumed to wait for the first pods unless the load is known to be zero.
    fn is_contested(&self, key: &Key, current: i32, to: i32) -> bool {
        let is_awaited = current == 0 && to > 0 && self.deciders().is_serving(key) != Some(false);
        let pause = self.conflicts.pause(key, to, is_awaited);
        if let Some(left) = pause {
            self.parts.writes.decisions.add_after(key.clone(), left);
        }
        pause.is_some()
    }

    /// Stops deciding for a workload. Its pods and conflicts stay known.
    pub(super) fn stop(&self, key: &Key) {
        self.deciders().remove(key);
        self.parts.engine.forget(key);
    }

    /// Forgets a workload, except for its history of actions.
    pub(super) fn forget(&self, key: &Key) {
        self.stop(key);
        self.parts.ports.pods.untrack(key);
        self.conflicts.forget(key);
        self.parts.scaler.leaving.forget(key);
        self.parts.scaler.clear_refusal(key);
    }
}

/// Collects the inputs of the decision about scale to zero.
fn scale_to_zero_input(workload: &Workload, demand: &Demand, active: Active, probe: ProbeResult) -> ToZero {
    let Workload { parameters, target, .. } = workload;
    let current = target.current();
    // Without a decision, a target with pods keeps its scale, within its bounds, until the first one.
    let held = (workload.waits_for_decision && active.is_activating() && current > 0).then_some(current);
    let desired = demand.desired().or(held);
    let PathState { mode, proxy_for } = path_of(workload);
    ToZero {
        desired,
        current_replicas: current,
        bounds: parameters.bounds,
        scale_to_zero: parameters.scale_to_zero,
        active,
        stable_window: parameters.decider.stable_window,
        activation_timeout: patience(demand.failing.as_ref(), workload, desired),
        grace_period: parameters.grace_period,
        pod_retention: parameters.pod_retention,
        path: mode,
        proxy_for,
        probe_needed: parameters.probe_needed && current > 0,
        probe,
        warm_up_left: demand.decision.and_then(|decision| decision.warm_up_left),
        unattested: demand.decision.is_some_and(|decision| decision.unattested),
    }
}

/// Returns the longest time that pods may take to become ready. If pods fail while no request waits, they are given up
/// after a stable window, just as idle ones are removed, unless their start may be slow.
fn patience(failing: Option<&Failing>, workload: &Workload, desired: Option<i32>) -> Duration {
    let parameters = &workload.parameters;
    let is_given_up = desired == Some(0) && failing.is_some_and(|failing| !failing.cause.may_be_slow());
    let window = parameters.decider.stable_window.max(GIVES_UP_AFTER);
    if is_given_up { parameters.activation_timeout.min(window) } else { parameters.activation_timeout }
}

/// Returns the surroundings of the decider, for a target with these replicas.
fn surroundings(workload: &Workload, replicas: i32) -> Surroundings {
    let PathState { mode, proxy_for } = path_of(workload);
    Surroundings { activators_in_path: mode == PathMode::Proxy || !proxy_for.is_zero(), replicas: Some(replicas) }
}

/// Returns the requested path, and the time for which activators have been in it.
fn path_of(workload: &Workload) -> PathState {
    workload.path.unwrap_or(PathState { mode: PathMode::Proxy, proxy_for: Duration::ZERO })
}
