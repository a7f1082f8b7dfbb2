//! Tests of an operator's requests: pause, wake, sleep.

use super::fixture::{Fixture, ago, condition};
use super::kpa_knative::{PATCH, status};
use super::kpa_standalone::{ACTIVATOR, lead_to_activator, patched, scale_only, settled};
use super::scalers::{adopted_workload, asleep, awake, is_sent, last_status, lines, waking};
use common_controller::Failure;
use serde_json::{Value, json};

fn request(state: &str, secs_ago: i64) -> Value {
    json!({"request": {"state": state, "at": ago(secs_ago)}})
}

fn fixture(scaler: Value, replicas: i32, desired: i32) -> Fixture {
    let f = adopted_workload(scaler, replicas);
    f.decides(Some(desired), -1);
    *f.fakes.serving.lock() = Some(false);
    f
}

/// Goal: while a workload is paused, no load changes its replicas, awake or asleep. The status reports the pause, and
/// activators are told to reject requests only if there is no pod.
#[tokio::test(start_paused = true)]
async fn a_pause_keeps_replicas_as_they_are() {
    let paused = json!({"paused": true, "scale": {"min": 3}});
    for (scaler, replicas, active) in [(asleep(paused.clone()), 0, "False"), (awake(paused.clone(), 1), 2, "True")] {
        let mut f = fixture(scaler, replicas, 7);
        let requests = f.settle().await;
        assert!(!is_sent(&requests, PATCH), "{:?}", lines(&requests));
        let status = last_status(&requests);
        let (is, reason, message) = condition(status, "Active");
        assert_eq!((is.as_str(), reason.as_str()), (active, "Paused"), "{status}");
        assert!(message.contains("spec.paused"), "{message}");
        assert_eq!(condition(status, "Ready").0, "True", "Ready while paused: {status}");
        assert_eq!(f.backend().paused, replicas == 0);
        assert_eq!(status["status"]["backend"]["paused"], if replicas == 0 { json!(true) } else { Value::Null });
    }
    let mut f = fixture(asleep(json!({"scale": {"min": 3}})), 0, 7);
    assert!(is_sent(&f.settle().await, PATCH), "the load counts again after the pause");
}

/// Goal: a requested wake is one patch, whatever the load, and is reported; it is not repeated for the same request.
#[tokio::test(start_paused = true)]
async fn a_wake_is_carried_out_once() {
    let mut f = fixture(asleep(request("Awake", 5)), 0, 0);
    let requests = f.settle().await;
    assert!(is_sent(&requests, PATCH), "{:?}", lines(&requests));
    assert_eq!(last_status(&requests)["status"]["request"]["result"], "Done");

    let mut over = asleep(request("Awake", 5));
    over["status"]["request"] = json!({"state": "Awake", "at": over["spec"]["request"]["at"], "result": "Done"});
    let mut f = fixture(over.clone(), 0, 0);
    assert!(!is_sent(&f.settle().await, PATCH), "another process has carried it out");
    over["spec"]["request"]["at"] = json!(ago(1));
    let mut f = fixture(over, 0, 0);
    assert!(is_sent(&f.settle().await, PATCH), "a new request");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_carried_out_is_reported_with_the_reason() {
    let mut paused = request("Awake", 5);
    paused["paused"] = json!(true);
    let mut least = request("Asleep", 5);
    least["scale"] = json!({"min": 1});
    let rows = [
        (asleep(request("Awake", 3600)), 0, Some(false), "Expired"),
        (asleep(paused), 0, Some(false), "Paused"),
        (awake(least, 1), 1, Some(false), "Min"),
        (awake(request("Asleep", 5), 1), 1, Some(true), "Serving"),
    ];
    for (scaler, replicas, serving, reason) in rows {
        let mut f = fixture(scaler, replicas, replicas);
        *f.fakes.serving.lock() = serving;
        let requests = f.settle().await;
        assert!(!is_sent(&requests, PATCH), "{reason}: {:?}", lines(&requests));
        let request = &last_status(&requests)["status"]["request"];
        assert_eq!((&request["result"], &request["reason"]), (&json!("Kept"), &json!(reason)), "{request}");
        assert!(!*f.fakes.forgotten.lock(), "{reason}");
    }
}

/// Goal: a requested sleep discards the past load, and waits neither for the window nor for the retention.
#[tokio::test(start_paused = true)]
async fn a_requested_sleep_waits_for_no_window() {
    let mut spec = request("Asleep", 5);
    spec["scale"] = json!({"window": "1h", "retention": "1h"});
    let mut scaler = awake(spec, 1);
    scaler["status"]["conditions"][0]["lastTransitionTime"] = json!(ago(1));
    let mut f = fixture(scaler, 1, 1);
    let requests = f.settle().await;
    assert!(*f.fakes.forgotten.lock());
    assert_eq!(condition(last_status(&requests), "Active").0, "False", "{requests:?}");
    assert_eq!(last_status(&requests)["status"]["request"]["result"], "Pending", "the last pod still runs");
    assert!(!is_sent(&requests, PATCH), "no activator has proven that it is in the path");
    f.put_target_at(0, 101);
    f.ready(0);
    assert_eq!(last_status(&f.settle().await)["status"]["request"]["result"], "Done");
}

/// Goal: a workload without a ready pod falls asleep on request, like an idle one. A sleep in progress does not
/// expire, however long it takes.
#[tokio::test(start_paused = true)]
async fn a_requested_sleep_ends_an_idle_wake_and_does_not_expire() {
    for (mut scaler, ready) in [(waking(request("Asleep", 700), 1), 0), (awake(request("Asleep", 700), 1), 1)] {
        let at = scaler["spec"]["request"]["at"].clone();
        scaler["status"]["request"] = json!({"state": "Asleep", "at": at, "result": "Pending"});
        let mut f = fixture(scaler, 1, 0);
        f.ready(ready);
        let requests = f.settle().await;
        let status = last_status(&requests);
        assert_eq!(status["status"]["request"]["result"], "Pending", "{status}");
        let (is, reason, _) = condition(status, "Active");
        assert_eq!((is.as_str(), reason.as_str()), ("False", "NoTraffic"), "{status}");
        f.put_target_at(0, 101);
        f.ready(0);
        assert_eq!(last_status(&f.settle().await)["status"]["request"]["result"], "Done");
    }
}

/// Returns a workload with a request to sleep, inactive for a minute, whose last pod may go: its clients reach an
/// activator.
async fn about_to_sleep() -> Fixture {
    let mut f = settled(request("Asleep", 5), status("False", "NoTraffic", 60, 1, 0), 1);
    f.ready(1);
    f.decides(Some(0), -1);
    *f.fakes.serving.lock() = Some(false);
    lead_to_activator(&mut f).await;
    f.report_listening(ACTIVATOR, &[(20_000, "zs")]);
    f
}

/// Goal: the last pod is not removed if a request has arrived while the patch waited for its token. The next reconcile,
/// which follows at once, keeps the pod.
#[tokio::test]
async fn a_requested_sleep_is_not_sent_if_a_request_has_arrived() {
    let mut f = about_to_sleep().await;
    scale_only(&mut f, vec![patched(0)]).await.expect("no request has arrived");
    let mut f = about_to_sleep().await;
    *f.fakes.next_serving.lock() = Some(true);
    let sent = scale_only(&mut f, vec![]).await;
    assert!(sent.is_err_and(|error| error.is_conflict()), "outdated");
    f.decides(Some(1), -1);
    scale_only(&mut f, vec![]).await.expect("the pod stays, because it serves a request");
    assert_eq!(*f.fakes.scaled.lock(), []);
}
