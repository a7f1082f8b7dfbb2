//! Tests of conflicts and of error texts, against a mock API server.

use crate::fixture::{scale, sent};
use crate::native::tests::{EVENTS, Fixture, GET, PUT, STATUS, stored, web};
use common::RevisionKey as Key;
use serde_json::{Value, json};

/// Goal: after a conflict the scale is read again, and the same replicas are written to the new version, with at most
/// five attempts. Method: one replica, which is less than the minimum.
#[tokio::test(start_paused = true)]
async fn after_a_conflict_the_scale_is_read_again() {
    let mut newer = scale(4);
    newer["metadata"]["resourceVersion"] = json!("8");
    let conflicting = || {
        let f = Fixture::new(1);
        f.mock.on(GET, 200, scale(1)).on(GET, 200, newer.clone()).reject(PUT, 409, "modified");
        f.put(web());
        f
    };
    let written = |requests: &[(String, Value)]| -> Vec<_> {
        let puts = requests.iter().filter(|(line, _)| line == PUT).map(|(_, body)| body);
        puts.map(|body| (body["metadata"]["resourceVersion"].clone(), body["spec"]["replicas"].clone())).collect()
    };
    let f = conflicting();
    f.mock.on(PUT, 200, scale(2));
    let requests = f.after(16).await;
    assert_eq!(written(&requests), [(json!("7"), json!(2)), (json!("8"), json!(2))]);
    let status = &sent(&requests, STATUS)["status"];
    assert_eq!((&status["currentReplicas"], &status["desiredReplicas"]), (&json!(1), &json!(2)));

    let f = conflicting();
    let requests = f.after(16).await;
    assert_eq!(written(&requests).len(), 5);
    assert_eq!(sent(&requests, STATUS)["status"]["conditions"][0]["reason"], "FailedUpdateScale");
    let document = f.explanations.document(&Key::new("shop", "web")).expect("explained");
    assert_eq!(document["error"], "failed to rescale Deployment/shop/web: modified");
}

/// Goal: each layer adds its prefix to an error.
#[tokio::test(start_paused = true)]
async fn errors_have_upstreams_prefixes() {
    let metric =
        |name: &str| json!({"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "1"}});
    let mut object = metric("hits");
    object["describedObject"] = json!({"apiVersion": "v1", "kind": "Service", "name": "web"});
    let missing = |what: &str| format!("the server could not find the requested resource (get {what})");
    let fetch = |api: &str, error: &str| format!("unable to fetch metrics from {api} metrics API: {error}");
    let custom = fetch("custom", "no custom metrics API (custom.metrics.k8s.io) registered");
    let usage = fetch("resource", &missing("pods.metrics.k8s.io"));
    let queue = fetch("external", &missing("queue.external.metrics.k8s.io"));
    for (entry, reason, outer, inner) in [
        (
            web()["spec"]["metrics"][0].clone(),
            "FailedGetResourceMetric",
            "failed to get cpu resource metric value: ",
            format!("failed to get cpu utilization: unable to get metrics for resource cpu: {usage}"),
        ),
        (
            json!({"type": "Pods", "pods": metric("qps")}),
            "FailedGetPodsMetric",
            "failed to get pods metric value: ",
            format!("unable to get metric qps: {custom}"),
        ),
        (
            json!({"type": "Object", "object": object}),
            "FailedGetObjectMetric",
            "failed to get object metric value: failed to get hits object metric: ",
            format!("unable to get metric hits: Service on shop web/{custom}"),
        ),
        (
            json!({"type": "External", "external": metric("queue")}),
            "FailedGetExternalMetric",
            "failed to get queue external metric value: failed to get queue external metric: ",
            format!("unable to get external metric shop/queue/nil: {queue}"),
        ),
    ] {
        let (f, mut object) = (Fixture::new(1), web());
        object["spec"]["metrics"] = json!([entry]);
        f.mock.on(GET, 200, scale(3)).on(STATUS, 200, stored("11", json!({}))).on(EVENTS, 201, json!({}));
        f.put(object);
        let requests = f.after(16).await;
        let all = format!("invalid metrics (1 invalid out of 1), first error is: {outer}{inner}");
        let events = requests.iter().filter(|(line, _)| line == EVENTS).map(|(_, event)| event);
        let events: Vec<_> = events.map(|event| (event["reason"].clone(), event["message"].clone())).collect();
        assert_eq!(events, [(json!(reason), json!(inner)), (json!("FailedComputeMetricsReplicas"), json!(all))]);
        let active = &sent(&requests, STATUS)["status"]["conditions"][1];
        assert_eq!(active["reason"], reason);
        assert!(!active["message"].as_str().expect("a message").contains(outer), "{active}");
    }
}
