//! Further reconciles in a Knative install: failing writes, reported statuses, bounds, initial scales, and scales that
//! are not known any more.

use super::fixture::{Exchange, Fixture, assert_condition, condition, expect};
use super::kpa_knative::{
    METRICS, PA, SKSS, autoscaler, fixture, metric, pass, patched, path, put_status, serverless, settled, status,
};
use crate::scale::PodSet;
use common::config::AutoscalerConfig;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn scale(key: &str, value: &str) -> Value {
    json!({format!("autoscaling.knative.dev/{key}"): value})
}

fn active() -> Value {
    status("True", "", 10, 1, 11)
}

fn inactive(ready: i32, desired: i32) -> Value {
    status("False", "NoTraffic", 3600, ready, desired)
}

fn queued(ready: i32, desired: i32) -> Value {
    status("Unknown", "Queued", 10, ready, desired)
}

/// Changes a status to that of a target which has never had enough ready pods.
fn uninitialized(mut status: Value) -> Value {
    let conditions = status["conditions"].as_array_mut().expect("conditions");
    for condition in conditions.iter_mut().filter(|condition| condition["type"] == "ScaleTargetInitialized") {
        condition["status"] = json!("Unknown");
    }
    status
}

/// Returns a ServerlessService whose Services have names only.
fn not_ready(mode: &str, activators: i32) -> Value {
    let mut object = serverless(mode, activators, "pa");
    object["status"]["conditions"] = json!([]);
    object
}

/// Expects a status with these states of `Active` and `ScaleTargetInitialized`, and these scales (actual, desired).
fn reports(active: (&'static str, &'static str), initialized: &'static str, scales: (i32, i32)) -> Exchange {
    put_status().with(move |body| {
        assert_condition(body, "Active", active.0, active.1);
        assert_condition(body, "ScaleTargetInitialized", initialized, "");
        let reported = (&body["status"]["actualScale"], &body["status"]["desiredScale"]);
        assert_eq!(reported, (&json!(scales.0), &json!(scales.1)));
    })
}

fn error_of(outcome: Result<(), crate::cluster::error::Error>) -> String {
    outcome.expect_err("refused").to_string()
}

#[tokio::test]
async fn a_conflict_leads_to_the_same_status_on_the_newer_object() {
    let mut f = settled(json!({}), queued(0, 11), serverless("Serve", 4, "pa"), 11, 11, Some(11), 0);
    let status = || reports(("True", ""), "True", (11, 11));
    let mut newer = autoscaler(json!({}), queued(0, 11));
    newer["metadata"]["resourceVersion"] = json!("12");
    let again = status().with(|body| assert_eq!(body["metadata"]["resourceVersion"], "12"));
    let script = vec![status().refused(409, "newer"), expect(&format!("GET {PA}")).answered(200, newer), again];
    pass(&mut f, script).await.expect("a pass");
}

#[tokio::test]
async fn a_metric_that_cannot_be_written_ends_the_pass() {
    let mut f = settled(json!({}), active(), serverless("Serve", 3, "pa"), 11, 1, Some(11), 0);
    f.cx.knative().objects.metrics.apply(&f.key, "", None);
    let error = error_of(pass(&mut f, vec![expect(&format!("POST {METRICS}")).refused(500, "inducing failure")]).await);
    assert!(error.starts_with("error reconciling Metric: error creating metric"), "{error}");

    let mut f = settled(json!({}), active(), serverless("Serve", 3, "pa"), 11, 1, Some(11), 0);
    f.put_metric(metric("something-else", "pa"));
    let refused = expect(&format!("PUT {METRICS}/hello"))
        .with(|body| assert_eq!(body["spec"]["scrapeTarget"], "hello-private"))
        .refused(500, "inducing failure");
    let error = error_of(pass(&mut f, vec![refused]).await);
    assert!(error.starts_with("error reconciling Metric: error updating metric"), "{error}");
}

