//! Builds the status of a ZeroScaler from the findings of the reconciles. [`Findings::read`] is the inverse.
//!
//! | condition | True | False | Unknown |
//! |---|---|---|---|
//! | Ready | configured and served, asleep or awake; a message warns of possible obstacles | refused; a host leads elsewhere; it cannot be woken; its pods cannot serve ([`super::fault`]) | its Service is not served yet |
//! | Active | awake | asleep | in transition |
//! | Adopted | target and Service are adopted | they cannot be | not yet |
//! | HostsOwned | each host leads here | some host does not | |
//! | PortsAllocated | each port has a number of its own | some port has none, or a faulty one | not yet |
//! | AnswersResolved | the Service of the fallback exists and is usable | it is missing or unusable; condition absent without a fallback | |
//! | MetricsMeasured | each metric can be read | some metric cannot | |
//! | ProtocolsDetected | | it sleeps, and clients of a port send nothing | |
//! | ScaledBy | | another writer keeps changing the replicas; absent otherwise | |
//! | Guarded | NetworkPolicies select the pods, and the activators follow them; absent if none does | they cannot be followed, and no client is admitted | it is new, and the policies have not been read yet; or its target is unreadable |
//! | PodsOwned | | the target's selector matches foreign pods; absent otherwise | |
//!
//! The conditions also contain what the rules need after a restart: how long the workload has been awake or asleep, the
//! desired scale, and whether it was awake before.

use super::allocation::{Allocation, POLICY_NOT_FOLLOWED};
use super::fault::FaultEvidence;
use super::findings::{Finding, Findings};
use crate::standalone::policies::Verdict;
use crate::standalone::reasons::{
    NOT_ADOPTED, PAUSED, SERVICE_NOT_FOUND, SERVICE_NOT_OWNED, TARGET_NOT_FOUND, TARGET_TAKEN, TARGET_UNREADABLE,
    TIMED_OUT, list_names,
};
use crate::standalone::services::fallbacks::Resolved;
use autoscaler_core::schedules::InForce;
use common::backend::Backend;
use common::scaling::Bounds;
use common::time::Timestamp;
use common_api::ZeroScaler;
use common_api::zeroscaler::conditions as written;
use common_api::zeroscaler::conditions::{Condition, ConditionStatus, ConditionValue};
use common_api::zeroscaler::{
    Adopted, Fault, InForce as Version, NextChange, PodCounts, PortProtocol, PortStatus, ServicePath, ServiceStatus,
    SleepState, ZeroScalerStatus,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::time::Instant;

/// Reasons of conditions whose status needs no explanation.
const WAKING: &str = "Waking";
const SERVED: &str = "Served";
const PENDING: &str = "Pending";
const ADOPTED: &str = "Adopted";
const OWNED: &str = "Owned";
const ALLOCATED: &str = "Allocated";
const MEASURED: &str = "Measured";
const RESOLVED: &str = "Resolved";
const FOLLOWED: &str = "PoliciesFollowed";
const SILENT_CONNECTIONS: &str = "SilentConnections";
const AWAITED: &str = "PoliciesAwaited";
const POLICIES_AWAITED: &str = "the autoscaler has not read the NetworkPolicies or the pods of the workload yet. If this lasts, \
    check that it may list them, or set guarded: \"off\" in config-ports";
const UNFOLLOWED: &str = "the target cannot be read, so the labels of its pods are unknown. Until it can be read, changes of \
    NetworkPolicies are not followed, and clients are admitted as before. Condition Ready says why it cannot be read";
const HOST_NETWORK: &str = ". Its pods use the network of their nodes, to which NetworkPolicies do not apply: clients that know \
    the address of a node can reach its pods directly";
/// Maximum number of NetworkPolicies named in a message.
const POLICIES_NAMED: usize = 3;
/// Message of Active while paused.
const PAUSED_MESSAGE: &str =
    "spec.paused is true: the autoscaler changes neither the replicas nor the destinations of the Services";

/// Inputs of a status.
#[derive(Clone, Debug)]
pub(crate) struct Inputs<'a> {
    /// Object with its last written status.
    pub(crate) object: &'a ZeroScaler,
    /// Findings of the reconciles.
    pub(crate) findings: &'a Findings,
    pub(crate) pods: PodCounts,
    /// Scale bounds, now and next.
    pub(crate) scheduled: InForce,
    /// Claimed hosts that lead here.
    pub(crate) hosts: Vec<String>,
    /// Ports of the Services.
    pub(crate) ports: Vec<PortStatus>,
    /// Ports whose clients send nothing while the workload sleeps.
    pub(crate) silent: BTreeSet<u16>,
    /// Services of the workload.
    pub(crate) services: Vec<ServiceStatus>,
    /// Name of the first Service in precedence, if there is one.
    pub(crate) first: Option<&'a str>,
    /// Fault of further Services.
    pub(crate) conflict: Option<&'a str>,
    /// Summary of the allocated ports; `None` before the first plan.
    pub(crate) allocation: Option<Allocation>,
    /// Set if the Services lead to a ready endpoint.
    pub(crate) has_ready_endpoint: bool,
    /// Backend of the workload, if known.
    pub(crate) backend: Option<&'a Backend>,
    /// Resolved fallback, if the ZeroScaler has one.
    pub(crate) fallback: Option<Resolved>,
    /// Reason why the activators cannot reach the pods, if known.
    pub(crate) unreachable: Option<&'a str>,
    /// Effect of the NetworkPolicies on the workload; `None` if it is not known yet.
    pub(crate) guard: Option<&'a Verdict>,
    /// Set until NetworkPolicies and the labels of its pods have been read. Port numbers are not given before.
    pub(crate) awaits_policies: bool,
    /// Set if the namespace has NetworkPolicies, and the target is unreadable, so that they are not followed.
    pub(crate) is_unfollowed: bool,
    /// Failure of the pods.
    pub(crate) fault_evidence: FaultEvidence,
    /// Original state of target and Services.
    pub(crate) adopted: Option<Adopted>,
    /// Version of the spec that is in force, if this process knows it.
    pub(crate) in_force: Option<Version>,
    pub(crate) now: Timestamp,
}

