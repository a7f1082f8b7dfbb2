//! Writes the statuses of ZeroScalers, merged and delayed to save writes.
//!
//! The reconciles change the status several times while a workload wakes or falls asleep. Each change would be a write,
//! at a moment when the API server has pods to start. Changes therefore wait until the transition is over
//! ([`write_delay`]), and are then one write. Changes that a client may wait for are written at once: an edit, a
//! refusal, the first service of a workload. A new workload needs two writes: the data that activators need to serve
//! it, and the fact that it is served. In a mass creation, no write reports that a workload waits for its turn.
//!
//! No change is lost: the status is derived from the state alone, so a later reconcile of this process or of the next
//! leader writes it.
//!
//! Events about changes follow the status ([`super::events`]); no reconcile waits for them.

use super::allocation::Allocation;
use super::events::{self, StatusEvent};
use super::fault::FaultEvidence;
use super::findings::Findings;
use super::pod_creation::CreationFailures;
use super::{COMPONENT, Scalers, status};
use crate::cluster::error::Error;
use crate::cluster::facts::{Selector, Target};
use crate::cluster::target_key::{TargetError, TargetKey};
use crate::engine::parts::Parts;
use crate::scale::{Failing, ObservedPorts};
use crate::standalone::admission::schedules;
use crate::standalone::admission::validation::Validation;
use crate::standalone::cluster::Cluster;
use crate::standalone::finalizer::{ADOPTED_REPLICAS, has_finalizer};
use crate::standalone::ports::AllocatedPorts;
use crate::standalone::reasons::{SERVICE_NOT_FOUND, TARGET_NOT_FOUND};
use crate::standalone::services::choice::Choice;
use crate::standalone::services::protocols::{self, Hint};
use crate::standalone::services::service_ports::{TcpPort, is_tcp, leads_alike, ports_of, target_of, tcp_ports};
use crate::standalone::traffic::adopt::{self, ADOPTED_BY, Claimant};
use autoscaler_core::cause;
use common::RevisionKey as Key;
use common::ports::PortId;
use common_api::ZeroScaler;
use common_api::zeroscaler::conditions::{ADOPTED, ConditionStatus, GUARDED, PORTS_ALLOCATED, READY, find, is};
use common_api::zeroscaler::{
    Adopted, AdoptedService, InForce, PodCounts, Port, PortProtocol, PortStatus, ServicePath, ServiceStatus,
    SleepState, ZeroScalerStatus,
};
use common_controller::status as statuses;
use dashmap::DashMap;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum delay of the status during a wake. A longer wake is reported while it lasts.
const WAKING_MAX: Duration = Duration::from_secs(10);
/// Maximum delay of the status while falling asleep: grace period, end of the last pod, and a margin.
const FALLING_ASLEEP_MAX: Duration = Duration::from_secs(90);
/// Maximum delay of the first status for Service and port numbers, counted from the first reconcile of the Service.
const FIRST_STATUS_MAX: Duration = Duration::from_secs(10);
/// Interval within which changes are merged into one write.
const MERGED_WITHIN: Duration = Duration::from_secs(1);

/// Maximum number of Services in a status.
const SERVICES_MAX: usize = 64;

/// Reasons that the next event may resolve.
const MISSING: [&str; 2] = [TARGET_NOT_FOUND, SERVICE_NOT_FOUND];

/// Writer of the statuses.
pub(crate) struct Publisher {
    pub(super) scalers: Arc<Scalers>,
    cluster: Arc<Cluster>,
    validation: Arc<Validation>,
    parts: Parts,
    /// Time from which the status of each workload has had unwritten changes.
    since: DashMap<Key, Instant>,
    /// Time from which the API server has accepted no pod of each workload.
    refused: DashMap<Key, Instant>,
    /// Reasons for that, if only events show them.
    creations: CreationFailures,
}

impl Publisher {
    pub(crate) fn new(parts: &Parts, cluster: Arc<Cluster>, validation: Arc<Validation>) -> Self {
        parts.ports.collection.report_ports(cluster.scalers.queue.clone());
        let (scalers, creations) = (cluster.scalers.clone(), CreationFailures::new(parts.writes.client.clone()));
        let (parts, since, refused) = (parts.clone(), DashMap::new(), DashMap::new());
        Self { scalers, validation, cluster, parts, since, refused, creations }
    }

