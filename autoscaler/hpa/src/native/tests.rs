//! Tests of the controller against a mock API server, in paused time.

use super::controller::CachedObject;
use super::*;
use crate::fixture::{Mock, lines, scale, sent, with_apps};
use crate::pods::parse_pod;
use common::RevisionKey as Key;
use common::time::Timestamp;
use common_runtime::lease::WriteGuard;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
pub(super) const GET: &str = "GET /apis/apps/v1/namespaces/shop/deployments/web/scale";
pub(super) const PUT: &str = "PUT /apis/apps/v1/namespaces/shop/deployments/web/scale";
pub(super) const STATUS: &str = "PUT /apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web/status\
                      ?&fieldManager=zeroscale-hpa";
const USAGE: &str = "GET /apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=app%3Dweb";
pub(super) const EVENTS: &str = "POST /api/v1/namespaces/shop/events?";

/// Leadership that a test changes.
struct Lease {
    owns: AtomicBool,
    writes: AtomicBool,
    changed: watch::Sender<u64>,
}

impl Lease {
    fn is_ours(&self, ours: bool) {
        self.owns.store(ours, Ordering::Relaxed);
        self.changed.send_modify(|version| *version += 1);
    }
}

impl Leadership for Lease {
    fn owns(&self, _: &Key) -> bool {
        self.owns.load(Ordering::Relaxed)
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
    fn begin_write(&self, _: &Key) -> Option<WriteGuard> {
        self.writes.load(Ordering::Relaxed).then(WriteGuard::unbounded)
    }
}

pub(super) struct Fixture {
    pub(super) mock: Mock,
    lease: Arc<Lease>,
    metrics: Metrics,
    pub(super) explanations: Arc<Explanations>,
    controller: Arc<Controller>,
    shutdown: CancellationToken,
}

impl Fixture {
    pub(super) fn new(workers: usize) -> Self {
        let (mock, shutdown) = (Mock::default(), CancellationToken::new());
        with_apps(&mock);
        let lease = Arc::new(Lease { owns: true.into(), writes: true.into(), changed: watch::Sender::new(0) });
        let (metrics, explanations) = (Metrics::default(), Arc::<Explanations>::default());
        let wiring = Wiring {
            client: mock.client(),
            options: ControllerOptions {
                concurrent_syncs: workers.try_into().expect("workers"),
                ..ControllerOptions::default()
            },
            leadership: lease.clone(),
            listed: CancellationToken::new(),
            metrics: metrics.clone(),
            explanations: explanations.clone(),
            clock: Clock::starting_at(NOW),
        };
        let controller = Arc::new(Controller::new(wiring));
        tokio::spawn(follow_leadership(controller.clone(), shutdown.clone()));
        for _ in 0..workers {
            tokio::spawn(work(controller.clone(), shutdown.clone()));
        }
        Self { mock, lease, metrics, explanations, controller, shutdown }
    }

    /// Sets the ready pods of the Deployment, with the cpu that each uses of 1000m. Equal pods of another namespace
    /// must not count.
    fn using(&self, usage: &[&str]) -> &Self {
        for (i, namespace) in (0..usage.len()).flat_map(|i| [(i, "shop"), (i, "elsewhere")]) {
            let pod = pod(i, namespace);
            self.controller.pods.apply(&common_controller::key_of(&pod), "1", Some(parse_pod(&pod)));
        }
        let item = |(i, usage): (usize, &&str)| {
            json!({"metadata": {"name": format!("p{i}")}, "timestamp": "2023-11-14T22:13:20Z", "window": "30s",
                   "containers": [{"name": "app", "usage": {"cpu": usage}}]})
        };
        let items: Vec<_> = usage.iter().enumerate().map(item).collect();
        self.mock.replace(USAGE, 200, json!({"items": items}));
        self
    }

    pub(super) fn put(&self, object: Value) {
        let object = serde_json::from_value(object).expect("an object");
        let key = common_controller::key_of::<k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler>(&object);
        let version = object.metadata.resource_version.clone().unwrap_or_default();
        self.controller.objects.apply(&key, &version, Some(CachedObject::new(object)));
    }

    fn remove(&self) {
        self.controller.objects.apply(&Key::new("shop", "web"), "", None);
    }

    /// Lets time pass. Returns the requests that were sent.
    pub(super) async fn after(&self, seconds: u64) -> Vec<(String, Value)> {
        tokio::time::sleep(Duration::from_secs(seconds) + Duration::from_millis(1)).await;
        self.mock.requests()
    }

