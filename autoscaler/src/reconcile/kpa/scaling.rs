//! From a decision to an outcome, and from that to the replicas patch, or to what keeps it back.

use super::conflicts::Conflicts;
use super::metrics::Wishes;
use super::probe::Prober;
use super::refusals::RetrySoon;
use super::scaler::{Change, Scaler};
use super::workload::{Probed, Requested, Workload};
use crate::reconcile::error::Error;
use crate::scale::{Deciders, Failing, Initial, Pods, Subject, Surroundings};
use autoscaler_core::active::Active;
use autoscaler_core::history::{Action, Cause, Obstacle};
use autoscaler_core::orders::{self, Step};
use autoscaler_core::path_mode::PathMode;
use autoscaler_core::scale_to_zero::{self, Input as ToZero, ProbeNeed, ProbeResult};
use common::RevisionKey as Key;
use common::time::Timestamp;
use common_api::zeroscaler::{Request, RequestResult, RequestStatus};
use common_api::{Mode, PodAutoscaler, PodAutoscalerStatus, ServerlessService};
use common_controller::{WorkQueue, WriteError};
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks at a request that waits for the load to be known.
const WAITS_FOR: Duration = Duration::from_secs(2);

/// Shortest time that pods are left alone which fail and which nobody waits for.
const GIVES_UP_AFTER: Duration = Duration::from_secs(10);

/// What a pass decided about the scale.
pub(super) struct Decided {
    pub(super) want: Option<i32>,
    pub(super) excess_burst_capacity: i32,
    /// The path stays as it is while pods are wanted.
    pub(super) keeps_path: bool,
    /// What became of a request for a wake or a sleep, if there is one.
    pub(super) request: Option<RequestStatus>,
    /// It falls asleep because an operator has asked for it, because its pods were taken and nothing waits for them, or because
    /// they fail, which is told elsewhere and may end sooner.
    pub(super) sleeps: bool,
}

/// Decides about the scale of one revision after the other, and has it patched.
pub(super) struct Scaling {
    pub(super) deciders: Arc<dyn Deciders>,
    pub(super) pods: Arc<dyn Pods>,
    pub(super) wishes: Wishes,
    pub(super) prober: Arc<Prober>,
    pub(super) conflicts: Conflicts,
    pub(super) scaler: Arc<Scaler>,
    /// Where a revision comes back when a time is over.
    pub(super) queue: WorkQueue<Key>,
}

