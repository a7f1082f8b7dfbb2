//! Front end for PodAutoscalers. Knative's webhook validates them, and Knative's controllers create and delete the
//! objects around them. This front end reads a PodAutoscaler, scales its target, and writes its status.

use super::statuses::{COMPONENT, MergedStatus, StatusDelays};
use super::store::Objects;
use crate::cluster::error::Error;
use crate::cluster::target_key::{TargetError, TargetKey};
use crate::engine::front_end::{FrontEnd, Notices, ObjectLookup, ReconcileOutcome};
use crate::engine::parts::{Parts, ReconcilerConfigs};
use crate::engine::probe::{ProbeTarget, Prober};
use crate::engine::scaler::Scaled;
use crate::engine::workload::{NotReady, Parameters, Path, PathState, Previous, Reading, Workload};
use crate::scale::{Initial, PodSet, SubjectLabels};
use autoscaler_core::active::Active;
use autoscaler_core::bounds;
use autoscaler_core::history::{Action, Obstacle};
use autoscaler_core::path_mode::PathMode;
use autoscaler_core::scale_to_zero::{ACTIVATION_TIMEOUT_BUFFER, ProbeResult};
use common::RevisionKey as Key;
use common::annotations;
use common::backend::Protocol;
use common::config::{AutoscalerConfig, DeploymentConfig};
use common::names;
use common::scaling::BurstCapacity;
use common::time::Timestamp;
use common_api::condition::{Condition, FALSE, READY, TRUE, UNKNOWN};
use common_api::condition_set::HasConditions;
use common_api::podautoscaler_status::{ACTIVE, NO_PRIVATE_SERVICE_NAME, SCALE_TARGET_INITIALIZED, SKS_READY};
use common_api::{Mode, PodAutoscaler, PodAutoscalerStatus, ServerlessService};
use common_controller::{Passed, Passes, Priority, Severity, Written};
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;

/// Front end for objects that Knative's controllers share with its autoscaler.
pub(crate) struct Revisions {
    pub(super) parts: Parts,
    pub(super) objects: Arc<Objects>,
    delays: StatusDelays,
    pub(crate) prober: Arc<Prober>,
}

/// PodAutoscaler during a reconcile.
pub(crate) struct Subject {
    /// Time of the reconcile.
    pub(super) now: Timestamp,
    read: Arc<PodAutoscaler>,
    /// Copy with defaults filled in.
    pub(super) object: PodAutoscaler,
    /// Status under construction.
    pub(super) status: PodAutoscalerStatus,
    /// Its ServerlessService, if it exists.
    pub(super) serverless: Option<Arc<ServerlessService>>,
}

impl Revisions {
    /// Creates the front end for all revisions of the cluster. `merged_within`: time within which new statuses are
    /// merged into one write.
    pub(crate) fn new(parts: &Parts, objects: Arc<Objects>, merged_within: Duration) -> Self {
        let queue = &parts.writes.decisions;
        let prober = Arc::new(Prober::new(parts.resolver.clone(), parts.shutdown.clone(), queue.clone()));
        let delays = StatusDelays::new(queue.clone(), merged_within);
        Self { parts: parts.clone(), objects, delays, prober }
    }

    /// Returns the target of the path probe; none: the public Service has no name yet. HTTP/2 has its own port on it.
    fn probe_target(&self, key: &Key, subject: &Subject) -> Option<ProbeTarget> {
        let service = Some(&subject.status.service_name).filter(|name| !name.is_empty())?;
        let host = format!("{service}.{}.svc.{}", key.namespace(), self.parts.cluster_domain);
        Some(ProbeTarget { host, port: if subject.object.spec.protocol_type == Protocol::H2c { 81 } else { 80 } })
    }
}

impl FrontEnd for Revisions {
    type Subject = Subject;

    const REPORTS_GIVEN_UP_FOR: Duration = Duration::ZERO;

    /// Finds PodAutoscalers of class KPA. Other classes have their own controllers.
    fn find(&self, key: &Key, now: Timestamp) -> ObjectLookup<Subject> {
        let is_ours = |object: &Arc<PodAutoscaler>| {
            annotations::CLASS.text(object.annotations()).is_some() && annotations::is_kpa(object.annotations())
        };
        let Some(read) = self.objects.autoscalers.get(key).filter(is_ours) else { return ObjectLookup::Gone };
        if read.metadata.deletion_timestamp.is_some() {
            return ObjectLookup::Over;
        }
        let mut object = PodAutoscaler::clone(&read);
        object.set_defaults(&self.parts.configs.autoscaler.borrow().pod_autoscaler_class);
        let status = Passes::begin(&*read, now);
        ObjectLookup::Present(Subject { now, read, object, status, serverless: self.objects.serverless.get(key) })
    }

