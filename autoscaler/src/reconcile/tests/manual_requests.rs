//! Tests of an operator's requests: pause, wake, sleep.

use super::fixture::{Asked, Fixture, ago, condition};
use super::kpa_knative::status as said;
use super::kpa_standalone::{patched, settled as put_settled};
use super::scalers::{ZS, adopted, asleep, lines};
use common_controller::Failure;
use serde_json::{Value, json};

const ACTIVATOR: &str = "10.9.0.1";
const PATCH: &str = "PATCH /apis/apps/v1/namespaces/ns/deployments/hello/scale";

/// Returns a workload that has been awake with these replicas for longer than any window.
fn awake(spec: Value) -> Value {
    let mut value = asleep(spec);
    value["status"]["state"] = json!("Awake");
    value["status"]["desired"] = json!(1);
    value["status"]["conditions"][0]["status"] = json!("True");
    value["status"]["conditions"][0]["reason"] = json!("Awake");
    value
}

/// Returns a workload that has been waking for a second, with a pod that is not ready.
fn waking(spec: Value) -> Value {
    let mut value = awake(spec);
    value["status"]["state"] = json!("Waking");
    let active = &mut value["status"]["conditions"][0];
    (active["status"], active["reason"]) = (json!("Unknown"), json!("Waking"));
    active["lastTransitionTime"] = json!(ago(1));
    value
}

fn request(state: &str, secs_ago: i64) -> Value {
    json!({"request": {"state": state, "at": ago(secs_ago)}})
}

/// Returns the last written status.
fn status(asked: &[Asked]) -> Value {
    let written = asked.iter().rev().find(|(_, line, _)| *line == format!("PUT {ZS}/status"));
    written.map(|(_, _, body)| body.clone()).unwrap_or_else(|| panic!("no status: {:?}", lines(asked)))
}

fn fixture(scaler: Value, replicas: i32, desired: i32) -> Fixture {
    let f = Fixture::standalone();
    f.put_scaler(scaler);
    f.put_service(adopted());
    f.put_target(replicas);
    f.ready(replicas);
    f.decides(Some(desired), -1);
    *f.fakes.serving.lock() = Some(false);
    f
}

/// Goal: while a workload is paused, no load changes its replicas, awake or asleep. The status reports the pause, and
/// activators are told to reject requests only if there is no pod.
#[tokio::test(start_paused = true)]
async fn a_pause_keeps_replicas_as_they_are() {
    let paused = json!({"paused": true, "scale": {"min": 3}});
    for (scaler, replicas, active) in [(asleep(paused.clone()), 0, "False"), (awake(paused.clone()), 2, "True")] {
        let mut f = fixture(scaler, replicas, 7);
        let asked = f.settle().await;
        assert!(!lines(&asked).contains(&PATCH), "{:?}", lines(&asked));
        let status = status(&asked);
        let (is, reason, message) = condition(&status, "Active");
        assert_eq!((is.as_str(), reason.as_str()), (active, "Paused"), "{status}");
        assert!(message.contains("spec.paused"), "{message}");
        assert_eq!(condition(&status, "Ready").0, "True", "kept, and served: {status}");
        assert_eq!(f.backend().paused, replicas == 0);
        assert_eq!(status["status"]["backend"]["paused"], if replicas == 0 { json!(true) } else { Value::Null });
    }
    let mut f = fixture(asleep(json!({"scale": {"min": 3}})), 0, 7);
    assert!(lines(&f.settle().await).contains(&PATCH), "and it counts again when it is over");
}