#[tokio::test]
async fn missing_replicas_count_as_one() {
    let mut f = settled(json!({}), active(), serverless("Serve", 3, "pa"), 11, 1, Some(11), 0);
    f.put_target_of("hello", Value::Null, 61);
    pass(&mut f, vec![patched(11)]).await.expect("scaled from one");
    assert_eq!(*f.fakes.scaled.lock(), [(1, 11)]);
}

#[tokio::test]
async fn the_status_reports_whether_the_services_are_ready() {
    let fresh = || uninitialized(queued(0, -1));
    let mut f = settled(json!({}), fresh(), not_ready("Serve", 4), 11, 11, Some(11), 0);
    let report = reports(("True", ""), "True", (11, 11)).with(|body| {
        assert_condition(body, "SKSReady", "Unknown", "NotReady");
        assert_eq!(condition(body, "SKSReady").2, "");
    });
    pass(&mut f, vec![report]).await.expect("active, the Services not ready");

    let mut before = fresh();
    before["serviceName"] = json!("");
    let mut f = settled(json!({}), before, serverless("Serve", 2, "pa"), 11, 0, Some(11), 0);
    let report = reports(("Unknown", "Queued"), "Unknown", (0, 11)).with(|body| {
        assert_condition(body, "SKSReady", "True", "");
        assert_eq!(body["status"]["serviceName"], "hello");
    });
    pass(&mut f, vec![report]).await.expect("the Services ready, no pod yet");
}

#[tokio::test]
async fn a_revision_is_active_at_its_min_scale() {
    for (reachability, ready, active, initialized) in [
        ("Reachable", 1, ("Unknown", "Queued"), "Unknown"),
        ("Unreachable", 1, ("True", ""), "True"),
        ("", 2, ("True", ""), "True"),
    ] {
        let f =
            &mut settled(scale("min-scale", "2"), Value::Null, serverless("Serve", 3, "pa"), 11, ready, Some(11), 0);
        let mut object = autoscaler(scale("min-scale", "2"), uninitialized(queued(0, -1)));
        object["spec"]["reachability"] = json!(reachability);
        f.put_autoscaler(object);
        pass(f, vec![reports(active, initialized, (ready, 11))]).await.expect("a pass");
    }
}

#[tokio::test]
async fn a_wrong_serverless_service_is_corrected_or_ends_the_pass() {
    let mut wrong = not_ready("Serve", 2);
    wrong["spec"]["objectRef"]["name"] = json!("other");
    let mut f = settled(json!({}), queued(0, 11), wrong.clone(), 11, 0, Some(11), 0);
    let put = expect(&format!("PUT {SKSS}/hello")).with(|body| assert_eq!(body["spec"]["objectRef"]["name"], "hello"));
    let report = reports(("Unknown", "Queued"), "True", (0, 11)).with(|body| {
        assert_condition(body, "SKSReady", "Unknown", "NotReady");
    });
    pass(&mut f, vec![put, report]).await.expect("corrected");

    let mut f = fixture();
    f.put_autoscaler(autoscaler(json!({}), active()));
    f.put_target(11);
    let error = error_of(pass(&mut f, vec![expect(&format!("POST {SKSS}")).refused(500, "inducing failure")]).await);
    assert!(error.starts_with("error reconciling SKS: error creating SKS hello: "), "{error}");

    wrong["status"] = Value::Null;
    let mut f = settled(json!({}), active(), wrong, 11, 0, Some(11), 0);
    let error = error_of(pass(&mut f, vec![path("Proxy", 2).refused(500, "inducing failure")]).await);
    assert!(error.starts_with("error reconciling SKS: error updating SKS hello: "), "{error}");
}

