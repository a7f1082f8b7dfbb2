//! What standalone looks at before it scales: is the ZeroScaler valid, is its target there, is its Service ours?
//!
//! Whatever is refused is refused in the status, with the field, the value and the rule, and nothing else is changed.
//! Of an edit that breaks a rule, or whose target or Service the cluster refuses, the former version stays in force.
//!
//! A Service may lose a port that the version in force names. What was taken up is then served and scaled all the same,
//! at the ports that are there: it may be asleep, and nobody could wake it.

use super::adoption::Adoption;
use super::cluster::Cluster;
use super::finalizer::{adopted_replicas, adopted_target, has_finalizer};
use super::hpa::Hpa;
use super::path_proof::PathByPort;
use super::reasons::{
    HORIZONTAL_CONFLICT, SERVICE_NOT_FOUND, TARGET_CHANGES, TARGET_NOT_FOUND, TARGET_TAKEN, TARGET_UNREADABLE,
};
use super::scalers::translation;
use super::schedules;
use super::serverless::adopt::{self, Claimant, Standing, standing};
use super::serverless::numbered::ServedPort;
use super::serverless::{backend, services};
use super::service_ports::{ports_of, tcp_ports};
use super::settings::{PortReference, Settings};
use super::validation::{Accepted, Validation};
use crate::reconcile::error::Error;
use crate::reconcile::kpa::workload::{Afterwards, NotReady, Probed, Reading, Requested, Workload};
use crate::reconcile::parts::ReconcilerConfigs;
use crate::reconcile::stores::Stores;
use crate::reconcile::stores::facts::{Selector, Target};
use crate::reconcile::stores::target_key::{SCALER_ROOT, TargetError, TargetKey};
use crate::reconcile::stores::watches::Watches;
use crate::scale::{Initial, SubjectLabels};
use autoscaler_core::history::Obstacle;
use autoscaler_core::orders::Wanted;
use common::RevisionKey as Key;
use common::names;
use common::time::Timestamp;
use common_api::podautoscaler_status::{INVALID, SERVICE_NOT_OWNED};
use common_api::zeroscaler::request::{self, Request};
use common_api::zeroscaler::{RequestStatus, ServiceChoice};
use common_api::{PodAutoscaler, PodAutoscalerStatus, ServerlessService, ZeroScaler};
use common_controller::WorkQueue;
use common_controller::objects::controller;
use common_runtime::clock::Clock;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The field that names Services.
const SERVICES: &str = "spec.services";
/// Most names of Services that a message has.
const NAMES_MAX: usize = 10;

/// Decides which ZeroScalers may be acted upon.
pub(super) struct Admission {
    pub(super) hpa: Hpa,
    pub(super) validation: Arc<Validation>,
    pub(super) stores: Arc<Stores>,
    pub(super) cluster: Arc<Cluster>,
    pub(super) configs: ReconcilerConfigs,
    /// Workloads to look at again.
    pub(super) decisions: WorkQueue<Key>,
    pub(super) clock: Clock,
}

impl Admission {
    /// Looks at everything. There may be no finalizer yet.
    ///
    /// # Errors
    /// Something is not known yet.
    pub(super) fn read(
        &self,
        key: &Key,
        object: &Arc<PodAutoscaler>,
        status: &PodAutoscalerStatus,
    ) -> Result<Reading, Error> {
        let Some(original) = self.cluster.scalers.behind(object) else {
            return Ok(invalid("there is no such object any more".to_owned())); // Nobody will read this.
        };
        let newest = self.validation.newest(key, &original);
        let reading = match &newest {
            Ok(newest) => self.look(key, object, status, newest.clone(), &original, None)?,
            Err(errors) => invalid(errors.to_string()),
        };
        let Reading::Refuse(refused, afterwards) = reading else {
            if let Reading::Go(workload) = &reading
                && let Some(moves) = self.moves(key, object, &original, &workload.target_key)
            {
                return Ok(moves);
            }
            self.validation.serves(key, &original);
            return Ok(reading);
        };
        // Where nobody knows which version was in force, it was the newest, perhaps.
        if let Some(former) = self.validation.former(key, &original).or(newest.ok()) {
            let served = self.look(key, object, status, former.clone(), &original, Some(refused.clone()))?;
            if matches!(served, Reading::Go(_)) {
                self.validation.keeps(key, &former);
                return Ok(served);
            }
        }
        if afterwards == Afterwards::GiveBack {
            let former = self.validation.former(key, &original).map(|former| former.original);
            self.cluster.scalers.leave(key, former.unwrap_or(original));
        }
        Ok(Reading::Refuse(refused, afterwards))
    }

