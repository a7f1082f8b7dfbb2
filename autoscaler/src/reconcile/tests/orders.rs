//! What an operator orders by hand: a pause, a wake, a sleep.

use super::fixture::{Asked, Fixture, ago, condition};
use super::scalers::{ZS, adopted, asleep, lines};
use serde_json::{Value, json};

const PATCH: &str = "PATCH /apis/apps/v1/namespaces/ns/deployments/hello/scale";

/// One that is awake with these replicas, for longer than any window.
fn awake(spec: Value) -> Value {
    let mut value = asleep(spec);
    value["status"]["state"] = json!("Awake");
    value["status"]["desired"] = json!(1);
    value["status"]["conditions"][0]["status"] = json!("True");
    value["status"]["conditions"][0]["reason"] = json!("Awake");
    value
}

/// One that has been waking for a second, with a pod that is not ready.
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

/// The status that was written last.
fn status(asked: &[Asked]) -> Value {
    let written = asked.iter().rev().find(|(_, line, _)| *line == format!("PUT {ZS}/status"));
    written.map(|(_, _, body)| body.clone()).unwrap_or_else(|| panic!("no status: {:?}", lines(asked)))
}

fn fixture(scaler: Value, replicas: i32, desired: i32) -> Fixture {
    let f = Fixture::scalers();
    f.put_scaler(scaler);
    f.put_service(adopted());
    f.put_target(replicas);
    f.ready(replicas);
    f.decides(Some(desired), -1);
    *f.fakes.serving.lock() = Some(false);
    f
}

/// Goal: while it is paused, no load changes replicas, awake or asleep; the status says so, and activators are told to
/// refuse only where there is no pod.
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

/// Goal: a wake is one patch, whatever the load, and is told; it is not carried out again for the same time.
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

/// Goal: a sleep forgets the load of the past, and waits neither for the window nor for the retention.
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

/// Goal: one without a ready pod falls asleep when that is asked for, as one that nobody calls; and a sleep that has begun
/// is not too old, however long the way takes.
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