/// Returns advice for silent ports whose protocol is unknown, if there are any. The suggestion has an entry for each.
fn silent_port_advice(ports: &[PortStatus], silent: &BTreeSet<u16>) -> Option<String> {
    let is_unknown = |port: &&PortStatus| port.protocol == PortProtocol::Auto && port.spoken.is_none();
    let silent = ports.iter().filter(is_unknown).filter(|port| silent.contains(&port.port));
    let names: Vec<&str> = silent.map(|port| port.name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    let entries: Vec<String> = names.iter().map(|name| format!("{{name: \"{name}\", protocol: tcp}}")).collect();
    Some(format!(
        "clients connected to port {} while the workload was asleep, sent nothing and disconnected. If its server sends first \
         (as with MySQL, SMTP or SSH), set spec.ports: [{}], so that such a connection wakes the workload",
        names.join(", "),
        entries.join(", ")
    ))
}

/// Returns the message about the NetworkPolicies that select a workload's pods and are followed; empty without any.
fn guarded_by(guard: &Verdict, backend: Option<&Backend>) -> String {
    let Verdict::Guarded(policies) = guard else { return String::new() };
    format!(
        "the activators admit only clients allowed by NetworkPolicies {}, and only through the Services of the \
         workload. The shared ports reject requests for it{}",
        list_names(policies, POLICIES_NAMED),
        if backend.is_some_and(|backend| backend.host_network) { HOST_NETWORK } else { "" }
    )
}

/// Returns the status.
pub(crate) fn compute(inputs: Inputs<'_>) -> ZeroScalerStatus {
    let Inputs { object, findings, pods, now, .. } = inputs;
    let before = object.status.clone().unwrap_or_default();
    let state = state(findings, pods);
    let fault = inputs.fault_evidence.fault(before.fault.as_ref(), now);
    let conditions = conditions(&inputs, &before, state, fault.as_ref());
    let woke = state == SleepState::Awake && before.state != SleepState::Awake;
    let next_change = |(at, Bounds { min, max })| NextChange { at: written::time(at), min, max };
    // The status names the Service elsewhere.
    let backend = inputs.backend.map(|backend| Backend { service: Arc::default(), ..backend.clone() });
    ZeroScalerStatus {
        observed_generation: findings.generation.or(before.observed_generation),
        conditions,
        state,
        desired: findings.desired,
        pods: Some(pods),
        min: Some(inputs.scheduled.bounds.min),
        max: inputs.scheduled.bounds.max,
        next_change: inputs.scheduled.next.map(next_change),
        service: Some(findings.service.clone()).filter(|name| !name.is_empty()),
        host_names: inputs.hosts.join(", "),
        services: inputs.services,
        hosts: inputs.hosts,
        ports: inputs.ports,
        backend: backend.or(before.backend).map(|backend| {
            match wake_obstacle(findings, inputs.in_force.as_ref(), object.metadata.generation) {
                Some(why) => Backend { wake_refused: Some(why.into()), failing: None, paused: false, ..backend },
                None => inputs.fault_evidence.apply_to_backend(backend, Instant::now()),
            }
        }),
        fallback: inputs.fallback.and_then(Result::ok),
        adopted: inputs.adopted,
        in_force: inputs.in_force.or(before.in_force),
        request: findings.request.clone(),
        fault,
        last_wake: if woke { Some(written::time(now)) } else { before.last_wake },
    }
}

/// Returns the conditions that follow those of the status `before`.
fn conditions(
    inputs: &Inputs<'_>,
    before: &ZeroScalerStatus,
    state: SleepState,
    fault: Option<&Fault>,
) -> Vec<Condition> {
    let Inputs { object, findings, conflict, now, .. } = *inputs;
    let allocation = inputs.allocation.as_ref();
    let mut conditions = before.conditions.clone();
    let mut set = |type_: &str, condition: Option<ConditionValue<'_>>| match condition {
        Some(condition) => written::set(&mut conditions, type_, condition, object.metadata.generation, now),
        None => written::clear(&mut conditions, type_),
    };
    let fails = fault.map(|fault| (&fault.reason, fault.message()));
    let faulty = fails.as_ref().map(|(reason, message)| condition(ConditionStatus::False, reason, message));
    let is_requested = !findings.service.is_empty() && inputs.first.is_none_or(|first| first == findings.service);
    let has_endpoint = inputs.has_ready_endpoint || stays_ready(inputs, before);
    let warning = conflict.or(inputs.unreachable);
    set(written::READY, Some(ready(findings, is_requested, allocation, has_endpoint, warning, faulty)));
    // Until a plan was made here, the written condition holds.
    if allocation.is_some() || written::find(&before.conditions, written::PORTS_ALLOCATED).is_none() {
        let awaits = inputs.awaits_policies && matches!(allocation, None | Some(Allocation::Pending));
        let awaited = condition(ConditionStatus::Unknown, AWAITED, POLICIES_AWAITED);
        set(written::PORTS_ALLOCATED, Some(if awaits { awaited } else { allocated(allocation) }));
    }
    set(written::ACTIVE, Some(active(findings, inputs.pods)));
    set(written::ADOPTED, Some(adopted_condition(findings, conflict)));
    let has_hosts = !object.spec.hosts.is_empty();
    set(written::HOSTS_OWNED, has_hosts.then(|| notice(findings.lost_hosts.as_ref(), OWNED)));
    let has_metrics = !object.spec.metrics.is_empty();
    set(written::METRICS_MEASURED, has_metrics.then(|| notice(findings.unmeasured.as_ref(), MEASURED)));
    set(written::SCALED_BY, findings.contest.as_ref().map(false_condition));
    set(written::PODS_OWNED, findings.foreign_pods.as_ref().map(false_condition));
    let followed = inputs.guard.map(|guard| guarded_by(guard, inputs.backend)).unwrap_or_default();
    if let Some(guarded) = guarded(inputs, before, &followed) {
        set(written::GUARDED, guarded);
    }
    let resolved = inputs.fallback.as_ref().map(|resolved| match resolved {
        Ok(_) => condition(ConditionStatus::True, RESOLVED, ""),
        Err((reason, message)) => condition(ConditionStatus::False, reason, message),
    });
    set(written::ANSWERS_RESOLVED, resolved);
    let silence = silent_port_advice(&inputs.ports, &inputs.silent).filter(|_| state != SleepState::Awake);
    let silence = silence.as_deref().map(|message| condition(ConditionStatus::False, SILENT_CONNECTIONS, message));
    set(written::PROTOCOLS_DETECTED, silence);
    conditions
}

