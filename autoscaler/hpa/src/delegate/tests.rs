//! Tests of whole reconciles against a mock API server.

use super::pass::reconcile;
use super::*;
use crate::fixture::{Mock, lines, sent};
use common::annotations;
use common::time::Timestamp;
use common_runtime::lease::WriteGuard;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::time::Duration;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const HPAS: &str = "/apis/autoscaling/v2/namespaces/ns/horizontalpodautoscalers";
const SKSS: &str = "/apis/networking.internal.knative.dev/v1alpha1/namespaces/ns/serverlessservices";
const STATUS: &str = "PUT /apis/autoscaling.internal.knative.dev/v1alpha1/namespaces/ns/podautoscalers/hello/status";
const EVENTS: &str = "POST /api/v1/namespaces/ns/events?";

/// Leadership of everything.
struct All;

impl Leadership for All {
    fn owns(&self, _: &Key) -> bool {
        true
    }
    fn begin_write(&self, _: &Key) -> Option<WriteGuard> {
        Some(WriteGuard::unbounded())
    }
}

struct Fixture {
    mock: Mock,
    cx: Context,
    key: Key,
    _config: watch::Sender<Arc<AutoscalerConfig>>,
}

/// Returns a PodAutoscaler of class HPA with those annotations and a settled status.
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
        "desiredScale": desired, "actualScale": actual,
        "conditions": all,
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
            leadership: Arc::new(All),
            listed: CancellationToken::new(),
            config,
            clock: Clock::starting_at(NOW),
        };
        let (cx, key) = (Context::new(wiring), Key::new("ns", "hello"));
        mock.on(STATUS, 200, autoscaler.clone()).on(EVENTS, 201, json!({}));
        cx.autoscalers.apply(&key, "10", Some(serde_json::from_value(autoscaler).expect("a PodAutoscaler")));
        if let Some(mut object) = serverless {
            // It was created with the PodAutoscaler's annotations, except the metric.
            let mut annotations = cx.autoscalers.get(&key).expect("there").annotations().clone();
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
async fn case_1_what_is_as_it_should_be_is_left_alone() {
    let f = Fixture::settled(&[], ("pa", "hello-deployment"), "pa");
    assert_eq!(f.pass().await, (None, vec![]));
}

#[tokio::test(start_paused = true)]
async fn case_2_both_objects_are_made() {
    let f = Fixture::new(autoscaler(&[], Value::Null), None, None);
    f.mock.on(&format!("POST {HPAS}"), 201, {
        let mut created = horizontal("pa", 0, 0);
        created["status"] = json!({"desiredReplicas": 0, "currentMetrics": null});
        created
    });
    f.mock.on(&format!("POST {SKSS}"), 201, {
        let mut created = serverless(false, "pa", "hello-deployment");
        created["status"] = Value::Null;
        created
    });
    let (error, requests) = f.pass().await;
    assert_eq!(error, None);
    assert_eq!(lines(&requests), [format!("POST {HPAS}").as_str(), &format!("POST {SKSS}"), STATUS]);
    let sks = &requests[1].1;
    assert_eq!((&sks["spec"]["mode"], &sks["spec"]["numActivators"]), (&json!("Serve"), &Value::Null), "all of them");
    assert_eq!(written_condition(&requests, "Active"), ["True", "", ""]);
    assert_eq!(written_condition(&requests, "SKSReady"), ["Unknown", "NotReady", "SKS Services are not ready yet"]);
    assert_eq!(written_condition(&requests, "ScaleTargetInitialized")[0], "Unknown");
    assert_eq!(scales(&requests), (json!(0), json!(0)));
    let status = &sent(&requests, STATUS)["status"];
    assert_eq!((&status["serviceName"], &status["metricsServiceName"]), (&json!(""), &json!("")));
}

/// Rows: (ready, desired, current) -> (SKSReady, ScaleTargetInitialized); names are copied in each.
#[tokio::test(start_paused = true)]
async fn cases_3_to_6_the_status_says_what_both_objects_say() {
    for (case, ready, (desired, current), sks, initialized) in [
        (3, false, (0, 0), "Unknown", "Unknown"),
        (4, true, (0, 0), "True", "Unknown"),
        (5, true, (1, 1), "True", "True"),
        (6, true, (5, 3), "True", "True"),
    ] {
        let f = Fixture::new(
            autoscaler(&[], Value::Null),
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
    let f = Fixture::new(
        autoscaler(&[("initial-scale", "3")], Value::Null),
        Some(serverless(true, "pa", "hello-deployment")),
        Some(horizontal("pa", 3, 2)),
    );
    let (_, requests) = f.pass().await;
    let [initialized, ..] = written_condition(&requests, "ScaleTargetInitialized");
    assert_eq!(initialized, "Unknown", "two of an initial scale of three");
}

#[tokio::test(start_paused = true)]
async fn case_7_a_serverless_service_for_another_target_is_put_right() {
    let f = Fixture::settled(&[], ("pa", "other"), "pa");
    let put = format!("PUT {SKSS}/hello");
    f.mock.on(&put, 200, serverless(true, "pa", "hello-deployment"));
    let (error, requests) = f.pass().await;
    assert_eq!((error, lines(&requests)), (None, vec![put.as_str()]));
    assert_eq!(sent(&requests, &put)["spec"]["objectRef"]["name"], "hello-deployment");
}

#[tokio::test(start_paused = true)]
async fn case_8_a_serverless_service_that_cannot_be_written_is_told_in_an_event() {
    for (have, line) in [(None, format!("POST {SKSS}")), (Some("other"), format!("PUT {SKSS}/hello"))] {
        let sks = have.map(|target| serverless(true, "pa", target));
        let f = Fixture::new(autoscaler(&[], settled(0, 0)), sks, Some(horizontal("pa", 0, 0)));
        f.mock.refuses(&line, 500, "inducing failure");
        let (error, requests) = f.pass().await;
        assert_eq!(lines(&requests), [line.as_str(), EVENTS], "the status stays as it is");
        assert!(error.is_some_and(|error| error.starts_with("error reconciling SKS: error ")));
        let message = sent(&requests, EVENTS)["message"].as_str().unwrap_or_default();
        assert!(message.starts_with("error reconciling SKS: "), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn case_9_somebody_elses_serverless_service_is_left_alone() {
    let f = Fixture::settled(&[], ("theirs", "hello-deployment"), "pa");
    let (error, requests) = f.pass().await;
    assert_eq!(error.as_deref(), Some("error reconciling SKS: PA: hello does not own SKS: hello"));
    let message = "There is an existing ServerlessService \"hello\" that we do not own.";
    assert_eq!(written_condition(&requests, "Active"), ["False", "NotOwned", message]);
    assert_eq!(lines(&requests).iter().filter(|line| line.contains("serverlessservices")).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn case_10_somebody_elses_horizontal_pod_autoscaler_is_left_alone() {
    let f = Fixture::settled(&[("target", "1")], ("pa", "hello-deployment"), "theirs");
    let (error, requests) = f.pass().await;
    let message = "There is an existing HorizontalPodAutoscaler \"hello\" that we do not own.";
    assert_eq!(written_condition(&requests, "Active"), ["False", "NotOwned", message]);
    let refusal = "PodAutoscaler: \"hello\" does not own HPA: \"hello\"";
    assert_eq!((error.as_deref(), &sent(&requests, EVENTS)["message"]), (Some(refusal), &json!(refusal)));
    assert_eq!(lines(&requests).iter().filter(|line| line.contains("horizontal")).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn case_11_what_cannot_be_made_is_told_and_nothing_else_is_touched() {
    let f = Fixture::new(autoscaler(&[], Value::Null), None, None);
    f.mock.refuses(&format!("POST {HPAS}"), 500, "inducing failure");
    let (error, requests) = f.pass().await;
    assert!(error.is_some_and(|error| error.starts_with("failed to create HPA: ")));
    let message = "Failed to create HorizontalPodAutoscaler \"hello\".";
    assert_eq!(written_condition(&requests, "Active"), ["False", "FailedCreate", message]);
    assert!(!lines(&requests).iter().any(|line| line.contains("serverlessservices")), "{requests:?}");
    assert!(sent(&requests, EVENTS)["message"].as_str().is_some_and(|text| text.starts_with("failed to create HPA: ")));
}

#[tokio::test(start_paused = true)]
async fn case_12_a_changed_target_replaces_the_object() {
    let put = format!("PUT {HPAS}/hello");
    let fixture = || Fixture::settled(&[("target", "1")], ("pa", "hello-deployment"), "pa");
    let f = fixture();
    f.mock.on(&put, 200, horizontal("pa", 7, 7));
    let (error, requests) = f.pass().await;
    assert_eq!((error, lines(&requests)), (None, vec![put.as_str()]), "the status is that of the object before");
    let body = sent(&requests, &put);
    assert_eq!(body["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 1);
    assert_eq!(body["metadata"]["resourceVersion"], Value::Null, "whatever is there");
    let f = fixture();
    f.mock.refuses(&put, 500, "inducing failure");
    let (error, requests) = f.pass().await;
    assert!(error.is_some_and(|error| error.starts_with("failed to update HPA: ")));
    assert!(sent(&requests, EVENTS)["message"].as_str().is_some_and(|text| text.starts_with("failed to update HPA: ")));
}

#[tokio::test(start_paused = true)]
async fn case_13_what_is_on_its_way_out_or_of_another_class_is_left_alone() {
    let mut leaving = autoscaler(&[], Value::Null);
    leaving["metadata"]["deletionTimestamp"] = json!("2023-11-14T22:00:00Z");
    let kpa = autoscaler(&[("class", "kpa.autoscaling.knative.dev")], Value::Null);
    let mut unclassed = autoscaler(&[], Value::Null);
    unclassed["metadata"]["annotations"] = json!({});
    for object in [leaving, kpa, unclassed] {
        assert_eq!(Fixture::new(object, None, None).pass().await, (None, vec![]));
    }
}

/// Goal: edited or drifted settings reach the ServerlessService.
#[tokio::test(start_paused = true)]
async fn labels_and_annotations_of_the_serverless_service_follow() {
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
    assert_eq!(meta["annotations"]["example.com/note"], "mine", "others may add their own");
}

/// Goal: a change of either object queues the PodAutoscaler that controls it, and no other.
#[tokio::test(start_paused = true)]
async fn events_of_both_objects_wake_their_owner() {
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

/// Goal: a reconcile that fails like the previous one writes no status.
#[tokio::test(start_paused = true)]
async fn a_pass_that_fails_as_the_one_before_writes_no_status() {
    let (target, sks) = ("hello-deployment", |uid| Some(serverless(true, uid, "hello-deployment")));
    let refusing = |f: Fixture, line: String| {
        f.mock.refuses(&line, 500, "inducing failure");
        f
    };
    let new = |sks, horizontal| Fixture::new(autoscaler(&[], Value::Null), sks, horizontal);
    let edited = Fixture::new(autoscaler(&[("target", "1")], Value::Null), sks("pa"), Some(horizontal("pa", 0, 0)));
    for (case, f) in [
        ("no HPA can be made", refusing(new(None, None), format!("POST {HPAS}"))),
        ("the HPA cannot be put right", refusing(edited, format!("PUT {HPAS}/hello"))),
        ("somebody else's HPA", new(sks("pa"), Some(horizontal("theirs", 0, 0)))),
        ("no SKS can be made", refusing(new(None, Some(horizontal("pa", 0, 0))), format!("POST {SKSS}"))),
        ("somebody else's SKS", new(sks("theirs"), Some(horizontal("pa", 0, 0)))),
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
