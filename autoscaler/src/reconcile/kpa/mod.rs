//! The PodAutoscaler controller: from an object and a decision to replicas, path and status.
//!
//! # Order
//!
//! 1. The front end reads what there is ([`Lifecycle::read`]), and takes up what is new to it.
//! 2. The decider is told what there is to decide, the pod index what there is to count.
//! 3. Where metrics are asked for, load and metrics become one wish ([`metrics`]). Bounds, scale to zero and its probe
//!    ([`autoscaler_core::scale_to_zero`]) turn the decision into an outcome ([`scaling`]), and **the replicas patch is
//!    the first write**: a request is waiting for it. Upstream reconciles the Metric before.
//! 4. Metric, then path mode and number of activators, written to the ServerlessService ([`children`]).
//! 5. Status ([`conditions`]). It is written even if something failed.
//!
//! Every pass starts from what the watches know and could be the first one.
//!
//! # Where we differ from upstream
//!
//! - A write of the ServerlessService's spec does not make `SKSReady` Unknown until its controller has seen it: its own
//!   `Ready` condition still holds for the Services that exist.
//! - The mode stays as it is while a new owner does not know enough.
//! - What is awake by its status, and has no replicas, is asleep to a new owner (standalone): the one before has put it
//!   to sleep, and has not written so. To upstream it is activating, until the activation timeout.
//! - What was given up is `TimedOut` for some minutes ([`conditions::TIMED_OUT_FOR`]), or until it is woken again
//!   (standalone). Upstream says so with one pass alone, and `NoTraffic` with the next, which follows at once.
//! - A revision at zero replicas is woken by a patch that waits for nothing else, the probe runs beside, never in a
//!   worker.
//!
//! # Not here
//!
//! The process's own metrics, which are recorded where decisions are.

mod children;
pub(crate) mod conditions;
mod conflicts;
pub(crate) mod leaving;
pub(crate) mod lifecycle;
mod metrics;
pub(crate) mod objects;
pub(crate) mod parameters;
pub(crate) mod probe;
pub(crate) mod refusals;
pub(crate) mod scaler;
mod scaling;
pub(crate) mod workload;

use super::error::Error;
use super::parts::Parts;
use super::records::Records;
use super::stores::Stores;
use super::writes::Writes;
use crate::scale::{PodSet, Ports};
use autoscaler_core::history::{Action, Obstacle};
use autoscaler_core::num_activators::num_activators;
use autoscaler_core::path_mode::{self, PathMode};
use children::Children;
use common::RevisionKey as Key;
use common::time::Timestamp;
use common_api::condition_set::HasConditions;
use common_api::podautoscaler_status::{Inactive, NO_PRIVATE_SERVICE_NAME};
use common_api::{Mode, PodAutoscaler, PodAutoscalerStatus};
use common_controller::{Passed, Passes, Priority, WorkQueue};
use conflicts::Conflicts;
use lifecycle::Lifecycle;
use metrics::Wishes;
use parameters::Parameters;
use scaling::{Decided, Scaling};
use std::collections::BTreeMap;
use std::sync::Arc;
use workload::{Afterwards, Reading, Unserved, Workload};

/// Activators of a PodAutoscaler whose Services are not there yet.
const ACTIVATORS_AT_FIRST: i32 = 2;

/// Reconciles PodAutoscalers.
pub(crate) struct Controller {
    stores: Arc<Stores>,
    ports: Ports,
    writes: Writes,
    records: Records,
    queue: WorkQueue<Key>,
    lifecycle: Arc<dyn Lifecycle>,
    scaling: Scaling,
    children: Children,
}

impl Controller {
    /// One that leaves to `lifecycle` where the front ends differ.
    pub(crate) fn new(parts: &Parts, lifecycle: Arc<dyn Lifecycle>) -> Self {
        let Parts { stores, ports, writes, records, .. } = parts;
        let queue = writes.decisions.clone();
        let scaling = Scaling {
            deciders: ports.deciders.clone(),
            pods: ports.pods.clone(),
            wishes: Wishes { engine: parts.engine.clone() },
            prober: parts.prober.clone(),
            conflicts: Conflicts::default(),
            scaler: parts.scaler.clone(),
            queue: queue.clone(),
        };
        let children = Children {
            stores: stores.clone(),
            records: records.clone(),
            lifecycle: lifecycle.clone(),
            config: parts.configs.autoscaler.clone(),
        };
        let (stores, ports, writes, records) = (stores.clone(), ports.clone(), writes.clone(), records.clone());
        Self { stores, ports, writes, records, queue, lifecycle, scaling, children }
    }

    /// A decision is carried out at once, and whatever else there is to do is left to a pass of its own.
    ///
    /// # Errors
    /// Whatever kept the pass from its end.
    pub(crate) async fn work(&self, key: Key, priority: Priority) -> Result<(), Error> {
        match priority {
            Priority::Urgent => {
                self.hurry(&key).await?;
                self.queue.add(key, Priority::Normal);
                Ok(())
            }
            Priority::Normal | Priority::New | Priority::Slow => self.reconcile(&key).await,
        }
    }