    fn series(&self) -> String {
        self.metrics.encode().expect("text")
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn pod(i: usize, namespace: &str) -> k8s_openapi::api::core::v1::Pod {
    serde_json::from_value(json!({
        "metadata": {"name": format!("p{i}"), "namespace": namespace, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {
            "phase": "Running", "startTime": "2023-11-14T20:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2023-11-14T20:00:05Z"}],
        },
    }))
    .expect("a pod")
}

pub(super) fn web() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "a", "resourceVersion": "10", "managedFields": []},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 6,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 30},
            }}],
        },
    })
}

/// Returns the object after another manager has written its status at this time of the day.
fn foreign_web(time: &str) -> Value {
    let mut object = web();
    object["metadata"]["managedFields"] = json!([{
        "manager": "kube-controller-manager", "operation": "Update", "subresource": "status",
        "time": format!("2023-11-14T{time}Z"), "apiVersion": "autoscaling/v2",
    }]);
    object
}

/// Returns the API server's response to a status write: the object with a newer version.
pub(super) fn stored(version: &str, status: Value) -> Value {
    with_status(web(), version, status)
}

fn with_status(mut object: Value, version: &str, status: Value) -> Value {
    object["apiVersion"] = json!("autoscaling/v2");
    object["kind"] = json!("HorizontalPodAutoscaler");
    object["metadata"]["resourceVersion"] = json!(version);
    object["status"] = status;
    object
}

fn newer(mut object: Value, version: &str) -> Value {
    object["metadata"]["resourceVersion"] = json!(version);
    object
}

fn reasons(status: &Value) -> Vec<&str> {
    status["conditions"].as_array().into_iter().flatten().filter_map(|c| c["reason"].as_str()).collect()
}

/// Goal: a reconcile sends the expected requests in order, with the expected content, and reports them.
#[tokio::test(start_paused = true)]
async fn a_busy_object_is_scaled() {
    let f = Fixture::new(1);
    f.using(&["300m", "500m", "700m"]).mock.on(GET, 200, scale(3)).on(PUT, 200, scale(5));
    f.mock.on(STATUS, 200, stored("11", json!({"desiredReplicas": 5}))).on(EVENTS, 201, json!({}));
    f.put(web());
    assert_eq!(f.after(14).await, [], "not before the first period ends");
    let requests = f.after(1).await;
    let expected = ["GET /apis/apps", "GET /apis/apps/v1", GET, USAGE, PUT, STATUS];
    assert_eq!(lines(&requests)[..6], expected);
    assert_eq!(sent(&requests, PUT)["spec"]["replicas"], 5);
    let body = sent(&requests, STATUS);
    assert_eq!((&body["metadata"]["resourceVersion"], &body["spec"]["maxReplicas"]), (&json!("10"), &json!(6)));
    let status = &body["status"];
    assert_eq!((&status["currentReplicas"], &status["desiredReplicas"]), (&json!(3), &json!(5)));
    assert_eq!(status["lastScaleTime"], "2023-11-14T22:13:35Z");
    let current = &status["currentMetrics"][0]["resource"]["current"];
    assert_eq!(current, &json!({"averageUtilization": 50, "averageValue": "500m"}));
    assert_eq!(reasons(status), ["SucceededRescale", "ValidMetricFound", "DesiredWithinRange"]);
    let event = sent(&requests, EVENTS);
    assert_eq!((&event["reason"], &event["type"]), (&json!("SuccessfulRescale"), &json!("Normal")));
    assert_eq!(event["source"]["component"], "horizontal-pod-autoscaler");
    assert_eq!(event["involvedObject"]["kind"], "HorizontalPodAutoscaler");
    let series = f.series();
    for line in [
        "horizontal_pod_autoscaler_controller_reconciliations_total{action=\"scale_up\",error=\"none\"} 1",
        "horizontal_pod_autoscaler_controller_metric_computation_total{action=\"scale_up\",error=\"none\",metric_type=\"Resource\"} 1",
        "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds_count{action=\"scale_up\",error=\"none\"} 1",
        "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds_bucket{le=\"16.384\"",
        "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers 1",
        "horizontal_pod_autoscaler_controller_desired_replicas{namespace=\"shop\",hpa_name=\"web\"} 5",
    ] {
        assert!(series.contains(line), "{line}: {series}");
    }
    let document = f.explanations.document(&Key::new("shop", "web")).expect("explained");
    assert_eq!((&document["metrics"][0]["proposed"], &document["replicas"]), (&json!(5), &json!(3)));

    f.remove();
    let series = f.series();
    assert!(series.contains("num_horizontal_pod_autoscalers 0") && !series.contains("hpa_name=\"web\""), "{series}");
    assert_eq!(f.explanations.document(&Key::new("shop", "web")), None);
    assert_eq!(f.after(60).await, [], "a deleted object is not reconciled");
}

