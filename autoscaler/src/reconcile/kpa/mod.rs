//! The PodAutoscaler controller of class KPA, and in standalone of class HPA: from an object and a decision to
//! replicas, path and status.
//!
//! # Order
//!
//! 1. Standalone looks whether it may act at all ([`admission`]), and marks what it takes up. In a Knative install
//!    nothing happens before the ServerlessService has named its private Service.
//! 2. The decider is told what there is to decide, the pod index what there is to count.
//! 3. Where metrics are asked for, load and metrics become one wish ([`metrics`]). Bounds, scale to zero and its probe
//!    ([`autoscaler_core::scale_to_zero`]) turn the decision into an [`outcome`], and **the replicas patch is the first
//!    write**: a request is waiting for it. Upstream reconciles the Metric before.
//! 4. Metric, then path mode and number of activators, written to the ServerlessService.
//! 5. Status. It is written even if something failed.
//!
//! Every pass starts from what the informers know and could be the first one: nothing is carried over but the last
//! version of each object that broke no rule ([`Context::accepted`]).
//!
//! # Where we differ from upstream
//!
//! - A write of the ServerlessService's spec does not make `SKSReady` Unknown until its controller has seen it: its own
//!   `Ready` condition still holds for the Services that exist.
//! - The mode stays as it is while the scale is unknown (standalone), or a new owner does not know enough.
//! - A revision at zero replicas is woken by a patch that waits for nothing else, the probe runs beside, never in a
//!   worker.
//!
//! # Not here
//!
//! What nobody serves ([`unserved`] says so in the status); the process's own metrics, which are recorded where
//! decisions are.

mod conditions;
mod metrics;
pub(crate) mod objects;
mod outcome;
pub(crate) mod parameters;
pub(crate) mod probe;
pub(crate) mod scale;
mod writes;

use super::context::Context;
use super::error::Error;
use super::world::targets::{TargetError, TargetKey};
use crate::scale::PodSet;
use crate::standalone::admission::{Plan, Prepared, Refusal};
use crate::standalone::{admission, retire, unserved};
use autoscaler_core::history::{Action, Obstacle};
use autoscaler_core::num_activators::num_activators;
use autoscaler_core::path_mode::{self, PathMode};
use common::RevisionKey as Key;
use common::annotations;
use common::names;
use common::time::Timestamp;
use common_api::podautoscaler_status::{NO_PRIVATE_SERVICE_NAME, SERVICE_NOT_OWNED};
use common_api::{Mode, PodAutoscaler, PodAutoscalerStatus, ServerlessService};
use common_controller::Passed;
use kube::ResourceExt;
use outcome::Decided;
use parameters::Parameters;
use std::sync::Arc;

pub(crate) use objects::labels;
use scale::COMPONENT;

/// Condition that only informs: an annotation has no effect.
pub(crate) const SETTINGS_HONORED: &str = "SettingsHonored";
/// Condition that only informs: all metrics that were asked for can be measured.
pub(crate) const METRICS_MEASURED: &str = "MetricsMeasured";
/// Condition that only informs: every host is ours.
pub(crate) const HOSTS_OWNED: &str = "HostsOwned";
/// Activators of a PodAutoscaler whose Services are not there yet.
const ACTIVATORS_AT_FIRST: i32 = 2;

/// Whether a PodAutoscaler is this controller's. In standalone a missing class means KPA, class HPA is ours where
/// metrics are looked at, and what was taken up stays ours whatever its class becomes.
pub(crate) fn is_ours(cx: &Context, object: &PodAutoscaler) -> bool {
    match annotations::CLASS.text(object.annotations()) {
        Some(_) => cx.serves(object) || (cx.is_standalone() && admission::has_finalizer(object)),
        None => cx.is_standalone(),
    }
}

/// One pass over one PodAutoscaler.
///
/// # Errors
/// Whatever kept the pass from its end; the status has been written nevertheless.
pub(crate) async fn reconcile(cx: &Context, key: &Key) -> Result<(), Error> {
    let Some(object) = cx.world.autoscalers.get(key) else {
        cx.drop_revision(key);
        return Ok(());
    };
    if !cx.ports.leadership.owns(key) {
        cx.drop_revision(key);
        return Ok(());
    }
    if !is_ours(cx, &object) {
        return unserved::reconcile(cx, key, &object).await;
    }
    if object.metadata.deletion_timestamp.is_some() {
        let taken_up = cx.is_standalone() && admission::has_finalizer(&object);
        return if taken_up { retire::run(cx, key, &object).await } else { Ok(()) };
    }
    let run = async |status, now| {
        let mut pass = Pass { cx, key, now, object: object.clone(), status };
        let outcome = pass.run().await;
        Passed { outcome, object: pass.object, status: pass.status }
    };
    cx.passes(&cx.world.autoscalers, COMPONENT).over(&object, run).await
}