impl Scaling {
    /// Asks the decider, the metrics and the rules, and patches the replicas if they say so. `object` is the newest
    /// version, `status` its status as it will be.
    pub(super) async fn decide(
        &self,
        key: &Key,
        object: &PodAutoscaler,
        status: &PodAutoscalerStatus,
        now: Timestamp,
        workload: &Workload,
    ) -> Result<Decided, Error> {
        self.pods.track(key, workload.pods.clone(), workload.owner());
        let Workload { parameters, target, .. } = workload;
        let current = target.current();
        // A status that told a scale before is another process's, or an earlier life's; -1 is said before any is known.
        let told = object.status.as_ref().and_then(|status| status.desired_scale).is_some_and(|scale| scale >= 0);
        let initial = if told { Initial::TakenOver } else { workload.initial };
        let subject = Subject { spec: parameters.decider.clone(), labels: workload.labels.clone() };
        self.deciders.ensure(key, subject, initial);
        let (path, proxy_for) = path(workload.serverless.as_deref(), now);
        let surroundings = Surroundings {
            activators_in_path: path == PathMode::Proxy || !proxy_for.is_zero(),
            replicas: Some(current),
        };
        self.deciders.observe(key, surroundings);
        // Once, before a patch: what is patched may take those pods.
        let failing = self.pods.failing(key);
        let decision = self.deciders.status(key);
        let load = decision.and_then(|decision| decision.desired);
        let answer = self.wishes.blend(key, workload, now, load);
        if let Some(answer) = &answer {
            self.deciders.blended(key, answer);
        }
        let desired = answer.as_ref().map_or(load, |answer| answer.desired);
        let active = active(status, now);
        // Silence is no wish: a target that is up stays as it is, bounds aside, until the first decision.
        // Another writer has taken the pods of a wake for which nothing waits any more: it is asleep, as if put to sleep.
        let is_abandoned = workload.waits_for_decision && active.is_activating() && current == 0 && desired == Some(0);
        let active = if is_abandoned { Active::False(Duration::ZERO) } else { active };
        let held = (workload.waits_for_decision && active.is_activating() && current > 0).then_some(current);
        let proof = match &workload.probe {
            None => ProbeResult::NotInPath,
            Some(Probed::Service(target)) => self.prober.proof(key, target),
            // Nobody else asks for it.
            Some(Probed::Known(known)) if matches!(active, Active::False(_)) && current > 0 => known.proof(),
            Some(Probed::Known(_)) => ProbeResult::NotAsked,
        };
        let rest = scale_to_zero::Input {
            desired: desired.or(held),
            current_replicas: current,
            bounds: parameters.bounds,
            scale_to_zero: parameters.scale_to_zero,
            active,
            stable_window: parameters.decider.stable_window,
            activation_timeout: patience(failing.as_ref(), workload, desired.or(held)),
            grace_period: parameters.grace_period,
            pod_retention: parameters.pod_retention,
            path,
            proxy_for,
            probe_needed: parameters.probe_needed && current > 0,
            probe: proof,
            warm_in: decision.and_then(|decision| decision.warm_in),
            unheard: decision.is_some_and(|decision| decision.unheard),
        };
        let step = self.step(key, workload, &rest, load);
        let outcome = match step {
            _ if workload.paused => orders::paused(current),
            Some(step) => scale_to_zero::decide(&orders::applied(rest, step, parameters.decider.activation_scale)),
            None => scale_to_zero::decide(&rest),
        };
        if let (ProbeNeed::Ask | ProbeNeed::Retry, Some(probed)) = (outcome.probe, &workload.probe) {
            match probed {
                Probed::Service(target) => self.prober.ask(key, target.clone()),
                Probed::Known(known) => known.ask(),
            }
        }
        let reason = match step {
            Some(step) => step.reason(outcome.reason),
            None => answer.as_ref().map_or(outcome.reason, |answer| outcome.reason.of_answer(answer)),
        };
        let planned = Action::planned(outcome.want, current, parameters.bounds, reason);
        match outcome.patch {
            None => {
                self.scaler.is_over(key);
                self.acted(key, planned);
            }
            Some(_) if !workload.may_scale => {
                self.acted(key, Action { because: Cause::Obstacle(Obstacle::ServicePending), ..planned });
            }
            Some(to) if self.is_contested(key, current, to) => {
                self.acted(key, Action { because: Cause::Obstacle(Obstacle::Contested), ..planned });
            }
            Some(to) => {
                let why = reason.explain_change(rest.desired, to);
                // Somebody waits for more pods. Whatever becomes of this pass, another try follows soon.
                let soon = (to > current).then(|| RetrySoon::new(&self.queue, key));
                let waking = self.deciders.waking(key);
                let patching = waking.map(|waking| waking.patching(workload.target_key.object.name(), current, to));
                // Requests that have come while it waited for its turn would be without the pods that are taken. The load of
                // one that is put to sleep was forgotten, so it is not compared.
                let still = || match step {
                    _ if to > current => true,
                    Some(Step::Sleep { .. }) => self.deciders.is_serving(key) == Some(false),
                    _ => !self.wants_more(key, workload, load, to),
                };
                let change = Change { to, why, still: &still };
                let patched = self.scaler.patch(key, object, &workload.target_key, target, change).await;
                if let Some(patching) = patching {
                    match &patched {
                        Ok(()) => patching.answered(Some(200), None),
                        Err(error) => patching.answered(error.status(), Some(error)),
                    }
                }
                match &patched {
                    Ok(()) => self.acted(key, Action { patched: true, ..planned }),
                    Err(Error::Write(WriteError::Outdated { .. })) => {} // Nothing was: the next pass is at once.
                    Err(error) => {
                        self.acted(key, Action { because: Cause::Obstacle(error.obstacle()), ..planned });
                    }
                }
                patched.map_err(Error::during("error scaling target"))?;
                if let Some(soon) = soon {
                    soon.disarm();
                }
                self.conflicts.written(key, object, target, to, &*self.scaler.records.autoscalers);
                self.deciders.observe(key, Surroundings { replicas: Some(to), ..surroundings });
                self.wishes.scaled(key, workload, current, to);
            }
        }
        if let Some(after) = outcome.requeue {
            self.queue.add_after(key.clone(), after);
        }
        if let Some(want) = outcome.want {
            self.deciders.requested(key, want);
        }
        Ok(Decided {
            want: outcome.want,
            excess_burst_capacity: decision.map_or(-1, |decision| decision.excess_burst_capacity),
            keeps_path: workload.paused || decision.is_some_and(|decision| decision.warm_in.is_some()),
            request: workload.request.as_ref().zip(step).map(|(request, step)| said_of(request, step)),
            sleeps: outcome.want == Some(0)
                && (is_abandoned || failing.is_some() || matches!(step, Some(Step::Sleep { .. }))),
        })
    }