/// Goal: each period has one reconcile. Edits do not bring it forward, errors do not delay it, and an unchanged status
/// is not written.
#[tokio::test(start_paused = true)]
async fn reconciles_keep_their_period() {
    let f = Fixture::new(2);
    let start = Instant::now();
    f.using(&["300m", "300m"]).mock.on(GET, 200, scale(2));
    f.put(web());
    let first = f.after(15).await;
    // The API server stores what it was sent.
    f.mock.on(STATUS, 200, stored("11", sent(&first, STATUS)["status"].clone()));
    f.put(stored("11", sent(&first, STATUS)["status"].clone()));
    assert_eq!(lines(&f.after(14).await), [""; 0], "an edit does not bring it forward");
    let second = f.after(1).await;
    assert_eq!(lines(&second)[..2], [GET, USAGE]);
    assert_eq!(sent(&second, STATUS), &Value::Null, "an unchanged status: {second:?}");
    f.mock.reject(GET, 500, "no");
    let mut times = Vec::new();
    while times.len() < 5 {
        if !f.after(1).await.is_empty() {
            times.push(start.elapsed().as_secs());
        }
    }
    assert_eq!(times, [45, 60, 75, 90, 105], "errors do not change the period");
}

/// Goal: a rejected status write is reported by an event and not retried, and the change of the scale stays.
#[tokio::test(start_paused = true)]
async fn a_rejected_status_write_is_reported() {
    let f = Fixture::new(1);
    f.using(&["600m", "600m"]).mock.on(GET, 200, scale(2)).on(PUT, 200, scale(4)).reject(STATUS, 409, "modified");
    f.mock.on(EVENTS, 201, json!({}));
    f.put(web());
    let requests = f.after(15).await;
    assert_eq!(lines(&requests).iter().filter(|line| **line == STATUS).count(), 1);
    let events: Vec<_> = requests.iter().filter(|(line, _)| line == EVENTS).map(|(_, body)| body).collect();
    assert_eq!(events[1]["reason"], "FailedUpdateStatus");
    assert_eq!(events[1]["message"], "modified");
    let document = f.explanations.document(&Key::new("shop", "web")).expect("explained");
    assert_eq!(document["error"], "failed to update status for web: modified");
    assert!(f.series().contains("reconciliations_total{action=\"scale_up\",error=\"internal\"} 1"));
}

/// Goal: two controllers never act on one object, and this is reported once. This controller resumes when the other one
/// has been silent for a minute.
#[tokio::test(start_paused = true)]
async fn nothing_is_done_while_another_manager_writes_the_status() {
    let f = Fixture::new(1);
    f.using(&["300m", "300m"]).mock.on(GET, 200, scale(2)).on(STATUS, 200, stored("12", json!({"desiredReplicas": 2})));
    f.put(foreign_web("22:13:20"));
    assert_eq!(f.after(50).await, []);
    let gauge = "zeroscale_hpa_foreign_manager{namespace=\"shop\",hpa_name=\"web\"} 1";
    assert!(f.series().contains(gauge), "{}", f.series());
    let document = f.explanations.document(&Key::new("shop", "web")).expect("explained");
    let why = "this controller leaves the object alone, because another manager writes its status";
    assert_eq!(document["error"], format!("{why}: kube-controller-manager"));
    assert_eq!(document["history"].as_array().map(Vec::len), Some(1), "reported once");
    let requests = f.after(11).await;
    assert!(lines(&requests).contains(&GET), "after a minute: {requests:?}");
    assert!(!f.series().contains("hpa_foreign_manager{"));
}

/// Goal: a process that does not lead does nothing, and a leader does not write if its lease may end before the
/// response.
#[tokio::test(start_paused = true)]
async fn only_the_leader_acts_and_only_while_its_lease_lasts() {
    let f = Fixture::new(1);
    f.using(&["600m", "600m"]).mock.on(GET, 200, scale(2)).on(EVENTS, 201, json!({}));
    f.lease.owns.store(false, Ordering::Relaxed);
    f.put(web());
    assert_eq!(f.after(31).await, []);
    f.lease.owns.store(true, Ordering::Relaxed);
    f.lease.writes.store(false, Ordering::Relaxed);
    let requests = f.after(15).await;
    assert!(lines(&requests).contains(&USAGE), "{requests:?}");
    assert!(!lines(&requests).iter().any(|line| line.starts_with("PUT")), "{requests:?}");
    let event_reasons: Vec<_> =
        requests.iter().filter(|(line, _)| line == EVENTS).map(|(_, body)| &body["reason"]).collect();
    assert_eq!(event_reasons, ["FailedRescale", "FailedUpdateStatus"]);
}

