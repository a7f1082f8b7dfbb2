//! Tests of the results that tools waiting for readiness derive from a status.

use super::super::findings::Activity;
use super::*;
use crate::cluster::facts::Target;
use crate::standalone::traffic::backend::{self, BackendPort};
use autoscaler_core::active::ActiveCondition;
use common_api::ZeroScalerSpec;
use common_api::zeroscaler::ServiceChoice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

/// Returns the result of kstatus, which Flux, Argo CD and Helm use, for an object of an unknown kind.
/// (sigs.k8s.io/cli-utils, `pkg/kstatus/status`: `checkGenericProperties`, then `checkReadyCondition`.)
fn kstatus(object: &Value) -> &'static str {
    let (meta, status) = (&object["metadata"], &object["status"]);
    if !meta["deletionTimestamp"].is_null() {
        return "Terminating";
    }
    if !status["observedGeneration"].is_null() && status["observedGeneration"] != meta["generation"] {
        return "InProgress";
    }
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let is_true = |kind: &str| conditions.iter().find(|c| c["type"] == kind).map(|c| c["status"] == "True");
    match (is_true("Reconciling"), is_true("Stalled"), is_true("Ready")) {
        (Some(true), _, _) => "InProgress",
        (_, Some(true), _) => "Failed",
        (_, _, Some(false)) => "InProgress",
        (_, _, Some(true) | None) => "Current",
    }
}

