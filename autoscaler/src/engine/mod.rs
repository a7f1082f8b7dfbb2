//! The engine: turns a [`Workload`] and a decision into replicas, a path and an outcome. The only API object that it
//! knows is a target's scale; a [`FrontEnd`] reads and writes everything else.
//!
//! # Order
//!
//! 1. The front end reads its objects ([`FrontEnd::read`]), and adopts a new target.
//! 2. The decider receives the parameters, and the pod index the pods to count.
//! 3. If metrics are requested, load and metrics are blended. Bounds, scale to zero and its probe
//!    ([`autoscaler_core::scale_to_zero`]) turn the decision into an outcome ([`scaling`]). **The replicas patch is
//!    the first write**, because a request is waiting for it. Upstream reconciles the Metric first.
//! 4. The front end sets up measurement, and routes traffic by path mode and number of activators
//!    ([`FrontEnd::route`]).
//! 5. The front end writes its status ([`FrontEnd::finish`]), even after a failure.
//!
//! Every reconcile starts from the watched state alone and could be the first one.
//!
//! # Where we differ from upstream
//!
//! - After a write of the ServerlessService's spec, `SKSReady` does not become Unknown until its controller has
//!   observed the write. Its current `Ready` condition still holds for the existing Services.
//! - The path mode stays unchanged while a new owner lacks information.
//! - In standalone, a new owner treats a workload that is awake by its status but has no replicas as asleep: the
//!   former owner has scaled it to zero and has not written the status. Upstream treats it as activating, until the
//!   activation timeout.
//! - In standalone, a wake that timed out is reported as `TimedOut` for some minutes
//!   ([`FrontEnd::REPORTS_GIVEN_UP_FOR`]), or until the next wake. Upstream reports it for one reconcile, and
//!   `NoTraffic` with the next, which follows at once.
//! - A revision at zero replicas is woken by a patch that waits for nothing else. The probe runs in its own task,
//!   never in a worker.
//!
//! # Not here
//!
//! The process's own metrics, which are recorded where decisions are made.

mod conflicts;
pub(crate) mod front_end;
pub(crate) mod parts;
pub(crate) mod probe;
pub(crate) mod refusals;
pub(crate) mod scaler;
mod scaling;
pub(crate) mod workload;

pub(crate) use parts::Wiring;

use crate::cluster::error::Error;
use crate::scale::PodSet;
use autoscaler_core::active::{self, Active, ActiveCondition};
use autoscaler_core::history::{Action, Obstacle};
use autoscaler_core::num_activators::num_activators;
use autoscaler_core::path_mode::{self, PathMode};
use common::RevisionKey as Key;
use common::time::Timestamp;
use common_controller::Priority;
use conflicts::Conflicts;
use front_end::{FrontEnd, Notices, ObjectLookup, ReconcileOutcome};
use parts::Parts;
use scaling::{ScaleDecision, Scaling};
use std::sync::Arc;
use std::time::Duration;
use workload::{NotReady, Parameters, Path, Previous, Reading, RefusalAction, Workload};

/// Activators for a workload whose Services do not exist yet.
const ACTIVATORS_AT_FIRST: i32 = 2;

/// Reconciler for the workloads of a front end.
pub(crate) struct Controller<F> {
    front_end: Arc<F>,
    parts: Parts,
    scaling: Scaling,
}

impl<F: FrontEnd> Controller<F> {
    /// Creates a controller for the workloads of `front_end`.
    pub(crate) fn new(parts: &Parts, front_end: Arc<F>) -> Self {
        let scaling = Scaling { parts: parts.clone(), conflicts: Conflicts::default() };
        Self { front_end, parts: parts.clone(), scaling }
    }

    /// Handles one key. An urgent key is decided and patched at once, and the rest is left to a separate reconcile.
    pub(crate) async fn work(&self, key: Key, priority: Priority) -> Result<(), Error> {
        match priority {
            Priority::Urgent => {
                self.scale_only(&key).await?;
                self.parts.writes.decisions.add(key, Priority::Normal);
                Ok(())
            }
            Priority::Normal | Priority::New | Priority::Slow => self.reconcile(&key).await,
        }
    }