    /// Runs one reconcile of a status: writes it, or queues the key for the time when it is due.
    pub(crate) async fn reconcile(&self, key: &Key) -> Result<(), Error> {
        let Some(object) = self.scalers.objects.get(key).filter(|_| self.parts.writes.leadership.owns(key)) else {
            self.since.remove(key);
            self.refused.remove(key);
            self.creations.forget(key);
            return Ok(());
        };
        let findings = self.scalers.findings(&object).unwrap_or_default();
        self.read_creation_failures(key, &object, &findings).await;
        // A new workload without findings, or still waiting for its turn, has nothing to report beyond its initial
        // status.
        let is_unseen = |wanted: &_| is_unseen(object.status.as_ref(), wanted, has_finalizer(&object));
        let evidence = self.fault_evidence(key, &object, &findings);
        if let Some(after) = evidence.again_in(object.status.as_ref().and_then(|s| s.fault.as_ref()), Instant::now()) {
            self.scalers.queue.add_after(key.clone(), after);
        }
        let wanted = self.wanted(key, &object, evidence).filter(|wanted| !is_unseen(wanted));
        let Some(wanted) = wanted.filter(|wanted| object.status.as_ref() != Some(wanted)) else {
            self.since.remove(key);
            return Ok(());
        };
        let since = *self.since.entry(key.clone()).or_insert_with(Instant::now);
        let left = write_delay(object.status.as_ref(), &wanted).saturating_sub(since.elapsed());
        if !left.is_zero() {
            self.scalers.queue.add_after(key.clone(), left);
            return Ok(());
        }
        let scaled = self.scalers.scaled.get(key).map(|scaled| scaled.clone());
        let changes = events::changes(&object, &wanted, scaled.as_ref());
        statuses::write(self.parts.writes.writer(), &*self.scalers.objects, &object, wanted).await?;
        self.since.remove(key);
        self.scalers.scaled.remove_if(key, |_, now| Some(now) == scaled.as_ref());
        for StatusEvent { severity, reason, message } in changes {
            self.parts.writes.recorder.record(COMPONENT, &*object, severity, &reason, message);
        }
        Ok(())
    }

    /// Reports whether the written status is complete, as far as the reconciles know.
    pub(super) fn is_settled(&self, key: &Key) -> bool {
        let counts = self.parts.ports.pods.counts(key);
        !self.since.contains_key(key) && counts.ready + counts.not_ready == 0
    }

    /// Returns the findings about a workload that is led here, and the resulting status. Returns `None` if it is led
    /// elsewhere, or nothing is known yet.
    pub(crate) fn next_status(&self, key: &Key, object: &ZeroScaler) -> Option<(Findings, ZeroScalerStatus)> {
        let findings = self.scalers.findings(object).filter(|_| self.parts.writes.leadership.owns(key))?;
        let wanted = self.wanted(key, object, self.fault_evidence(key, object, &findings))?;
        Some((findings, wanted))
    }

