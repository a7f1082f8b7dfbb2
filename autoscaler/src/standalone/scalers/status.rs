//! The status of a ZeroScaler, from what the passes say, and back.
//!
//! | condition | True | False | Unknown |
//! |---|---|---|---|
//! | Ready | configured and served, asleep or awake; a message warns of what may be in the way | refused; a host leads elsewhere; it cannot be woken; its pods cannot serve ([`super::fault`]) | its Service is not served yet |
//! | Active | awake | asleep | on the way |
//! | Adopted | target and Service are taken over | they cannot be | not yet |
//! | HostsOwned | each host leads here | some host does not | |
//! | PortsAllocated | each port has a number of its own | some has none, or not a good one | not yet |
//! | AnswersResolved | the Service of the fallback was found, and can answer | it was not, or cannot; absent without a fallback | |
//! | MetricsMeasured | each metric can be read | some metric cannot | |
//! | ProtocolsDetected | | it sleeps, and clients of a port say nothing | |
//! | ScaledBy | | another writer keeps changing the replicas; absent while none does | |
//! | PodsOwned | | the target's selector finds pods of others; absent while it does not | |
//!
//! The passes' own words live in memory. What the rules need to go on after a restart is in these conditions, too: how
//! long it has been awake or asleep, what was wanted, whether it was awake before.

use super::allocation::Allocation;
use super::fault::Found;
use crate::reconcile::kpa::conditions::{
    ABLE_TO_SCALE, HOSTS_OWNED, METRICS_MEASURED, PODS_OWNED, SCALED_BY, SETTINGS_HONORED,
};
use crate::standalone::fallbacks::Resolved;
use crate::standalone::reasons::{NOT_ADOPTED, SERVICE_NOT_FOUND, TARGET_NOT_FOUND, TARGET_TAKEN, TARGET_UNREADABLE};
use autoscaler_core::schedules::InForce;
use common::backend::Backend;
use common::names;
use common::scaling::Bounds;
use common::time::Timestamp;
use common_api::condition::{self, Condition, READY};
use common_api::condition_set::HasConditions;
use common_api::podautoscaler_status::{ACTIVE, SCALE_TARGET_INITIALIZED, SERVICE_NOT_OWNED, SKS_READY, TIMED_OUT};
use common_api::zeroscaler::conditions as written;
use common_api::zeroscaler::conditions::{ConditionStatus, Said};
use common_api::zeroscaler::{
    Adopted, BackendStatus, InForce as Version, NextChange, PodCounts, PortProtocol, PortStatus, ServicePath,
    ServiceStatus, State, ZeroScalerStatus,
};
use common_api::{PodAutoscalerStatus, ZeroScaler};
use std::collections::BTreeSet;
use tokio::time::Instant;

/// Reason of conditions of which the status is all there is to say.
const AWAKE: &str = "Awake";
const ASLEEP: &str = "Asleep";
const WAKING: &str = "Waking";
const SERVED: &str = "Served";
const PENDING: &str = "Pending";
const ADOPTED: &str = "Adopted";
const OWNED: &str = "Owned";
const ALLOCATED: &str = "Allocated";
const MEASURED: &str = "Measured";
const RESOLVED: &str = "Resolved";
const PAUSED: &str = "Paused";
const SILENT_CONNECTIONS: &str = "SilentConnections";
/// What is said of one that is paused.
const STAYS: &str = "spec.paused: replicas stay as they are, and so does where the Service leads";