/// Reports whether a workload stays Ready while no endpoint is ready. It does without a time limit, because otherwise a
/// rollout of activators would change every status. If its Service changes or one is added, that Service must first
/// have a ready endpoint.
fn stays_ready(inputs: &Inputs<'_>, before: &ZeroScalerStatus) -> bool {
    let is_served = |one: &&ServiceStatus| one.path == ServicePath::Served;
    let was_served = |one: &ServiceStatus| before.services.iter().filter(is_served).any(|was| was.name == one.name);
    let is_same = before.service.as_deref() == Some(inputs.findings.service.as_str())
        && (before.services.is_empty() || inputs.services.iter().filter(is_served).all(was_served));
    is_same && written::is(&before.conditions, written::READY, ConditionStatus::True)
}

/// Returns the condition Guarded, which may be absent; `None`: the written one holds. `followed` is the message about
/// policies that are followed.
fn guarded<'a>(
    inputs: &Inputs<'a>,
    before: &ZeroScalerStatus,
    followed: &'a str,
) -> Option<Option<ConditionValue<'a>>> {
    let Inputs { object, guard, awaits_policies, is_unfollowed, .. } = *inputs;
    let was_awaited = written::find(&before.conditions, written::GUARDED)
        .is_some_and(|was| [AWAITED, TARGET_UNREADABLE].contains(&was.reason.as_str()));
    let is_new = object.status.as_ref().is_none_or(|written| written.observed_generation.is_none());
    match guard {
        // A new workload admits no client before the policies are known. For others the last verdict holds.
        _ if awaits_policies && is_new => Some(Some(condition(ConditionStatus::Unknown, AWAITED, POLICIES_AWAITED))),
        _ if is_unfollowed => Some(Some(condition(ConditionStatus::Unknown, TARGET_UNREADABLE, UNFOLLOWED))),
        Some(Verdict::Guarded(_)) => Some(Some(condition(ConditionStatus::True, FOLLOWED, followed))),
        Some(Verdict::Barred(why)) => Some(Some(condition(ConditionStatus::False, POLICY_NOT_FOLLOWED, why))),
        Some(Verdict::Open) => Some(None),
        None => (!awaits_policies && was_awaited).then_some(None),
    }
}