/// Goal: a requested wake is one patch, whatever the load, and is reported; it is not repeated for the same request.
#[tokio::test(start_paused = true)]
async fn a_wake_is_carried_out_once() {
    let mut f = fixture(asleep(request("Awake", 5)), 0, 0);
    let asked = f.settle().await;
    assert!(lines(&asked).contains(&PATCH), "{:?}", lines(&asked));
    assert_eq!(status(&asked)["status"]["request"]["result"], "Done");

    let mut over = asleep(request("Awake", 5));
    over["status"]["request"] = json!({"state": "Awake", "at": over["spec"]["request"]["at"], "result": "Done"});
    let mut f = fixture(over.clone(), 0, 0);
    assert!(!lines(&f.settle().await).contains(&PATCH), "by another process, long ago");
    over["spec"]["request"]["at"] = json!(ago(1));
    let mut f = fixture(over, 0, 0);
    assert!(lines(&f.settle().await).contains(&PATCH), "asked anew");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_carried_out_says_why() {
    let mut paused = request("Awake", 5);
    paused["paused"] = json!(true);
    let mut least = request("Asleep", 5);
    least["scale"] = json!({"min": 1});
    let rows = [
        (asleep(request("Awake", 3600)), 0, Some(false), "Expired"),
        (asleep(paused), 0, Some(false), "Paused"),
        (awake(least), 1, Some(false), "Min"),
        (awake(request("Asleep", 5)), 1, Some(true), "Serving"),
        (waking(request("Asleep", 5)), 1, Some(true), "Serving"),
    ];
    for (scaler, replicas, serving, reason) in rows {
        let mut f = fixture(scaler, replicas, replicas);
        *f.fakes.serving.lock() = serving;
        let asked = f.settle().await;
        assert!(!lines(&asked).contains(&PATCH), "{reason}: {:?}", lines(&asked));
        let request = &status(&asked)["status"]["request"];
        assert_eq!((&request["result"], &request["reason"]), (&json!("Kept"), &json!(reason)), "{request}");
        assert!(!*f.fakes.forgotten.lock(), "{reason}");
    }
}

/// Goal: a requested sleep discards the past load, and waits neither for the window nor for the retention.
#[tokio::test(start_paused = true)]
async fn a_sleep_waits_for_no_window() {
    let mut asked_for = request("Asleep", 5);
    asked_for["scale"] = json!({"window": "1h", "retention": "1h"});
    let mut scaler = awake(asked_for);
    scaler["status"]["conditions"][0]["lastTransitionTime"] = json!(ago(1));
    let mut f = fixture(scaler, 1, 1);
    let asked = f.settle().await;
    assert!(*f.fakes.forgotten.lock());
    assert_eq!(condition(&status(&asked), "Active").0, "False", "{asked:?}");
    assert_eq!(status(&asked)["status"]["request"]["result"], "Pending", "the last pod is there");
    assert!(!lines(&asked).contains(&PATCH), "no activator has proven that it is in the path");
    f.put_target_at(0, 101);
    f.ready(0);
    assert_eq!(status(&f.settle().await)["status"]["request"]["result"], "Done");
}

/// Goal: a workload without a ready pod falls asleep on request, like an idle one. A sleep in progress does not
/// expire, however long it takes.
#[tokio::test(start_paused = true)]
async fn a_sleep_ends_a_wake_that_nobody_waits_for_and_takes_its_time() {
    for (mut scaler, ready) in [(waking(request("Asleep", 700)), 0), (awake(request("Asleep", 700)), 1)] {
        let at = scaler["spec"]["request"]["at"].clone();
        scaler["status"]["request"] = json!({"state": "Asleep", "at": at, "result": "Pending"});
        let mut f = fixture(scaler, 1, 0);
        f.ready(ready);
        let asked = f.settle().await;
        let said = status(&asked);
        assert_eq!(said["status"]["request"]["result"], "Pending", "{said}");
        let (is, reason, _) = condition(&said, "Active");
        assert_eq!((is.as_str(), reason.as_str()), ("False", "NoTraffic"), "{said}");
        f.put_target_at(0, 101);
        f.ready(0);
        assert_eq!(status(&f.settle().await)["status"]["request"]["result"], "Done");
    }
}

/// Returns a workload with a request to sleep, inactive for a minute, whose last pod may go: its clients reach an
/// activator.
async fn about_to_sleep() -> Fixture {
    let mut f = Fixture::standalone();
    put_settled(&f, request("Asleep", 5), said("False", "NoTraffic", 60, 1, 0), 1);
    f.ready(1);
    f.decides(Some(0), -1);
    *f.fakes.serving.lock() = Some(false);
    f.numbered(&[("", 80)], &[]).await;
    f.activators(&[(ACTIVATOR, true)]);
    let owner = json!({
        "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "name": "hello", "uid": "zs", "controller": true,
    });
    f.put_slice(json!({
        "metadata": {
            "name": "hello-zeroscale-ipv4-0", "namespace": "ns", "ownerReferences": [owner],
            "labels": {
                "kubernetes.io/service-name": "hello", "endpointslice.kubernetes.io/managed-by": "zeroscale.dev",
                "zeroscale.dev/leads-to": "activators", "zeroscale.dev/side": "Public",
            },
        },
        "addressType": "IPv4", "ports": [{"name": "", "port": 20_000}],
        "endpoints": [{"addresses": [ACTIVATOR], "conditions": {"ready": true}}],
    }));
    f.hear(ACTIVATOR, &[(20_000, "zs")]);
    f
}

/// Goal: the last pod is not removed if a request has arrived while the patch waited for its turn. The next reconcile,
/// which follows at once, keeps it.
#[tokio::test]
async fn a_sleep_is_not_sent_when_somebody_has_come_meanwhile() {
    let mut f = about_to_sleep().await;
    f.play(vec![patched(0)], async |cx, key| cx.kpa.scale_only(key).await).await.expect("nobody has come");
    let mut f = about_to_sleep().await;
    *f.fakes.next_serving.lock() = Some(true);
    let sent = f.play(vec![], async |cx, key| cx.kpa.scale_only(key).await).await;
    assert!(sent.is_err_and(|error| error.is_conflict()), "outdated");
    f.decides(Some(1), -1);
    f.play(vec![], async |cx, key| cx.kpa.scale_only(key).await).await.expect("kept, since somebody is served");
    assert_eq!(*f.fakes.scaled.lock(), []);
}

/// Goal: a requested sleep that only waits for the load to be known expires, and is not carried out hours later.
#[tokio::test(start_paused = true)]
async fn a_sleep_that_waits_in_vain_is_too_old_one_day() {
    for (secs_ago, result, reason) in [(500, "Pending", Value::Null), (610, "Kept", json!("Expired"))] {
        let mut scaler = awake(request("Asleep", secs_ago));
        let at = scaler["spec"]["request"]["at"].clone();
        scaler["status"]["request"] = json!({"state": "Asleep", "at": at, "result": "Pending"});
        let mut f = fixture(scaler, 1, 1);
        *f.fakes.serving.lock() = None;
        let asked = f.settle().await;
        assert!(!lines(&asked).contains(&PATCH), "{result}: {:?}", lines(&asked));
        let request = &status(&asked)["status"]["request"];
        assert_eq!((&request["result"], &request["reason"]), (&json!(result), &reason), "{request}");
    }
}