    /// One pass over one PodAutoscaler.
    ///
    /// # Errors
    /// Whatever kept the pass from its end; the status has been written nevertheless.
    pub(crate) async fn reconcile(&self, key: &Key) -> Result<(), Error> {
        let Some(object) = self.stores.autoscalers.get(key).filter(|_| self.ports.leadership.owns(key)) else {
            self.forget(key);
            self.ports.deciders.forget(key);
            return Ok(());
        };
        if !self.lifecycle.is_ours(&object) {
            self.forget(key);
            return self.lifecycle.decline(key, &object).await;
        }
        if object.metadata.deletion_timestamp.is_some() {
            if !self.lifecycle.must_give_back(&object) {
                return Ok(());
            }
            self.stop(key);
            return self.lifecycle.give_back(key, &object).await;
        }
        let run = async |status, now| {
            let mut pass = Pass { controller: self, key, now, object: object.clone(), status };
            let outcome = pass.run().await;
            Passed { outcome, object: pass.object, status: pass.status }
        };
        Passes { statuses: &*self.records.autoscalers, clock: &self.writes.clock }.over(&object, run).await
    }

    /// The part of a pass that a request may be waiting for: bounds, scale to zero, replicas. Nothing else is written;
    /// a pass must follow.
    ///
    /// # Errors
    /// Whatever kept the replicas from being changed.
    pub(crate) async fn hurry(&self, key: &Key) -> Result<(), Error> {
        let Some(object) = self.stores.autoscalers.get(key) else { return Ok(()) };
        let gone = object.metadata.deletion_timestamp.is_some();
        if gone || !self.ports.leadership.owns(key) || !self.lifecycle.is_ours(&object) {
            return Ok(());
        }
        let (now, status) = (self.writes.clock.now(), object.status.clone().unwrap_or_default());
        match self.lifecycle.read(key, &object, &status)? {
            Reading::Go(workload) if self.lifecycle.is_taken_up(&object) => {
                self.scaling.decide(key, &object, &status, now, &workload).await.map(|_| ())
            }
            _ => Ok(()), // Not taken up yet, or refused: the pass that follows sees to it.
        }
    }

    /// Stops deciding and measuring for a revision, and forgets what was measured.
    fn stop(&self, key: &Key) {
        self.scaling.stop(key);
        self.ports.collection.remove(key);
    }

    /// Forgets a revision but for what was done about it.
    fn forget(&self, key: &Key) {
        self.stop(key);
        self.scaling.forget(key);
        self.records.autoscalers.forget(key);
        self.lifecycle.forget(key);
    }
}

/// A pass under way.
struct Pass<'a> {
    controller: &'a Controller,
    key: &'a Key,
    now: Timestamp,
    /// The newest version that was read or answered.
    object: Arc<PodAutoscaler>,
    /// The status as it will be.
    status: PodAutoscalerStatus,
}

