//! Tests of PodAutoscalers in a Knative install: the cases of upstream's reconciler tests, as requests. Reads and
//! unusual failures are in [`super::kpa_rows`].
//!
//! Configuration: default target 10, utilization 50 %, burst 200, activator capacity 100, so total 10 per pod.

use super::fixture::{Exchange, Fixture, UNREACHABLE, ago, assert_condition, condition, expect};
use crate::cluster::error::Error;
use crate::knative::statuses::MERGED_WITHIN;
use crate::scale::Initial;
use common::RevisionKey as Key;
use common::config::AutoscalerConfig;
use serde_json::{Value, json};
use std::time::Duration;

pub(super) const PA: &str = "/apis/autoscaling.internal.knative.dev/v1alpha1/namespaces/ns/podautoscalers/hello";
pub(super) const METRICS: &str = "/apis/autoscaling.internal.knative.dev/v1alpha1/namespaces/ns/metrics";
pub(super) const SKSS: &str = "/apis/networking.internal.knative.dev/v1alpha1/namespaces/ns/serverlessservices";
pub(super) const SCALE: &str = "/apis/apps/v1/namespaces/ns/deployments/hello/scale";
pub(super) const PATCH: &str = "PATCH /apis/apps/v1/namespaces/ns/deployments/hello/scale";

/// Returns a status as written by the reconciler.
pub(super) fn status(active: &str, reason: &str, since: i64, ready: i32, desired: i32) -> Value {
    let at = ago(since);
    let message = match reason {
        "NoTraffic" => "The target is not receiving traffic.",
        "Queued" => "Requests to the target are being buffered as resources are provisioned.",
        _ => "",
    };
    let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at});
    json!({
        "observedGeneration": 1, "serviceName": "hello", "metricsServiceName": "hello-private",
        "actualScale": ready, "desiredScale": desired,
        "conditions": [
            condition("Active", active, reason, message),
            condition("Ready", active, reason, message),
            condition("SKSReady", "True", "", ""),
            condition("ScaleTargetInitialized", "True", "", ""),
        ],
    })
}

