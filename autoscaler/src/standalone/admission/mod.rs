//! Checks before scaling: the ZeroScaler is valid, its target exists, and its Service is available to us.
//!
//! A refusal is reported in the status with field, value and rule, and nothing else changes. If an edit violates a
//! rule, or the cluster rejects its target or Service, the former version stays in force.
//!
//! A Service may lose a port that the version in force names. A workload that was already adopted is then still served
//! and scaled, at the ports that exist: it may be asleep, and nothing else could wake it.

mod adoption;
pub(super) mod outcome;
pub(crate) mod schedules;
pub(crate) mod validation;

use crate::cluster::error::Error;
use crate::cluster::facts::{Selector, Target};
use crate::cluster::target_key::{SCALER_ROOT, TargetError, TargetKey};
use crate::engine::workload::{NotReady, Parameters, PathState, RefusalAction, Requested, Workload};
use crate::scale::{Initial, PodSet, SubjectLabels};
use crate::standalone::admission::outcome::{Admission, AdmissionNotes, Rejection};
use crate::standalone::admission::validation::Accepted;
use crate::standalone::cluster::{held, is_public};
use crate::standalone::finalizer::{adopted_replicas, adopted_target, has_finalizer};
use crate::standalone::reasons::{
    HORIZONTAL_CONFLICT, HOST_CONFLICT, INVALID, SERVICE_NOT_FOUND, SERVICE_NOT_OWNED, TARGET_CHANGES,
    TARGET_NOT_FOUND, TARGET_TAKEN, TARGET_UNREADABLE, list_names,
};
use crate::standalone::scalers::findings::{Finding, Findings};
use crate::standalone::services::service_ports::{ports_of, tcp_ports};
use crate::standalone::traffic::adopt::{self, Claimant, ServiceOwnership, ownership};
use crate::standalone::traffic::path_proof::CarriedServices;
use crate::standalone::traffic::slice_plan::ServedPort;
use crate::standalone::traffic::{backend, services};
use crate::standalone::workloads::Workloads;
use autoscaler_core::history::Obstacle;
use autoscaler_core::manual_requests::Wanted;
use common::RevisionKey as Key;
use common::names;
use common::time::Timestamp;
use common_api::ZeroScaler;
use common_api::zeroscaler::RequestStatus;
use common_api::zeroscaler::request::{self, Request};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Field that names Services.
const SERVICES: &str = "spec.services";
/// Remedy for a Service that cannot be adopted.
const SERVICE_REMEDY: &str = "Name another Service with a selector and a cluster IP in spec.services";
/// Remedy for a Service without a port that leads to the pods.
const TARGET_PORT_REMEDY: &str = "Correct targetPort of the Service, or name another Service in spec.services";
/// Maximum number of Service names in a message.
const NAMES_MAX: usize = 10;

/// Target of a version, which may be scaled.
struct AdmittedTarget {
    key: TargetKey,
    target: Arc<Target>,
    pods: PodSet,
    /// Fault of the target, which stays adopted nevertheless.
    contender: Option<NotReady>,
}

/// Services of a version, which may be served.
struct AdmittedServices {
    /// Name of the first Service in precedence.
    name: String,
    /// Existing Services in precedence, up to the first one that is still to be created.
    services: Vec<Arc<Service>>,
    port: backend::BackendPort,
}

impl Workloads {
    /// Runs all checks. The finalizer may not be set yet. Fails with a refusal, or if something is not known yet.
    pub(super) fn admit(&self, key: &Key, object: &Arc<ZeroScaler>, findings: &Findings) -> Admission {
        let newest = self.validation.newest(object);
        let checked = match &newest {
            Ok(newest) => self.check_version(key, object, findings, newest, None),
            Err(errors) => Err(invalid(errors.to_string())),
        };
        let (refused, afterwards) = match checked {
            Ok(admitted) => {
                self.check_moves(key, object, &admitted.0.target_key)?;
                self.validation.record_served(key, object);
                return Ok(admitted);
            }
            Err(Rejection::Refused(refused, afterwards)) => (refused, afterwards),
            Err(failed) => return Err(failed),
        };
        // If it is unknown which version was in force, it may have been the newest.
        if let Some(former) = self.validation.former(key, object).or(newest.ok()) {
            match self.check_version(key, object, findings, &former, Some(refused.clone())) {
                Ok(admitted) => {
                    self.cluster.scalers.keep_former_version(key, former.original, false);
                    return Ok(admitted);
                }
                Err(Rejection::Refused(..)) => {}
                Err(failed) => return Err(failed),
            }
        }
        if afterwards == RefusalAction::Release {
            let former = self.validation.former(key, object).map(|former| former.original);
            self.cluster.scalers.keep_former_version(key, former.unwrap_or_else(|| object.clone()), true);
        }
        Err(Rejection::Refused(refused, afterwards))
    }

