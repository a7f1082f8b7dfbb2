//! Tests of whole reconciles against a mock API server.

use super::pass::reconcile;
use super::*;
use crate::fixture::{Mock, lines, sent};
use common::annotations;
use common::time::Timestamp;
use common_controller::Alone;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::time::Duration;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const HPAS: &str = "/apis/autoscaling/v2/namespaces/ns/horizontalpodautoscalers";
const SKSS: &str = "/apis/networking.internal.knative.dev/v1alpha1/namespaces/ns/serverlessservices";
const STATUS: &str = "PUT /apis/autoscaling.internal.knative.dev/v1alpha1/namespaces/ns/podautoscalers/hello/status";
const EVENTS: &str = "POST /api/v1/namespaces/ns/events?";

struct Fixture {
    mock: Mock,
    cx: Context,
    key: Key,
    _config: watch::Sender<Arc<AutoscalerConfig>>,
}

/// Returns a PodAutoscaler of class HPA with these annotations and this status.
fn autoscaler(annotations: &[(&str, &str)], status: Value) -> Value {
    let mut all = serde_json::Map::new();
    for (key, value) in [("class", "hpa.autoscaling.knative.dev"), ("metric", "cpu")].iter().chain(annotations) {
        all.insert(format!("autoscaling.knative.dev/{key}"), json!(value));
    }
    json!({
        "apiVersion": "autoscaling.internal.knative.dev/v1alpha1", "kind": "PodAutoscaler",
        "metadata": {"name": "hello", "namespace": "ns", "uid": "pa", "resourceVersion": "10", "generation": 1,
                     "annotations": all},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "hello-deployment"},
            "protocolType": "http1",
        },
        "status": status,
    })
}

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "lastTransitionTime": "2023-11-14T20:00:00Z"})
}

fn settled(desired: i32, actual: i32) -> Value {
    let all = ["Active", "Ready", "SKSReady", "ScaleTargetInitialized"].map(condition);
    json!({
        "observedGeneration": 1, "serviceName": "hello", "metricsServiceName": "hello-private",
        "desiredScale": desired, "actualScale": actual, "conditions": all,
    })
}

fn owner(uid: &str) -> Value {
    json!([{"apiVersion": "autoscaling.internal.knative.dev/v1alpha1", "kind": "PodAutoscaler", "name": "hello",
            "uid": uid, "controller": true, "blockOwnerDeletion": true}])
}

fn serverless(ready: bool, uid: &str, target: &str) -> Value {
    let mut status = json!({"observedGeneration": 1, "serviceName": "hello", "privateServiceName": "hello-private"});
    if ready {
        status["conditions"] = json!(["EndpointsPopulated", "Ready"].map(condition));
    }
    json!({
        "apiVersion": "networking.internal.knative.dev/v1alpha1", "kind": "ServerlessService",
        "metadata": {"name": "hello", "namespace": "ns", "uid": "s", "resourceVersion": "20", "generation": 1,
                     "ownerReferences": owner(uid)},
        "spec": {
            "mode": "Serve", "protocolType": "http1",
            "objectRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
        },
        "status": status,
    })
}

/// Returns the object as the API server stores it, with its defaults.
fn horizontal(uid: &str, desired: i32, current: i32) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "hello", "namespace": "ns", "uid": "h", "resourceVersion": "30", "ownerReferences": owner(uid)},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "hello-deployment"},
            "minReplicas": 1, "maxReplicas": i32::MAX,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
            }}],
        },
        "status": {"desiredReplicas": desired, "currentReplicas": current, "currentMetrics": null},
    })
}

impl Fixture {
    fn new(autoscaler: Value, serverless: Option<Value>, horizontal: Option<Value>) -> Self {
        let mock = Mock::default();
        let (_config, config) = watch::channel(Arc::new(AutoscalerConfig::default()));
        let wiring = Wiring {
            client: mock.client(),
            workers: 1,
            leadership: Arc::new(Alone),
            listed: CancellationToken::new(),
            config,
            clock: Clock::starting_at(NOW),
        };
        let (cx, key) = (Context::new(wiring), Key::new("ns", "hello"));
        mock.on(STATUS, 200, autoscaler.clone()).on(EVENTS, 201, json!({}));
        cx.autoscalers.apply(&key, "10", Some(serde_json::from_value(autoscaler).expect("a PodAutoscaler")));
        if let Some(mut object) = serverless {
            // The annotations that the controller gives it: those of the PodAutoscaler, except the metric.
            let mut annotations = cx.autoscalers.get(&key).expect("stored").annotations().clone();
            annotations.remove(annotations::METRIC.name);
            if object["metadata"]["annotations"].is_null() {
                object["metadata"]["annotations"] = json!(annotations);
            }
            cx.serverless.apply(&key, "20", Some(serde_json::from_value(object).expect("a ServerlessService")));
        }
        if let Some(object) = horizontal {
            cx.horizontals.apply(&key, "30", Some(serde_json::from_value(object).expect("an HPA")));
        }
        Self { mock, cx, key, _config }
    }