    /// Returns the desired status, or `None` if there are no findings yet.
    fn wanted(&self, key: &Key, object: &ZeroScaler, fault_evidence: FaultEvidence) -> Option<ZeroScalerStatus> {
        let findings = self.scalers.findings(object)?;
        let (cluster, pod_index, now) = (&self.cluster, &self.parts.ports.pods, self.parts.writes.clock.now());
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        // Until the pods are counted here, the written counts hold: a process that takes over thousands of workloads
        // counts some of them late.
        let uncounted = object.status.as_ref().and_then(|status| status.pods).filter(|_| !pod_index.is_tracked(key));
        let counts = pod_index.counts(key);
        let counted = PodCounts { ready: counts.ready, actual: counts.ready.saturating_add(counts.not_ready) };
        let former = self.scalers.former_version(key);
        let served = former.as_deref().unwrap_or(object);
        let target = self.target(key, object);
        let is_unreadable = matches!(target, Err(TargetError::Unwatchable { .. }));
        let target = target.ok();
        let (choice, services) = self.services(key, object, served, target.as_deref());
        let given = cluster.port_allocator.given(key, uid);
        let backend = self.scalers.backend(key);
        let hosts = object.spec.host_patterns();
        let replicas = object.annotations().get(ADOPTED_REPLICAS).and_then(|text| text.parse().ok());
        let written = object.status.as_ref().map_or(&[][..], |status| &status.ports);
        let observed = self.parts.ports.collection.ports(key);
        let known = (target.as_deref(), given.as_ref(), &observed);
        let tcp = tcp_ports(served, &services, target.as_deref());
        // Until policies, target and pods are known, the written condition holds.
        let guard = target.as_deref().and_then(|target| cluster.guard((key, uid), &tcp, target, &**pod_index));
        let guard = guard.map(|guard| guard.verdict);
        let adopted = services.iter().filter_map(|service| borrowed(service, object)).collect();
        let adopted = Adopted { replicas, services: adopted };
        let names = services.iter().filter_map(|service| service.metadata.name.as_deref());
        Some(status::compute(status::Inputs {
            object,
            findings: &findings,
            pods: uncounted.unwrap_or(counted),
            scheduled: schedules::bounds(&served.spec, &self.parts.configs.autoscaler.borrow(), now),
            hosts: hosts.iter().filter(|host| cluster.hosts.has(key, host)).map(ToString::to_string).collect(),
            ports: ports(&tcp, served, known, written),
            silent: observed.silent,
            has_ready_endpoint: self.scalers.has_ready_services(key, names),
            services: service_statuses(&choice, &services, tcp.first(), target.as_deref()),
            first: choice.names.first().map(|first| first.name.as_str()),
            conflict: choice.conflict.as_deref(),
            allocation: given.as_ref().map(Allocation::from_given),
            backend: backend.as_ref(),
            fallback: cluster.fallback(served),
            unreachable: self.unreachable(key, target.as_deref()).as_deref(),
            guard: guard.as_ref(),
            awaits_policies: cluster.policies.is_awaited() || (target.is_some() && guard.is_none()),
            is_unfollowed: is_unreadable && !cluster.policies.followed(key.namespace()).is_empty(),
            fault_evidence,
            adopted: Some(adopted).filter(|adopted| *adopted != Adopted::default()),
            in_force: self.validation.in_force(key, object).map(|version| InForce::from_object(&version)),
            now,
        }))
    }

    /// Finds the fault that keeps the pods from serving.
    fn fault_evidence(&self, key: &Key, object: &ZeroScaler, findings: &Findings) -> FaultEvidence {
        let target = self.target(key, object).ok();
        let counts = self.parts.ports.pods.counts(key);
        let reported = target.as_ref().and_then(|target| target.refused.as_deref()).map(cause::refused);
        let refused = reported.or_else(|| self.creations.cause(key)).filter(|_| self.lacks_pods(key, findings));
        if refused.is_none() {
            self.refused.remove(key);
        }
        let since = || *self.refused.entry(key.clone()).or_insert_with(Instant::now);
        let refused = refused.map(|cause| Failing { cause, pod: String::new(), since: since() });
        let generation = object.metadata.generation.unwrap_or_default();
        let now = self.parts.writes.clock.now();
        let awake = findings.activity.filter(|activity| activity.is_awake() && counts.ready > 0);
        FaultEvidence {
            failing: self.parts.ports.pods.failing(key).or(refused),
            of: target.map(|target| format!("{generation}/{}", target.template)),
            awake_for: awake.map(|activity| now.saturating_since(activity.since)),
        }
    }

    /// Reads the reason for missing pods from events, if the target's status does not show it.
    async fn read_creation_failures(&self, key: &Key, object: &ZeroScaler, findings: &Findings) {
        let of = self.target_key(key, object).ok();
        let of = of.filter(|of| !of.resource.reports_rejected_pods() && self.lacks_pods(key, findings));
        match of.and_then(|of| self.parts.stores.targets.get(&of).ok()) {
            Some(target) => {
                let after = self.creations.read_events(key, &target.uid, self.parts.writes.clock.now()).await;
                self.scalers.queue.add_after(key.clone(), after);
            }
            None => self.creations.forget(key),
        }
    }

    fn lacks_pods(&self, key: &Key, findings: &Findings) -> bool {
        let is_wanted = findings.desired.is_some_and(|desired| desired > 0);
        let counts = self.parts.ports.pods.counts(key);
        is_wanted && counts.ready + counts.not_ready == 0
    }

    /// Returns the target of the version in force, or the reason why it is not known.
    fn target(&self, key: &Key, object: &ZeroScaler) -> Result<Arc<Target>, TargetError> {
        self.parts.stores.targets.get(&self.target_key(key, object)?)
    }

