//! What standalone looks at before it scales: is the PodAutoscaler sound, is its target there, is its Service ours?
//!
//! Whatever is refused is refused in the status, with the field, the value and the rule, and nothing else is changed.
//! Of an edit that breaks a rule the former version stays in force. A target is marked as taken up, with the replicas
//! that it was found with, before anything is made or changed for it.

use super::serverless::adopt::{Claimant, Standing, standing};
use super::serverless::{backend, services};
use crate::reconcile::context::Context;
use crate::reconcile::error::Error;
use crate::reconcile::kpa::parameters::Adoption;
use crate::reconcile::world::facts::{Selector, Target};
use crate::reconcile::world::public_service;
use crate::reconcile::world::targets::{TargetError, TargetKey};
use crate::scale::PodSet;
use autoscaler_core::engine::Plan as MetricsPlan;
use autoscaler_core::history::Obstacle;
use common::RevisionKey as Key;
use common::names;
use common_api::podautoscaler_status::{INVALID, SERVICE_NOT_OWNED};
use common_api::{PodAutoscaler, ServerlessService};
use common_controller::objects::controller;
use common_controller::{BoundedApi, WriteError, code};
use kube::ResourceExt;
use serde_json::json;
use std::sync::Arc;

/// Annotation on a PodAutoscaler: replicas that its target was found with.
pub(crate) const ADOPTED_REPLICAS: &str = "zeroscale.dev/adopted-replicas";
/// Reason: what should be scaled does not exist.
pub(crate) const TARGET_NOT_FOUND: &str = "TargetNotFound";

/// Why a PodAutoscaler is not acted upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Reason of its `Ready` condition.
    pub(crate) reason: &'static str,
    /// Message of it.
    pub(crate) message: String,
}

impl Refusal {
    /// What stands in the way, in the words of the history.
    pub(crate) fn obstacle(&self) -> Obstacle {
        match self.reason {
            SERVICE_NOT_OWNED => Obstacle::ServiceNotOwned,
            TARGET_NOT_FOUND => Obstacle::TargetNotFound,
            _ => Obstacle::Invalid,
        }
    }
}

/// What to do with a PodAutoscaler.
#[derive(Debug)]
pub(crate) enum Plan {
    /// Scale it.
    Go(Box<Prepared>),
    /// Nothing; say why.
    Refuse(Refusal),
    /// Give its Service back, and its target with it: it may not keep them.
    GiveBack,
}

/// A PodAutoscaler that can be acted upon.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// What it asks for, defaults filled in; perhaps a former version.
    pub(crate) object: Arc<PodAutoscaler>,
    /// Its target.
    pub(crate) target_key: TargetKey,
    /// The facts of it.
    pub(crate) target: Arc<Target>,
    /// How it was taken up; none in a Knative install.
    pub(crate) adoption: Option<Adoption>,
    /// Which pods are its own.
    pub(crate) pods: PodSet,
    /// The Service that clients call must be this before replicas may change; none in a Knative install.
    pub(crate) public_service: Option<String>,
    /// What is wrong with the present version, if a former one is in force.
    pub(crate) broken: Option<Refusal>,
    /// What it asks the metrics for; none: its load alone scales it.
    pub(crate) metrics: Option<Arc<MetricsPlan>>,
    /// Hosts that belong to an older PodAutoscaler, with its name.
    pub(crate) lost_hosts: Vec<(String, Key)>,
}