    fn read(&self, key: &Key, subject: &mut Subject, now: Timestamp) -> Result<Reading, Error> {
        let (object, serverless) = (&subject.object, subject.serverless.as_deref());
        let ReconcilerConfigs { autoscaler, deployment } = &self.parts.configs;
        let is_initialized = subject.status.is_scale_target_initialized();
        let parameters = parameters(object, &autoscaler.borrow(), &deployment.borrow(), is_initialized);
        let sks_status = serverless.and_then(|sks| sks.status.as_ref());
        let named = sks_status.map(|status| &status.private_service_name).filter(|name| !name.is_empty());
        let Some(private_service) = named.cloned() else { return Ok(Reading::AwaitServices(Box::new(parameters))) };
        let target_key = TargetKey::from_reference(key.namespace(), &object.spec.scale_target_ref)?;
        let target = self.parts.stores.targets.get(&target_key).inspect_err(|error| {
            if !matches!(error, TargetError::NotListed(_)) {
                self.parts.ports.deciders.record_action(key, Action::refused(Obstacle::TargetNotFound));
            }
        })?;
        let path = serverless.map(|serverless| PathState {
            mode: if serverless.spec.mode == Some(Mode::Serve) { PathMode::Serve } else { PathMode::Proxy },
            proxy_for: sks_status.map(|status| status.proxy_for(now)).unwrap_or_default(),
        });
        let label = |name: &str| object.labels().get(name).cloned().unwrap_or_default();
        Ok(Reading::Go(Box::new(Workload {
            kind: object.spec.scale_target_ref.kind.clone().unwrap_or_default(),
            pods: PodSet::Revision(label(names::REVISION)),
            labels: SubjectLabels { service: label(names::SERVICE), configuration: label(names::CONFIGURATION) },
            initial: Initial::Unknown,
            may_scale: true,
            waits_for_decision: false,
            metrics: None,
            paused: false,
            request: None,
            private_service,
            parameters,
            path,
            target_key,
            target,
        })))
    }

    async fn request_services(&self, key: &Key, subject: &mut Subject, path: Path) -> Result<bool, Error> {
        self.ensure_serverless(key, subject, path).await?;
        subject.status.mark_sks_not_ready(NO_PRIVATE_SERVICE_NAME, subject.now);
        Ok(!subject.status.service_name.is_empty())
    }

    fn refuse(&self, subject: &mut Subject, why: NotReady, now: Timestamp) {
        subject.status.manage(now).set(READY, FALSE, why.reason, &why.message);
    }

    fn previous(&self, subject: &Subject, now: Timestamp) -> Previous {
        let status = &subject.status;
        let active = match status.condition(ACTIVE).map(|active| (active.status.as_str(), active.unchanged_for(now))) {
            Some((TRUE, age)) => Active::True(age),
            Some((FALSE, age)) => Active::False(age),
            Some((UNKNOWN, age)) => Active::Unknown(age),
            _ => Active::Absent,
        };
        // -1 is written before any scale is known.
        Previous { active, given_up_for: None, has_scale: status.desired_scale.is_some_and(|scale| scale >= 0) }
    }

    fn probe_result(&self, key: &Key, subject: &Subject) -> ProbeResult {
        let target = self.probe_target(key, subject);
        target.map_or(ProbeResult::NotInPath, |target| self.prober.proof(key, &target))
    }

    fn request_probe(&self, key: &Key, subject: &Subject) {
        if let Some(target) = self.probe_target(key, subject) {
            self.prober.start_round(key, target);
        }
    }

    fn scaled(&self, _: &Key, subject: &Subject, scaled: Scaled) {
        self.delays.scaled(&subject.read, scaled);
    }

    fn warn(&self, subject: &Subject, reason: &'static str, message: String) {
        self.parts.writes.recorder.record(COMPONENT, &*subject.read, Severity::Warning, reason, message);
    }

    /// Records the private Service's name only: a Knative status reports nothing that upstream's does not.
    fn notice(&self, subject: &mut Subject, workload: &Workload, _: Notices) {
        subject.status.metrics_service_name.clone_from(&workload.private_service);
    }

    async fn route(&self, key: &Key, subject: &mut Subject, workload: &Workload, path: Path) -> Result<bool, Error> {
        let scrape_target = if workload.parameters.scraped { workload.private_service.as_str() } else { "" };
        let metric = self.ensure_metric(key, subject, scrape_target).await;
        metric.map_err(Error::during("error reconciling Metric"))?;
        if self.parts.ports.collection.health(key).is_none() {
            // The collection was stopped and the Metric has not changed, so nothing else would restart it.
            self.objects.measurements.0.add(key.clone(), Priority::Normal);
        }
        let before = subject.serverless.as_ref().map(|serverless| serverless.spec.clone());
        let serverless = self.ensure_serverless(key, subject, path).await?;
        let just_written = before.is_some_and(|before| before != serverless.spec);
        read_serverless(subject, &serverless, just_written);
        Ok(!subject.status.service_name.is_empty())
    }