/// All that a status follows from.
#[derive(Clone, Debug)]
pub(crate) struct Inputs<'a> {
    /// The object, with its status as it was written last.
    pub(crate) object: &'a ZeroScaler,
    /// What the passes say.
    pub(crate) said: &'a PodAutoscalerStatus,
    /// Its pods.
    pub(crate) pods: PodCounts,
    /// Its limits, now and next.
    pub(crate) scheduled: InForce,
    /// Those of its hosts that lead here.
    pub(crate) hosts: Vec<String>,
    /// Its Services' ports.
    pub(crate) ports: Vec<PortStatus>,
    /// Ports whose clients say nothing, while it sleeps.
    pub(crate) silent: BTreeSet<u16>,
    /// Its Services.
    pub(crate) services: Vec<ServiceStatus>,
    /// Name of the Service that counts first, if there is one.
    pub(crate) first: Option<&'a str>,
    /// Fault of Services beside that one.
    pub(crate) conflict: Option<&'a str>,
    /// Whether these have numbers; none: nobody has planned for it yet.
    pub(crate) allocation: Option<Allocation>,
    /// Set if its Services lead to somebody who is ready.
    pub(crate) is_led: bool,
    /// How activators reach its pods, if that is known.
    pub(crate) backend: Option<&'a Backend>,
    /// Its fallback, if it has one.
    pub(crate) fallback: Option<Resolved>,
    /// Why the activators cannot reach its pods, if that is known.
    pub(crate) unreachable: Option<&'a str>,
    /// Failure of its pods.
    pub(crate) found: Found,
    /// What was found.
    pub(crate) adopted: Option<Adopted>,
    /// The version of the spec that is in force, if this process knows it.
    pub(crate) in_force: Option<Version>,
    /// Now.
    pub(crate) now: Timestamp,
}

/// Returns a suggestion for ports whose clients say nothing; none: there are none of which nothing is known.
fn silence(ports: &[PortStatus], silent: &BTreeSet<u16>) -> Option<String> {
    let is_unknown = |port: &&PortStatus| port.protocol == PortProtocol::Auto && port.spoken.is_none();
    let silent: Vec<&PortStatus> = ports.iter().filter(is_unknown).filter(|port| silent.contains(&port.port)).collect();
    let name = &silent.first()?.name;
    let names: Vec<&str> = silent.iter().map(|port| port.name.as_str()).collect();
    Some(format!(
        "clients connected to port {} while the workload slept, sent nothing and left: if its server speaks first (as in \
         MySQL, SMTP or SSH), set spec.ports: [{{name: \"{name}\", protocol: tcp}}], so that such a connection wakes it",
        names.join(", ")
    ))
}