impl Pass<'_> {
    async fn run(&mut self) -> Result<(), Error> {
        let (controller, key) = (self.controller, self.key);
        let lifecycle = &controller.lifecycle;
        let workload = match lifecycle.read(key, &self.object, &self.status)? {
            Reading::Go(workload) => workload,
            Reading::AwaitServices(unserved) => return self.ask_for_services(*unserved).await,
            Reading::Refuse(not_ready, afterwards) => {
                controller.ports.deciders.acted(key, Action::refused(not_ready.obstacle));
                controller.scaling.scaler.is_over(key);
                conditions::refuse(&mut self.status, &not_ready, self.now);
                conditions::forget_overlap(&mut self.status, self.now);
                let done = match afterwards {
                    Afterwards::Stay => Ok(()),
                    Afterwards::GiveBack => {
                        controller.stop(key);
                        lifecycle.give_back(key, &self.object).await
                    }
                    Afterwards::LetGo => {
                        controller.stop(key);
                        lifecycle.let_go(key, &self.object).await
                    }
                };
                if !controller.ports.pods.is_tracked(key) {
                    // It was looked at: there are none that count.
                    controller.ports.pods.track(key, PodSet::Selector(BTreeMap::new()), None);
                }
                return done;
            }
        };
        let is_new = !lifecycle.is_taken_up(&self.object);
        self.object = lifecycle.take_up(key, &self.object, &workload).await?;
        if is_new {
            // What was said while it had another target, or none, is not said of this one.
            self.status = PodAutoscalerStatus::default();
            self.status.begin(self.object.metadata.generation.unwrap_or(0), self.now);
            self.object = Arc::new(PodAutoscaler { status: None, ..PodAutoscaler::clone(&self.object) });
        }
        let failure = controller.scaling.wishes.failure(key, &workload);
        conditions::notify(&mut self.status, &workload, failure, self.now);
        self.status.paused = workload.paused;
        self.status.metrics_service_name.clone_from(&workload.private_service);
        let decided = controller.scaling.decide(key, &self.object, &self.status, self.now, &workload).await;
        if lifecycle.tells_refusals() {
            let refused = controller.scaling.scaler.refusals.told(key);
            conditions::tell_refusal(&mut self.status, refused.as_deref(), self.now);
            let contest = controller.scaling.conflicts.explain(key, &self.object);
            conditions::report_contest(&mut self.status, contest.as_deref(), self.now);
            // What is not known yet is not said to be over.
            if let Some(strangers) = controller.ports.pods.strangers(key) {
                conditions::report_overlap(&mut self.status, &workload, &strangers.controllers, self.now);
            }
        }
        self.carry_out(&workload, &decided?).await?;
        if let Some(broken) = &workload.broken {
            conditions::refuse(&mut self.status, broken, self.now);
        }
        Ok(())
    }

    /// Metric, path and status of what was decided.
    async fn carry_out(&mut self, workload: &Workload, decided: &Decided) -> Result<(), Error> {
        let (controller, key, now) = (self.controller, self.key, self.now);
        let Workload { object, parameters, .. } = workload;
        let counts = controller.ports.pods.counts(key);
        let scrape_target = if parameters.scraped { workload.private_service.as_str() } else { "" };
        let metric = controller.children.metric(key, object, scrape_target, &mut self.status, now).await;
        metric.map_err(Error::during("error reconciling Metric"))?;
        if controller.ports.collection.health(key).is_none() {
            // It was stopped, and the Metric is as it was: nothing else would begin anew.
            controller.stores.queues().metrics.add(key.clone(), Priority::Normal);
        }
        let have = workload.serverless.clone();
        let mode = path_mode::path_mode(&path_mode::Input {
            want: decided.want,
            excess_burst_capacity: decided.excess_burst_capacity,
            present: have.as_deref().map(scaling::path_of),
            keep_when_unknown: workload.waits_for_decision,
            warming: decided.keeps_path,
        });
        let mode = if mode == PathMode::Serve { Mode::Serve } else { Mode::Proxy };
        let number = num_activators(
            u32::try_from(counts.ready).unwrap_or(0),
            parameters.decider.total_value,
            parameters.decider.target_burst_capacity,
            parameters.decider.activator_capacity,
        );
        let before = have.as_ref().map(|serverless| serverless.spec.clone());
        let path = (mode, number);
        let serverless = controller.children.serverless(key, object, have, path, &mut self.status, now).await?;
        let just_written = before.is_some_and(|before| before != serverless.spec);
        conditions::read_serverless(&mut self.status, &serverless, just_written, now);
        if decided.sleeps && self.status.is_activating() {
            self.status.mark_inactive(Inactive::NoTraffic, now); // It has not timed out.
        }
        let want = self.told(workload, decided.want, counts.ready);
        self.tell_scale(parameters, want, counts.ready);
        if let Some(request) = &decided.request {
            self.status.request = Some(request.clone());
        }
        Ok(())
    }

    /// Scales and conditions. What was given up is looked at again when that is not to be said any more.
    fn tell_scale(&mut self, parameters: &Parameters, want: Option<i32>, ready: i32) {
        let (controller, now) = (self.controller, self.now);
        let keeps_timed_out = controller.lifecycle.keeps_timed_out();
        conditions::tell_scale(&mut self.status, parameters, want, ready, keeps_timed_out, now);
        if let Some(left) = conditions::timed_out_left(&self.status, now).filter(|_| keeps_timed_out) {
            controller.queue.add_after(self.key.clone(), left);
        }
    }

    /// The scale to tell of. As long as nothing is wanted, what was awake when its status was written and has no pods
    /// now has fallen asleep since; unless some have to stay, which are missing then.
    fn told(&self, workload: &Workload, want: Option<i32>, ready: i32) -> Option<i32> {
        let Workload { parameters, target, waits_for_decision, .. } = workload;
        let may_sleep = *waits_for_decision && parameters.scale_to_zero && parameters.bounds.min <= 0;
        let fell_asleep = may_sleep && self.status.is_active() && target.current() == 0 && ready == 0;
        want.or(fell_asleep.then_some(0))
    }

    /// Nothing can be scaled or measured before the ServerlessService has named its Services.
    async fn ask_for_services(&mut self, unserved: Unserved) -> Result<(), Error> {
        let (controller, key, now) = (self.controller, self.key, self.now);
        let Unserved { object, parameters, serverless } = unserved;
        let path = (Mode::Proxy, ACTIVATORS_AT_FIRST);
        controller.children.serverless(key, &object, serverless, path, &mut self.status, now).await?;
        self.status.mark_sks_not_ready(NO_PRIVATE_SERVICE_NAME, now);
        self.tell_scale(&parameters, None, 0);
        controller.ports.deciders.acted(key, Action::refused(Obstacle::NoPrivateService));
        Ok(())
    }
}