    /// Whether another target was taken up than the one that is asked for now: that is given back first, by the version
    /// that is in force, as if the object were deleted.
    fn moves(&self, key: &Key, object: &PodAutoscaler, original: &Arc<ZeroScaler>, to: &TargetKey) -> Option<Reading> {
        let held = self.cluster.held(object).filter(|held| held != to)?;
        let reference = adopted_target(object.annotations())?;
        let names = |version: &Arc<ZeroScaler>| translation::target(version) == reference;
        let former = self.validation.former(key, original).map(|former| former.original).filter(names);
        let former = former.unwrap_or_else(|| {
            // Nobody has written down more than its target.
            let mut version = ZeroScaler::clone(original);
            version.spec.target = translation::named(&reference);
            Arc::new(version)
        });
        self.cluster.scalers.leave(key, former);
        let message = format!(
            "{SCALER_ROOT}: {} {:?} is given back, then {} {:?} is taken over",
            held.resource,
            held.object.name(),
            to.resource,
            to.object.name()
        );
        let not_ready = NotReady { reason: TARGET_CHANGES, message, obstacle: Obstacle::TargetChanges };
        Some(Reading::Refuse(not_ready, Afterwards::GiveBack))
    }

    /// Looks at what one version of it asks for. `broken`: what is wrong with the newest, where this one is in force;
    /// a port that its Service has lost does not keep it from that. Whether it is paused, and what is asked of it once,
    /// is as the `newest` says: that needs nothing of the rest of it.
    fn look(
        &self,
        key: &Key,
        object: &Arc<PodAutoscaler>,
        status: &PodAutoscalerStatus,
        accepted: Accepted,
        newest: &ZeroScaler,
        broken: Option<NotReady>,
    ) -> Result<Reading, Error> {
        // Where the user has written what is wrong.
        let at = |field: &str, message: String| format!("{field}: {message}");
        let reference = &accepted.object.spec.scale_target_ref;
        let target_key = TargetKey::of(key.namespace(), reference).map_err(TargetError::of_scaler)?;
        let target = match self.stores.targets.get(&target_key) {
            Ok(target) => target,
            Err(error @ (TargetError::Missing(_) | TargetError::Unwatchable { .. })) => {
                let is_missing = matches!(error, TargetError::Missing(_));
                let reason = if is_missing { TARGET_NOT_FOUND } else { TARGET_UNREADABLE };
                let message = at(SCALER_ROOT, error.to_string());
                let not_ready = NotReady { reason, message, obstacle: Obstacle::TargetNotFound };
                return Ok(Reading::Refuse(not_ready, Afterwards::Stay));
            }
            Err(error) => return Err(error.into()),
        };
        let contender = self.cluster.horizontals.of(&target_key);
        let contender = contender.map(|contender| contested(&contender, &target_key));
        if let Some(contested) = contender.clone().filter(|_| !has_finalizer(object)) {
            return Ok(Reading::Refuse(contested, Afterwards::Stay));
        }
        if let Some(owner) = self.owner_before(key, &target_key) {
            let (resource, name, owner) = (&target_key.resource, target_key.object.name(), owner.name());
            let message = format!("{SCALER_ROOT}: {resource} {name:?} is scaled by ZeroScaler {owner:?} already");
            let not_ready = NotReady { reason: TARGET_TAKEN, message, obstacle: Obstacle::Contested };
            return Ok(Reading::Refuse(not_ready, Afterwards::Stay));
        }
        let pods = match &target.selector {
            selector @ (Selector::Labels(_) | Selector::Expressions(_)) => match selector.pods() {
                Some(pods) => pods,
                None => {
                    let message = "spec.selector of the target: makes no sense".to_owned();
                    return Ok(invalid(at(SCALER_ROOT, message)));
                }
            },
            Selector::Missing => {
                let TargetKey { resource, object } = &target_key;
                let rule = "it has no label selector, by which pods are counted";
                return Ok(invalid(at(SCALER_ROOT, format!("{resource} {:?}: {rule}", object.name()))));
            }
        };
        // Nothing is changed that could not be seen afterwards: asleep it would be taken for awake, and never woken. One that
        // we have already stays as it is.
        let is_new = self.cluster.held(object).as_ref() != Some(&target_key);
        if target.replicas.is_none() && is_new && !target_key.resource.has_default_replicas() {
            let TargetKey { resource, object } = &target_key;
            let rule = "spec.replicas must be set, which is where its scale is read: a kind that has it elsewhere cannot be \
                        scaled";
            return Ok(invalid(at(SCALER_ROOT, format!("{resource} {:?}: {rule}", object.name()))));
        }
        let uid = object.uid().unwrap_or_default();
        let serverless = self.stores.serverless.get(key);
        let claimant = claimant(key.name(), &uid, serverless.as_deref());
        let choice = self.cluster.choose(&accepted.original, &target, claimant);
        let find = |asked: &ServiceChoice| self.cluster.services.get(&Key::new(key.namespace(), asked.name.as_str()));
        let first = choice.names.first().map(|first| (first, find(first)));
        let Some((asked, service)) = first.filter(|(first, service)| service.is_some() || first.create) else {
            let message = self.no_service(key, &accepted.original, &target_key);
            let not_ready = NotReady { reason: SERVICE_NOT_FOUND, message, obstacle: Obstacle::ServicePending };
            return Ok(Reading::Refuse(not_ready, Afterwards::Stay));
        };
        let (name, services): (_, Vec<_>) = (&asked.name, choice.names.iter().map_while(find).collect());
        let settings = &settings_beside(&accepted.original, &services, &target);
        let port = match backend::port(&target, settings, accepted.object.spec.protocol_type) {
            Ok(port) => port,
            Err(error) => return Ok(invalid(format!("Service {name:?}: {error}"))),
        };
        let unfit = service.as_deref().and_then(adopt::unfit);
        let unfit = unfit.map(|why| at(SERVICES, format!("Service {name:?} cannot be adopted: {why}")));
        match (standing(service.as_deref(), claimant), unfit) {
            // Clients go past the activators from now on.
            (Standing::Foreign(_) | Standing::Adopted, Some(why)) if has_finalizer(object) => {
                return Ok(given_back(why));
            }
            (Standing::Ours, Some(why)) => return Ok(invalid(why)),
            (Standing::Foreign(why), _) => return Ok(not_owned(at(SERVICES, why))),
            (standing @ (Standing::Adoptable | Standing::Adopted), _) => {
                let ports = service.as_deref().map(|service| services::check_adoptable(service, &port, &target));
                if let Some(Err(error)) = ports {
                    let message = at(SERVICES, format!("{error}: it cannot be adopted"));
                    // One that we have already stays as it is.
                    return Ok(if standing == Standing::Adopted { invalid(message) } else { not_owned(message) });
                }
            }
            (Standing::Absent | Standing::Ours | Standing::Outgoing, _) => {}
        }
        let unknown = service.as_ref().and_then(|_| unknown_port(&accepted.original, &services, &target));
        if let Some(unknown) = unknown.filter(|_| broken.is_none() || !has(newest, &target_key)) {
            return Ok(invalid(unknown));
        }
        let hosts = accepted.original.spec.host_patterns();
        let lost_hosts = hosts.iter().filter_map(|host| self.cluster.hosts.lost(key, host)).collect();
        let asked = &accepted.object;
        let plain = !backend::has_queue_proxy(&target);
        let adoption = Adoption { replicas: adopted_replicas(object, &target), plain };
        let (config, deployment) = (self.configs.autoscaler.borrow(), self.configs.deployment.borrow());
        let initialized = status.is_scale_target_initialized();
        let original = &accepted.original;
        let now = self.clock.now();
        let scheduled = schedules::bounds(&original.spec, &config, now);
        if let Some(after) = schedules::until_look(&scheduled, now) {
            self.decisions.add_after(key.clone(), after);
            self.cluster.scalers.queue().add_after(key.clone(), after); // Its status says what comes next.
        }
        let mut parameters = adoption.parameters(original, &config, &deployment, scheduled.bounds, initialized);
        parameters.ignored = self.hpa.ignored(original);
        if newest.spec.paused {
            // As many as there are make it awake, whatever is asked for.
            parameters.min_ready = parameters.min_ready.min(target.current().max(1));
        }
        let request = requested(newest.spec.request.as_ref(), status, now);
        let probe = service.as_deref().map(|_| {
            let served = services::served_ports(original, &services, &port, &target, asked.spec.protocol_type);
            let carried =
                |ports: Vec<ServedPort>| ports.into_iter().filter(|port| port.is_carried).map(|port| port.id.name);
            let each = services.iter().zip(served.ports).enumerate().map(|(index, (service, ports))| {
                (index, Key::new(key.namespace(), service.name_any()), carried(ports).collect::<BTreeSet<_>>())
            });
            // A further Service of which activators carry nothing leads to the pods always.
            let each = each.filter(|(index, _, carried)| *index == 0 || !carried.is_empty());
            Probed::Known(Arc::new(PathByPort {
                key: key.clone(),
                services: each.map(|(_, service, carried)| (service, carried)).collect(),
                uid: uid.clone(),
                cluster: self.cluster.clone(),
                decisions: self.decisions.clone(),
            }))
        });
        let served = serverless.as_ref().and_then(|serverless| serverless.status.as_ref());
        Ok(Reading::Go(Box::new(Workload {
            labels: subject_labels(key, asked),
            initial: if original.spec.scale.initial().is_some() {
                Initial::Unknown
            } else {
                Initial::Adopted(target.current())
            },
            private_service: names::private_service(key.name()),
            probe,
            may_scale: served.is_some_and(|status| status.service_name == *name),
            waits_for_decision: true,
            metrics: accepted.plan.clone(),
            broken: broken.or(contender),
            lost_hosts,
            paused: newest.spec.paused,
            request,
            object: accepted.object.clone(),
            parameters,
            serverless,
            pods,
            target_key,
            target,
        })))
    }
}