/// What the status should be.
pub(crate) fn of(inputs: Inputs<'_>) -> ZeroScalerStatus {
    let Inputs { object, said, pods, scheduled, hosts, ports, allocation, is_led, backend, unreachable, .. } = inputs;
    let Inputs { fallback, adopted, in_force, found, now, silent, services, first, conflict, .. } = inputs;
    let before = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation;
    let state = state(said, pods);
    let fault = found.fault(before.fault.as_ref(), now);
    let before_conditions = before.conditions.clone();
    let mut conditions = before.conditions;
    let mut set = |type_: &str, said: Option<Said<'_>>| match said {
        Some(said) => written::set(&mut conditions, type_, said, generation, now),
        None => written::clear(&mut conditions, type_),
    };
    // Once it was, whoever comes to find nobody ready finds it so for a moment: activators that are rolled are not each
    // workload's to tell. Another Service, or one more, has yet to be led.
    let is_served = |one: &&ServiceStatus| one.path == ServicePath::Served;
    let was_served = |one: &ServiceStatus| before.services.iter().filter(is_served).any(|was| was.name == one.name);
    let is_same = before.service.as_deref() == Some(said.service_name.as_str())
        && (before.services.is_empty() || services.iter().filter(is_served).all(was_served));
    let was_led = is_same && written::is(&before_conditions, written::READY, ConditionStatus::True);
    let is_served = !said.service_name.is_empty() && first.is_none_or(|first| first == said.service_name);
    let warning = conflict.or(unreachable);
    let fails = fault.as_ref().map(|fault| (fault.reason.clone(), fault.message()));
    let faulty = fails.as_ref().map(|(reason, message)| says(ConditionStatus::False, reason, message));
    set(written::READY, Some(ready(said, is_served, allocation.as_ref(), is_led || was_led, warning, faulty)));
    // Until somebody has planned here, what was written of them holds.
    if allocation.is_some() || written::find(&before_conditions, written::PORTS_ALLOCATED).is_none() {
        set(written::PORTS_ALLOCATED, Some(allocated(allocation.as_ref())));
    }
    set(written::ACTIVE, Some(active(said, pods)));
    set(written::ADOPTED, Some(taken(said, conflict)));
    let hosts_owned = || notice(said.condition(HOSTS_OWNED), OWNED);
    set(written::HOSTS_OWNED, Some(()).filter(|()| !object.spec.hosts.is_empty()).map(|()| hosts_owned()));
    let unmeasured = said.condition(METRICS_MEASURED).or_else(|| said.condition(SETTINGS_HONORED));
    set(
        written::METRICS_MEASURED,
        Some(()).filter(|()| !object.spec.metrics.is_empty()).map(|()| notice(unmeasured, MEASURED)),
    );
    let contest = said.condition(SCALED_BY);
    set(written::SCALED_BY, contest.map(|_| notice(contest, PENDING)));
    let overlap = said.condition(PODS_OWNED);
    set(written::PODS_OWNED, overlap.map(|_| notice(overlap, PENDING)));
    let resolved = fallback.as_ref().map(|resolved| match resolved {
        Ok(_) => says(ConditionStatus::True, RESOLVED, ""),
        Err((reason, message)) => says(ConditionStatus::False, reason, message),
    });
    set(written::ANSWERS_RESOLVED, resolved);
    let silence = silence(&ports, &silent).filter(|_| state != State::Awake);
    let silence = silence.as_deref().map(|message| says(ConditionStatus::False, SILENT_CONNECTIONS, message));
    set(written::PROTOCOLS_DETECTED, silence);
    let woke = state == State::Awake && before.state != State::Awake;
    ZeroScalerStatus {
        observed_generation: said.observed_generation.or(before.observed_generation),
        conditions,
        state,
        desired: said.desired_scale.filter(|desired| *desired >= 0),
        pods: Some(pods),
        min: Some(scheduled.bounds.min),
        max: scheduled.bounds.max,
        next_change: scheduled.next.map(|(at, Bounds { min, max })| NextChange { at: written::time(at), min, max }),
        service: Some(said.service_name.clone()).filter(|name| !name.is_empty()),
        host_names: hosts.join(", "),
        services,
        hosts,
        ports,
        backend: backend.map(BackendStatus::from).or(before.backend).map(|backend| {
            match kept_asleep(said, in_force.as_ref(), generation) {
                Some(why) => {
                    BackendStatus { wake_refused: Some(why.to_owned()), failing: None, paused: false, ..backend }
                }
                None => found.tell(backend, Instant::now()),
            }
        }),
        fallback: fallback.and_then(Result::ok),
        adopted,
        in_force: in_force.or(before.in_force),
        request: said.request.clone(),
        fault,
        last_wake: if woke { Some(written::time(now)) } else { before.last_wake },
    }
}

fn state(said: &PodAutoscalerStatus, pods: PodCounts) -> State {
    let desired = said.desired_scale.unwrap_or(-1);
    match said.condition(ACTIVE) {
        Some(_) if lacks_its_target(said, pods).is_some() => State::Unknown,
        Some(active) if active.is_true() => State::Awake,
        Some(active) if active.is_false() && (pods.actual > 0 || desired > 0) => State::FallingAsleep,
        Some(active) if active.is_false() => State::Asleep,
        _ if desired > 0 => State::Waking,
        _ => State::Unknown,
    }
}