    /// Stops if a target other than the requested one was adopted. The version in force gives that target back first,
    /// as if the object were deleted.
    fn check_moves(&self, key: &Key, object: &Arc<ZeroScaler>, to: &TargetKey) -> Result<(), Rejection> {
        let held = held(object).filter(|held| held != to);
        let Some((held, adopted)) = held.zip(adopted_target(object.annotations())) else { return Ok(()) };
        let names = |version: &Arc<ZeroScaler>| version.spec.target == adopted;
        let former = self.validation.former(key, object).map(|former| former.original).filter(names);
        let former = former.unwrap_or_else(|| {
            // Only the target of that version is recorded.
            let mut version = ZeroScaler::clone(object);
            version.spec.target = adopted;
            Arc::new(version)
        });
        self.cluster.scalers.keep_former_version(key, former, true);
        let message = format!(
            "{SCALER_ROOT}: {} {:?} is being restored. {} {:?} is adopted after that",
            held.resource,
            held.object.name(),
            to.resource,
            to.object.name()
        );
        let not_ready = NotReady { reason: TARGET_CHANGES, message, obstacle: Obstacle::TargetChanges };
        Err(Rejection::Refused(not_ready, RefusalAction::Release))
    }

    /// Checks one version. `broken` is the fault of the newest version if this older one is in force; a port that its
    /// Service has lost is then no obstacle. Pause and request always come from the newest version, since they depend
    /// on nothing else in it.
    fn check_version(
        &self,
        key: &Key,
        newest: &Arc<ZeroScaler>,
        findings: &Findings,
        accepted: &Accepted,
        broken: Option<NotReady>,
    ) -> Admission {
        let admitted = self.target(key, newest, &accepted.original)?;
        let served = self.services(key, newest, &accepted.original, &admitted, broken.is_some())?;
        let original = &accepted.original;
        let now = self.parts.writes.clock.now();
        let path = self.cluster.path(newest);
        let services =
            (!served.services.is_empty()).then(|| carried_services(key, original, &admitted.target, &served));
        let workload = Workload {
            kind: original.spec.target.kind.clone(),
            labels: subject_labels(key, original),
            initial: match original.spec.scale.initial() {
                Some(_) => Initial::Unknown,
                None => Initial::Adopted(admitted.target.current()),
            },
            private_service: names::private_service(key.name()),
            may_scale: path.as_ref().is_some_and(|path| path.service == served.name),
            waits_for_decision: true,
            metrics: accepted.plan.clone(),
            paused: newest.spec.paused,
            request: requested(newest.spec.request.as_ref(), findings, now),
            parameters: self.parameters(key, newest, original, &admitted.target, findings),
            path: path.map(|path| PathState {
                mode: path.request.path.mode,
                proxy_for: path.in_path_since.map(|since| now.saturating_since(since)).unwrap_or_default(),
            }),
            target_key: admitted.key,
            target: admitted.target,
            pods: admitted.pods,
        };
        let (broken, lost_hosts) = (broken.or(admitted.contender), self.lost_hosts(key, original));
        let (ignored, target) = (self.validation.hpa.ignored(original), original.spec.target.clone());
        Ok((workload, AdmissionNotes { broken, lost_hosts, ignored, target, services }))
    }