/// Goal: after another controller has acted on an object, old recommendations do not prevent the stabilization of the
/// first reconcile. Method: five idle replicas, led here again after ten minutes, which is twice the window.
#[tokio::test(start_paused = true)]
async fn recommendations_are_dropped_while_another_controller_acts() {
    type Change = fn(&Fixture);
    let rows: [(&str, Change, Change); 2] = [
        ("lease", |f| f.lease.is_ours(false), |f| f.lease.is_ours(true)),
        ("manager", |f| f.put(newer(foreign_web("22:23:00"), "20")), |f| f.put(newer(web(), "30"))),
    ];
    for (row, lose, regain) in rows {
        let f = Fixture::new(1);
        f.using(&["300m"; 5]).mock.on(GET, 200, scale(5)).on(PUT, 200, scale(2));
        f.put(web());
        assert!(lines(&f.after(15).await).contains(&USAGE), "{row}");
        lose(&f);
        assert_eq!(f.after(600).await, [], "{row}: another controller acts");
        f.using(&["60m"; 5]);
        regain(&f);
        let requests = f.after(15).await;
        let status = &sent(&requests, STATUS)["status"];
        assert_eq!((reasons(status)[0], &status["desiredReplicas"]), ("ScaleDownStabilized", &json!(5)), "{row}");
        assert_eq!(sent(&requests, PUT), &Value::Null, "{row}");
    }
}

/// Goal: the earlier selector of an object that another manager acts on blocks no other object.
#[tokio::test(start_paused = true)]
async fn the_selector_is_dropped_while_another_manager_acts() {
    let f = Fixture::new(1);
    f.using(&["300m", "300m"]).mock.on(GET, 200, scale(2)).on(EVENTS, 201, json!({}));
    f.put(web());
    let mut other = web();
    other["metadata"]["name"] = json!("other");
    f.put(other);
    let line = STATUS.replace("/web/", "/other/");
    f.after(15).await;
    let requests = f.after(15).await;
    assert!(reasons(&sent(&requests, &line)["status"]).contains(&"AmbiguousSelector"), "{requests:?}");
    f.put(newer(foreign_web("22:23:00"), "20"));
    f.after(15).await;
    let requests = f.after(15).await;
    assert!(reasons(&sent(&requests, &line)["status"]).contains(&"ValidMetricFound"), "{requests:?}");
}

/// Goal: a process that loses the lead ends all metrics and explanations at once. A blocked controller reports only
/// that it is blocked.
#[tokio::test(start_paused = true)]
async fn metrics_and_explanations_of_an_object_end_with_the_lease() {
    let (f, key) = (Fixture::new(1), Key::new("shop", "web"));
    f.using(&["300m", "300m"]).mock.on(GET, 200, scale(2)).on(STATUS, 200, stored("11", json!({"desiredReplicas": 2})));
    let (desired, foreign) = ("desired_replicas{namespace=\"shop\",", "foreign_manager{namespace=\"shop\",");
    let reported = || {
        let series = f.series();
        (series.contains(desired), series.contains(foreign), f.explanations.document(&key).is_some())
    };
    f.put(web());
    f.after(15).await;
    assert_eq!(reported(), (true, false, true));
    f.lease.is_ours(false);
    f.after(0).await;
    assert_eq!(reported(), (false, false, false));
    f.lease.is_ours(true);
    f.after(15).await;
    assert_eq!(reported(), (true, false, true), "led again");
    f.put(newer(foreign_web("22:23:00"), "20"));
    f.after(15).await;
    assert_eq!(reported(), (false, true, true), "blocked by another manager");
    f.lease.is_ours(false);
    f.after(0).await;
    assert_eq!(reported(), (false, false, false), "led by another process");
    f.lease.is_ours(true);
    f.after(15).await;
    assert_eq!(reported(), (false, true, true), "still blocked, and reported again");
}

#[tokio::test(start_paused = true)]
async fn events_of_reconciles_in_flight_at_shutdown_are_written() {
    let f = Fixture::new(1);
    f.using(&["600m", "600m"]).mock.on(GET, 200, scale(2)).on(PUT, 200, scale(4)).on(EVENTS, 201, json!({}));
    f.put(web());
    f.shutdown.cancel();
    assert_eq!(f.after(60).await, [], "no worker is left");
    f.controller.reconcile(&Key::new("shop", "web")).await;
    let requests = f.after(0).await;
    assert_eq!(sent(&requests, EVENTS)["reason"], "SuccessfulRescale", "{requests:?}");
}