/// Why nothing, or nothing new, is done, if so.
fn refused(said: &PodAutoscalerStatus) -> Option<&Condition> {
    let ready = said.condition(READY).filter(|ready| ready.is_false())?;
    // Whoever is asleep is not ready in Knative's words, which say why in both.
    let sleeps = said.condition(ACTIVE).is_some_and(|active| active.is_false() && active.reason == ready.reason);
    (!sleeps || NOT_ADOPTED.contains(&ready.reason.as_str())).then_some(ready)
}

/// Why nobody wakes it whatever comes, for those who wait, whoever they are; none: it can be woken, a former version of it
/// perhaps.
fn kept_asleep(
    said: &PodAutoscalerStatus,
    in_force: Option<&Version>,
    generation: Option<i64>,
) -> Option<&'static str> {
    let is_former = in_force.is_some_and(|version| version.generation != generation);
    match refused(said).filter(|_| !is_former)?.reason.as_str() {
        TARGET_NOT_FOUND => Some("what it scales does not exist"),
        TARGET_UNREADABLE => Some("what it scales cannot be looked at"),
        TARGET_TAKEN => Some("what it scales is another's"),
        SERVICE_NOT_FOUND => Some("its Service does not exist"),
        _ => None,
    }
}

/// What should be scaled is not there, and no pod of it is left: who was awake is so no longer, and was not put to sleep.
fn lacks_its_target(said: &PodAutoscalerStatus, pods: PodCounts) -> Option<&Condition> {
    let is_asleep = said.condition(ACTIVE).is_some_and(Condition::is_false);
    refused(said).filter(|refused| refused.reason == TARGET_NOT_FOUND && pods.actual == 0 && !is_asleep)
}

/// `is_served`: the Service that is led is the one that is asked for.
fn ready<'a>(
    said: &'a PodAutoscalerStatus,
    is_served: bool,
    allocation: Option<&'a Allocation>,
    is_led: bool,
    warning: Option<&'a str>,
    faulty: Option<Said<'a>>,
) -> Said<'a> {
    let timed_out = said.condition(ACTIVE).filter(|active| active.is_false() && active.reason == TIMED_OUT);
    let wrong = refused(said)
        .or_else(|| said.condition(HOSTS_OWNED).filter(|c| c.is_false()))
        .or_else(|| said.condition(ABLE_TO_SCALE).filter(|c| c.is_false()));
    match (wrong, faulty) {
        (None, Some(faulty)) => faulty,
        (wrong, _) => match wrong.or(timed_out) {
            Some(wrong) => says(ConditionStatus::False, &wrong.reason, &wrong.message),
            None if !is_served => says(ConditionStatus::Unknown, PENDING, "its Service is not served yet"),
            None if lacks_a_number(allocation) => allocated(allocation),
            None if !is_led && matches!(allocation, Some(Allocation::Wrong { .. })) => allocated(allocation),
            None if !is_led => says(ConditionStatus::Unknown, PENDING, "no activator serves its ports yet"),
            None => says(ConditionStatus::True, SERVED, warning.unwrap_or_default()),
        },
    }
}

fn lacks_a_number(allocation: Option<&Allocation>) -> bool {
    matches!(allocation, Some(Allocation::Wrong { is_lacking: true, .. }))
}

fn allocated(allocation: Option<&Allocation>) -> Said<'_> {
    match allocation {
        Some(Allocation::Whole) => says(ConditionStatus::True, ALLOCATED, ""),
        Some(Allocation::Wrong { reason, message, .. }) => says(ConditionStatus::False, reason, message),
        Some(Allocation::Pending) | None => says(ConditionStatus::Unknown, PENDING, ""),
    }
}