    fn conclude(&self, subject: &mut Subject, outcome: &ReconcileOutcome, now: Timestamp) {
        let status = &mut subject.status;
        status.set_scales(outcome.desired, outcome.ready);
        if outcome.initialized {
            status.manage(now).mark_true(SCALE_TARGET_INITIALIZED);
        }
        if let Some(activity) = outcome.activity {
            match activity.parts() {
                (Some(true), ..) => status.manage(now).mark_true(ACTIVE),
                (Some(false), reason, message) => status.mark_failed(reason, message, now),
                (None, reason, message) => status.manage(now).mark_unknown(ACTIVE, reason, message),
            }
        }
    }

    async fn finish(&self, _: &Key, subject: Subject, outcome: Result<(), Error>) -> Result<(), Error> {
        let Subject { read, status, .. } = subject;
        let (writer, recorder) = (self.parts.writes.writer(), &self.parts.writes.recorder);
        let written = Written { writer, store: &self.objects.autoscalers, recorder, component: COMPONENT };
        let statuses = MergedStatus { written, delays: &self.delays };
        let passes = Passes { statuses: &statuses, clock: &self.parts.writes.clock };
        passes.end(&read, Passed { outcome, object: read.clone(), status }).await
    }

    fn forget(&self, key: &Key) {
        self.delays.forget(key);
        self.prober.forget(key);
    }
}

/// Copies the state of the ServerlessService. `just_written`: we have just changed its spec.
fn read_serverless(Subject { now, status, .. }: &mut Subject, serverless: &ServerlessService, just_written: bool) {
    let theirs = serverless.status.clone().unwrap_or_default();
    status.service_name.clone_from(&theirs.service_name);
    let ready = theirs.condition(READY);
    if theirs.is_ready(serverless.metadata.generation.unwrap_or(0))
        || (just_written && ready.is_some_and(Condition::is_true))
    {
        status.manage(*now).mark_true(SKS_READY);
    } else if theirs.private_service_name.is_empty() {
        status.mark_sks_not_ready(NO_PRIVATE_SERVICE_NAME, *now);
    } else {
        status.mark_sks_not_ready(ready.map_or("", |ready| ready.message.as_str()), *now);
    }
}

/// Resolves all parameters. `initialized`: the initial scale has been reached once.
fn parameters(
    object: &PodAutoscaler,
    config: &AutoscalerConfig,
    deployment: &DeploymentConfig,
    initialized: bool,
) -> Parameters {
    let (annotations, reachable) = (object.annotations(), object.is_reachable());
    let decider = annotations::decider_spec(annotations, config, object.spec.container_concurrency, reachable);
    let always = decider.target_burst_capacity == BurstCapacity::Always;
    let own = annotations::bounds(annotations, config, reachable);
    let retention = if reachable { annotations::pod_retention(annotations, config).to_std() } else { Duration::ZERO };
    let deadline = annotations::progress_deadline(annotations, deployment).to_std();
    Parameters {
        bounds: bounds::with_initial_scale(own, decider.initial_scale, initialized, reachable),
        min_ready: bounds::min_ready(own, decider.initial_scale, initialized),
        scale_to_zero: config.enable_scale_to_zero,
        activation_timeout: deadline + ACTIVATION_TIMEOUT_BUFFER,
        grace_period: config.scale_to_zero_grace_period,
        pod_retention: retention,
        probe_needed: !always,
        scraped: !always,
        decider,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resolved(annotations: &[(&str, &str)]) -> Parameters {
        let annotations: std::collections::BTreeMap<_, _> =
            annotations.iter().map(|(name, value)| (format!("autoscaling.knative.dev/{name}"), *value)).collect();
        let object: PodAutoscaler = serde_json::from_value(json!({
            "metadata": {"name": "hello", "namespace": "ns", "annotations": annotations},
            "spec": {"scaleTargetRef": {}, "protocolType": "http1"},
        }))
        .expect("a PodAutoscaler");
        parameters(&object, &AutoscalerConfig::default(), &DeploymentConfig::default(), false)
    }

    /// Goal: with an unlimited burst capacity no probe is needed, the first bounds follow from the initial scale, and
    /// the activation timeout is the progress deadline plus a buffer.
    #[test]
    fn parameters_are_derived_from_annotations_and_defaults() {
        let default = resolved(&[]);
        assert!(default.probe_needed && !resolved(&[("target-burst-capacity", "-1")]).probe_needed);
        assert_eq!((default.bounds.min, default.min_ready), (0, 1));
        let scaled = resolved(&[("initial-scale", "3")]);
        assert_eq!((scaled.bounds.min, scaled.min_ready), (3, 3));
        assert_eq!(default.activation_timeout, Duration::from_secs(630));
    }
}