    fn target_key(&self, key: &Key, object: &ZeroScaler) -> Result<TargetKey, TargetError> {
        let former = self.scalers.former_version(key);
        TargetKey::from_target(key.namespace(), &former.as_deref().unwrap_or(object).spec.target)
    }

    /// Returns the chosen Services, and the existing ones of those that are served.
    fn services(
        &self,
        key: &Key,
        object: &ZeroScaler,
        served: &ZeroScaler,
        target: Option<&Target>,
    ) -> (Choice, Vec<Arc<Service>>) {
        let claimant = Claimant { name: key.name(), uid: object.metadata.uid.as_deref().unwrap_or_default() };
        // If the target is gone, the status lists its Services.
        let chosen = target.map(|target| self.cluster.choose(served, target, claimant));
        let choice = chosen.unwrap_or_else(|| Choice::from_status(served));
        let found = |name: &str| self.cluster.services.get(&Key::new(key.namespace(), name));
        let services = choice.names.iter().map_while(|choice| found(&choice.name)).collect();
        (choice, services)
    }

    /// Returns the reason why the activators cannot reach the pods, if there is a known one.
    fn unreachable(&self, key: &Key, target: Option<&Target>) -> Option<String> {
        let labels = target.and_then(|target| match &target.selector {
            Selector::Labels(labels) => Some(labels),
            Selector::Expressions(_) | Selector::Missing => None,
        });
        self.cluster.policies.missing_rule(key.namespace(), labels)
    }
}

/// Returns the record of a borrowed Service, used to give it back.
fn borrowed(service: &Service, object: &ZeroScaler) -> Option<AdoptedService> {
    service.annotations().get(ADOPTED_BY).filter(|uid| object.metadata.uid.as_ref() == Some(*uid))?;
    let (name, uid) = (service.name_any(), service.uid().unwrap_or_default());
    Some(AdoptedService { name, uid, selector: adopt::noted_selector(service).unwrap_or_default() })
}

/// Returns the status of the Services, existing served ones first. `first` is the first port in precedence.
fn service_statuses(
    choice: &Choice,
    served: &[Arc<Service>],
    first: Option<&TcpPort>,
    target: Option<&Target>,
) -> Vec<ServiceStatus> {
    let leads_to_first = |service: &Service| {
        let mut tcp = ports_of(service).filter(|port| is_tcp(port)).map(target_of);
        first.is_some_and(|first| tcp.any(|port| leads_alike(&port, &first.target, target)))
    };
    let status = |service: &Arc<Service>| {
        let (name, on_shared_ports) = (service.name_any(), leads_to_first(service));
        ServiceStatus { name, path: ServicePath::Served, on_shared_ports, message: None }
    };
    let all = served.iter().map(status).chain(choice.direct.iter().cloned());
    all.take(SERVICES_MAX).collect()
}

/// Returns the protocol of a port by the first Service with a hint.
fn hint(port: &TcpPort, target: Option<&Target>) -> Hint {
    let mut hints = [port].into_iter().chain(&port.also).map(|port| protocols::hint(port, target));
    hints.find(|hint| *hint != Hint::Unknown).unwrap_or(Hint::Unknown)
}

/// Returns the ports of the Services with their allocated numbers. Until a plan was made here, the numbers in `written`
/// are used. In the same way the written protocol is used while the target is unknown.
fn ports(
    ports: &[TcpPort],
    object: &ZeroScaler,
    (target, given, observed): (Option<&Target>, Option<&AllocatedPorts>, &ObservedPorts),
    written: &[PortStatus],
) -> Vec<PortStatus> {
    let is_anothers = |name: &str| ports.iter().any(|port| port.id.name == name);
    let number_of = |id: &PortId| match given {
        Some(given) => given.find(id, is_anothers)?.number,
        None => written.iter().find(|written| written.port == id.port)?.number,
    };
    let status = |port: &TcpPort| {
        let (name, number) = (port.label(), port.id.port);
        let written_port = object.spec.ports.iter().find(|written| port.is_named(&written.name));
        let mut settings = written_port.cloned().unwrap_or_else(|| Port::auto(name.as_str()));
        let (mut spoken, mut learned) = (None, false);
        if settings.protocol == PortProtocol::Auto {
            let written = written.iter().find(|written| written.port == number);
            (settings.protocol, spoken) = match (target, written) {
                (None, Some(written)) => (written.protocol, written.spoken),
                _ => match hint(port, target) {
                    Hint::Tcp => (PortProtocol::Tcp, None),
                    Hint::Http(spoken) => (PortProtocol::Auto, Some(spoken)),
                    Hint::Unknown => (PortProtocol::Auto, None),
                },
            };
            let was_learned = written.is_some_and(|written| written.learned);
            let is_hinted = settings.protocol == PortProtocol::Tcp && !was_learned || spoken.is_some();
            learned = !is_hinted && (was_learned || observed.pod_speaks_first.contains(&number));
            if learned {
                settings.protocol = PortProtocol::Tcp;
            }
        }
        let wake_after = settings.wake_after().and_then(|after| u64::try_from(after.as_millis()).ok());
        PortStatus {
            name,
            port: number,
            number: number_of(&port.id),
            protocol: settings.protocol,
            wake_after_ms: wake_after,
            pod_port: match port.target {
                IntOrString::Int(number) => u16::try_from(number).ok(),
                // Each pod has its own number for this name.
                IntOrString::String(_) => None,
            },
            spoken,
            learned,
        }
    };
    ports.iter().map(status).collect()
}