/// The part of a pass that a request may be waiting for: bounds, scale to zero, replicas. Nothing else is written; a
/// pass must follow.
///
/// # Errors
/// Whatever kept the replicas from being changed.
pub(crate) async fn hurry(cx: &Context, key: &Key) -> Result<(), Error> {
    let Some(object) = cx.world.autoscalers.get(key) else { return Ok(()) };
    let gone = object.metadata.deletion_timestamp.is_some();
    if gone || !cx.ports.leadership.owns(key) || !is_ours(cx, &object) {
        return Ok(());
    }
    let (now, status) = (cx.clock.now(), object.status.clone().unwrap_or_default());
    let mut pass = Pass { cx, key, now, object: object.clone(), status };
    let prepared = if cx.is_standalone() {
        match admission::plan(cx, key, &object)? {
            Plan::Go(prepared) if admission::has_finalizer(&object) => *prepared,
            _ => return Ok(()), // Not taken up yet, or refused.
        }
    } else if private_service(cx.world.serverless.get(key).as_deref()).is_empty() {
        return Ok(());
    } else {
        let mut object = PodAutoscaler::clone(&object);
        object.set_defaults(&cx.autoscaler_config.borrow().pod_autoscaler_class);
        pass.prepare(Arc::new(object))?
    };
    pass.decide(&prepared).await.map(|_| ())
}

/// A pass under way.
struct Pass<'a> {
    cx: &'a Context,
    key: &'a Key,
    now: Timestamp,
    /// The newest version that was read or answered.
    object: Arc<PodAutoscaler>,
    /// The status as it will be.
    status: PodAutoscalerStatus,
}