impl Admission {
    /// Returns what is said where there is no Service to serve: which there are.
    fn no_service(&self, key: &Key, original: &ZeroScaler, target: &TargetKey) -> String {
        let namespace = key.namespace();
        let mut there = self.cluster.service_names(namespace);
        let left_off = there.len().saturating_sub(NAMES_MAX);
        there.truncate(NAMES_MAX);
        let there = match (there.is_empty(), left_off) {
            (true, _) => "there is none".to_owned(),
            (false, 0) => format!("there are {}", there.join(", ")),
            (false, more) => format!("there are {} and {more} more", there.join(", ")),
        };
        match original.spec.services.first() {
            Some(asked) => format!(
                "{SERVICES}: no Service {:?} in namespace {namespace:?}, {there}; {SERVICES}[].create: true makes one",
                asked.name
            ),
            None => format!(
                "{SERVICES}: no Service in namespace {namespace:?} selects the pods of {} {:?}, {there}; name one in {SERVICES}, \
                 or have it made with create: true",
                target.resource,
                target.object.name()
            ),
        }
    }

    /// Another ZeroScaler that scales a target before this one may: whoever has it, else the oldest that asks for it.
    fn owner_before(&self, key: &Key, target: &TargetKey) -> Option<Key> {
        let naming = self.stores.naming(target);
        if naming.iter().all(|naming| naming == key) {
            return None;
        }
        let rank = |key: Key| {
            let object = self.cluster.scalers.get(&key)?;
            let created = object.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
            Some((!has(&object, target), created, key))
        };
        let first = naming.into_iter().filter_map(rank).min()?;
        Some(first.2).filter(|first| first != key)
    }
}