/// Reports whether the status was never written: the object has only its initial status.
fn is_new(written: Option<&ZeroScalerStatus>) -> bool {
    written.is_none_or(|written| written.observed_generation.is_none())
}

/// Reports whether a new workload has neither findings nor faults yet. The first reconcile of its Service reports how
/// its pods are reached, and queues the status again. A workload that was checked and could not be adopted is reported.
fn is_unseen(written: Option<&ZeroScalerStatus>, wanted: &ZeroScalerStatus, is_adopted: bool) -> bool {
    let waits = is_adopted || wanted.observed_generation.is_none();
    let is_known = wanted.backend.is_some() || !is(&wanted.conditions, READY, ConditionStatus::Unknown);
    is_new(written) && waits && !is_known
}

/// Returns how long the `wanted` status may wait after `written`.
fn write_delay(written: Option<&ZeroScalerStatus>, wanted: &ZeroScalerStatus) -> Duration {
    // If several objects are applied together, the ZeroScaler may arrive first.
    let missing = find(&wanted.conditions, READY).filter(|ready| MISSING.contains(&ready.reason.as_str()));
    if missing.is_some_and(|ready| ready.status == "False") {
        return MERGED_WITHIN;
    }
    let Some(written) = written.filter(|written| !is_new(Some(written))) else {
        // A first status without all that activators need would help no client.
        let is_numbered = !is(&wanted.conditions, PORTS_ALLOCATED, ConditionStatus::Unknown);
        let is_starting = is(&wanted.conditions, READY, ConditionStatus::Unknown);
        let is_whole = is_numbered && wanted.service.is_some();
        return if is_whole || !is_starting { Duration::ZERO } else { FIRST_STATUS_MAX };
    };
    if awaited(written) != awaited(wanted) {
        return Duration::ZERO;
    }
    let is_whole = wanted.pods.is_some_and(|pods| Some(pods.ready) == wanted.desired && pods.actual == pods.ready);
    match wanted.state {
        SleepState::Waking => WAKING_MAX,
        SleepState::Awake if !is_whole => WAKING_MAX,
        SleepState::FallingAsleep => FALLING_ASLEEP_MAX,
        SleepState::Awake | SleepState::Asleep | SleepState::Unknown => MERGED_WITHIN,
    }
}

