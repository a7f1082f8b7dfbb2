//! Tests of ZeroScalers: their writes, and that they write nothing else.

use super::fixture::{ApiRequest, Exchange, Fixture, ago, assert_condition, condition, expect};
use super::handover::{KUBERNETES, slice};
use super::kpa_knative::SCALE;
use super::kpa_standalone::{acted, scale_only};
use crate::engine::front_end::FrontEnd;
use crate::scale::Failing;
use crate::standalone::scalers::fault::HEALS_WITHIN;
use crate::standalone::workloads::Workloads;
use autoscaler_core::cause::Cause;
use autoscaler_core::history::{Cause as History, Obstacle};
use common::RevisionKey as Key;
use common::config::AutoscalerConfig;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

pub(super) const ZS: &str = "/apis/zeroscale.dev/v1alpha1/namespaces/ns/zeroscalers/hello";
pub(super) const SERVICES: &str = "/api/v1/namespaces/ns/services";
pub(super) const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices";
const MAPS: &str = "POST /api/v1/namespaces/system/configmaps";
const A: &str = "10.0.0.1";
const B: &str = "10.0.0.2";

/// Expects the patch of the target's replicas, and returns a version newer than those of the tests.
fn patched() -> Exchange {
    expect(&format!("PATCH {SCALE}")).answered(200, json!({"metadata": {"name": "hello", "resourceVersion": "400"}}))
}

/// Decides this many pods, and wakes the target by an urgent reconcile.
async fn woken(f: &mut Fixture, pods: i32) {
    f.decides(Some(pods), -1);
    scale_only(f, vec![patched()]).await.expect("woken");
}

pub(super) fn scaler(spec: Value) -> Value {
    let mut value = json!({
        "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler",
        "metadata": {
            "name": "hello", "namespace": "ns", "uid": "zs", "resourceVersion": "10", "generation": 1,
            "creationTimestamp": "2023-01-01T00:00:00Z",
        },
        "spec": {"target": {"name": "hello"}},
    });
    for (field, field_value) in spec.as_object().into_iter().flatten() {
        value["spec"][field] = field_value.clone();
    }
    value
}

/// Returns the same object, adopted, with the status of a sleeping workload.
pub(super) fn asleep(spec: Value) -> Value {
    let mut value = scaler(spec);
    value["metadata"]["finalizers"] = json!(["zeroscale.dev/restore"]);
    value["metadata"]["annotations"] = json!({"zeroscale.dev/adopted-replicas": "2"});
    let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": ago(3600)});
    value["status"] = json!({
        "observedGeneration": 1, "state": "Asleep", "desired": 0, "pods": {"ready": 0, "actual": 0}, "service": "hello",
        "conditions": [
            condition("Active", "False", "NoTraffic"), condition("Adopted", "True", "Adopted"),
            condition("Ready", "True", "Served"),
        ],
    });
    value
}

/// Returns the same object with the status of a workload that is awake, with this many desired pods and none counted.
pub(super) fn awake(spec: Value, desired: i32) -> Value {
    let mut value = asleep(spec);
    (value["status"]["state"], value["status"]["desired"]) = (json!("Awake"), json!(desired));
    let active = &mut value["status"]["conditions"][0];
    (active["status"], active["reason"]) = (json!("True"), json!("Awake"));
    value
}

/// Returns the same object with the status of a workload that has been waking for this time, without a ready pod.
pub(super) fn waking(spec: Value, secs: i64) -> Value {
    let mut value = awake(spec, 1);
    value["status"]["state"] = json!("Waking");
    let active = &mut value["status"]["conditions"][0];
    (active["status"], active["reason"]) = (json!("Unknown"), json!("Waking"));
    active["lastTransitionTime"] = json!(ago(secs));
    value
}

pub(super) fn service() -> Value {
    json!({
        "metadata": {"name": "hello", "namespace": "ns", "uid": "s", "resourceVersion": "40"},
        "spec": {"selector": {"app": "hello"}, "ports": [{"name": "web", "port": 80, "targetPort": 8080}], "clusterIP": "10.0.0.1"},
    })
}

/// Returns the same Service, taken over.
pub(super) fn adopted() -> Value {
    let mut value = service();
    value["spec"].as_object_mut().expect("a spec").remove("selector");
    value["metadata"]["annotations"] =
        json!({"zeroscale.dev/adopted-by": "zs", "zeroscale.dev/adopted-selector": "{\"app\":\"hello\"}"});
    value
}

pub(super) fn addresses(slice: &Value) -> Vec<&str> {
    let endpoints = slice["endpoints"].as_array().expect("endpoints");
    endpoints.iter().filter_map(|endpoint| endpoint["addresses"][0].as_str()).collect()
}

/// Returns the same object as this version.
pub(super) fn at_version(object: &Value, version: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["resourceVersion"] = json!(version);
    object
}

pub(super) fn lines(requests: &[ApiRequest]) -> Vec<&str> {
    requests.iter().map(|(_, line, _)| line.as_str()).collect()
}

pub(super) fn is_sent(requests: &[ApiRequest], line: &str) -> bool {
    lines(requests).contains(&line)
}

fn body<'a>(requests: &'a [ApiRequest], line: &str) -> &'a Value {
    let found = requests.iter().find(|(_, sent, _)| sent == line);
    &found.unwrap_or_else(|| panic!("{line}: {:?}", lines(requests))).2
}

/// Reports whether a Service, replicas or metadata of the ZeroScaler were written.
fn is_touched(requests: &[ApiRequest]) -> bool {
    let touches = |line: &&str| line.contains("/services") || line.contains("/scale") || line.starts_with("PATCH");
    lines(requests).iter().any(touches)
}

pub(super) fn is_freed(requests: &[ApiRequest]) -> bool {
    let patch = format!("PATCH {ZS}");
    requests.iter().any(|(_, line, body)| *line == patch && body["metadata"]["finalizers"] == json!([]))
}

/// Returns a ZeroScaler with its borrowed Service, and a target with these replicas, all of them ready.
pub(super) fn adopted_workload(object: Value, replicas: i32) -> Fixture {
    let f = Fixture::standalone();
    f.put_scaler(object);
    f.put_service(adopted());
    f.put_target(replicas);
    f.ready(replicas);
    f
}