    /// Creates a settled PodAutoscaler with both objects: owner and target of the ServerlessService, owner of the HPA.
    fn settled(annotations: &[(&str, &str)], (sks_owner, target): (&str, &str), hpa_owner: &str) -> Self {
        let (sks, hpa) = (serverless(true, sks_owner, target), horizontal(hpa_owner, 0, 0));
        Self::new(autoscaler(annotations, settled(0, 0)), Some(sks), Some(hpa))
    }

    /// Runs a reconcile. Returns its error and the requests, events last.
    async fn pass(&self) -> (Option<String>, Vec<(String, Value)>) {
        let outcome = reconcile(&self.cx, &self.key).await;
        tokio::time::sleep(Duration::from_millis(1)).await; // Time is paused: events are written in the background.
        (outcome.err().map(|error| error.to_string()), self.mock.requests())
    }
}

/// Returns status, reason and message of a written condition.
fn written_condition(requests: &[(String, Value)], kind: &str) -> [String; 3] {
    let conditions = sent(requests, STATUS)["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default();
    ["status", "reason", "message"].map(|field| found[field].as_str().unwrap_or_default().to_owned())
}

fn scales(requests: &[(String, Value)]) -> (Value, Value) {
    let status = &sent(requests, STATUS)["status"];
    (status["desiredScale"].clone(), status["actualScale"].clone())
}

#[tokio::test(start_paused = true)]
async fn case_2_both_objects_are_created() {
    let f = Fixture::new(autoscaler(&[], Value::Null), None, None);
    let (mut hpa, mut sks) = (horizontal("pa", 0, 0), serverless(false, "pa", "hello-deployment"));
    hpa["status"] = json!({"desiredReplicas": 0, "currentMetrics": null});
    sks["status"] = Value::Null;
    let (create_hpa, create_sks) = (format!("POST {HPAS}"), format!("POST {SKSS}"));
    f.mock.on(&create_hpa, 201, hpa).on(&create_sks, 201, sks);
    let (error, requests) = f.pass().await;
    assert_eq!((error, lines(&requests)), (None, vec![create_hpa.as_str(), &create_sks, STATUS]));
    let sks = &requests[1].1;
    assert_eq!((&sks["spec"]["mode"], &sks["spec"]["numActivators"]), (&json!("Serve"), &Value::Null), "0 means all");
    assert_eq!(written_condition(&requests, "Active"), ["True", "", ""]);
    assert_eq!(written_condition(&requests, "SKSReady"), ["Unknown", "NotReady", "SKS Services are not ready yet"]);
    assert_eq!(written_condition(&requests, "ScaleTargetInitialized")[0], "Unknown");
    assert_eq!(scales(&requests), (json!(0), json!(0)));
    let status = &sent(&requests, STATUS)["status"];
    assert_eq!((&status["serviceName"], &status["metricsServiceName"]), (&json!(""), &json!("")));
}

/// Rows: (case, annotations, ready, (desired, current)) -> (SKSReady, ScaleTargetInitialized). The Services' names are
/// copied in each.
#[tokio::test(start_paused = true)]
async fn cases_3_to_6_the_status_combines_both_objects() {
    for (case, annotations, ready, (desired, current), sks, initialized) in [
        ("3", &[][..], false, (0, 0), "Unknown", "Unknown"),
        ("4", &[], true, (0, 0), "True", "Unknown"),
        ("5", &[], true, (1, 1), "True", "True"),
        ("6", &[], true, (5, 3), "True", "True"),
        ("two of an initial scale of three", &[("initial-scale", "3")], true, (3, 2), "True", "Unknown"),
    ] {
        let f = Fixture::new(
            autoscaler(annotations, Value::Null),
            Some(serverless(ready, "pa", "hello-deployment")),
            Some(horizontal("pa", desired, current)),
        );
        let (error, requests) = f.pass().await;
        assert_eq!((error, lines(&requests)), (None, vec![STATUS]), "case {case}");
        assert_eq!(written_condition(&requests, "SKSReady")[0], sks, "case {case}");
        assert_eq!(written_condition(&requests, "ScaleTargetInitialized")[0], initialized, "case {case}");
        assert_eq!(written_condition(&requests, "Active")[0], "True", "case {case}");
        assert_eq!(scales(&requests), (json!(desired), json!(current)), "case {case}");
        let status = &sent(&requests, STATUS)["status"];
        assert_eq!((&status["serviceName"], &status["metricsServiceName"]), (&json!("hello"), &json!("hello-private")));
    }
}

/// Goal: an event reports each write that fails. Only a HorizontalPodAutoscaler that cannot be created changes the
/// status, too.
#[tokio::test(start_paused = true)]
async fn cases_8_11_and_12_a_failed_write_is_reported_in_an_event() {
    let new = |sks| Fixture::new(autoscaler(&[], settled(0, 0)), sks, Some(horizontal("pa", 0, 0)));
    let sks_error = "error reconciling SKS: error ";
    for (f, line, start) in [
        (new(None), format!("POST {SKSS}"), sks_error),
        (new(Some(serverless(true, "pa", "other"))), format!("PUT {SKSS}/hello"), sks_error),
        (Fixture::new(autoscaler(&[], Value::Null), None, None), format!("POST {HPAS}"), "failed to create HPA: "),
        (with_another_target(), format!("PUT {HPAS}/hello"), "failed to update HPA: "),
    ] {
        f.mock.reject(&line, 500, "inducing failure");
        let (error, requests) = f.pass().await;
        let error = error.expect("an error");
        assert!(error.starts_with(start), "{error}");
        assert_eq!(sent(&requests, EVENTS)["message"], json!(error));
        if start.contains("create HPA") {
            let message = "Failed to create HorizontalPodAutoscaler \"hello\".";
            assert_eq!(written_condition(&requests, "Active"), ["False", "FailedCreate", message]);
            assert!(!lines(&requests).iter().any(|line| line.contains("serverlessservices")), "{requests:?}");
        } else {
            assert_eq!(lines(&requests), [line.as_str(), EVENTS], "no status is written");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cases_9_and_10_an_object_of_another_owner_is_not_changed() {
    let (sks_error, hpa_error) = (
        "error reconciling SKS: PA: hello does not own SKS: hello",
        "PodAutoscaler: \"hello\" does not own HPA: \"hello\"",
    );
    for (annotations, sks_owner, hpa_owner, kind, error) in [
        (&[][..], "theirs", "pa", "ServerlessService", sks_error),
        (&[("target", "1")], "pa", "theirs", "HorizontalPodAutoscaler", hpa_error),
    ] {
        let f = Fixture::settled(annotations, (sks_owner, "hello-deployment"), hpa_owner);
        let (outcome, requests) = f.pass().await;
        assert_eq!((outcome.as_deref(), &sent(&requests, EVENTS)["message"]), (Some(error), &json!(error)));
        let message = format!("There is an existing {kind} \"hello\" that we do not own.");
        assert_eq!(written_condition(&requests, "Active"), ["False", "NotOwned", &message]);
        assert!(!lines(&requests).iter().any(|line| line.contains(&kind.to_lowercase())), "{requests:?}");
    }
}

/// Creates objects that are settled, except that the HorizontalPodAutoscaler lacks the annotated target.
fn with_another_target() -> Fixture {
    Fixture::settled(&[("target", "1")], ("pa", "hello-deployment"), "pa")
}

/// Goal: the ServerlessService is corrected in the version that was read, and any version of the
/// HorizontalPodAutoscaler is replaced. The status still describes the former object.
#[tokio::test(start_paused = true)]
async fn cases_7_and_12_an_object_with_another_target_is_corrected() {
    let other_sks = Fixture::settled(&[], ("pa", "other"), "pa");
    let (sks, hpa) = (serverless(true, "pa", "hello-deployment"), horizontal("pa", 7, 7));
    let (name, percent) = ("/spec/objectRef/name", "/spec/metrics/0/resource/target/averageUtilization");
    for (f, put, stored, field, wanted, version) in [
        (other_sks, format!("PUT {SKSS}/hello"), sks, name, json!("hello-deployment"), json!("20")),
        (with_another_target(), format!("PUT {HPAS}/hello"), hpa, percent, json!(1), Value::Null),
    ] {
        f.mock.on(&put, 200, stored);
        let (error, requests) = f.pass().await;
        assert_eq!((error, lines(&requests)), (None, vec![put.as_str()]));
        let body = sent(&requests, &put);
        assert_eq!((body.pointer(field), &body["metadata"]["resourceVersion"]), (Some(&wanted), &version));
    }
}

#[tokio::test(start_paused = true)]
async fn cases_1_and_13_settled_and_deleted_objects_and_other_classes_are_not_written() {
    let settled = Fixture::settled(&[], ("pa", "hello-deployment"), "pa");
    assert_eq!(settled.pass().await, (None, vec![]));
    let mut deleted = autoscaler(&[], Value::Null);
    deleted["metadata"]["deletionTimestamp"] = json!("2023-11-14T22:00:00Z");
    let kpa = autoscaler(&[("class", "kpa.autoscaling.knative.dev")], Value::Null);
    let mut unclassed = autoscaler(&[], Value::Null);
    unclassed["metadata"]["annotations"] = json!({});
    for object in [deleted, kpa, unclassed] {
        assert_eq!(Fixture::new(object, None, None).pass().await, (None, vec![]));
    }
}

/// Goal: labels and annotations that were edited on either object are corrected, and those of other clients stay.
#[tokio::test(start_paused = true)]
async fn labels_and_annotations_of_the_serverless_service_are_corrected() {
    let mut object = autoscaler(&[("target", "1")], settled(0, 0));
    object["metadata"]["labels"] = json!({"app": "hello"});
    let mut drifted = serverless(true, "pa", "hello-deployment");
    drifted["metadata"]["annotations"] = json!({"autoscaling.knative.dev/target": "7", "example.com/note": "mine"});
    let f = Fixture::new(object, Some(drifted), Some(horizontal("pa", 0, 0)));
    let put = format!("PUT {SKSS}/hello");
    f.mock.on(&format!("PUT {HPAS}/hello"), 200, horizontal("pa", 0, 0));
    f.mock.on(&put, 200, serverless(true, "pa", "hello-deployment"));
    let (error, requests) = f.pass().await;
    assert_eq!(error, None);
    let meta = &sent(&requests, &put)["metadata"];
    assert_eq!((&meta["labels"]["app"], &meta["resourceVersion"]), (&json!("hello"), &json!("20")));
    assert_eq!(meta["annotations"]["autoscaling.knative.dev/target"], "1");
    assert_eq!(meta["annotations"]["example.com/note"], "mine", "an annotation of another client");
}

/// Goal: only the PodAutoscaler that controls the changed object is queued.
#[tokio::test(start_paused = true)]
async fn a_change_of_either_object_queues_its_owner() {
    let f = Fixture::new(autoscaler(&[], settled(0, 0)), None, None);
    drop(f.cx.queue.next().await);
    let other = Key::new("ns", "unrelated");
    let mut foreign = horizontal("x", 0, 0);
    foreign["metadata"]["ownerReferences"] = json!([]);
    f.cx.horizontals.apply(&other, "31", Some(serde_json::from_value(foreign).expect("an HPA")));
    assert_eq!(f.cx.queue.depth(), 0);
    f.cx.horizontals.apply(&f.key, "30", Some(serde_json::from_value(horizontal("pa", 0, 0)).expect("an HPA")));
    assert_eq!(*f.cx.queue.next().await.key(), f.key);
    let sks = serverless(true, "pa", "hello-deployment");
    f.cx.serverless.apply(&f.key, "20", Some(serde_json::from_value(sks).expect("a ServerlessService")));
    assert_eq!(*f.cx.queue.next().await.key(), f.key);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_failure_writes_no_status() {
    let (target, sks) = ("hello-deployment", |uid| Some(serverless(true, uid, "hello-deployment")));
    let failing = |f: Fixture, line: String| {
        f.mock.reject(&line, 500, "inducing failure");
        f
    };
    let new = |sks, horizontal| Fixture::new(autoscaler(&[], Value::Null), sks, horizontal);
    let edited = Fixture::new(autoscaler(&[("target", "1")], Value::Null), sks("pa"), Some(horizontal("pa", 0, 0)));
    for (case, f) in [
        ("the HPA cannot be created", failing(new(None, None), format!("POST {HPAS}"))),
        ("the HPA cannot be updated", failing(edited, format!("PUT {HPAS}/hello"))),
        ("an HPA of another owner", new(sks("pa"), Some(horizontal("theirs", 0, 0)))),
        ("the SKS cannot be created", failing(new(None, Some(horizontal("pa", 0, 0))), format!("POST {SKSS}"))),
        ("an SKS of another owner", new(sks("theirs"), Some(horizontal("pa", 0, 0)))),
        ("an SKS that is not ready", new(Some(serverless(false, "pa", target)), Some(horizontal("pa", 0, 0)))),
    ] {
        let (first, requests) = f.pass().await;
        let stored = sent(&requests, STATUS).clone();
        assert!(stored.is_object(), "{case}: {requests:?}");
        f.cx.autoscalers.apply(&f.key, "11", Some(serde_json::from_value(stored).expect("a PodAutoscaler")));
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_secs(15)).await;
            let (again, requests) = f.pass().await;
            assert_eq!((&again, sent(&requests, STATUS)), (&first, &Value::Null), "{case}: {requests:?}");
        }
    }
}