/// Returns the parts of a status that a client may wait for.
fn awaited(status: &ZeroScalerStatus) -> impl PartialEq + '_ {
    let conditions = events::REPORTED.into_iter().chain([ADOPTED, GUARDED]);
    let conditions =
        conditions.map(|type_| find(&status.conditions, type_).map(|found| (&found.status, &found.reason)));
    let conditions: Vec<_> = conditions.collect();
    let version = status.in_force.as_ref().and_then(|version| version.generation);
    let ZeroScalerStatus { service, services, hosts, ports, adopted, backend, fallback, request, .. } = status;
    let served = (service, services, hosts, ports, adopted, backend, fallback, request);
    (conditions, status.observed_generation, version, served)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::backend::Backend;
    use common::time::Timestamp;
    use common_api::zeroscaler::conditions::{ConditionValue, set};

    fn condition(status: &mut ZeroScalerStatus, type_: &str, value: ConditionStatus, reason: &str) {
        let condition = ConditionValue { status: value, reason, message: "" };
        set(&mut status.conditions, type_, condition, Some(1), Timestamp::from_secs(1));
    }

    fn status_with(state: SleepState, desired: i32, ready: i32, actual: i32) -> ZeroScalerStatus {
        let (observed_generation, desired, service) = (Some(1), Some(desired), Some("hello".into()));
        let pods = Some(PodCounts { ready, actual });
        let defaults = ZeroScalerStatus::default();
        let mut status = ZeroScalerStatus { observed_generation, state, desired, pods, service, ..defaults };
        condition(&mut status, READY, ConditionStatus::True, "Served");
        status
    }

    /// Goal: a wake is one write, and so is falling asleep. A change that a client may wait for is not delayed.
    #[test]
    fn transitions_are_merged_and_awaited_changes_are_written_at_once() {
        let asleep = status_with(SleepState::Asleep, 0, 0, 0);
        let rows = [
            (status_with(SleepState::Waking, 1, 0, 0), WAKING_MAX),
            (status_with(SleepState::Awake, 3, 1, 3), WAKING_MAX),
            (status_with(SleepState::Awake, 1, 1, 1), MERGED_WITHIN),
            (status_with(SleepState::FallingAsleep, 0, 1, 1), FALLING_ASLEEP_MAX),
            (status_with(SleepState::Asleep, 0, 0, 0), MERGED_WITHIN),
        ];
        for (wanted, expected) in rows {
            assert_eq!(write_delay(Some(&asleep), &wanted), expected, "{:?}", wanted.state);
        }
        let waking = status_with(SleepState::Waking, 1, 0, 0);
        assert_eq!(write_delay(None, &waking), Duration::ZERO, "a new workload");
        let edited = ZeroScalerStatus { observed_generation: Some(2), ..waking.clone() };
        assert_eq!(write_delay(Some(&asleep), &edited), Duration::ZERO, "an edit");
        let mut refused = waking.clone();
        condition(&mut refused, READY, ConditionStatus::False, "Invalid");
        assert_eq!(write_delay(Some(&asleep), &refused), Duration::ZERO, "a refusal");
        condition(&mut refused, READY, ConditionStatus::False, SERVICE_NOT_FOUND);
        assert_eq!(write_delay(None, &refused), MERGED_WITHIN, "it may be created soon");
    }

    /// Goal: the first status is written once activators have all they need, and not before; a fault is reported at
    /// once. Method: the written status is either none, or the initial one that the API server sets.
    #[test]
    fn the_first_status_is_written_once_activators_can_serve_the_workload() {
        let mut made = ZeroScalerStatus::default();
        condition(&mut made, READY, ConditionStatus::Unknown, "Pending");
        let mut wanted = status_with(SleepState::Asleep, 0, 0, 0);
        (wanted.service, wanted.backend) = (None, Some(Backend::default()));
        condition(&mut wanted, READY, ConditionStatus::Unknown, "Pending");
        condition(&mut wanted, PORTS_ALLOCATED, ConditionStatus::Unknown, "Pending");
        let with = |change: &dyn Fn(&mut ZeroScalerStatus)| {
            let mut wanted = wanted.clone();
            change(&mut wanted);
            wanted
        };
        let unseen = with(&|wanted| wanted.backend = None);
        let wrong = with(&|wanted| {
            wanted.backend = None;
            condition(wanted, READY, ConditionStatus::False, "Invalid");
        });
        let served = with(&|wanted| wanted.service = Some("hello".into()));
        let numbered = with(&|wanted| {
            wanted.service = Some("hello".into());
            condition(wanted, PORTS_ALLOCATED, ConditionStatus::True, "Allocated");
        });
        for written in [None, Some(&made)] {
            assert!(is_unseen(written, &unseen, true) && !is_unseen(written, &unseen, false));
            assert!(!is_unseen(written, &wrong, true) && !is_unseen(written, &wanted, true));
            assert_eq!(write_delay(written, &wanted), FIRST_STATUS_MAX);
            assert_eq!(write_delay(written, &served), FIRST_STATUS_MAX);
            assert_eq!(write_delay(written, &numbered), Duration::ZERO);
            assert_eq!(write_delay(written, &wrong), Duration::ZERO);
        }
        assert!(!is_unseen(Some(&served), &unseen, true), "it is not new");
    }
}