    /// Reconciles one workload. If this fails, the status has been written nevertheless.
    pub(crate) async fn reconcile(&self, key: &Key) -> Result<(), Error> {
        let now = self.parts.writes.clock.now();
        match self.find(key, now) {
            ObjectLookup::Gone => {
                self.stop(key);
                self.scaling.forget(key);
                self.front_end.forget(key);
                self.parts.ports.deciders.forget(key);
                Ok(())
            }
            ObjectLookup::Over => Ok(()),
            ObjectLookup::Leaving(subject) => {
                self.stop(key);
                self.front_end.release(key, &subject).await
            }
            ObjectLookup::Present(mut subject) => {
                let outcome = self.pass(key, &mut subject, now).await;
                self.front_end.finish(key, subject, outcome).await
            }
        }
    }

    /// Runs the part of a reconcile that a request may be waiting for: bounds, scale to zero, replicas. Writes nothing
    /// else, so a reconcile must follow.
    pub(crate) async fn scale_only(&self, key: &Key) -> Result<(), Error> {
        let now = self.parts.writes.clock.now();
        let ObjectLookup::Present(mut subject) = self.find(key, now) else { return Ok(()) };
        match self.front_end.read(key, &mut subject, now)? {
            Reading::Go(workload) if self.front_end.is_adopted(&subject) => {
                let read = (&*workload, self.front_end.previous(&subject, now));
                self.scaling.decide(&*self.front_end, key, &subject, read, now).await.map(|_| ())
            }
            _ => Ok(()), // Not adopted yet, or refused: the next reconcile handles it.
        }
    }

    fn find(&self, key: &Key, now: Timestamp) -> ObjectLookup<F::Subject> {
        if self.parts.ports.leadership.owns(key) { self.front_end.find(key, now) } else { ObjectLookup::Gone }
    }

    async fn pass(&self, key: &Key, subject: &mut F::Subject, now: Timestamp) -> Result<(), Error> {
        let front_end = &*self.front_end;
        let workload = match front_end.read(key, subject, now)? {
            Reading::Go(workload) => workload,
            Reading::AwaitServices(parameters) => return self.request_services(key, subject, &parameters, now).await,
            Reading::Refuse(why, afterwards) => return self.refuse(key, subject, why, afterwards, now).await,
        };
        front_end.adopt(key, subject, &workload).await?;
        let previous = front_end.previous(subject, now);
        let unmeasured = workload.metrics.as_ref().and_then(|_| self.parts.engine.failure(key));
        let decided = self.scaling.decide(front_end, key, subject, (&*workload, previous), now).await;
        front_end.notice(subject, &workload, Notices { unmeasured, ..self.scaling.notices(key, &workload) });
        let decided = decided?;
        let ready = self.parts.ports.pods.counts(key).ready;
        let path = path(&workload, &decided, ready);
        let has_service = front_end.route(key, subject, &workload, path).await?;
        let decided = ScaleDecision { desired: reported_scale(&workload, &decided, previous, ready), ..decided };
        let outcome = self.outcome(key, previous, &workload.parameters, &decided, (ready, has_service));
        front_end.conclude(subject, &outcome, now);
        Ok(())
    }