    /// Checks the target of a version.
    fn target(&self, key: &Key, newest: &ZeroScaler, original: &ZeroScaler) -> Result<AdmittedTarget, Rejection> {
        let target_key = TargetKey::from_target(key.namespace(), &original.spec.target).map_err(Error::from)?;
        let target = match self.parts.stores.targets.get(&target_key) {
            Ok(target) => target,
            Err(error @ (TargetError::Missing(_) | TargetError::Unwatchable { .. })) => {
                let is_missing = matches!(error, TargetError::Missing(_));
                let reason = if is_missing { TARGET_NOT_FOUND } else { TARGET_UNREADABLE };
                return Err(refused(reason, Obstacle::TargetNotFound, at(SCALER_ROOT, error.to_string())));
            }
            Err(error) => return Err(Error::from(error).into()),
        };
        let contender = self.cluster.horizontals.first_for_target(&target_key);
        let contender = contender.map(|contender| contested(&contender, &target_key));
        if let Some(contested) = contender.clone().filter(|_| !has_finalizer(newest)) {
            return Err(Rejection::Refused(contested, RefusalAction::Stay));
        }
        let (resource, name) = (&target_key.resource, target_key.object.name());
        if let Some(owner) = self.owner_before(key, &target_key) {
            let owner = owner.name();
            let message = format!(
                "{SCALER_ROOT}: {resource} {name:?} is already scaled by ZeroScaler {owner:?}. Delete one of the two ZeroScalers, \
                 or name another target"
            );
            return Err(refused(TARGET_TAKEN, Obstacle::Contested, message));
        }
        let broken = |rule: &str| Err(invalid(at(SCALER_ROOT, format!("{resource} {name:?}: {rule}"))));
        if target.selector == Selector::Missing {
            return broken("the target must have a label selector, because the autoscaler counts its pods by it");
        }
        let Some(pods) = target.selector.pods() else {
            return broken("spec.selector of the target must be a valid label selector");
        };
        // The result of a change must be observable: otherwise a sleeping workload would count as awake, and never be
        // woken. A target that was already adopted stays adopted.
        let is_new = held(newest).as_ref() != Some(&target_key);
        if target.replicas.is_none() && is_new && !resource.has_default_replicas() {
            return broken(
                "spec.replicas must be set, because the autoscaler reads the scale of the target there. A kind that \
                 stores its scale in another field cannot be scaled",
            );
        }
        Ok(AdmittedTarget { key: target_key, target, pods, contender })
    }

    /// Checks the Services of a version. `is_former`: the version is older than the newest one.
    fn services(
        &self,
        key: &Key,
        newest: &ZeroScaler,
        original: &Arc<ZeroScaler>,
        admitted: &AdmittedTarget,
        is_former: bool,
    ) -> Result<AdmittedServices, Rejection> {
        let target = &admitted.target;
        let claimant = Claimant { name: key.name(), uid: newest.metadata.uid.as_deref().unwrap_or_default() };
        let requested = self.cluster.requested_services(original, target, claimant);
        let Some((choice, service)) = requested.first() else {
            let message = self.no_service(key, original, &admitted.key);
            return Err(refused(SERVICE_NOT_FOUND, Obstacle::ServicePending, message));
        };
        let services: Vec<_> = requested.iter().map_while(|(_, service)| service.clone()).collect();
        let name = &choice.name;
        let leads_to = traffic_port(original, &services, target);
        let port = backend::port(target, leads_to.as_ref(), backend::protocol(original))
            .map_err(|error| invalid(format!("Service {name:?}: {error}")))?;
        let unfit = service.as_deref().and_then(adopt::unfit);
        let unfit =
            unfit.map(|why| at(SERVICES, format!("Service {name:?} cannot be adopted: {why}. {SERVICE_REMEDY}")));
        match (ownership(service.as_deref(), claimant), unfit) {
            // From now on clients bypass the activators.
            (ServiceOwnership::Foreign(_) | ServiceOwnership::Adopted, Some(why)) if has_finalizer(newest) => {
                return Err(not_owned(why, RefusalAction::Release));
            }
            (ServiceOwnership::Ours, Some(why)) => return Err(invalid(why)),
            (ServiceOwnership::Foreign(why), _) => {
                return Err(not_owned(at(SERVICES, format!("{why}. {SERVICE_REMEDY}")), RefusalAction::Abandon));
            }
            (ownership @ (ServiceOwnership::Adoptable | ServiceOwnership::Adopted), _) => {
                let why_not = |service| services::why_not_adoptable(service, &port, target);
                if let Some(why) = service.as_deref().and_then(why_not) {
                    let message = at(SERVICES, format!("{why}, so it cannot be adopted. {TARGET_PORT_REMEDY}"));
                    // A Service that was already adopted stays adopted.
                    let is_ours = ownership == ServiceOwnership::Adopted;
                    return Err(if is_ours { invalid(message) } else { not_owned(message, RefusalAction::Abandon) });
                }
            }
            (ServiceOwnership::Absent | ServiceOwnership::Ours | ServiceOwnership::Outgoing, _) => {}
        }
        let unknown = service.as_ref().and_then(|_| unknown_port(original, &services, target));
        if let Some(unknown) = unknown.filter(|_| !is_former || held(newest).as_ref() != Some(&admitted.key)) {
            return Err(invalid(unknown));
        }
        Ok(AdmittedServices { name: name.clone(), services, port })
    }