impl Pass<'_> {
    async fn run(&mut self) -> Result<(), Error> {
        let prepared = if self.cx.is_standalone() {
            match admission::plan(self.cx, self.key, &self.object)? {
                Plan::Go(prepared) => {
                    self.object = admission::take_up(self.cx, self.key, &self.object, &prepared.target).await?;
                    *prepared
                }
                Plan::Refuse(refusal) => {
                    self.acted(Action::refused(refusal.obstacle()));
                    if refusal.reason == SERVICE_NOT_OWNED {
                        // Replicas are not ours to change, not even to give them back.
                        self.refuse(&refusal);
                        return retire::leave(self.cx, self.key, &self.object).await;
                    }
                    self.refuse(&refusal);
                    return Ok(());
                }
                Plan::GiveBack => {
                    self.acted(Action::refused(Obstacle::GivenBack));
                    let message =
                        "the Service is given back: zeroscale.dev/adopt-service is not set any more".to_owned();
                    self.refuse(&Refusal { reason: SERVICE_NOT_OWNED, message });
                    return retire::run(self.cx, self.key, &self.object).await;
                }
            }
        } else {
            match self.knative().await? {
                Some(prepared) => prepared,
                None => return Ok(()),
            }
        };
        self.notices(&prepared);
        self.metrics_notice(&prepared);
        self.act(&prepared).await?;
        if let Some(broken) = &prepared.broken {
            self.refuse(broken);
        }
        Ok(())
    }

    /// What takes the place of [`admission::plan`] in a Knative install. None before the Services are there.
    async fn knative(&mut self) -> Result<Option<Prepared>, Error> {
        let mut object = PodAutoscaler::clone(&self.object);
        object.set_defaults(&self.cx.autoscaler_config.borrow().pod_autoscaler_class);
        let object = Arc::new(object);
        let serverless = self.cx.world.serverless.get(self.key);
        if private_service(serverless.as_deref()).is_empty() {
            self.ensure_serverless(&object, serverless, Mode::Proxy, ACTIVATORS_AT_FIRST).await?;
            self.status.mark_sks_not_ready(NO_PRIVATE_SERVICE_NAME, self.now);
            let config = self.cx.autoscaler_config.borrow().clone();
            let deployment = self.cx.deployment_config.borrow().clone();
            let initialized = self.status.is_scale_target_initialized();
            let parameters = parameters::resolve(&object, &config, &deployment, None, initialized);
            self.conditions(&parameters, None, 0);
            self.acted(Action::refused(Obstacle::NoPrivateService));
            return Ok(None);
        }
        self.prepare(object).map(Some)
    }

    /// Of a Knative install's PodAutoscaler, what there is to scale.
    fn prepare(&self, object: Arc<PodAutoscaler>) -> Result<Prepared, Error> {
        let target_key = TargetKey::of(self.key.namespace(), &object.spec.scale_target_ref)?;
        let target = self.cx.world.targets.get(&target_key).inspect_err(|error| {
            if !matches!(error, TargetError::NotListed { .. }) {
                self.acted(Action::refused(Obstacle::TargetNotFound));
            }
        })?;
        let revision = object.labels().get(names::REVISION).cloned().unwrap_or_default();
        Ok(Prepared {
            object,
            target_key,
            target,
            adoption: None,
            pods: PodSet::Revision(revision),
            public_service: None,
            broken: None,
            metrics: None,
            lost_hosts: vec![],
        })
    }

    /// Steps 2 and 3 of the order, from what there is to what it came to.
    async fn decide(
        &mut self,
        prepared: &Prepared,
    ) -> Result<(Parameters, Option<Arc<ServerlessService>>, Decided), Error> {
        let (cx, key) = (self.cx, self.key);
        let config = cx.autoscaler_config.borrow().clone();
        let deployment = cx.deployment_config.borrow().clone();
        let initialized = self.status.is_scale_target_initialized();
        let mut parameters =
            parameters::resolve(&prepared.object, &config, &deployment, prepared.adoption, initialized);
        if cx.is_standalone() && cx.engine.is_none() {
            parameters.ignore_metrics(prepared.object.annotations());
        }
        let serverless = cx.world.serverless.get(key);
        self.status.metrics_service_name = match prepared.adoption {
            Some(_) => names::private_service(key.name()),
            None => private_service(serverless.as_deref()).to_owned(),
        };
        cx.ports.pods.track(key, prepared.pods.clone());
        let decided = self.scale(prepared, &parameters, serverless.as_deref()).await?;
        if let Some(want) = decided.want {
            cx.ports.deciders.requested(key, want);
        }
        Ok((parameters, serverless, decided))
    }

    async fn act(&mut self, prepared: &Prepared) -> Result<(), Error> {
        let (cx, key) = (self.cx, self.key);
        let (parameters, serverless, decided) = self.decide(prepared).await?;
        let counts = cx.ports.pods.counts(key);
        let scrape_target = if parameters.scraped { self.status.metrics_service_name.clone() } else { String::new() };
        self.ensure_metric(&prepared.object, &scrape_target)
            .await
            .map_err(Error::during("error reconciling Metric"))?;
        let mode = path_mode::path_mode(&path_mode::Input {
            want: decided.want,
            excess_burst_capacity: decided.excess_burst_capacity,
            present: serverless.as_deref().map(path_of),
            keep_when_unknown: cx.is_standalone(),
            warming: decided.warming,
        });
        let mode = if mode == PathMode::Serve { Mode::Serve } else { Mode::Proxy };
        let number = num_activators(
            u32::try_from(counts.ready).unwrap_or(0),
            parameters.decider.total_value,
            parameters.decider.target_burst_capacity,
            parameters.decider.activator_capacity,
        );
        let before = serverless.as_ref().map(|sks| sks.spec.clone());
        let serverless = self.ensure_serverless(&prepared.object, serverless, mode, number).await?;
        let just_written = before.is_some_and(|before| before != serverless.spec);
        self.read_serverless(&serverless, just_written);
        self.conditions(&parameters, decided.want, counts.ready);
        Ok(())
    }

    /// Tells the history what came of this pass.
    fn acted(&self, action: Action) {
        self.cx.ports.deciders.acted(self.key, action);
    }
}

fn path_of(serverless: &ServerlessService) -> PathMode {
    if serverless.spec.mode == Some(Mode::Serve) { PathMode::Serve } else { PathMode::Proxy }
}

fn private_service(serverless: Option<&ServerlessService>) -> &str {
    serverless.and_then(|sks| sks.status.as_ref()).map_or("", |status| status.private_service_name.as_str())
}
