//! The PodAutoscaler controller of class KPA, and in standalone of class HPA: from an object and a decision to
//! replicas, path and status.
//!
//! # Order
//!
//! 1. Standalone looks whether it may act at all ([`standalone`]), and marks what it takes up. In a Knative install nothing
//!    happens before the ServerlessService has named its private Service.
//! 2. The decider is told what there is to decide, the pod index what there is to count.
//! 3. Where metrics are asked for, load and metrics become one wish ([`metrics`]). Bounds, scale to zero and its probe
//!    ([`autoscaler_core::scale_to_zero`]) turn the decision into an outcome, and **the replicas patch is the first
//!    write**: a request is waiting for it. Upstream reconciles the Metric before.
//! 4. Metric, then path mode and number of activators, written to the ServerlessService.
//! 5. Status. It is written even if something failed.
//!
//! Every pass starts from what the informers know and could be the first one: nothing is carried over but the last
//! version of each object that broke no rule ([`Context::accepted`]).
//!
//! # Where we differ from upstream
//!
//! - A write of the ServerlessService's spec does not make `SKSReady` Unknown until its controller has seen it: its own `Ready`
//!   condition still holds for the Services that exist.
//! - The mode stays as it is while the scale is unknown (standalone), or a new owner does not know enough.
//! - A revision at zero replicas is woken by a patch that waits for nothing else, the probe runs beside, never in a worker.
//!
//! # Not here
//!
//! What nobody serves ([`foreign`] says so in the status); the process's own metrics, which are recorded where decisions are.

mod conditions;
pub(crate) mod foreign;
mod metrics;
pub(crate) mod objects;
mod parameters;
pub(crate) mod probe;
mod retire;
mod scale;
mod standalone;
mod writes;

use super::context::Context;
use super::error::Error;
use super::events::Severity;
use super::pass::Passed;
use super::world::targets::{TargetError, TargetKey};
use crate::scale::{Initial, PodSet, Subject, SubjectLabels, Surroundings};
use autoscaler_core::active::Active;
use autoscaler_core::contest::Verdict;
use autoscaler_core::history::{Action, Cause, Obstacle};
use autoscaler_core::num_activators::num_activators;
use autoscaler_core::path_mode::{self, PathMode};
use autoscaler_core::scale_to_zero::{self, ProbeNeed};
use common::RevisionKey as Key;
use common::annotations;
use common::backend::Protocol;
use common::names;
use common::time::Timestamp;
use common_api::podautoscaler_status::{NO_PRIVATE_SERVICE_NAME, SERVICE_NOT_OWNED};
use common_api::{Mode, PodAutoscaler, PodAutoscalerStatus, ServerlessService};
use kube::ResourceExt;
use parameters::Parameters;
use probe::ProbeTarget;
use standalone::{Plan, Prepared, Refusal};
use std::sync::Arc;
use tokio::time::Instant;

pub(crate) use objects::labels;
use scale::COMPONENT;
pub(crate) use standalone::claimant;

/// Condition that only informs: an annotation has no effect.
pub(crate) const SETTINGS_HONORED: &str = "SettingsHonored";
/// Condition that only informs: all metrics that were asked for can be measured.
pub(crate) const METRICS_MEASURED: &str = "MetricsMeasured";
/// Condition that only informs: every host is ours.
pub(crate) const HOSTS_OWNED: &str = "HostsOwned";
/// Activators of a PodAutoscaler whose Services are not there yet.
const ACTIVATORS_AT_FIRST: i32 = 2;

/// Whether a PodAutoscaler is this controller's. In standalone a missing class means KPA, class HPA is ours where metrics are
/// looked at, and what was taken up stays ours whatever its class becomes.
pub(crate) fn is_ours(cx: &Context, object: &PodAutoscaler) -> bool {
    match annotations::CLASS.text(object.annotations()) {
        Some(_) => cx.serves(object) || (cx.is_standalone() && standalone::has_finalizer(object)),
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
        return foreign::reconcile(cx, key, &object).await;
    }
    if object.metadata.deletion_timestamp.is_some() {
        let taken_up = cx.is_standalone() && standalone::has_finalizer(&object);
        return if taken_up { retire::run(cx, key, &object).await } else { Ok(()) };
    }
    let run = async |status, now| {
        let mut pass = Pass { cx, key, now, object: object.clone(), status };
        let outcome = pass.run().await;
        Passed { outcome, object: pass.object, status: pass.status }
    };
    cx.passes(&cx.world.autoscalers, COMPONENT).over(&object, run).await
}