/// Returns a new ZeroScaler without any writes, likewise.
fn new_workload(spec: Value, replicas: i32) -> Fixture {
    let f = Fixture::standalone();
    f.put_scaler(scaler(spec));
    f.put_service(service());
    f.put_target(replicas);
    f.ready(replicas);
    f
}

/// Returns the version after [`asleep`], with this spec.
pub(super) fn edited(spec: Value) -> Value {
    let mut value = at_version(&asleep(spec), "300");
    value["metadata"]["generation"] = json!(2);
    value
}

/// Returns a new ZeroScaler without any writes, with a target without replicas and a ready activator.
fn born_asleep() -> Fixture {
    let f = new_workload(json!({}), 0);
    f.activators(&[(A, true)]);
    f
}

/// Returns the same, with a slice that leads to the activator, which has reported the number.
async fn led_asleep() -> Fixture {
    let mut f = born_asleep();
    f.settle().await;
    f.report_listening(A, &[(20_000, "zs")]);
    let requests = f.settle().await;
    f.put_slice(at_version(body(&requests, &format!("POST {SLICES}")), "101"));
    f
}

#[tokio::test]
async fn a_new_zeroscaler_writes_no_object_of_knative() {
    let mut f = new_workload(json!({}), 2);
    let requests = f.settle().await;
    assert_eq!(lines(&requests)[0], format!("PATCH {ZS}"), "the finalizer comes first");
    assert_eq!(requests[0].2["metadata"]["annotations"]["zeroscale.dev/adopted-replicas"], "2");
    assert!(requests.iter().all(|(_, line, _)| !line.contains("knative")), "{:?}", lines(&requests));
    let owner = &body(&requests, &format!("POST {SERVICES}"))["metadata"]["ownerReferences"][0];
    let fields = ["kind", "apiVersion", "uid"].map(|field| &owner[field]);
    assert_eq!(fields, ["ZeroScaler", "zeroscale.dev/v1alpha1", "zs"]);
    assert!(body(&requests, &format!("PUT {SERVICES}/hello"))["spec"]["selector"].is_null());
    let (_, line, status) = requests.last().expect("a status");
    assert_eq!(*line, format!("PUT {ZS}/status"));
    assert_eq!(status["status"]["service"], "hello");
    let in_force = &status["status"]["inForce"];
    assert_eq!((&in_force["generation"], &in_force["spec"]["target"]["name"]), (&json!(1), &json!("hello")));
    assert_eq!(requests[0].2["metadata"]["annotations"]["zeroscale.dev/adopted-target"], "apps/v1/Deployment/hello");
    let port = &status["status"]["ports"][0];
    assert_eq!((&port["name"], &port["number"]), (&json!("web"), &json!(20_000)));
    assert_eq!(condition(status, "PortsAllocated").0, "True", "{status}");
    assert_eq!(condition(status, "Ready").0, "Unknown", "no activator listens yet: {status}");
    assert_eq!(status["status"]["backend"]["maxHeld"], 10_000);
    assert_eq!(status["status"]["adopted"]["services"][0]["selector"]["app"], "hello");
    let map = body(&requests, MAPS);
    assert_eq!(map["metadata"]["name"], "ports.20000");
    assert_eq!(map["data"], json!({"20000": "held ns/hello zs 80 web"}));
}

#[tokio::test(start_paused = true)]
async fn slices_lead_to_activators_that_have_reported_the_number() {
    let mut f = born_asleep();
    let requests = f.settle().await;
    assert!(!lines(&requests).iter().any(|line| line.contains(SLICES)), "none reported: {:?}", lines(&requests));
    f.report_listening(A, &[(20_000, "another")]);
    let requests = f.settle().await;
    assert!(!lines(&requests).iter().any(|line| line.contains(SLICES)), "another workload: {:?}", lines(&requests));
    f.report_listening(A, &[(20_000, "zs")]);
    let requests = f.settle().await;
    let slice = body(&requests, &format!("POST {SLICES}"));
    assert_eq!(slice["ports"], json!([{"name": "web", "port": 20_000, "protocol": "TCP"}]));
    assert_eq!(addresses(slice), [A]);
    f.put_slice(slice.clone());
    let (_, _, status) = requests.last().expect("a status");
    assert_eq!(condition(status, "Ready").0, "True", "{status}");

    f.activators(&[(A, true), (B, true)]);
    f.report_listening(B, &[(20_000, "zs")]);
    let put = format!("PUT {SLICES}/hello-zeroscale-ipv4-0");
    let requests = f.settle().await;
    let slice = body(&requests, &put);
    assert_eq!(addresses(slice), [A, B], "both, without a wait");
    f.put_slice(at_version(slice, "101"));
    f.activators(&[(A, false), (B, true)]);
    let requests = f.settle().await;
    assert_eq!(addresses(body(&requests, &put)), [B], "at once");
}

#[tokio::test(start_paused = true)]
async fn a_renamed_port_leads_to_its_number_without_a_gap() {
    for (name, port) in [("web", 81), ("site", 80)] {
        let mut f = led_asleep().await;
        let mut called = at_version(&adopted(), "400");
        called["spec"]["ports"] = json!([{"name": name, "port": port, "targetPort": 8080}]);
        f.put_service(called);
        for (_, line, slice) in settled(&mut f).await.iter().filter(|(_, line, _)| line.contains(SLICES)) {
            assert!(line.starts_with("PUT") && addresses(slice) == [A], "{name} {port}: {line} {slice}");
            assert_eq!(slice["ports"], json!([{"name": name, "port": 20_000, "protocol": "TCP"}]));
        }
    }
}