    /// Whether the load has come to ask for more pods than when it asked for `load`, and more than `to`.
    fn wants_more(&self, key: &Key, workload: &Workload, load: Option<i32>, to: i32) -> bool {
        let desired = self.deciders.status(key).and_then(|decision| decision.desired);
        desired > load && desired.is_some_and(|desired| workload.parameters.bounds.clamp(desired) > to)
    }

    /// What to do about a request for a wake or a sleep, if there is one. The past load is forgotten here.
    fn step(&self, key: &Key, workload: &Workload, rest: &ToZero, load: Option<i32>) -> Option<Step> {
        let request = workload.request.as_ref()?;
        let step = orders::step(&orders::Input {
            wanted: request.wanted,
            age: request.age,
            is_begun: request.is_begun,
            paused: workload.paused,
            replicas: rest.current_replicas,
            active: rest.active,
            min: rest.bounds.min.max(i32::from(!rest.scale_to_zero)),
            load,
            desired: rest.desired,
            serving: self.deciders.is_serving(key),
        });
        match step {
            Step::Sleep { forget: true } => self.deciders.forget_load(key),
            // Whether somebody is served is known with the next tick, which may be no news to anybody else.
            Step::Wait => self.queue.add_after(key.clone(), WAITS_FOR),
            _ => {}
        }
        Some(step)
    }

    /// Returns whether the scale is not due yet, since another writer keeps changing it back; then the key comes back.
    /// Requests wait for the first pods unless the load is known to be none.
    fn is_contested(&self, key: &Key, current: i32, to: i32) -> bool {
        let is_awaited = current == 0 && to > 0 && self.deciders.is_serving(key) != Some(false);
        let pause = self.conflicts.pause(key, to, is_awaited);
        if let Some(left) = pause {
            self.queue.add_after(key.clone(), left);
        }
        pause.is_some()
    }

    /// Tells the history what came of this pass.
    fn acted(&self, key: &Key, action: Action) {
        self.deciders.acted(key, action);
    }

    /// Stops deciding for a revision. Its pods and conflicts are still known.
    pub(super) fn stop(&self, key: &Key) {
        self.deciders.remove(key);
        self.prober.forget(key);
        self.wishes.forget(key);
    }

    /// Forgets a revision but for what was done about it.
    pub(super) fn forget(&self, key: &Key) {
        self.stop(key);
        self.pods.untrack(key);
        self.conflicts.forget(key);
        self.scaler.leaving.forget(key);
        self.scaler.is_over(key);
    }
}

/// Returns how long pods may take to become ready. Pods that fail while no request waits are given up after a window, as ready
/// ones are put to sleep, unless their start may be slow.
fn patience(failing: Option<&Failing>, workload: &Workload, desired: Option<i32>) -> Duration {
    let parameters = &workload.parameters;
    let is_given_up = desired == Some(0) && failing.is_some_and(|failing| !failing.cause.may_be_slow());
    let window = parameters.decider.stable_window.max(GIVES_UP_AFTER);
    if is_given_up { parameters.activation_timeout.min(window) } else { parameters.activation_timeout }
}

/// What is said of a request.
fn said_of(request: &Requested, step: Step) -> RequestStatus {
    let Request { state, at } = request.written.clone();
    let (result, kept) = match step {
        Step::Wake | Step::Sleep { .. } | Step::Wait => (RequestResult::Pending, None),
        Step::Over(Ok(())) => (RequestResult::Done, None),
        Step::Over(Err(kept)) => (RequestResult::Kept, Some(kept)),
    };
    let reason = kept.map(|kept| kept.reason().to_owned()).unwrap_or_default();
    RequestStatus { state, at, result, reason, message: kept.map(|kept| kept.explain()).unwrap_or_default() }
}

/// The path that a ServerlessService asks for, and for how long the activators have been in it.
fn path(serverless: Option<&ServerlessService>, now: Timestamp) -> (PathMode, Duration) {
    let status = serverless.and_then(|serverless| serverless.status.as_ref());
    let proxy_for = status.map(|status| status.proxy_for(now)).unwrap_or_default();
    (serverless.map_or(PathMode::Proxy, path_of), proxy_for)
}

/// The path that a ServerlessService asks for.
pub(super) fn path_of(serverless: &ServerlessService) -> PathMode {
    if serverless.spec.mode == Some(Mode::Serve) { PathMode::Serve } else { PathMode::Proxy }
}

/// What `Active` says, and for how long it has said so.
pub(super) fn active(status: &PodAutoscalerStatus, now: Timestamp) -> Active {
    match (status.active_for(now), status.inactive_for(now), status.activating_for(now)) {
        (Some(active), _, _) => Active::True(active),
        (_, Some(inactive), _) => Active::False(inactive),
        (_, _, Some(activating)) => Active::Unknown(activating),
        (None, None, None) => Active::Absent,
    }
}