/// Reports whether `kubectl wait --for=condition=Ready` succeeds: a condition of an older generation does not count.
fn is_waited_for(object: &Value) -> bool {
    let ready = object["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == "Ready");
    ready.is_some_and(|ready| {
        ready["status"] == "True"
            && (ready["observedGeneration"].is_null()
                || ready["observedGeneration"] == object["metadata"]["generation"])
    })
}

/// Returns the findings of a reconcile of generation 1.
fn findings(is: ActiveCondition, desired: i32) -> Findings {
    let activity = Some(Activity { condition: is, since: NOW });
    let (generation, service) = (Some(1), "hello".to_owned());
    Findings { generation, activity, desired: Some(desired), service, ..Findings::default() }
}

/// Returns the findings with this reason for a refusal.
fn refused(reason: &'static str, findings: Findings) -> Findings {
    Findings { refused: Some(Finding::new(reason, "why")), ..findings }
}

/// Returns the object of this generation, with findings about generation 1.
fn object(generation: i64, pods: PodCounts, findings: &Findings) -> Value {
    let mut object = ZeroScaler::new("hello", ZeroScalerSpec::deployment("hello"));
    object.metadata.generation = Some(1);
    object.status = Some(compute(inputs(&object, findings, pods)));
    object.metadata.generation = Some(generation);
    serde_json::to_value(object).expect("serialisable")
}

/// Returns inputs with allocated numbers and a led Service.
fn inputs<'a>(object: &'a ZeroScaler, findings: &'a Findings, pods: PodCounts) -> Inputs<'a> {
    Inputs {
        object,
        findings,
        pods,
        scheduled: InForce { bounds: Bounds { min: 0, max: None }, next: None, recheck_at: None },
        hosts: Vec::new(),
        ports: Vec::new(),
        silent: BTreeSet::new(),
        services: Vec::new(),
        first: Some(object.spec.service_name()),
        conflict: None,
        allocation: Some(Allocation::Whole),
        has_ready_endpoint: true,
        backend: None,
        fallback: None,
        unreachable: None,
        guard: None,
        awaits_policies: false,
        is_unfollowed: false,
        fault_evidence: FaultEvidence::default(),
        adopted: None,
        in_force: None,
        now: NOW,
    }
}

/// Goal: waiting for a ZeroScaler to be ready succeeds while it sleeps, wakes, is awake or falls asleep. It does not
/// succeed while the ZeroScaler is faulty, or edited and not yet processed.
#[test]
fn waiting_for_ready_succeeds_while_the_workload_sleeps() {
    use ActiveCondition::{Active, NoTraffic, Queued, TimedOut};
    let pods = |ready, actual| PodCounts { ready, actual };
    let (asleep, awake) = (|| findings(NoTraffic, 0), || findings(Active, 1));
    let born = Findings { service: String::new(), activity: None, desired: None, ..asleep() };
    let rows = [
        ("asleep", object(1, pods(0, 0), &asleep()), "Asleep", "Current", true),
        ("falling asleep", object(1, pods(1, 1), &asleep()), "FallingAsleep", "Current", true),
        ("waking", object(1, pods(0, 1), &findings(Queued, 1)), "Waking", "Current", true),
        ("awake", object(1, pods(1, 1), &awake()), "Awake", "Current", true),
        ("wrong", object(1, pods(0, 0), &refused("Invalid", asleep())), "Asleep", "InProgress", false),
        ("born", object(1, pods(0, 0), &born), "", "InProgress", false),
        ("given up", object(1, pods(0, 1), &findings(TimedOut, 0)), "FallingAsleep", "InProgress", false),
        ("deleted asleep", object(1, pods(0, 0), &refused(TARGET_NOT_FOUND, asleep())), "Asleep", "InProgress", false),
        ("deleted awake", object(1, pods(0, 0), &refused(TARGET_NOT_FOUND, awake())), "", "InProgress", false),
        ("its last pod ends", object(1, pods(1, 1), &refused(TARGET_NOT_FOUND, awake())), "Awake", "InProgress", false),
        ("edited", object(2, pods(0, 0), &asleep()), "Asleep", "InProgress", false),
    ];
    for (name, object, state, expected, waited) in rows {
        let found = object["status"]["state"].as_str().unwrap_or_default();
        assert_eq!((found, kstatus(&object), is_waited_for(&object)), (state, expected, waited), "{name}: {object:#}");
    }
    let mut going = object(1, pods(0, 0), &asleep());
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(kstatus(&going), "Terminating");
}

/// Goal: if a fault of a number keeps clients from every activator, Ready names the fault. If one activator still
/// serves, Ready is True.
#[test]
fn ready_names_a_number_in_use_if_no_activator_serves() {
    let findings = Findings { service: "hello".into(), ..Findings::default() };
    let taken = |is_lacking| Allocation::Wrong {
        reason: "NumberInUse",
        message: "port 80: 21100 is another process's".into(),
        is_lacking,
    };
    let rows = [
        (taken(false), false, ConditionStatus::False, "NumberInUse"),
        (taken(true), true, ConditionStatus::False, "NumberInUse"),
        (taken(false), true, ConditionStatus::True, SERVED),
        (Allocation::Pending, false, ConditionStatus::Unknown, PENDING),
        (Allocation::Whole, false, ConditionStatus::Unknown, PENDING),
    ];
    for (allocation, has_endpoint, status, reason) in rows {
        let condition = ready(&findings, true, Some(&allocation), has_endpoint, None, None);
        assert_eq!((condition.status, condition.reason), (status, reason), "{allocation:?}, {has_endpoint}");
        assert_eq!(reason == "NumberInUse", condition.message.contains("21100"), "{}", condition.message);
    }
}

/// Goal: after an edit that names another Service, Ready becomes True only once that Service is led. A later rollout of
/// activators does not revoke it.
#[test]
fn ready_waits_for_another_service() {
    let served =
        |name: &str| ServiceStatus { name: name.to_owned(), path: ServicePath::Served, ..ServiceStatus::default() };
    let ready = |before: &str, found: &str, has_ready_endpoint: bool, now: &[&str]| {
        let mut object = ZeroScaler::new("hello", ZeroScalerSpec::deployment("hello"));
        object.spec.services = vec![ServiceChoice { name: "another".into(), create: false }];
        let services = if now.is_empty() { Vec::new() } else { vec![served(before)] };
        let mut status = ZeroScalerStatus { service: Some(before.into()), services, ..ZeroScalerStatus::default() };
        let was = ConditionValue { status: ConditionStatus::True, reason: SERVED, message: "" };
        written::set(&mut status.conditions, written::READY, was, Some(1), NOW);
        object.status = Some(status);
        let findings = Findings { service: found.into(), ..Findings::default() };
        let services = now.iter().map(|name| served(name)).collect();
        let inputs = inputs(&object, &findings, PodCounts { ready: 1, actual: 1 });
        let status = compute(Inputs { has_ready_endpoint, services, ..inputs });
        written::find(&status.conditions, written::READY).expect("always set").status.clone()
    };
    let rows = [
        ("hello", "hello", true, "Unknown"),
        ("hello", "another", false, "Unknown"),
        ("hello", "another", true, "True"),
        ("another", "another", false, "True"),
    ];
    for (before, found, has_endpoint, expected) in rows {
        assert_eq!(ready(before, found, has_endpoint, &[]), expected, "{before}, then {found}, {has_endpoint}");
    }
    let rows = [(&["another"][..], "True"), (&["another", "more"], "Unknown")];
    for (served, expected) in rows {
        assert_eq!(ready("another", "another", false, served), expected, "{served:?}");
    }
}

/// Goal: a missing target is reported by the next process as by this one. A kind that cannot be read does not count as
/// a missing target.
#[test]
fn the_next_process_reports_a_missing_target_likewise() {
    let none = PodCounts { ready: 0, actual: 0 };
    let awake = || findings(ActiveCondition::Active, 1);
    let mut object = ZeroScaler::new("hello", ZeroScalerSpec::deployment("hello"));
    object.metadata.generation = Some(1);
    let first = compute(inputs(&object, &refused(TARGET_NOT_FOUND, awake()), none));
    object.status = Some(first.clone());
    let again = compute(inputs(&object, &refused(TARGET_NOT_FOUND, Findings::read(&first)), none));
    assert_eq!((again.state, &again.conditions), (first.state, &first.conditions));
    let is = |type_: &str| written::find(&again.conditions, type_).map(|c| (c.status.as_str(), c.reason.as_str()));
    assert_eq!(is(written::READY), Some(("False", TARGET_NOT_FOUND)));
    assert_eq!((is(written::ACTIVE), again.state), (Some(("False", TARGET_NOT_FOUND)), SleepState::Unknown));
    let unreadable = compute(inputs(&object, &refused(TARGET_UNREADABLE, awake()), none));
    assert_eq!((unreadable.state, is(written::ADOPTED)), (SleepState::Awake, Some(("False", TARGET_NOT_FOUND))));
}

/// Goal: a workload that waits for policies reports so, and a new workload admits no client until they are known.
#[test]
fn a_workload_that_awaits_policies_reports_it() {
    let (findings, none) = (Findings::default(), PodCounts { ready: 0, actual: 0 });
    // The API server gives a new object the default status of the definition.
    let with = |status| ZeroScaler { status: Some(status), ..ZeroScaler::new("hello", ZeroScalerSpec::default()) };
    let new = with(ZeroScalerStatus::default());
    let known = with(ZeroScalerStatus { observed_generation: Some(1), ..ZeroScalerStatus::default() });
    let reason = |status: &ZeroScalerStatus, type_: &str| {
        written::find(&status.conditions, type_).map(|one| (one.status.clone(), one.reason.clone()))
    };
    let awaited = || Some(("Unknown".to_owned(), AWAITED.to_owned()));
    for (object, awaits_policies, ports, guarded) in [
        (&new, true, awaited(), awaited()),
        (&known, true, awaited(), None),
        (&new, false, Some(("Unknown".to_owned(), PENDING.to_owned())), None),
    ] {
        let status = compute(Inputs { awaits_policies, allocation: None, ..inputs(object, &findings, none) });
        assert_eq!(reason(&status, written::PORTS_ALLOCATED), ports);
        assert_eq!(reason(&status, written::GUARDED), guarded);
    }
}

/// Goal: Guarded reports that policies are not followed because the target is unreadable, and that they do not protect
/// pods in the network of their nodes.
#[test]
fn missing_protection_by_policies_is_reported() {
    let (findings, none) = (Findings::default(), PodCounts { ready: 0, actual: 0 });
    let mut object = ZeroScaler::new("hello", ZeroScalerSpec::default());
    let guarded = |object: &ZeroScaler, is_unfollowed: bool, guard: Option<&Verdict>, backend: Option<&Backend>| {
        let status = compute(Inputs { is_unfollowed, guard, backend, ..inputs(object, &findings, none) });
        let found = written::find(&status.conditions, written::GUARDED);
        (found.map(|one| format!("{} {}: {}", one.status, one.reason, one.message)), status)
    };
    let (unreadable, status) = guarded(&object, true, None, None);
    assert!(unreadable.is_some_and(|text| text.starts_with("Unknown TargetUnreadable: the target cannot be read")));
    object.status = Some(ZeroScalerStatus { observed_generation: Some(1), ..status });
    assert_eq!(guarded(&object, false, None, None).0, None, "it can be read again, and its namespace has no policy");
    let verdict = Verdict::Guarded(vec!["deny".to_owned()]);
    for host_network in [false, true] {
        let target = Target { host_network, ..Target::default() };
        let port = BackendPort { target: IntOrString::Int(80), number: 80 };
        let backend = backend::backend(&object, &target, &port);
        let text = guarded(&object, false, Some(&verdict), Some(&backend)).0.expect("a condition");
        assert_eq!(text.contains("NetworkPolicies do not apply"), host_network, "{text}");
    }
}

#[test]
fn the_advice_suggests_each_silent_port() {
    let port = |name: &str, port, protocol| {
        let name = name.to_owned();
        PortStatus { name, port, protocol, ..PortStatus::default() }
    };
    let ports = [
        port("mail", 25, PortProtocol::Auto),
        port("db", 3306, PortProtocol::Auto),
        port("shell", 22, PortProtocol::Tcp),
        port("web", 80, PortProtocol::Auto),
    ];
    assert_eq!(silent_port_advice(&ports, &[22].into()), None);
    let text = silent_port_advice(&ports, &[22, 25, 3306].into()).expect("advice");
    assert!(text.starts_with("clients connected to port mail, db while"), "{text}");
    let suggestion = "spec.ports: [{name: \"mail\", protocol: tcp}, {name: \"db\", protocol: tcp}],";
    assert!(text.contains(suggestion), "{text}");
}