fn active(said: &PodAutoscalerStatus, pods: PodCounts) -> Said<'_> {
    if let Some(why) = lacks_its_target(said, pods) {
        return says(ConditionStatus::False, &why.reason, &why.message);
    }
    if said.paused {
        let status = match said.condition(ACTIVE) {
            Some(active) if active.is_true() => ConditionStatus::True,
            Some(active) if active.is_false() => ConditionStatus::False,
            _ => ConditionStatus::Unknown,
        };
        return says(status, PAUSED, STAYS);
    }
    let Some(active) = said.condition(ACTIVE) else { return says(ConditionStatus::Unknown, PENDING, "") };
    let (status, reason) = match () {
        () if active.is_true() => (ConditionStatus::True, AWAKE),
        () if active.is_false() => (ConditionStatus::False, ASLEEP),
        () => (ConditionStatus::Unknown, WAKING),
    };
    says(status, if active.reason.is_empty() { reason } else { &active.reason }, &active.message)
}

fn taken<'a>(said: &'a PodAutoscalerStatus, conflict: Option<&'a str>) -> Said<'a> {
    match refused(said).filter(|refused| NOT_ADOPTED.contains(&refused.reason.as_str())) {
        Some(refused) => says(ConditionStatus::False, &refused.reason, &refused.message),
        None if said.service_name.is_empty() => says(ConditionStatus::Unknown, PENDING, ""),
        None if conflict.is_some() => says(ConditionStatus::False, SERVICE_NOT_OWNED, conflict.unwrap_or_default()),
        None => says(ConditionStatus::True, ADOPTED, ""),
    }
}

/// A condition that is there only while something is wrong.
fn notice<'a>(wrong: Option<&'a Condition>, right: &'a str) -> Said<'a> {
    match wrong.filter(|condition| condition.is_false()) {
        Some(wrong) => says(ConditionStatus::False, &wrong.reason, &wrong.message),
        None => says(ConditionStatus::True, right, ""),
    }
}

fn says<'a>(status: ConditionStatus, reason: &'a str, message: &'a str) -> Said<'a> {
    // The API server wants a reason of every condition.
    Said { status, reason: if reason.is_empty() { PENDING } else { reason }, message }
}

/// What the passes would have said for this status to be written.
pub(crate) fn read(status: &ZeroScalerStatus, name: &str) -> PodAutoscalerStatus {
    let condition = |type_: &str, as_type: &str| {
        let have = written::find(&status.conditions, type_)?;
        let plain = [AWAKE, ASLEEP, WAKING, PENDING, SERVED, PAUSED].contains(&have.reason.as_str());
        Some(Condition {
            type_: as_type.to_owned(),
            status: have.status.clone(),
            severity: String::new(),
            last_transition_time: Some(condition::to_rfc3339(Timestamp::from_secs(
                have.last_transition_time.0.as_second(),
            ))),
            reason: if plain { String::new() } else { have.reason.clone() },
            message: if have.reason == PAUSED { String::new() } else { have.message.clone() },
        })
    };
    // Whoever was awake once has reached its first scale.
    let was_awake = status.last_wake.is_some() || !matches!(status.state, State::Unknown | State::Waking);
    let implied = |type_: &str, holds: bool| {
        holds.then(|| Condition { type_: type_.to_owned(), status: condition::TRUE.to_owned(), ..Condition::default() })
    };
    // What lacks its target is said not to be active in our words alone ([`lacks_its_target`]).
    let active = condition(written::ACTIVE, ACTIVE).filter(|active| active.reason != TARGET_NOT_FOUND);
    let conditions = [
        active,
        condition(written::READY, READY).filter(|ready| status.fault.as_ref().is_none_or(|f| f.reason != ready.reason)),
        implied(SKS_READY, status.service.is_some()),
        implied(SCALE_TARGET_INITIALIZED, was_awake),
    ];
    let mut conditions: Vec<_> = conditions.into_iter().flatten().collect();
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    PodAutoscalerStatus {
        observed_generation: status.observed_generation,
        conditions,
        service_name: status.service.clone().unwrap_or_default(),
        metrics_service_name: names::private_service(name),
        desired_scale: status.desired,
        actual_scale: status.pods.map(|pods| pods.ready),
        request: status.request.clone(),
        ..PodAutoscalerStatus::default()
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