    /// Resolves the parameters of a version, and queues the workload for the time when its schedules change them.
    fn parameters(
        &self,
        key: &Key,
        newest: &ZeroScaler,
        original: &ZeroScaler,
        target: &Target,
        findings: &Findings,
    ) -> Parameters {
        let found = (adopted_replicas(newest, target), !backend::has_queue_proxy(target));
        let (config, deployment) = (self.parts.configs.autoscaler.borrow(), self.parts.configs.deployment.borrow());
        let now = self.parts.writes.clock.now();
        let scheduled = schedules::bounds(&original.spec, &config, now);
        if let Some(after) = schedules::until_next_check(&scheduled, now) {
            self.parts.writes.decisions.add_after(key.clone(), after);
            self.cluster.scalers.queue.add_after(key.clone(), after); // The status shows the next change.
        }
        let is_initialized = findings.is_initialized;
        let mut parameters =
            adoption::parameters(original, found, &config, &deployment, scheduled.bounds, is_initialized);
        if newest.spec.paused {
            // The present pods suffice for the workload to be awake, whatever the minimum.
            parameters.min_ready = parameters.min_ready.min(target.current().max(1));
        }
        parameters
    }

    /// Returns the finding about hosts that a version claims and does not have.
    fn lost_hosts(&self, key: &Key, original: &ZeroScaler) -> Option<Finding> {
        let hosts = original.spec.host_patterns();
        let lost: Vec<_> = hosts.iter().filter_map(|host| self.cluster.hosts.lost(key, host)).collect();
        // A conflict with another ZeroScaler comes first.
        let reason = lost.iter().map(|(reason, _)| *reason).max_by_key(|reason| *reason == HOST_CONFLICT)?;
        let messages: Vec<_> = lost.into_iter().map(|(_, message)| message).collect();
        Some(Finding::new(reason, messages.join("; ")))
    }

    /// Returns the message for a workload without a Service to serve; it lists the existing Services.
    fn no_service(&self, key: &Key, original: &ZeroScaler, target: &TargetKey) -> String {
        let namespace = key.namespace();
        let services = self.cluster.services.within(namespace);
        let names: Vec<_> =
            services.iter().filter(|service| is_public(service)).map(|service| service.name_any()).collect();
        let there = list_names(&names, NAMES_MAX);
        let there = if there.is_empty() { "no Services".to_owned() } else { format!("the Services {there}") };
        match original.spec.services.first() {
            Some(first) => format!(
                "{SERVICES}: Service {:?} does not exist in namespace {namespace:?}. The namespace has {there}. Name one of \
                 them, or set {SERVICES}[].create: true to have the Service created",
                first.name
            ),
            None => format!(
                "{SERVICES}: no Service in namespace {namespace:?} selects the pods of {} {:?}. The namespace has {there}. \
                 Name one in {SERVICES}, with create: true to have it created",
                target.resource,
                target.object.name()
            ),
        }
    }

    /// Returns another ZeroScaler that has precedence for a target: the one that adopted it, or else the oldest that
    /// names it.
    fn owner_before(&self, key: &Key, target: &TargetKey) -> Option<Key> {
        let naming = self.parts.stores.index.links.of_target(target);
        if naming.iter().all(|naming| naming == key) {
            return None;
        }
        let rank = |key: Key| {
            let object = self.cluster.scalers.objects.get(&key)?;
            let created = object.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
            Some((held(&object).as_ref() != Some(target), created, key))
        };
        let first = naming.into_iter().filter_map(rank).min()?;
        Some(first.2).filter(|first| first != key)
    }
}