/// Goal: a new owner of a sleeping workload leaves its slices and numbers unchanged until it has planned, and then has
/// nothing to write.
#[tokio::test(start_paused = true)]
async fn a_new_leader_keeps_slices_and_numbers_until_it_has_planned() {
    let mut former = born_asleep();
    let mut requests = former.settle().await;
    former.report_listening(A, &[(20_000, "zs")]);
    requests.extend(former.settle().await);
    let written = |line: &str| {
        let found = requests.iter().rev().find(|(_, sent, _)| sent.contains(line));
        found.unwrap_or_else(|| panic!("{line}: {:?}", lines(&requests))).2.clone()
    };
    let mut object = asleep(json!({}));
    object["status"] = written("/status")["status"].clone();
    let mut f = adopted_workload(object, 0);
    f.activators(&[(A, true)]);
    f.put_slice(at_version(&written(SLICES), "101"));
    let map = serde_json::from_value(written(MAPS)).expect("a ConfigMap");
    f.cx.cluster().port_allocator.ledger.apply(&Key::new("system", "ports.20000"), "70", Some(map));
    for plans in [false, true] {
        let requests = if plans { settled(&mut f).await } else { f.rounds(false, None).await };
        assert!(!lines(&requests).iter().any(|line| line.contains(SLICES)), "{plans}: {:?}", lines(&requests));
        for (_, _, body) in requests.iter().filter(|(_, line, _)| line.ends_with("/status")) {
            assert_eq!(body["status"]["ports"][0]["number"], 20_000, "{plans}");
            assert_eq!(condition(body, "PortsAllocated").0, "True", "{plans}");
        }
    }
}

/// Goal: a workload that fell asleep while its status still was awake is asleep for a new owner. A workload with a
/// request to wake, or with a minimum of pods, is waking.
#[tokio::test(start_paused = true)]
async fn a_new_leader_finds_a_workload_asleep_whose_status_is_still_awake() {
    let wake = json!({"request": {"state": "Awake", "at": ago(5)}});
    let rows = [(json!({}), "Asleep", 0), (wake, "Waking", 1), (json!({"scale": {"min": 1}}), "Waking", 1)];
    for (spec, state, desired) in rows {
        let mut f = adopted_workload(awake(spec.clone(), 1), 0);
        let requests = settled(&mut f).await;
        let status = &last_status(&requests)["status"];
        assert_eq!((&status["state"], &status["desired"]), (&json!(state), &json!(desired)), "{spec}: {status:#}");
        assert_eq!(is_sent(&requests, &format!("PATCH {SCALE}")), state == "Waking", "{spec}: {:?}", lines(&requests));
    }
}

/// Goal: until a new owner has counted the pods, the written counts stay; with thousands of workloads some counts are
/// late. If the target is gone before that, there is no pod, and the written counts do not stay for ever.
#[tokio::test(start_paused = true)]
async fn written_pod_counts_stay_until_a_new_leader_has_counted_or_the_target_is_gone() {
    let mut object = awake(json!({}), 1);
    object["status"]["pods"] = json!({"ready": 2, "actual": 2});
    let mut f = adopted_workload(object.clone(), 1);
    let pods = |requests: &[ApiRequest]| -> Vec<Value> {
        let written = requests.iter().filter(|(_, line, _)| line.ends_with("/status"));
        written.map(|(_, _, body)| body["status"]["pods"].clone()).collect()
    };
    for _ in 0..2 {
        let requests = f.publish().await;
        assert!(pods(&requests).iter().all(|pods| *pods == json!({"ready": 2, "actual": 2})), "{:?}", pods(&requests));
        tokio::time::advance(Duration::from_secs(30)).await; // No status is delayed for longer.
    }
    let requests = settled(&mut f).await;
    assert_eq!(pods(&requests).last(), Some(&json!({"ready": 1, "actual": 1})));

    let mut f = adopted_workload(object, 0);
    f.remove_target();
    let requests = settled(&mut f).await;
    let status = &last_status(&requests)["status"];
    assert_eq!(status["pods"], json!({"ready": 0, "actual": 0}), "{status:#}");
    assert_ne!(status["state"], "Awake");
}

pub(super) fn last_status(requests: &[ApiRequest]) -> &Value {
    &requests.iter().rev().find(|(_, line, _)| line.ends_with("/status")).expect("a status").2
}

/// Returns the conditions Active and Ready of the last written status.
fn active_and_ready(requests: &[ApiRequest]) -> [String; 2] {
    let written = last_status(requests);
    ["Active", "Ready"].map(|kind| {
        let (is, why, _) = condition(written, kind);
        format!("{is} {why}")
    })
}

/// Returns a workload whose wake has just timed out: none of its pods became ready.
async fn timed_out() -> Fixture {
    let mut waking = waking(json!({}), 3600);
    waking["status"]["lastWake"] = json!(ago(7200));
    let mut f = adopted_workload(waking, 1);
    f.ready(0);
    f.decides(Some(0), -1);
    assert_eq!(active_and_ready(&settled(&mut f).await), ["False TimedOut", "False TimedOut"]);
    f
}

/// Goal: a wake that timed out is reported, and makes the workload not Ready, until the next wake. After a successful
/// wake it falls asleep as usual.
#[tokio::test(start_paused = true)]
async fn a_timed_out_wake_is_reported_until_the_next_wake() {
    let mut f = timed_out().await;
    f.decides(Some(1), -1);
    f.put_target_at(1, 500);
    f.ready(1);
    let [active, ready] = active_and_ready(&settled(&mut f).await);
    assert_eq!((active.as_str(), ready.starts_with("False")), ("True Awake", false), "{ready}");
    tokio::time::advance(Duration::from_secs(61)).await;
    f.decides(Some(0), -1);
    f.put_target_at(0, 600);
    f.ready(0);
    let [active, ready] = active_and_ready(&settled(&mut f).await);
    assert_eq!((active.as_str(), ready.starts_with("False")), ("False NoTraffic", false), "{ready}");
}

/// Goal: a timeout is not reported for ever. A client that waits for Ready after a fix, which is not visible here,
/// does not wait for the next request: the workload is reconciled again by itself.
#[tokio::test(start_paused = true)]
async fn a_timed_out_wake_is_not_reported_for_ever() {
    let mut f = timed_out().await;
    tokio::time::advance(Workloads::REPORTS_GIVEN_UP_FOR - Duration::from_secs(10)).await;
    for (_, _, body) in f.settle().await.iter().filter(|(_, line, _)| line.ends_with("/status")) {
        assert_eq!(condition(body, "Ready").1, "TimedOut");
    }
    f.queued();
    f.cx.reconcile(&f.key).await.expect("a pass");
    assert_eq!(f.queued(), [], "not yet");
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(f.queued(), [f.key.clone()]);
    let [active, ready] = active_and_ready(&f.settle().await);
    assert_eq!((active.as_str(), ready.starts_with("False")), ("False NoTraffic", false), "{ready}");
}

