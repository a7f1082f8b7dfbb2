//! Step 3 of a pass: from a decision to an outcome, and from that to the replicas patch, or to what keeps it back.

use super::super::error::Error;
use super::parameters::Parameters;
use super::probe::{self, ProbeTarget};
use super::scale::{self, COMPONENT};
use super::{Pass, path_of};
use crate::scale::{Initial, Subject, SubjectLabels, Surroundings};
use crate::standalone::admission::Prepared;
use autoscaler_core::active::Active;
use autoscaler_core::history::{Action, Cause, Obstacle};
use autoscaler_core::path_mode::PathMode;
use autoscaler_core::scale_conflict::Attempt;
use autoscaler_core::scale_to_zero::{self, ProbeNeed};
use common::annotations;
use common::backend::Protocol;
use common::names;
use common_api::{PodAutoscaler, ServerlessService};
use common_controller::Severity;
use kube::ResourceExt;
use tokio::time::Instant;

/// What a pass decided about the scale.
pub(super) struct Decided {
    pub(super) want: Option<i32>,
    pub(super) excess_burst_capacity: i32,
    pub(super) warming: bool,
}

impl Pass<'_> {
    /// Asks the decider, the metrics and the rules, and patches the replicas if they say so.
    pub(super) async fn scale(
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
                probe::Verdict::InPath => scale_to_zero::ProbeResult::InPath,
                probe::Verdict::NotInPath => scale_to_zero::ProbeResult::NotInPath,
                probe::Verdict::None => scale_to_zero::ProbeResult::NotAsked,
            },
            None => scale_to_zero::ProbeResult::NotInPath,
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
                cx.conflicts.entry(key.clone()).or_default().written(to, Instant::now().into_std());
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

    /// Whether somebody else keeps changing the replicas back, so that it is not time to ask for them again; the key
    /// comes back when it is. Told once.
    fn is_contested(&self, to: i32) -> bool {
        let (cx, key) = (self.cx, self.key);
        let conflict = cx.conflicts.get(key).map(|conflict| *conflict).unwrap_or_default();
        match conflict.attempt(to, Instant::now().into_std()) {
            Attempt::Now => false,
            Attempt::NowAndReport => {
                let message = format!(
                    "Somebody else keeps changing the replicas, which should be {to}: they are asked for less and less often"
                );
                tracing::warn!(revision = %key, to, "somebody else keeps changing the replicas");
                cx.recorder.say(COMPONENT, &*self.object, Severity::Warning, "ReplicasContested", message);
                false
            }
            Attempt::After(left) => {
                cx.queues.autoscalers.add_after(key.clone(), left);
                true
            }
        }
    }

    /// What `Active` says, and for how long it has said so.
    pub(super) fn active(&self) -> Active {
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
        let host = format!("{service}.{}.svc.{}", self.key.namespace(), self.cx.cluster_domain);
        let port = if public_service.is_none() && object.spec.protocol_type == Protocol::H2c { 81 } else { 80 };
        Some(ProbeTarget { host, port })
    }
}

/// Whether replicas may change: in standalone not before the ServerlessService has the public Service in hand, since a
/// Service that turned out to be somebody else's would have been none of our business.
fn may_scale(prepared: &Prepared, serverless: Option<&ServerlessService>) -> bool {
    let Some(name) = &prepared.public_service else { return true };
    serverless.and_then(|sks| sks.status.as_ref()).is_some_and(|status| status.service_name == *name)
}