/// Returns a ServerlessService whose Services exist.
pub(super) fn serverless(mode: &str, activators: i32, owner: &str) -> Value {
    json!({
        "metadata": {
            "name": "hello", "namespace": "ns", "uid": owner, "resourceVersion": "20", "generation": 1,
            "ownerReferences": [{
                "apiVersion": "autoscaling.internal.knative.dev/v1alpha1", "kind": "PodAutoscaler",
                "name": "hello", "uid": owner, "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "mode": mode, "numActivators": activators, "protocolType": "http1",
            "objectRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "hello"},
        },
        "status": {
            "observedGeneration": 1, "serviceName": "hello", "privateServiceName": "hello-private",
            "conditions": [
                {"type": "ActivatorEndpointsPopulated", "status": "True", "severity": "Info",
                 "lastTransitionTime": ago(3600)},
                {"type": "EndpointsPopulated", "status": "True", "lastTransitionTime": ago(3600)},
                {"type": "Ready", "status": "True", "lastTransitionTime": ago(3600)},
            ],
        },
    })
}

pub(super) fn metric(scrape_target: &str, owner: &str) -> Value {
    json!({
        "metadata": {
            "name": "hello", "namespace": "ns", "uid": "m", "resourceVersion": "30", "generation": 1,
            "ownerReferences": [{"apiVersion": "autoscaling.internal.knative.dev/v1alpha1", "kind": "PodAutoscaler",
                                 "name": "hello", "uid": owner, "controller": true}],
        },
        "spec": {"stableWindow": 60_000_000_000_i64, "panicWindow": 6_000_000_000_i64, "scrapeTarget": scrape_target},
    })
}

pub(super) fn autoscaler(annotations: Value, status: Value) -> Value {
    let mut annotations = annotations;
    annotations["autoscaling.knative.dev/class"] = json!("kpa.autoscaling.knative.dev");
    json!({
        "metadata": {
            "name": "hello", "namespace": "ns", "uid": "pa", "resourceVersion": "10", "generation": 1,
            "annotations": annotations,
            "labels": {"serving.knative.dev/revision": "hello", "serving.knative.dev/configuration": "config"},
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "hello"},
            "protocolType": "http1",
        },
        "status": status,
    })
}

pub(super) fn fixture() -> Fixture {
    configured(Fixture::knative())
}

fn configured(f: Fixture) -> Fixture {
    let config = AutoscalerConfig {
        container_concurrency_target_default: 10.0,
        container_concurrency_target_fraction: 0.5,
        target_burst_capacity: 200.0,
        activator_capacity: 100.0,
        ..AutoscalerConfig::default()
    };
    f.configure(config);
    f
}

/// Returns a revision with all objects in place.
pub(super) fn settled(
    annotations: Value,
    status: Value,
    sks: Value,
    replicas: i32,
    ready: i32,
    desired: Option<i32>,
    ebc: i32,
) -> Fixture {
    let f = fixture();
    f.put_autoscaler(autoscaler(annotations, status));
    f.put_serverless(sks);
    f.put_metric(metric("hello-private", "pa"));
    f.put_target(replicas);
    f.ready(ready);
    f.decides(desired, ebc);
    f
}

pub(super) async fn pass(f: &mut Fixture, script: Vec<Exchange>) -> Result<(), Error> {
    f.play(script, async |cx, key| cx.reconcile(key).await).await
}

pub(super) fn put_status() -> Exchange {
    expect(&format!("PUT {PA}/status"))
}

pub(super) fn patched(to: i32) -> Exchange {
    let body = json!([{"op": "add", "path": "/spec/replicas", "value": to}]);
    expect(PATCH)
        .with(move |sent| assert_eq!(*sent, body))
        .answered(200, json!({"metadata": {"name": "hello", "resourceVersion": "61"}}))
}

pub(super) fn path(mode: &'static str, activators: i32) -> Exchange {
    expect(&format!("PUT {SKSS}/hello")).with(move |body| {
        assert_eq!((&body["spec"]["mode"], &body["spec"]["numActivators"]), (&json!(mode), &json!(activators)));
    })
}

#[tokio::test]
async fn an_unknown_key_or_an_object_without_our_class_is_left_alone() {
    let mut f = fixture();
    for key in [Key::new("ns", "gone"), Key::new("", "hello"), Key::new("", "")] {
        f.key = key;
        pass(&mut f, vec![]).await.expect("nothing to do");
    }
    for class in [Value::Null, json!("hpa.autoscaling.knative.dev")] {
        let mut f = fixture();
        let mut object = autoscaler(json!({}), Value::Null);
        object["metadata"]["annotations"] =
            if class.is_null() { json!({}) } else { json!({"autoscaling.knative.dev/class": class}) };
        f.put_autoscaler(object);
        pass(&mut f, vec![]).await.expect("nothing to do");
    }
}

#[tokio::test]
async fn without_a_serverless_service_nothing_is_scaled() {
    let mut f = fixture();
    f.put_autoscaler(autoscaler(json!({}), status("True", "", 10, 1, 11)));
    f.put_target(11);
    let script = vec![
        expect(&format!("POST {SKSS}")).with(|body| {
            assert_eq!((&body["spec"]["mode"], &body["spec"]["numActivators"]), (&json!("Proxy"), &json!(2)));
            assert!(body["metadata"]["annotations"]["autoscaling.knative.dev/metric"].is_null());
            assert_eq!(body["metadata"]["labels"]["serving.knative.dev/configuration"], "config");
            let of = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "hello"});
            assert_eq!((&body["spec"]["objectRef"], &body["spec"]["protocolType"]), (&of, &json!("http1")));
            let owner = &body["metadata"]["ownerReferences"][0];
            assert_eq!(
                (&owner["kind"], &owner["uid"], &owner["controller"]),
                (&json!("PodAutoscaler"), &json!("pa"), &json!(true))
            );
            assert_eq!(owner["apiVersion"], "autoscaling.internal.knative.dev/v1alpha1");
        }),
        put_status().with(|body| {
            assert_condition(body, "SKSReady", "Unknown", "NotReady");
            assert_eq!(condition(body, "SKSReady").2, "No Private Service Name");
            assert_condition(body, "Active", "Unknown", "Queued");
            assert_eq!((&body["status"]["actualScale"], &body["status"]["desiredScale"]), (&json!(0), &json!(11)));
        }),
    ];
    pass(&mut f, script).await.expect("a pass");
    assert_eq!(*f.fakes.deciding.lock(), None, "no decider before there is a private Service");
}