/// A wake or a sleep that is asked for, unless it is over.
fn requested(request: Option<&Request>, status: &PodAutoscalerStatus, now: Timestamp) -> Option<Requested> {
    let written = request.filter(|request| !status.request.as_ref().is_some_and(|told| told.ends(request)))?.clone();
    let wanted = match written.state.as_str() {
        request::AWAKE => Wanted::Awake,
        request::ASLEEP => Wanted::Asleep,
        _ => return None,
    };
    let is_told = |told: &RequestStatus| told.at == written.at && told.state == written.state;
    let is_begun = status.request.as_ref().is_some_and(is_told);
    let age = now.saturating_since(Timestamp::from_secs(written.at()?.as_second()));
    Some(Requested { wanted, written, age, is_begun })
}

/// Whether a ZeroScaler has taken a target up.
fn has(object: &ZeroScaler, target: &TargetKey) -> bool {
    let is_taken_up = object.finalizers().iter().any(|finalizer| finalizer == names::FINALIZER);
    let held = || adopted_target(object.annotations()).unwrap_or_else(|| translation::target(object));
    is_taken_up && TargetKey::of(target.object.namespace(), &held()).is_ok_and(|held| held == *target)
}

/// What is asked for beside the scale. Where the pods of a ZeroScaler take requests follows from its Service.
pub(crate) fn settings_beside(original: &ZeroScaler, services: &[Arc<Service>], target: &Target) -> Settings {
    translation::settings(original, traffic_port(original, services, target))
}