/// Looks at everything. The target is not marked yet.
///
/// # Errors
/// Something is not known yet.
pub(crate) fn plan(cx: &Context, key: &Key, object: &Arc<PodAutoscaler>) -> Result<Plan, Error> {
    let refuse = |reason, message: String| Ok(Plan::Refuse(Refusal { reason, message }));
    let (accepted, broken) = match cx.accepted(key, object) {
        Ok(accepted) => accepted,
        Err(errors) => return refuse(INVALID, errors.to_string()),
    };
    let settings = &accepted.settings;
    let target_key = TargetKey::of(key.namespace(), &accepted.object.spec.scale_target_ref)?;
    let target = match cx.world.targets.get(&target_key) {
        Ok(target) => target,
        Err(error @ (TargetError::Missing { .. } | TargetError::Unwatchable { .. })) => {
            return refuse(TARGET_NOT_FOUND, error.to_string());
        }
        Err(error) => return Err(error.into()),
    };
    let pods = match &target.selector {
        Selector::Labels(labels) => PodSet::Selector(labels.clone()),
        Selector::Expressions => {
            let rule = "a Service cannot select by expressions: use matchLabels alone";
            return refuse(INVALID, format!("spec.selector.matchExpressions of the target: {rule}"));
        }
        Selector::Missing => {
            return refuse(INVALID, "spec.selector.matchLabels of the target: must not be empty".to_owned());
        }
    };
    let port = match backend::port(&target, settings, accepted.object.spec.protocol_type) {
        Ok(port) => port,
        Err(error) => return refuse(INVALID, error.to_string()),
    };
    let name = public_service(key, settings);
    let service = cx.world.services.get(&Key::new(key.namespace(), name));
    let uid = object.uid().unwrap_or_default();
    let serverless = cx.world.serverless.get(key);
    match standing(service.as_deref(), claimant(key.name(), &uid, serverless.as_deref(), settings.adopt_service)) {
        Standing::Foreign(why) => return refuse(SERVICE_NOT_OWNED, why),
        Standing::Returnable => return Ok(Plan::GiveBack),
        standing @ (Standing::Adoptable | Standing::Adopted) => {
            let ports = service.as_deref().map(|service| services::adopted_ports(service, &port, &target));
            if let Some(Err(error)) = ports {
                // One that we have already stays as it is.
                let reason = if standing == Standing::Adopted { INVALID } else { SERVICE_NOT_OWNED };
                return refuse(reason, format!("{error}: it cannot be adopted"));
            }
        }
        Standing::Absent | Standing::Ours | Standing::Outgoing => {}
    }
    let hosts = settings.hosts.iter().map(ToString::to_string);
    let lost_hosts = hosts.filter_map(|host| {
        let owner = cx.world.owner_of_host(&host).filter(|owner| owner != key)?;
        Some((host, owner))
    });
    let adoption = Adoption { replicas: adopted_replicas(object, &target), plain: !backend::has_queue_proxy(&target) };
    Ok(Plan::Go(Box::new(Prepared {
        adoption: Some(adoption),
        pods,
        public_service: Some(name.to_owned()),
        broken: broken.map(|errors| Refusal { reason: INVALID, message: errors.to_string() }),
        lost_hosts: lost_hosts.collect(),
        metrics: accepted.plan.clone(),
        object: accepted.object.clone(),
        target_key,
        target,
    })))
}

/// Who asks for a Service: the PodAutoscaler of this uid, by its own ServerlessService.
pub(crate) fn claimant<'a>(
    name: &'a str,
    uid: &'a str,
    serverless: Option<&'a ServerlessService>,
    adopt: bool,
) -> Claimant<'a> {
    let own = serverless.filter(|sks| controller(&sks.metadata).is_some_and(|owner| owner.uid == uid));
    Claimant { name, autoscaler_uid: uid, serverless_uid: own.and_then(|sks| sks.metadata.uid.as_deref()), adopt }
}

/// Replicas that the target was found with: as noted, else as it is.
pub(crate) fn adopted_replicas(object: &PodAutoscaler, target: &Target) -> i32 {
    let noted = object.annotations().get(ADOPTED_REPLICAS).and_then(|text| text.parse().ok());
    noted.unwrap_or_else(|| target.current())
}

/// Whether the PodAutoscaler is marked as having taken up its target.
pub(crate) fn has_finalizer(object: &PodAutoscaler) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == names::FINALIZER)
}

/// Marks the PodAutoscaler as having taken up its target. Returns the object as it is then.
///
/// # Errors
/// The API server's; a conflict if somebody wrote first.
pub(crate) async fn take_up(
    cx: &Context,
    key: &Key,
    object: &Arc<PodAutoscaler>,
    target: &Target,
) -> Result<Arc<PodAutoscaler>, Error> {
    if has_finalizer(object) {
        return Ok(object.clone());
    }
    let mut finalizers = object.finalizers().to_vec();
    finalizers.push(names::FINALIZER.to_owned());
    let replicas = adopted_replicas(object, target).to_string();
    let metadata = json!({"finalizers": finalizers, "annotations": {ADOPTED_REPLICAS: replicas}});
    patch_metadata(cx, key, object, metadata, "error taking up the target").await
}

/// Takes the mark off again. An object that is gone has none.
///
/// # Errors
/// The API server's; a conflict if somebody wrote first.
pub(crate) async fn let_go(cx: &Context, key: &Key, object: &Arc<PodAutoscaler>) -> Result<(), Error> {
    if !has_finalizer(object) {
        return Ok(());
    }
    let finalizers: Vec<_> = object.finalizers().iter().filter(|f| *f != names::FINALIZER).collect();
    let metadata = json!({"finalizers": finalizers, "annotations": {ADOPTED_REPLICAS: null}});
    match patch_metadata(cx, key, object, metadata, "error letting the target go").await {
        Err(Error::Write(WriteError::Api { source, .. })) if code(&source) == Some(404) => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}

async fn patch_metadata(
    cx: &Context,
    key: &Key,
    object: &Arc<PodAutoscaler>,
    mut metadata: serde_json::Value,
    doing: &str,
) -> Result<Arc<PodAutoscaler>, Error> {
    metadata["resourceVersion"] = json!(object.metadata.resource_version);
    let patch = json!({"metadata": metadata});
    let write = async |api: BoundedApi| {
        let patched = api.merge::<PodAutoscaler>(key, &patch).await;
        patched.map_err(WriteError::api(format!("{doing} of {}", key.name())))
    };
    let mut patched = cx.writer().write(key, doing, write).await?;
    patched.metadata.managed_fields = None;
    cx.world.autoscalers.offer_object(&patched);
    Ok(Arc::new(patched))
}