/// Goal: recommendations are kept between reconciles, but not for a new object of the same name.
#[tokio::test(start_paused = true)]
async fn an_object_that_is_created_again_starts_without_recommendations() {
    let f = Fixture::new(1);
    f.using(&["300m"; 5]).mock.on(GET, 200, scale(5)).on(PUT, 200, scale(2));
    f.put(web());
    f.after(15).await;
    f.using(&["60m"; 5]);
    let held = f.after(15).await;
    assert_eq!(sent(&held, PUT), &Value::Null, "five were recommended a moment ago: {held:?}");

    f.remove();
    let mut again = web();
    again["metadata"]["uid"] = json!("b");
    f.mock.replace(GET, 200, scale(3));
    f.put(again);
    let requests = f.after(15).await;
    let reason = reasons(&sent(&requests, STATUS)["status"])[0].to_owned();
    let desired = &sent(&requests, STATUS)["status"]["desiredReplicas"];
    let expected = ("ScaleDownStabilized", &json!(3));
    assert_eq!((reason.as_str(), desired), expected, "seeded with the present scale: {requests:?}");
}

/// Goal: five workers evaluate a thousand objects in one period.
#[tokio::test(start_paused = true)]
async fn a_thousand_objects_are_evaluated_each_period() {
    let f = Fixture::new(5);
    f.using(&["300m", "300m"]).mock.on(GET, 200, scale(2));
    for i in 0..1000 {
        let mut object = web();
        object["metadata"]["name"] = json!(format!("web-{i}"));
        f.put(object);
    }
    let requests = f.after(15).await;
    assert_eq!(lines(&requests).iter().filter(|line| **line == GET).count(), 1000);
    assert!(f.series().contains("num_horizontal_pod_autoscalers 1000"));
    f.controller.objects.apply(&Key::new("shop", "web-7"), "", None);
    assert!(f.series().contains("num_horizontal_pod_autoscalers 999"));
}

/// Goal: once the API server has stored the status of a failure in its own form, the same failure writes no status. The
/// exception is a rejected write of the scale: `AbleToScale` was True in between and its time changes, as upstream's
/// does. Method: each way in which a reconcile can fail, with the reason in its status.
#[tokio::test(start_paused = true)]
async fn a_repeated_failure_writes_no_status() {
    type Break = fn(&Fixture, &mut Value);
    let rows: [(&str, Break); 5] = [
        ("FailedGetScale", |f, _| {
            f.mock.reject(GET, 404, "deployments.apps \"web\" not found");
        }),
        ("FailedGetScale", |_, object| object["spec"]["scaleTargetRef"]["kind"] = json!("Widget")),
        ("InvalidSelector", |f, _| {
            let mut unselective = scale(2);
            unselective["status"]["selector"] = json!("");
            f.mock.on(GET, 200, unselective);
        }),
        ("FailedGetResourceMetric", |f, _| {
            f.mock.on(GET, 200, scale(2)).replace(USAGE, 503, json!(""));
        }),
        ("FailedUpdateScale", |f, _| {
            f.mock.on(GET, 200, scale(2)).reject(PUT, 403, "exceeded quota");
        }),
    ];
    for (row, (reason, fail)) in rows.into_iter().enumerate() {
        let f = Fixture::new(1);
        f.using(&["600m", "600m"]).mock.on(EVENTS, 201, json!({}));
        let mut object = web();
        fail(&f, &mut object);
        f.mock.on(STATUS, 200, object.clone());
        f.put(object.clone());
        let first = f.after(15).await;
        let status = sent(&first, STATUS)["status"].clone();
        assert!(reasons(&status).contains(&reason), "row {row}: {first:?}");
        let object = with_status(object, "11", status);
        f.mock.replace(STATUS, 200, object.clone());
        f.put(object.clone());
        for turn in 0..3 {
            let requests = f.after(15).await;
            let writes = !sent(&requests, STATUS).is_null();
            assert_eq!(writes, reason == "FailedUpdateScale", "row {row}, turn {turn}: {requests:?}");
            assert!(sent(&requests, EVENTS).is_null(), "row {row}, turn {turn}: repeated event: {requests:?}");
        }
        let mut other = newer(object, "12");
        other["status"]["conditions"][0]["message"] = json!("another message");
        f.put(other);
        let requests = f.after(15).await;
        assert!(!sent(&requests, STATUS).is_null(), "row {row}, another message: {requests:?}");
    }
}