fn state(findings: &Findings, pods: PodCounts) -> SleepState {
    let desired = findings.desired.unwrap_or(-1);
    match findings.activity {
        _ if missing_target_fault(findings, pods).is_some() => SleepState::Unknown,
        Some(activity) if activity.is_awake() => SleepState::Awake,
        Some(activity) if activity.is_asleep() && (pods.actual > 0 || desired > 0) => SleepState::FallingAsleep,
        Some(activity) if activity.is_asleep() => SleepState::Asleep,
        _ if desired > 0 => SleepState::Waking,
        _ => SleepState::Unknown,
    }
}

/// Returns the reason shown to waiting clients if target or Service prevents a wake. `None` does not imply that the
/// workload can be woken.
fn wake_obstacle(findings: &Findings, in_force: Option<&Version>, generation: Option<i64>) -> Option<&'static str> {
    let is_former = in_force.is_some_and(|version| version.generation != generation);
    match &*findings.refused.as_ref().filter(|_| !is_former)?.reason {
        TARGET_NOT_FOUND => Some("its target does not exist"),
        TARGET_UNREADABLE => Some("its target cannot be read"),
        TARGET_TAKEN => Some("its target belongs to another ZeroScaler"),
        SERVICE_NOT_FOUND => Some("its Service does not exist"),
        _ => None,
    }
}