/// Returns a crash loop that has lasted.
fn crashing() -> Failing {
    let cause = Cause { reason: "CrashLoop".into(), message: "it ends".into(), remedy: "mend it".into() };
    Failing { cause, pod: "p".into(), since: Instant::now() - HEALS_WITHIN }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_leads_again_has_forgotten_former_failures() {
    let mut f = adopted_workload(asleep(json!({})), 0);
    *f.fakes.failing.lock() = Some(crashing());
    let failing = last_status(&settled(&mut f).await).clone();
    assert_eq!(failing["status"]["backend"]["failing"], "CrashLoop: it ends; mend it");
    *f.fakes.led_by_another.lock() = true;
    f.settle().await;
    let mut mended = asleep(json!({}));
    mended["status"] = failing["status"].clone();
    mended["status"]["backend"].as_object_mut().expect("a backend").remove("failing");
    *f.fakes.failing.lock() = None;
    mended["metadata"]["resourceVersion"] = json!("500");
    f.put_scaler(mended);
    *f.fakes.led_by_another.lock() = false;
    for (_, _, body) in f.publish().await.iter().filter(|(_, line, _)| line.ends_with("/status")) {
        assert!(body["status"]["backend"]["failing"].is_null(), "{body:#}");
    }
}

/// Goal: if the only activator is not ready for a moment, a sleeping workload causes no write, neither then nor
/// afterwards. Ready pods replace it, and an activator that is gone is removed.
#[tokio::test(start_paused = true)]
async fn the_only_activator_stays_in_its_slice_while_it_is_not_ready() {
    let mut f = led_asleep().await;
    let put = format!("PUT {SLICES}/hello-zeroscale-ipv4-0");
    for is_ready in [false, true, false] {
        f.activators(&[(A, is_ready)]);
        let requests = f.settle().await;
        let is_written = lines(&requests).iter().any(|line| line.contains(SLICES));
        assert!(!is_written, "ready: {is_ready}: {:?}", lines(&requests));
    }
    let pods = |count| slice("private", "hello-private", KUBERNETES, count);
    f.put_target(1);
    f.put_slice(pods(1));
    let requests = f.settle().await;
    let to_pods = body(&requests, &put);
    assert_eq!(to_pods["metadata"]["labels"]["zeroscale.dev/leads-to"], "pods", "{to_pods}");

    f.put_target(0);
    f.put_slice(at_version(&pods(0), "51"));
    f.activators(&[]);
    let requests = f.settle().await;
    assert!(is_sent(&requests, &format!("DELETE {SLICES}/hello-zeroscale-ipv4-0")), "{:?}", lines(&requests));
}

/// Goal: a process that has not observed the valid version takes it from the status, unless that version breaks a rule
/// or cannot be parsed. The newest version decides about a pause, despite its error.
#[tokio::test(start_paused = true)]
async fn a_new_process_serves_the_version_that_is_in_force() {
    let foreign = json!({"target": {"name": "nobody"}, "services": [{"name": "hello"}]});
    let broken = json!({"scale": {"min": 7, "max": 5}});
    let valid = json!({"target": {"name": "hello"}, "scale": {"max": 5}});
    let paused = |spec: &Value| {
        let mut spec = spec.clone();
        spec["paused"] = json!(true);
        spec
    };
    let rows = [
        (&broken, valid.clone(), Some(5)),
        (&foreign, valid.clone(), Some(5)),
        (&broken, json!({"target": {"name": "hello"}, "scale": {"min": 9, "max": 5}}), None),
        (&broken, json!({"target": 7}), None),
        (&paused(&broken), valid.clone(), None),
        (&broken, paused(&valid), Some(5)),
    ];
    for (spec, in_force, expected) in rows {
        let mut wrong = edited(spec.clone());
        wrong["status"]["inForce"] = json!({"generation": 1, "spec": in_force});
        let mut f = adopted_workload(wrong, 0);
        let requests = settled(&mut f).await;
        assert_eq!(ready(&requests).0, "False", "{spec} {in_force}");
        let status = &last_status(&requests)["status"];
        assert_eq!(status["inForce"]["generation"], 1, "{spec} {in_force}");
        f.decides(Some(9), -1);
        let script = if expected.is_some() { vec![patched()] } else { vec![] };
        scale_only(&mut f, script).await.expect("a pass");
        let scaled: Vec<_> = f.fakes.scaled.lock().iter().map(|(_, to)| *to).collect();
        assert_eq!(scaled, expected.into_iter().collect::<Vec<_>>(), "{spec} {in_force}");
    }
}

/// Goal: a version that the configuration no longer allows stays in force, also for a new process: this is reported,
/// and the workload wakes.
#[tokio::test(start_paused = true)]
async fn a_version_that_is_no_longer_allowed_wakes_in_a_new_process() {
    let mut served = asleep(json!({"scale": {"max": 5}}));
    served["status"]["inForce"] = json!({"generation": 1, "spec": served["spec"]});
    let mut f = adopted_workload(served, 0);
    f.configure(AutoscalerConfig { max_scale_limit: 3, ..AutoscalerConfig::default() });
    let requests = settled(&mut f).await;
    assert_eq!(ready(&requests).0, "False");
    woken(&mut f, 9).await;
    assert_eq!(*f.fakes.scaled.lock(), [(0, 5)]);
}

/// Goal: if the spec names another target, the former one is restored with replicas, Service and slices, and then the
/// new one is adopted as found. A process that has not observed the edit does the same.
#[tokio::test(start_paused = true)]
async fn another_target_is_adopted_after_the_former_one_is_given_back() {
    for has_observed in [true, false] {
        let mut f = Fixture::standalone();
        let mut moved = asleep(json!({}));
        moved["metadata"]["annotations"] =
            json!({"zeroscale.dev/adopted-replicas": "3", "zeroscale.dev/adopted-target": "apps/v1/Deployment/old"});
        moved["status"]["service"] = json!("old");
        let mut old = adopted();
        (old["metadata"]["name"], old["metadata"]["annotations"]["zeroscale.dev/adopted-selector"]) =
            (json!("old"), json!("{\"app\":\"old\"}"));
        f.put_service(old);
        f.put_service(service());
        f.put_target_of("old", json!(0), 60);
        f.put_target(4);
        if has_observed {
            let mut before = moved.clone();
            before["spec"]["target"]["name"] = json!("old");
            f.put_scaler(before);
            settled(&mut f).await;
        }
        (moved["metadata"]["generation"], moved["metadata"]["resourceVersion"]) = (json!(2), json!("300"));
        f.put_scaler(moved);
        let first = settled(&mut f).await;
        let writes = lines(&first);
        let scale = "PATCH /apis/apps/v1/namespaces/ns/deployments/old/scale";
        assert_eq!(body(&first, scale)[0]["value"], 3, "{has_observed}");
        assert!(!writes.iter().any(|line| line.contains("/services/hello") || line.contains(SCALE)), "{writes:?}");
        assert_condition(last_status(&first), "Ready", "False", "TargetChanges");
        f.put_target_of("old", json!(3), 101);
        f.ready(3);
        let then = settled(&mut f).await;
        let position = |what: &dyn Fn(&str, &Value) -> bool| {
            let found = then.iter().position(|(_, line, body)| what(line, body));
            found.unwrap_or_else(|| panic!("{has_observed}: {:?}", lines(&then)))
        };
        let given =
            position(&|line, body| line == format!("PUT {SERVICES}/old") && body["spec"]["selector"]["app"] == "old");
        let patch = format!("PATCH {ZS}");
        let freed = position(&|line, body| line == patch && body["metadata"]["finalizers"] == json!([]));
        let noted = |body: &Value| body["metadata"]["annotations"]["zeroscale.dev/adopted-target"].clone();
        let taken = position(&|line, body| line == patch && noted(body) == "apps/v1/Deployment/hello");
        let borrowed = position(&|line, _| line == format!("PUT {SERVICES}/hello"));
        assert!(given < freed && freed < taken && taken < borrowed, "{:?}", lines(&then));
        assert_eq!(then[taken].2["metadata"]["annotations"]["zeroscale.dev/adopted-replicas"], "4");
        assert!(!lines(&then).iter().any(|line| line.contains("/scale")), "the replicas stay: {:?}", lines(&then));
    }
}

/// Goal: the time of a cancelled return does not count for a later return.
#[tokio::test(start_paused = true)]
async fn a_cancelled_return_does_not_shorten_a_later_one() {
    let version = |target: &str, generation: i64, version: &str| {
        let mut value = asleep(json!({"target": {"name": target}, "services": [{"name": "hello"}]}));
        value["metadata"]["annotations"]["zeroscale.dev/adopted-target"] = json!("apps/v1/Deployment/hello");
        value["metadata"]["generation"] = json!(generation);
        at_version(&value, version)
    };
    let mut f = adopted_workload(version("hello", 1, "10"), 0);
    f.put_target_of("other", json!(0), 61);
    settled(&mut f).await;
    f.put_scaler(version("other", 2, "300"));
    let begun = settled(&mut f).await;
    assert!(is_sent(&begun, &format!("PATCH {SCALE}")), "{:?}", lines(&begun));
    f.put_scaler(version("hello", 3, "400"));
    settled(&mut f).await;
    tokio::time::advance(Duration::from_secs(91)).await;
    let mut leaving = version("hello", 3, "500");
    leaving["metadata"]["deletionTimestamp"] = json!(ago(1));
    f.put_scaler(leaving);
    let freed = |line: &&str| *line == format!("PATCH {ZS}");
    let first = settled(&mut f).await;
    assert!(!lines(&first).iter().any(freed), "no pod is ready yet: {:?}", lines(&first));
    f.put_target_at(2, 601);
    f.ready(2);
    let then = settled(&mut f).await;
    let given = lines(&then).iter().position(|line| *line == format!("PUT {SERVICES}/hello")).expect("the Service");
    let freed = lines(&then).iter().position(freed).expect("the finalizer");
    assert!(given < freed, "{:?}", lines(&then));
    f.remove_scaler(&f.key);
    f.play(vec![], async |cx, key| cx.reconcile(key).await).await.expect("no request");
    assert_eq!(*f.fakes.collecting.lock(), None);
}

/// Returns the writes until nothing is left to do or to wait for.
pub(super) async fn settled(f: &mut Fixture) -> Vec<ApiRequest> {
    let mut requests = f.settle().await;
    tokio::time::advance(Duration::from_secs(2)).await;
    requests.extend(f.settle().await);
    requests
}

/// Goal: an adoption is reported by one event, however often it is reconciled, and only after the status is written.
#[tokio::test(start_paused = true)]
async fn an_adoption_is_reported_once() {
    let mut f = new_workload(json!({}), 2);
    let born = f.rounds(true, Some((&format!("PUT {ZS}/status"), 500, "no storage"))).await;
    assert!(is_sent(&born, &format!("PUT {ZS}/status")), "{:?}", lines(&born));
    assert_eq!(f.take_events().await, [], "it is not written");
    let born = f.settle().await;
    let adopted = "Adopted Deployment hello with 2 replicas, and Service hello with selector app=hello";
    assert_eq!(f.take_events().await, [("Adopted".to_owned(), adopted.to_owned())]);
    f.put_scaler(at_version(last_status(&born), "200")); // As reported by the watch.
    f.settle().await;
    assert_eq!(f.take_events().await, []);
}

/// Goal: the deciders can tell which ZeroScalers exist, so that stats of those that are not adopted yet request a
/// reconcile, and invented names do not.
#[tokio::test]
async fn deciders_can_tell_which_zeroscalers_exist() {
    let f = Fixture::standalone();
    let exists = f.fakes.exists.lock().clone().expect("set");
    assert!(!exists(&f.key));
    f.put_scaler(scaler(json!({})));
    assert!(exists(&f.key) && !exists(&Key::new("ns", "nobody")));
    f.remove_scaler(&f.key);
    assert!(!exists(&f.key));
}

/// Goal: an object that cannot be served is refused with field, value and rule, and neither its Service nor its target
/// is changed.
#[tokio::test(start_paused = true)]
async fn an_unusable_object_is_refused_with_field_value_and_rule() {
    let mut headless = service();
    headless["spec"]["clusterIP"] = json!("None");
    let mut borrowed = adopted();
    borrowed["metadata"]["annotations"]["zeroscale.dev/adopted-by"] = json!("somebody");
    let (window, wait) = (json!({"scale": {"window": "1s"}}), json!({"wake": {"timeout": "soon"}}));
    let (none, port) = (json!({}), json!({"ports": [{"name": "db", "protocol": "tcp"}]}));
    let missing = "spec.target: deployments.apps \"hello\" does not exist";
    let (field, own) = ("spec.services", "\"hello\"");
    let no_port = ["spec.ports[0].name", "\"db\"", "Service \"hello\" has web 80/TCP"];
    type Row<'a> = (&'a Value, Option<Value>, &'static str, Obstacle, &'a [&'a str]);
    let rows: [Row<'_>; 7] = [
        (&window, Some(service()), "Invalid", Obstacle::Invalid, &["spec.scale.window"]),
        (&wait, Some(service()), "Invalid", Obstacle::Invalid, &["spec.wake.timeout"]),
        (&port, Some(service()), "Invalid", Obstacle::Invalid, &no_port),
        (&none, Some(service()), "TargetNotFound", Obstacle::TargetNotFound, &[missing]),
        (&none, None, "ServiceNotFound", Obstacle::ServicePending, &[field]),
        (&none, Some(headless), "ServiceNotOwned", Obstacle::ServiceNotOwned, &[field, own, "headless"]),
        (&none, Some(borrowed), "ServiceNotOwned", Obstacle::ServiceNotOwned, &[field, own, "another ZeroScaler"]),
    ];
    for (spec, service, reason, obstacle, words) in rows {
        let mut f = Fixture::standalone();
        f.put_scaler(scaler(spec.clone()));
        service.into_iter().for_each(|service| f.put_service(service));
        f.put_target(2);
        if reason == "TargetNotFound" {
            f.remove_target();
        }
        f.decides(Some(0), -1);
        let requests = settled(&mut f).await;
        let status = last_status(&requests);
        assert_condition(status, "Ready", "False", reason);
        let message = condition(status, "Ready").2;
        assert!(words.iter().all(|word| message.contains(word)), "{words:?}: {message}");
        assert!(!is_touched(&requests), "{words:?}: {:?}", lines(&requests));
        assert_eq!(f.take_events().await.len(), 1, "{words:?}");
        assert_eq!(*f.fakes.deciding.lock(), None, "{words:?}");
        assert_eq!(acted(&f), (None, false, History::Obstacle(obstacle)));
    }
}

/// Goal: a target without `spec.replicas` is refused and not changed, because nothing else shows whether it sleeps. A
/// target with `spec.replicas` is adopted, whatever its kind.
#[tokio::test(start_paused = true)]
async fn a_target_without_replicas_in_its_spec_is_refused() {
    for (spec, is_refused) in [(json!({"count": 3}), true), (json!({"replicas": 3}), false)] {
        let mut f = Fixture::standalone();
        f.put_scaler(scaler(json!({
            "target": {"apiVersion": "example.com/v1", "kind": "Widget", "name": "hello"},
        })));
        f.put_service(service());
        f.put_object(("example.com/v1", "Widget"), "hello", spec, 60);
        f.decides(Some(0), -1);
        let requests = settled(&mut f).await;
        let (is, why, message) = ready(&requests);
        assert_eq!(is == "False" && why == "Invalid", is_refused, "{message}");
        let rule = "spec.target: widgets.example.com \"hello\": spec.replicas must be set";
        assert_eq!(message.starts_with(rule), is_refused, "{message}");
        assert_eq!(!is_touched(&requests), is_refused, "{:?}", lines(&requests));
    }
}

/// Goal: if a borrowed Service becomes headless or an ExternalName, it is restored with its workload, which nothing
/// could wake any more, and the reason is reported. When it is an ordinary Service again, it is taken over again.
#[tokio::test(start_paused = true)]
async fn a_service_that_can_no_longer_lead_to_activators_is_given_back() {
    for (field, value, word) in [("type", "ExternalName", "ExternalName"), ("clusterIP", "None", "headless")] {
        let mut f = adopted_workload(asleep(json!({})), 0);
        settled(&mut f).await;
        let mut unfit = adopted();
        (unfit["spec"][field], unfit["metadata"]["resourceVersion"]) = (json!(value), json!("41"));
        f.put_service(unfit);
        let first = settled(&mut f).await;
        assert_eq!(body(&first, &format!("PATCH {SCALE}"))[0]["value"], 2, "as it was found");
        f.put_target_at(2, 301);
        f.ready(2);
        let then = settled(&mut f).await;
        let spec = &body(&then, &format!("PUT {SERVICES}/hello"))["spec"];
        assert_eq!((&spec["selector"]["app"], &spec[field]), (&json!("hello"), &json!(value)));
        assert!(is_freed(&then), "{:?}", lines(&then));
        let (is, why, message) = ready(&[first, then].concat());
        assert_eq!((is.as_str(), why.as_str()), ("False", "ServiceNotOwned"), "{message}");
        assert!(message.starts_with("spec.services: Service \"hello\"") && message.contains(word), "{message}");
        f.put_service(at_version(&service(), "400"));
        let requests = settled(&mut f).await;
        let taken = body(&requests, &format!("PUT {SERVICES}/hello"));
        assert!(taken["spec"]["selector"].is_null(), "taken over again: {taken}");
    }
}

fn ready(requests: &[ApiRequest]) -> (String, String, String) {
    condition(last_status(requests), "Ready")
}

/// Goal: an edit that is invalid, or unusable in this cluster, changes nothing. The former version stays in force, is
/// scaled and restored, and its Service and ports stay in the status, until the error is fixed.
#[tokio::test(start_paused = true)]
async fn an_unusable_edit_is_reported_and_leaves_the_former_version_in_force() {
    let foreign = json!({"metadata": {"name": "taken", "namespace": "ns", "uid": "f", "resourceVersion": "41",
        "annotations": {"zeroscale.dev/adopted-by": "somebody"}},
        "spec": {"ports": [{"name": "web", "port": 80, "targetPort": 8080}], "clusterIP": "10.0.0.2"}});
    let served = |name: &str| json!({"services": [{"name": name}]});
    let other_target = json!({"target": {"name": "nobody"}, "services": [{"name": "hello"}]});
    let rows = [
        (other_target, "TargetNotFound", "spec.target: deployments.apps \"nobody\""),
        (served("nobodys"), "ServiceNotFound", "spec.services: Service \"nobodys\" does not exist"),
        (served("taken"), "ServiceNotOwned", "spec.services: Service \"taken\""),
        (json!({"ports": [{"name": "db"}]}), "Invalid", "spec.ports[0].name: \"db\""),
        (json!({"scale": {"min": 7, "max": 5}}), "Invalid", "min 7 is above max 5: spec.scale.min"),
    ];
    for (spec, reason, text) in rows {
        let mut f = adopted_workload(asleep(json!({"scale": {"max": 5}})), 0);
        f.put_service(foreign.clone());
        settled(&mut f).await;
        let wrong = edited(spec);
        f.put_scaler(wrong.clone());
        let requests = settled(&mut f).await;
        let (is, why, message) = ready(&requests);
        assert_eq!((is.as_str(), why.as_str()), ("False", reason), "{message}");
        assert!(message.starts_with(text), "{message}");
        let status = &last_status(&requests)["status"];
        assert_eq!(status["observedGeneration"], 2, "{reason}");
        assert_eq!((&status["service"], &status["ports"][0]["name"]), (&json!("hello"), &json!("web")), "{reason}");
        assert!(status["backend"]["wakeRefused"].is_null(), "{reason}: it wakes");
        let mut touched = lines(&requests);
        touched.dedup(); // The response to the first is not newer than the edit.
        assert_eq!(touched, [format!("PUT {ZS}/status")], "{reason}: nothing else is touched");
        woken(&mut f, 9).await;
        assert_eq!(*f.fakes.scaled.lock(), [(0, 5)], "{reason}: the former limit");
        f.put_target_at(0, 401);
        let mut leaving = at_version(&wrong, "402");
        leaving["metadata"]["deletionTimestamp"] = json!(ago(1));
        f.put_scaler(leaving);
        let requests = settled(&mut f).await;
        assert!(is_sent(&requests, &format!("PATCH {SCALE}")), "{reason}: {:?}", lines(&requests));
    }
}

/// Returns a Service with these ports, taken over, as this version.
fn adopted_with(ports: &[(&str, u16)], version: &str) -> Value {
    let mut value = at_version(&adopted(), version);
    let port = |(name, port): &(&str, u16)| json!({"name": name, "port": port, "targetPort": 8080});
    value["spec"]["ports"] = ports.iter().map(port).collect();
    value
}

/// Goal: if a Service loses or renames a port that the spec names, requests to the other ports still wake the
/// workload, even if this process has never observed the port. Ready reports the error until it is fixed.
#[tokio::test(start_paused = true)]
async fn a_port_that_the_service_loses_does_not_prevent_wakes() {
    let (web, metrics, other) = (("web", 80), ("metrics", 9100), ("numbers", 9100));
    for (has_observed, left) in [(true, vec![web]), (false, vec![web]), (true, vec![web, other])] {
        let mut f = Fixture::standalone();
        f.put_scaler(asleep(json!({"ports": [{"name": "web"}, {"name": "metrics"}]})));
        f.put_target(0);
        if has_observed {
            f.put_service(adopted_with(&[web, metrics], "40"));
            assert_ne!(ready(&settled(&mut f).await).0, "False");
        }
        f.put_service(adopted_with(&left, "400"));
        let requests = settled(&mut f).await;
        let (is, why, message) = ready(&requests);
        assert_eq!((is.as_str(), why.as_str()), ("False", "Invalid"), "{has_observed}: {message}");
        assert!(message.starts_with("spec.ports[1].name: \"metrics\""), "{has_observed}: {message}");
        woken(&mut f, 1).await;
        assert_eq!(*f.fakes.scaled.lock(), [(0, 1)], "{has_observed}");
        f.put_service(adopted_with(&[web, metrics], "401"));
        assert_ne!(ready(&settled(&mut f).await).1, "Invalid", "{has_observed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fallback_with_an_invalid_port_does_not_prevent_wakes() {
    let mut f = adopted_workload(asleep(json!({"wake": {"fallback": {"service": "sorry", "port": 70_000}}})), 0);
    let (_, why, message) = ready(&settled(&mut f).await);
    assert_ne!(why, "Invalid", "{message}");
    woken(&mut f, 1).await;
    assert_eq!(*f.fakes.scaled.lock(), [(0, 1)]);
}

/// Goal: an edit that names a port which the Service lacks leaves the former version in force, even if the Service
/// also lacks a port of the former version.
#[tokio::test(start_paused = true)]
async fn an_edit_with_an_unknown_port_does_not_replace_a_version_with_a_lost_port() {
    let mut f = Fixture::standalone();
    f.put_scaler(asleep(json!({"scale": {"max": 5}, "ports": [{"name": "web"}, {"name": "metrics"}]})));
    f.put_service(adopted_with(&[("web", 80), ("metrics", 9100)], "40"));
    f.put_target(0);
    settled(&mut f).await;
    f.put_service(adopted_with(&[("web", 80)], "400"));
    f.put_scaler(edited(json!({"scale": {"max": 3}, "ports": [{"name": "db"}]})));
    let (is, why, message) = ready(&settled(&mut f).await);
    assert_eq!((is.as_str(), why.as_str()), ("False", "Invalid"), "{message}");
    assert!(message.starts_with("spec.ports[0].name: \"db\""), "{message}");
    woken(&mut f, 9).await;
    assert_eq!(*f.fakes.scaled.lock(), [(0, 5)], "the limit of the version before");
}

/// Goal: while the target is missing, activators receive that as the reason, and no failure of former pods. Once the
/// target is back, there is no reason any more.
#[tokio::test(start_paused = true)]
async fn activators_receive_the_reason_while_the_target_is_missing() {
    let reported = |requests: &[ApiRequest]| {
        let backend = &last_status(requests)["status"]["backend"];
        (backend["maxHeld"].is_u64(), backend["failing"].clone(), backend["wakeRefused"].clone())
    };
    let mut f = adopted_workload(asleep(json!({})), 0);
    *f.fakes.failing.lock() = Some(crashing());
    assert_eq!(reported(&settled(&mut f).await), (true, json!("CrashLoop: it ends; mend it"), Value::Null));
    *f.fakes.failing.lock() = None;
    f.remove_target();
    assert_eq!(reported(&settled(&mut f).await), (true, Value::Null, json!("its target does not exist")));
    f.put_target_at(0, 401);
    assert_eq!(reported(&settled(&mut f).await), (true, Value::Null, Value::Null));
}

/// Goal: of two ZeroScalers with the same target the one that has adopted it keeps it, else the older one gets it. The
/// other one reports the conflict, and gets the target when it is free.
#[tokio::test(start_paused = true)]
async fn two_zeroscalers_do_not_share_a_target() {
    let named = |name: &str, created: &str| {
        let mut value = scaler(json!({}));
        (value["metadata"]["name"], value["metadata"]["uid"]) = (json!(name), json!(name));
        value["metadata"]["creationTimestamp"] = json!(created);
        value
    };
    let mut f = new_workload(json!({}), 2); // Created in 2023.
    f.put_scaler(named("older", "2022-01-01T00:00:00Z"));
    let requests = f.settle().await;
    let (is, why, message) = ready(&requests);
    assert_eq!((is.as_str(), why.as_str()), ("False", "TargetTaken"), "{message}");
    assert_eq!(
        message,
        "spec.target: deployments.apps \"hello\" is already scaled by ZeroScaler \"older\". Delete one of the two ZeroScalers, or name another target"
    );
    assert!(!is_touched(&requests), "{:?}", lines(&requests));
    assert_eq!(f.take_events().await.len(), 1);

    f.queued();
    let mut moved = named("older", "2022-01-01T00:00:00Z");
    (moved["spec"]["target"]["name"], moved["metadata"]["resourceVersion"]) = (json!("another"), json!("11"));
    f.put_scaler(moved);
    assert!(f.queued().contains(&f.key));
    let requests = f.settle().await;
    assert!(is_sent(&requests, &format!("PATCH {ZS}")), "it is free: {:?}", lines(&requests));

    // The holder keeps it, although an older object asks for it now.
    f.put_scaler(named("oldest", "2021-01-01T00:00:00Z"));
    let requests = f.settle().await;
    let is_reported = lines(&requests).iter().any(|line| line.ends_with("/status"));
    assert!(!is_reported || ready(&requests).0 != "False", "{:?}", ready(&requests));
}

/// Goal: in a namespace whose policies admit no activator, Ready and one event report the missing rule. A served
/// workload stays Ready, because it is not known whether the cluster enforces policies.
#[tokio::test(start_paused = true)]
async fn a_policy_that_blocks_activators_is_reported() {
    let mut f = new_workload(json!({}), 2);
    f.put_policy("deny", json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
    f.activators(&[(A, true)]);
    let reasons = |events: Vec<(String, String)>| events.into_iter().map(|(reason, _)| reason).collect::<Vec<_>>();
    let born = f.settle().await;
    assert_eq!(reasons(f.take_events().await), ["Adopted"]);
    f.put_scaler(at_version(last_status(&born), "200")); // As reported by the watch.
    f.report_listening(A, &[(10_000, "zs")]);
    let requests = f.settle().await;
    let (is, _, message) = ready(&requests);
    assert_eq!(is, "True");
    let rule = "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: system}}, podSelector: {matchLabels: {app: activator}}}";
    assert!(message.starts_with("NetworkPolicy \"deny\"") && message.contains(rule), "{message}");
    assert_eq!(reasons(f.take_events().await), ["NetworkPolicy"]);
}

/// Goal: NetworkPolicies are followed even if Services cannot be written: earlier numbers are closed, and the new
/// number has its policy.
#[tokio::test]
async fn policies_are_followed_even_if_services_cannot_be_written() {
    let mut f = new_workload(json!({}), 2);
    f.activators(&[(A, true)]);
    f.put_policy("deny", json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
    let requested = f.rounds(true, Some(("POST /api/v1/namespaces/ns/services", 403, "forbidden"))).await;
    let is_held = |(_, line, body): &(_, String, Value)| {
        line.ends_with("/configmaps") && body["data"]["10000"].as_str().is_some_and(|line| line.starts_with("held ns/"))
    };
    assert!(requested.iter().any(is_held), "{:?}", lines(&requested));
    let policy = "POST /apis/networking.k8s.io/v1/namespaces/system/networkpolicies";
    assert!(lines(&requested).contains(&policy), "{:?}", lines(&requested));
}

#[tokio::test]
async fn an_object_recreated_unobserved_inherits_nothing() {
    let mut f = born_asleep();
    f.settle().await;
    f.cx.cluster().scalers.set_ready_services(&f.key, vec!["hello".to_owned()]);
    let mut anew = at_version(&scaler(json!({})), "300");
    anew["metadata"]["uid"] = json!("anew");
    f.put_scaler(anew);
    f.put_service(at_version(&service(), "400")); // Without an owner.
    let private = common::RevisionKey::new("ns", "hello-private");
    f.cx.cluster().services.apply(&private, "", None); // The garbage collector deletes owned objects.
    assert!(!f.cx.cluster().scalers.has_ready_services(&f.key, ["hello"].into_iter()), "notes are forgotten");
    f.settle().await;
    assert!(f.cx.path(&f.key).is_some(), "it has a path of its own");
}

#[tokio::test]
async fn a_workload_whose_measurements_stopped_is_measured_again() {
    let mut f = born_asleep();
    f.settle().await;
    *f.fakes.collecting.lock() = None;
    f.settle().await;
    assert!(f.fakes.collecting.lock().is_some());
}