/// The pods' port behind the port that counts first.
fn traffic_port(original: &ZeroScaler, services: &[Arc<Service>], target: &Target) -> Option<PortReference> {
    match tcp_ports(original, services, Some(target)).into_iter().next()?.target {
        IntOrString::Int(number) => u16::try_from(number).ok().map(PortReference::Number),
        IntOrString::String(name) => Some(PortReference::Name(name)),
    }
}

/// A port of the ZeroScaler that no Service has.
fn unknown_port(original: &ZeroScaler, services: &[Arc<Service>], target: &Target) -> Option<String> {
    let tcp = tcp_ports(original, services, Some(target));
    let known = |name: &str| tcp.iter().any(|port| port.is_named(name));
    let (index, said) = original.spec.ports.iter().enumerate().find(|(_, said)| !known(&said.name))?;
    let there = |service: &Arc<Service>| {
        let ports = ports_of(service).map(|port| {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            format!("{} {}/{protocol}", port.name.as_deref().unwrap_or_default(), port.port).trim().to_owned()
        });
        format!("Service {:?} has {}", service.name_any(), ports.collect::<Vec<_>>().join(", "))
    };
    let (name, there) = (&said.name, services.iter().map(there).collect::<Vec<_>>().join(", "));
    Some(format!("spec.ports[{index}].name: {name:?}: must be the name or the number of a TCP port: {there}"))
}

fn not_ready(message: String) -> NotReady {
    NotReady { reason: INVALID, message, obstacle: Obstacle::Invalid }
}

/// Two that scale one target undo each other's work.
fn contested(by: &Key, target: &TargetKey) -> NotReady {
    let (by, resource, name) = (by.name(), &target.resource, target.object.name());
    let message = format!(
        "spec.target: HorizontalPodAutoscaler {by:?} scales {resource} {name:?} as well: delete it, and say in spec.metrics \
         what it measures"
    );
    NotReady { reason: HORIZONTAL_CONFLICT, message, obstacle: Obstacle::Contested }
}

fn invalid(message: String) -> Reading {
    Reading::Refuse(not_ready(message), Afterwards::Stay)
}

/// Replicas are not ours to change then, not even to give them back.
fn not_owned(message: String) -> Reading {
    let not_ready = NotReady { reason: SERVICE_NOT_OWNED, message, obstacle: Obstacle::ServiceNotOwned };
    Reading::Refuse(not_ready, Afterwards::LetGo)
}

/// What was taken over goes back first, as if the object were deleted.
fn given_back(message: String) -> Reading {
    let not_ready = NotReady { reason: SERVICE_NOT_OWNED, message, obstacle: Obstacle::ServiceNotOwned };
    Reading::Refuse(not_ready, Afterwards::GiveBack)
}

/// The configuration is the ZeroScaler itself, where nobody says otherwise.
fn subject_labels(key: &Key, object: &PodAutoscaler) -> SubjectLabels {
    let label = |name: &str| object.labels().get(name).filter(|value| !value.is_empty());
    SubjectLabels {
        service: label(names::SERVICE).cloned().unwrap_or_default(),
        configuration: label(names::CONFIGURATION).map_or(key.name(), String::as_str).to_owned(),
    }
}

/// Who asks for a Service: the ZeroScaler of this uid, by its own ServerlessService.
pub(crate) fn claimant<'a>(name: &'a str, uid: &'a str, serverless: Option<&'a ServerlessService>) -> Claimant<'a> {
    let own = serverless.filter(|sks| controller(&sks.metadata).is_some_and(|owner| owner.uid == uid));
    Claimant { name, autoscaler_uid: uid, serverless_uid: own.and_then(|sks| sks.metadata.uid.as_deref()) }
}