/// Returns the fault of a missing target without remaining pods. A workload that was awake is then no longer awake, but
/// was not put to sleep either.
fn missing_target_fault(findings: &Findings, pods: PodCounts) -> Option<&Finding> {
    let is_asleep = findings.activity.is_some_and(|activity| activity.is_asleep());
    findings.refused.as_ref().filter(|why| why.reason == TARGET_NOT_FOUND && pods.actual == 0 && !is_asleep)
}

/// Returns the condition Ready. `serves_requested_service`: the served Service is the requested one. `has_endpoint`:
/// the Services lead to a ready endpoint, or the workload stays Ready without one.
fn ready<'a>(
    findings: &'a Findings,
    serves_requested_service: bool,
    allocation: Option<&'a Allocation>,
    has_endpoint: bool,
    warning: Option<&'a str>,
    faulty: Option<ConditionValue<'a>>,
) -> ConditionValue<'a> {
    let Findings { refused, lost_hosts, rejected_scale_up, activity, .. } = findings;
    let found = refused.as_ref().or(lost_hosts.as_ref()).or(rejected_scale_up.as_ref()).map(false_condition);
    let given_up = activity.map(|activity| activity.condition_parts()).filter(|(_, reason, _)| *reason == TIMED_OUT);
    let given_up = || given_up.map(|(status, reason, message)| condition(status, reason, message));
    match found.or(faulty).or_else(given_up) {
        Some(fault) => fault,
        None => match () {
            () if !serves_requested_service => {
                let message = "the autoscaler has not set up the Service of the workload yet";
                condition(ConditionStatus::Unknown, PENDING, message)
            }
            () if matches!(allocation, Some(Allocation::Wrong { is_lacking, .. }) if *is_lacking || !has_endpoint) => {
                allocated(allocation)
            }
            () if !has_endpoint => {
                condition(ConditionStatus::Unknown, PENDING, "no activator serves the ports of the workload yet")
            }
            () => condition(ConditionStatus::True, SERVED, warning.unwrap_or_default()),
        },
    }
}

fn allocated(allocation: Option<&Allocation>) -> ConditionValue<'_> {
    match allocation {
        Some(Allocation::Whole) => condition(ConditionStatus::True, ALLOCATED, ""),
        Some(Allocation::Wrong { reason, message, .. }) => condition(ConditionStatus::False, reason, message),
        Some(Allocation::Pending) | None => condition(ConditionStatus::Unknown, PENDING, ""),
    }
}

fn active(findings: &Findings, pods: PodCounts) -> ConditionValue<'_> {
    if let Some(why) = missing_target_fault(findings, pods) {
        return false_condition(why);
    }
    let (status, reason, message) = match findings.activity {
        Some(activity) => activity.condition_parts(),
        None if findings.generation.is_some() => (ConditionStatus::Unknown, WAKING, ""),
        None => (ConditionStatus::Unknown, PENDING, ""),
    };
    if findings.paused { condition(status, PAUSED, PAUSED_MESSAGE) } else { condition(status, reason, message) }
}

fn adopted_condition<'a>(findings: &'a Findings, conflict: Option<&'a str>) -> ConditionValue<'a> {
    match findings.refused.as_ref().filter(|refused| NOT_ADOPTED.contains(&&*refused.reason)) {
        Some(refused) => false_condition(refused),
        None if findings.service.is_empty() => condition(ConditionStatus::Unknown, PENDING, ""),
        None if conflict.is_some() => {
            condition(ConditionStatus::False, SERVICE_NOT_OWNED, conflict.unwrap_or_default())
        }
        None => condition(ConditionStatus::True, ADOPTED, ""),
    }
}

/// Returns a condition that is False with a fault, and True with the reason `right` without one.
fn notice<'a>(found: Option<&'a Finding>, right: &'a str) -> ConditionValue<'a> {
    found.map_or_else(|| condition(ConditionStatus::True, right, ""), false_condition)
}

fn false_condition(found: &Finding) -> ConditionValue<'_> {
    condition(ConditionStatus::False, &found.reason, &found.message)
}

fn condition<'a>(status: ConditionStatus, reason: &'a str, message: &'a str) -> ConditionValue<'a> {
    // The API server requires a reason for every condition.
    ConditionValue { status, reason: if reason.is_empty() { PENDING } else { reason }, message }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