    /// Derives the outcome. Requeues the key for the time when a timed-out wake need no longer be reported.
    fn outcome(
        &self,
        key: &Key,
        previous: Previous,
        parameters: &Parameters,
        decided: &ScaleDecision,
        (ready, has_service): (i32, bool),
    ) -> ReconcileOutcome {
        let falls_asleep = decided.sleeps && previous.active.is_activating(); // It has not timed out.
        let found = active::decide(&active::Input {
            wanted_scale: decided.desired,
            ready: u32::try_from(ready).unwrap_or(0),
            min_ready: parameters.min_ready,
            service_known: has_service,
            active: if falls_asleep { Active::False(Duration::ZERO) } else { previous.active },
        });
        let reported_for = previous.given_up_for.unwrap_or_default();
        let left = F::REPORTS_GIVEN_UP_FOR.saturating_sub(reported_for);
        let is_given_up = previous.given_up_for.is_some() && !left.is_zero();
        let activity = match found.active.or(falls_asleep.then_some(ActiveCondition::NoTraffic)) {
            Some(ActiveCondition::NoTraffic) if is_given_up => None,
            activity => activity,
        };
        if !left.is_zero() && (activity == Some(ActiveCondition::TimedOut) || activity.is_none() && is_given_up) {
            self.parts.writes.decisions.add_after(key.clone(), left);
        }
        let ScaleDecision { desired, step, .. } = *decided;
        ReconcileOutcome { desired, ready, initialized: found.initialized, activity, step }
    }

    /// Requests Services, because nothing can be scaled or measured before the front end knows them.
    async fn request_services(
        &self,
        key: &Key,
        subject: &mut F::Subject,
        parameters: &Parameters,
        now: Timestamp,
    ) -> Result<(), Error> {
        let path = Path { mode: PathMode::Proxy, activators: ACTIVATORS_AT_FIRST };
        let has_service = self.front_end.request_services(key, subject, path).await?;
        let previous = self.front_end.previous(subject, now);
        let outcome = self.outcome(key, previous, parameters, &ScaleDecision::UNKNOWN, (0, has_service));
        self.front_end.conclude(subject, &outcome, now);
        self.parts.ports.deciders.record_action(key, Action::refused(Obstacle::NoPrivateService));
        Ok(())
    }

    async fn refuse(
        &self,
        key: &Key,
        subject: &mut F::Subject,
        why: NotReady,
        afterwards: RefusalAction,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.parts.ports.deciders.record_action(key, Action::refused(why.obstacle));
        self.parts.scaler.clear_refusal(key);
        tracing::debug!(reason = why.reason, message = %why.message, "the workload is not scaled");
        self.front_end.refuse(subject, why, now);
        if afterwards != RefusalAction::Stay {
            self.stop(key);
        }
        let done = match afterwards {
            RefusalAction::Stay => Ok(()),
            RefusalAction::Release => self.front_end.release(key, subject).await,
            RefusalAction::Abandon => self.front_end.abandon(key, subject).await,
        };
        if !self.parts.ports.pods.is_tracked(key) {
            // Refused: it has no pods to count.
            self.parts.ports.pods.track(key, PodSet::default(), None);
        }
        done
    }

    /// Stops deciding and measuring for a workload, and discards its measurements.
    fn stop(&self, key: &Key) {
        self.scaling.stop(key);
        self.parts.ports.collection.remove(key);
    }
}

/// Returns the scale to report. If there is no decision, a workload that was reported active and now has no pods has
/// been scaled to zero since. The exception is a workload that must keep some pods: those are missing.
fn reported_scale(workload: &Workload, decided: &ScaleDecision, previous: Previous, ready: i32) -> Option<i32> {
    let Workload { parameters, target, waits_for_decision, .. } = workload;
    let may_sleep = *waits_for_decision && parameters.scale_to_zero && parameters.bounds.min <= 0;
    let was_awake = matches!(previous.active, Active::True(_));
    let fell_asleep = may_sleep && target.current() == 0 && ready == 0 && was_awake;
    decided.desired.or(fell_asleep.then_some(0))
}

/// Returns the traffic path that follows from a decision.
fn path(workload: &Workload, decided: &ScaleDecision, ready: i32) -> Path {
    let decider = &workload.parameters.decider;
    let mode = path_mode::path_mode(&path_mode::Input {
        wanted_scale: decided.desired,
        excess_burst_capacity: decided.excess_burst_capacity,
        present: workload.path.map(|path| path.mode),
        keep_when_unknown: workload.waits_for_decision,
        warming: decided.keeps_path,
    });
    let ready = u32::try_from(ready).unwrap_or(0);
    let activators =
        num_activators(ready, decider.total_value, decider.target_burst_capacity, decider.activator_capacity);
    Path { mode, activators }
}