#[tokio::test]
async fn a_revision_with_a_reported_scale_is_taken_over() {
    for (reported, expected) in [(-1, Initial::Unknown), (0, Initial::TakenOver), (11, Initial::TakenOver)] {
        let before = status("True", "", 10, 1, reported);
        let mut f = settled(json!({}), before, serverless("Serve", 3, "pa"), 11, 1, Some(11), 0);
        let script = if reported == 11 { vec![] } else { vec![put_status()] };
        pass(&mut f, script).await.expect("a pass");
        let (_, initial) = f.fakes.deciding.lock().take().expect("a decider");
        assert_eq!(initial, expected, "{reported}");
    }
}

#[tokio::test]
async fn objects_of_another_owner_are_reported_and_left_alone() {
    let active = || status("True", "", 10, 1, 11);
    let not_owned = || put_status().with(|body| assert_condition(body, "Active", "False", "NotOwned"));
    let mut f = settled(json!({}), active(), serverless("Proxy", 3, "other"), 11, 1, Some(11), 0);
    let error = pass(&mut f, vec![not_owned()]).await.expect_err("another's ServerlessService").to_string();
    assert_eq!(error, "error reconciling SKS: PA: hello does not own SKS: hello");
    let mut f = settled(json!({}), active(), serverless("Serve", 3, "pa"), 11, 1, Some(11), 0);
    f.put_metric(metric("hello-private", "other"));
    let error = pass(&mut f, vec![not_owned()]).await.expect_err("another's Metric").to_string();
    assert_eq!(error, "error reconciling Metric: PA: hello does not own Metric: hello");
}

/// Returns a sleeping revision whose statuses are merged, at the moment when a request wakes it.
fn waking() -> Fixture {
    let f = configured(Fixture::knative_with(UNREACHABLE, MERGED_WITHIN));
    f.put_autoscaler(autoscaler(json!({}), status("False", "NoTraffic", 3600, 0, 0)));
    f.put_serverless(serverless("Proxy", 2, "pa"));
    f.put_metric(metric("hello-private", "pa"));
    f.put_target(0);
    f.decides(Some(1), -1);
    f
}

/// Goal: a wake is one status and one event, once the pod is ready, because Knative's controller writes a Revision for
/// each status.
#[tokio::test(start_paused = true)]
async fn a_wake_is_reported_once_its_pod_is_ready() {
    let mut f = waking();
    pass(&mut f, vec![patched(1)]).await.expect("replicas first, and nothing else");
    assert_eq!(f.take_events().await, [], "the wake is in progress");
    tokio::time::advance(Duration::from_millis(1_900)).await;
    f.ready(1);
    let up = put_status().with(|body| {
        assert_condition(body, "Active", "True", "");
        assert_eq!((&body["status"]["actualScale"], &body["status"]["desiredScale"]), (&json!(1), &json!(1)));
    });
    pass(&mut f, vec![path("Proxy", 3), up]).await.expect("at once");
    assert_eq!(f.take_events().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_longer_wake_is_reported_after_two_seconds() {
    let mut f = waking();
    pass(&mut f, vec![patched(1)]).await.expect("replicas first, and nothing else");
    let queue = f.cx.stores.index.queue.clone();
    while queue.try_next().is_some() {} // Keys from filling the stores.
    let begun = tokio::time::Instant::now();
    let next = queue.next().await; // Nothing else happens.
    assert_eq!((begun.elapsed().as_secs(), next.key()), (2, &f.key));
    drop(next);
    let queued = put_status().with(|body| assert_condition(body, "Active", "Unknown", "Queued"));
    pass(&mut f, vec![queued]).await.expect("a pass");
}