/// The part of a pass that a request may be waiting for: bounds, scale to zero, replicas. Nothing else is written; a pass must
/// follow.
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
        match standalone::plan(cx, key, &object)? {
            Plan::Go(prepared) if standalone::has_finalizer(&object) => *prepared,
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

/// What a pass decided about the scale.
struct Decided {
    want: Option<i32>,
    excess_burst_capacity: i32,
    warming: bool,
}

impl Pass<'_> {
    async fn run(&mut self) -> Result<(), Error> {
        let prepared = if self.cx.is_standalone() {
            match standalone::plan(self.cx, self.key, &self.object)? {
                Plan::Go(prepared) => {
                    self.object = standalone::take_up(self.cx, self.key, &self.object, &prepared.target).await?;
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

    /// What takes the place of [`standalone::plan`] in a Knative install. None before the Services are there.
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

    async fn scale(
        &mut self,
        prepared: &Prepared,
        parameters: &Parameters,
        serverless: Option<&ServerlessService>,
    ) -> Result<Decided, Error> {
        let (cx, key, object, target) = (self.cx, self.key, &prepared.object, &prepared.target);
        let current = target.current();
        let initial = match prepared.adoption {
            // A status that told a scale before is another process's, or an earlier life's.
            _ if self.object.status.as_ref().is_some_and(|status| status.desired_scale.is_some()) => Initial::TakenOver,
            Some(_) if annotations::INITIAL_SCALE.entry(object.annotations()).is_none() => Initial::Adopted(current),
            _ => Initial::Unknown,
        };
        let label = |name: &str| object.labels().get(name).cloned().unwrap_or_default();
        let mut configuration = label(names::CONFIGURATION);
        if configuration.is_empty() && prepared.adoption.is_some() {
            configuration = key.name().to_owned();
        }
        let labels = SubjectLabels { service: label(names::SERVICE), configuration };
        cx.ports.deciders.ensure(key, Subject { spec: parameters.decider.clone(), labels }, initial);
        let path = serverless.map_or(PathMode::Proxy, path_of);
        let proxy_for = serverless.and_then(|sks| Some(sks.status.as_ref()?.proxy_for(self.now))).unwrap_or_default();
        let surroundings = Surroundings {
            activators_in_path: path == PathMode::Proxy || !proxy_for.is_zero(),
            replicas: Some(current),
        };
        cx.ports.deciders.observe(key, surroundings);
        let decision = cx.ports.deciders.status(key);
        let load = decision.and_then(|decision| decision.desired);
        let answer = self.blend(prepared, parameters, current, load);
        let desired = answer.as_ref().map_or(load, |answer| answer.desired);
        let active = self.active();
        // Standalone never takes silence for a wish: a target that is up stays as it is, bounds aside, until the
        // first decision.
        let held = (prepared.adoption.is_some() && active.is_activating() && current > 0).then_some(current);
        let target_of_probe = self.probe_target(object, prepared.public_service.as_deref());
        let verdict = match &target_of_probe {
            Some(probed) => match cx.prober.verdict(key, probed) {
                probe::Verdict::InPath => scale_to_zero::Verdict::InPath,
                probe::Verdict::NotInPath => scale_to_zero::Verdict::NotInPath,
                probe::Verdict::None => scale_to_zero::Verdict::NotAsked,
            },
            None => scale_to_zero::Verdict::NotInPath,
        };
        let outcome = scale_to_zero::decide(&scale_to_zero::Input {
            desired: desired.or(held),
            current_replicas: current,
            bounds: parameters.bounds,
            scale_to_zero: parameters.scale_to_zero,
            active,
            stable_window: parameters.decider.stable_window,
            activation_timeout: parameters.activation_timeout,
            grace_period: parameters.grace_period,
            pod_retention: parameters.pod_retention,
            path,
            proxy_for,
            probe_needed: parameters.probe_needed && current > 0,
            probe: verdict,
            warm_in: decision.and_then(|decision| decision.warm_in),
            unheard: decision.is_some_and(|decision| decision.unheard),
        });
        if let (ProbeNeed::Ask | ProbeNeed::Retry, Some(probed)) = (outcome.probe, target_of_probe) {
            cx.prober.ask(key, probed);
        }
        let reason = answer.as_ref().map_or(outcome.reason, |answer| outcome.reason.of_answer(answer));
        let planned = Action::planned(outcome.want, current, parameters.bounds, reason);
        match outcome.patch {
            None => self.acted(planned),
            Some(_) if !may_scale(prepared, serverless) => {
                self.acted(Action { because: Cause::Obstacle(Obstacle::ServicePending), ..planned });
            }
            Some(to) if self.is_contested(to) => {
                self.acted(Action { because: Cause::Obstacle(Obstacle::Contested), ..planned });
            }
            Some(to) => {
                let why = reason.explain();
                let patched = scale::patch(cx, key, &self.object, &prepared.target_key, target, to, why).await;
                self.acted(match &patched {
                    Ok(()) => Action { patched: true, ..planned },
                    Err(error) => Action { because: Cause::Obstacle(error.obstacle()), ..planned },
                });
                patched.map_err(Error::during("error scaling target"))?;
                cx.contests.entry(key.clone()).or_default().asked(to, Instant::now().into_std());
                cx.ports.deciders.observe(key, Surroundings { replicas: Some(to), ..surroundings });
                self.scaled(prepared, current, to);
            }
        }
        if let Some(after) = outcome.requeue {
            cx.queues.autoscalers.add_after(key.clone(), after);
        }
        Ok(Decided {
            want: outcome.want,
            excess_burst_capacity: decision.map_or(-1, |decision| decision.excess_burst_capacity),
            warming: decision.is_some_and(|decision| decision.warm_in.is_some()),
        })
    }

    /// Whether somebody else keeps changing the replicas back, so that it is not time to ask for them again; the key comes back
    /// when it is. Told once.
    fn is_contested(&self, to: i32) -> bool {
        let (cx, key) = (self.cx, self.key);
        let contest = cx.contests.get(key).map(|contest| *contest).unwrap_or_default();
        match contest.judge(to, Instant::now().into_std()) {
            Verdict::Ask => false,
            Verdict::AskAndTell => {
                let message = format!(
                    "Somebody else keeps changing the replicas, which should be {to}: they are asked for less and less often"
                );
                tracing::warn!(revision = %key, to, "somebody else keeps changing the replicas");
                cx.recorder.say(COMPONENT, &*self.object, Severity::Warning, "ReplicasContested", message);
                false
            }
            Verdict::Wait(left) => {
                cx.queues.autoscalers.add_after(key.clone(), left);
                true
            }
        }
    }

    /// Tells the history what came of this pass.
    fn acted(&self, action: Action) {
        self.cx.ports.deciders.acted(self.key, action);
    }

    fn active(&self) -> Active {
        let status = &self.status;
        match (status.active_for(self.now), status.inactive_for(self.now), status.activating_for(self.now)) {
            (Some(active), _, _) => Active::True(active),
            (_, Some(inactive), _) => Active::False(inactive),
            (_, _, Some(activating)) => Active::Unknown(activating),
            (None, None, None) => Active::Absent,
        }
    }

    /// Where an activator must answer before the last pod goes. In a Knative install HTTP/2 has a port of its own.
    fn probe_target(&self, object: &PodAutoscaler, public_service: Option<&str>) -> Option<ProbeTarget> {
        let service = public_service.unwrap_or(&self.status.service_name);
        if service.is_empty() {
            return None;
        }
        let host = format!("{service}.{}.svc.{}", self.key.namespace(), self.cx.options.cluster_domain);
        let port = if public_service.is_none() && object.spec.protocol_type == Protocol::H2c { 81 } else { 80 };
        Some(ProbeTarget { host, port })
    }
}

fn path_of(serverless: &ServerlessService) -> PathMode {
    if serverless.spec.mode == Some(Mode::Serve) { PathMode::Serve } else { PathMode::Proxy }
}

fn private_service(serverless: Option<&ServerlessService>) -> &str {
    serverless.and_then(|sks| sks.status.as_ref()).map_or("", |status| status.private_service_name.as_str())
}

/// Whether replicas may change: in standalone not before the ServerlessService has the public Service in hand, since a
/// Service that turned out to be somebody else's would have been none of our business.
fn may_scale(prepared: &Prepared, serverless: Option<&ServerlessService>) -> bool {
    let Some(name) = &prepared.public_service else { return true };
    serverless.and_then(|sks| sks.status.as_ref()).is_some_and(|status| status.service_name == *name)
}