/// Returns the Services whose slices must lead to activators before the last pod goes.
fn carried_services(key: &Key, original: &ZeroScaler, target: &Target, served: &AdmittedServices) -> CarriedServices {
    let AdmittedServices { services, port, .. } = served;
    let ports = services::served_ports(original, services, port, target, backend::protocol(original)).ports;
    let carried = |ports: Vec<ServedPort>| ports.into_iter().filter(|port| port.is_carried).map(|port| port.id.name);
    let each = services.iter().zip(ports).map(|(service, ports)| {
        (Key::new(key.namespace(), service.name_any()), carried(ports).collect::<BTreeSet<_>>())
    });
    // A further Service without carried ports always leads to the pods.
    each.enumerate().filter(|(index, (_, carried))| *index == 0 || !carried.is_empty()).map(|(_, each)| each).collect()
}

/// Returns the requested wake or sleep, unless it is over.
fn requested(request: Option<&Request>, findings: &Findings, now: Timestamp) -> Option<Requested> {
    let written = request.filter(|request| !findings.request.as_ref().is_some_and(|status| status.ends(request)))?;
    let wanted = match written.state.as_str() {
        request::AWAKE => Wanted::Awake,
        request::ASLEEP => Wanted::Asleep,
        _ => return None,
    };
    let is_reported = |status: &RequestStatus| status.at == written.at && status.state == written.state;
    let is_begun = findings.request.as_ref().is_some_and(is_reported);
    let age = now.saturating_since(Timestamp::from_secs(written.at()?.as_second()));
    Some(Requested { wanted, age, is_begun })
}

/// Returns the pod port of the first port in precedence.
pub(crate) fn traffic_port(original: &ZeroScaler, services: &[Arc<Service>], target: &Target) -> Option<IntOrString> {
    tcp_ports(original, services, Some(target)).into_iter().next().map(|port| port.target)
}

/// Returns the error message about a port that the ZeroScaler names and no Service has.
fn unknown_port(original: &ZeroScaler, services: &[Arc<Service>], target: &Target) -> Option<String> {
    let tcp = tcp_ports(original, services, Some(target));
    let known = |name: &str| tcp.iter().any(|port| port.is_named(name));
    let (index, port) = original.spec.ports.iter().enumerate().find(|(_, port)| !known(&port.name))?;
    let there = |service: &Arc<Service>| {
        let ports = ports_of(service).map(|port| {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            format!("{} {}/{protocol}", port.name.as_deref().unwrap_or_default(), port.port).trim().to_owned()
        });
        format!("Service {:?} has {}", service.name_any(), ports.collect::<Vec<_>>().join(", "))
    };
    let (name, there) = (&port.name, services.iter().map(there).collect::<Vec<_>>().join(", "));
    Some(format!("spec.ports[{index}].name: {name:?}: must be the name or the number of a TCP port. {there}"))
}

/// Prefixes a message with the field that the user wrote.
fn at(field: &str, message: String) -> String {
    format!("{field}: {message}")
}

/// Returns the refusal because a HorizontalPodAutoscaler scales the same target: two autoscalers undo each other's
/// work.
fn contested(by: &Key, target: &TargetKey) -> NotReady {
    let (by, resource, name) = (by.name(), &target.resource, target.object.name());
    let message = format!(
        "spec.target: HorizontalPodAutoscaler {by:?} also scales {resource} {name:?}. Delete the HorizontalPodAutoscaler, and \
         move its metrics to spec.metrics"
    );
    NotReady { reason: HORIZONTAL_CONFLICT, message, obstacle: Obstacle::Contested }
}

fn refused(reason: &'static str, obstacle: Obstacle, message: String) -> Rejection {
    Rejection::Refused(NotReady { reason, message, obstacle }, RefusalAction::Stay)
}

fn invalid(message: String) -> Rejection {
    refused(INVALID, Obstacle::Invalid, message)
}

/// Returns the refusal because a Service has another owner. In this case we must not change the replicas, not even to
/// give them back, unless the Service was ours until now.
fn not_owned(message: String, afterwards: RefusalAction) -> Rejection {
    let why = NotReady { reason: SERVICE_NOT_OWNED, message, obstacle: Obstacle::ServiceNotOwned };
    Rejection::Refused(why, afterwards)
}

/// Returns the metric labels of a workload. The configuration defaults to the name of the ZeroScaler.
fn subject_labels(key: &Key, object: &ZeroScaler) -> SubjectLabels {
    let label = |name: &str| object.labels().get(name).filter(|value| !value.is_empty());
    SubjectLabels {
        service: label(names::SERVICE).cloned().unwrap_or_default(),
        configuration: label(names::CONFIGURATION).map_or(key.name(), String::as_str).to_owned(),
    }
}