#[tokio::test]
async fn the_last_pod_is_removed_once_an_activator_has_responded() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let mut f = Fixture::knative_with(address, Duration::ZERO);
    f.configure(AutoscalerConfig::clone(&fixture().config.borrow()));
    f.put_autoscaler(autoscaler(json!({}), inactive(0, 0)));
    f.put_serverless(serverless("Proxy", 2, "pa"));
    f.put_metric(metric("hello-private", "pa"));
    f.put_target(1);
    f.decides(Some(0), 0);
    pass(&mut f, vec![]).await.expect("probes whether an activator is in the path");
    let (mut stream, _) = listener.accept().await.expect("a probe");
    let mut head = [0; 1024];
    assert_ne!(stream.read(&mut head).await.expect("a request"), 0);
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nactivator").await.expect("an answer");
    f.proven("hello.ns.svc.cluster.local").await;
    pass(&mut f, vec![patched(0)]).await.expect("an activator is in the path");
}

/// Rows: (name, annotations, status, ServerlessService, (replicas, ready, desired, excess capacity)) -> expected writes
#[tokio::test]
async fn decision_bounds_and_pods_lead_to_replicas_path_and_status() {
    let (none, eleven) = (|| json!({}), || scale("min-scale", "11"));
    let serve = |activators| serverless("Serve", activators, "pa");
    let proxy = |activators| serverless("Proxy", activators, "pa");
    let (just_now, awake) = (status("True", "", 0, 1, 1), || status("True", "", 3600, 1, 1));
    let (slept, waking) = (status("False", "NoTraffic", 10, 0, 11), status("Unknown", "Queued", 3600, 0, 1));
    let waits = |scales| reports(("Unknown", "Queued"), "True", scales);
    let sleeps = |reason| reports(("False", reason), "True", (1, 0));
    let short = status("True", "", 10, 10, 11);
    let shrinks = vec![patched(11), path("Serve", 4), reports(("True", ""), "True", (12, 11))];
    let gives_up = vec![patched(0), path("Proxy", 3), sleeps("TimedOut")];
    let (many, never) = (status("True", "", 10, 12, 12), status("False", "NoTraffic", 10, 0, -1));
    let both = json!({"autoscaling.knative.dev/initial-scale": "20", "autoscaling.knative.dev/min-scale": "11"});
    let (fresh, starts) = (uninitialized(queued(11, 11)), reports(("Unknown", "Queued"), "Unknown", (11, 20)));
    type Row = (&'static str, Value, Value, Value, (i32, i32, Option<i32>, i32), Vec<Exchange>);
    let rows: Vec<Row> = vec![
        ("idle, active just now", none(), just_now, serve(3), (1, 1, Some(0), 0), vec![]),
        ("not known", eleven(), inactive(10, 11), proxy(3), (11, 10, None, 0), vec![]),
        ("not known, awake without replicas", none(), awake(), proxy(2), (0, 0, None, 0), vec![waits((0, 1))]),
        ("asleep", none(), inactive(0, 0), proxy(2), (0, 0, Some(0), 0), vec![]),
        ("spare capacity", none(), slept, proxy(2), (11, 0, Some(11), 0), vec![path("Serve", 2), waits((0, 11))]),
        ("idle", none(), awake(), serve(3), (1, 1, Some(0), 0), vec![path("Proxy", 3), sleeps("NoTraffic")]),
        ("timeout", none(), waking, serve(3), (1, 1, Some(0), 0), gives_up),
        ("a pod short", eleven(), short, serve(3), (10, 10, Some(11), 0), vec![patched(11), waits((10, 11))]),
        ("inactive above the min scale", eleven(), inactive(12, 12), proxy(4), (12, 12, Some(0), 0), shrinks),
        ("below the initial scale", both, fresh, proxy(4), (11, 11, Some(11), -42), vec![patched(20), starts]),
        ("settled", none(), active(), serve(3), (11, 1, Some(11), 0), vec![]),
        ("not known, active", none(), many, serve(4), (12, 12, None, -200), vec![path("Proxy", 4)]),
        ("not known, asleep", none(), never, proxy(2), (0, 0, None, -200), vec![]),
        ("no capacity left", none(), active(), proxy(3), (11, 1, Some(11), -42), vec![]),
        ("too little capacity", none(), active(), serve(3), (11, 1, Some(11), -18), vec![path("Proxy", 3)]),
        ("enough capacity", none(), active(), proxy(3), (11, 1, Some(11), 1), vec![path("Serve", 3)]),
    ];
    for (what, annotations, status, sks, (replicas, ready, desired, ebc), script) in rows {
        let mut f = settled(annotations, status, sks, replicas, ready, desired, ebc);
        pass(&mut f, script).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(*f.fakes.tracking.lock(), Some(PodSet::Revision("hello".into())), "{what}");
    }
}

#[tokio::test]
async fn an_initial_scale_of_zero_needs_no_pod() {
    let zero = |status: Value, sks: Value, desired, ready| {
        let f = settled(scale("initial-scale", "0"), status, sks, 0, ready, desired, -42);
        let config = AutoscalerConfig { allow_zero_initial_scale: true, ..AutoscalerConfig::clone(&f.config.borrow()) };
        f.configure(config);
        f
    };
    // Status of a PodAutoscaler before its first reconcile.
    let mut f = zero(Value::Null, serverless("Proxy", 2, "pa"), None, 0);
    let named = |body: &Value| assert_eq!(body["status"]["serviceName"], "hello");
    let report = reports(("False", "NoTraffic"), "True", (0, -1)).with(named);
    pass(&mut f, vec![report]).await.expect("initialized at once");

    let mut private_alone = not_ready("Proxy", 2);
    private_alone["status"]["serviceName"] = json!("");
    let mut f = zero(Value::Null, private_alone.clone(), None, 0);
    pass(&mut f, vec![reports(("False", "NoTraffic"), "Unknown", (0, -1))]).await.expect("no public Service yet");

    let mut once_initialized = queued(0, -1);
    once_initialized["serviceName"] = json!("");
    let mut f = zero(once_initialized, private_alone, None, 0);
    let report = put_status().with(|body| assert_condition(body, "Active", "Unknown", "Queued"));
    pass(&mut f, vec![report]).await.expect("initialized once, the Service gone");

    let mut f = zero(queued(0, 0), serverless("Proxy", 3, "pa"), Some(2), 2);
    pass(&mut f, vec![patched(2), reports(("True", ""), "True", (2, 2))]).await.expect("woken");
}

/// Goal: a missing Metric is created. The private Service is scraped unless the activators never leave the path, by
/// annotation or by default.
#[tokio::test]
async fn a_created_metric_follows_window_and_burst_capacity() {
    let unlimited = scale("target-burst-capacity", "-1");
    let config = |burst| AutoscalerConfig { target_burst_capacity: burst, ..AutoscalerConfig::default() };
    for (annotations, burst, target, window) in [
        (json!({}), 200.0, "hello-private", 60),
        (scale("window", "10s"), 200.0, "hello-private", 10),
        (json!({}), -1.0, "", 60),
        (unlimited, 200.0, "", 60),
    ] {
        let (stable, panic) = (window * 1_000_000_000_i64, window * 100_000_000);
        let mut f = settled(annotations, active(), serverless("Proxy", 2, "pa"), 11, 1, Some(11), -42);
        f.configure(config(burst));
        f.cx.knative().objects.metrics.apply(&f.key, "", None);
        let created = expect(&format!("POST {METRICS}")).with(move |body| {
            let spec = json!({"stableWindow": stable, "panicWindow": panic, "scrapeTarget": target});
            assert_eq!(body["spec"], spec);
            assert_eq!(body["metadata"]["annotations"]["autoscaling.knative.dev/metric"], "concurrency");
        });
        let moved = if target.is_empty() { vec![] } else { vec![path("Proxy", 3)] };
        let script = std::iter::once(created).chain(moved).collect();
        let outcome = pass(&mut f, script).await;
        assert!(outcome.is_ok(), "{burst}: {outcome:?}");
    }
}
