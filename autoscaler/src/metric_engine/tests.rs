//! Tests of evaluations against an API server of canned responses, in paused time.

use super::*;
use crate::pods::PodIndex;
use crate::scale::fixture::ready_pod;
use crate::scale::{Chain, PodOwner, PodSet};
use autoscaler_core::engine::plan::plan;
use common::scaling::Bounds;
use common::time::Timestamp;
use hpa::fixture::Mock;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
/// Requests of each evaluation: the list of pods, and their usage.
pub(crate) const PODS: &str = "GET /api/v1/namespaces/ns/pods?&labelSelector=app%3Dhello&resourceVersion=0&\
                    resourceVersionMatch=NotOlderThan";
pub(crate) const USAGE: &str = "GET /apis/metrics.k8s.io/v1beta1/namespaces/ns/pods?labelSelector=app%3Dhello";

/// Returns a subject with this average CPU target.
fn subject(cpu: &str) -> Subject {
    let cpu = json!([{"type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": cpu}}}]);
    let behavior = json!({"scaleUp": {}, "scaleDown": {"stabilizationWindowSeconds": 0}});
    let metrics = serde_json::from_value(cpu).expect("metrics");
    let plan = plan(metrics, serde_json::from_value(behavior).expect("a behavior")).expect("valid").expect("a plan");
    Subject { plan: Arc::new(plan), selector: "app=hello".into() }
}

pub(crate) fn pods(count: usize) -> Value {
    let pod = |n| {
        json!({
            "metadata": {"name": format!("p{n}"), "namespace": "ns", "labels": {"app": "hello"}},
            "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}]},
            "status": {
                "phase": "Running", "startTime": "2023-11-14T21:00:00Z",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2023-11-14T21:00:00Z"}],
            },
        })
    };
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": (0..count).map(pod).collect::<Vec<_>>()})
}

/// Returns the pods' CPU usage in thousandths.
pub(crate) fn usage(cpu: &[u32]) -> Value {
    let item = |(n, cpu): (usize, &u32)| {
        json!({
            "metadata": {"name": format!("p{n}"), "namespace": "ns"}, "timestamp": "2023-11-14T22:13:20Z", "window": "1s",
            "containers": [{"name": "app", "usage": {"cpu": format!("{cpu}m"), "memory": "1Mi"}}],
        })
    };
    let items: Vec<_> = cpu.iter().enumerate().map(item).collect();
    json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items})
}

struct Fixture {
    engine: Engine,
    feed: Requests,
    mock: Mock,
    key: Key,
    behavior: Option<Behavior>,
    index: Arc<PodIndex>,
}

impl Fixture {
    fn new() -> Self {
        let (mock, feed) = (Mock::default(), Requests::new());
        let index = Arc::new(PodIndex::new(feed.clone()));
        let engine = Engine::new(mock.client(), Clock::starting_at(NOW), index.clone(), feed.clone());
        let behavior = subject("100m").plan.behavior.clone();
        Self { engine, feed, mock, key: Key::new("ns", "hello"), behavior, index }
    }

    fn blend(&self, current: i32, load: i32) -> BlendedScale {
        let input = Input {
            now: self.engine.sources.clock.now(),
            current,
            bounds: Bounds::default(),
            load: Some(load),
            load_name: "concurrency",
            measured: None,
            behavior: self.behavior.as_ref(),
        };
        self.engine.blend(&self.key, &input).expect("followed")
    }
}

/// Goal: an evaluation reads the usage of the pods and repeats after a period; a failed one removes no pods.
#[tokio::test(start_paused = true)]
async fn metrics_are_evaluated_every_period_and_failures_hold_the_scale() {
    let fixture = Fixture::new();
    fixture.mock.on(PODS, 200, pods(2)).on(USAGE, 200, usage(&[200, 300])).reject(USAGE, 500, "busy");
    fixture.engine.follow(&fixture.key, subject("100m"), 2);
    assert_eq!(fixture.blend(2, 1).desired, Some(2), "not evaluated yet");
    let start = tokio::time::Instant::now();
    assert_eq!(*fixture.feed.next().await.key(), fixture.key);
    let blended = fixture.blend(2, 1);
    assert_eq!((blended.desired, blended.asked, &*blended.metric), (Some(5), 5, "cpu resource"), "500m over 100m");
    assert_eq!(fixture.engine.failure(&fixture.key), None);

    fixture.feed.next().await;
    assert_eq!(start.elapsed(), PERIOD, "a period later");
    let blended = fixture.blend(5, 0);
    assert_eq!((blended.desired, blended.failing, blended.held), (Some(5), 1, true));
    let (reason, why) = fixture.engine.failure(&fixture.key).expect("a failure");
    assert!(reason == "FailedGetResourceMetric" && why.contains("busy"), "{reason}: {why}");
}

/// Goal: the usage of foreign pods does not count, although they have the same labels.
#[tokio::test(start_paused = true)]
async fn the_usage_of_foreign_pods_does_not_count() {
    let fixture = Fixture::new();
    fixture.mock.on(PODS, 200, pods(3)).on(USAGE, 200, usage(&[200, 300, 900]));
    let foreign = ready_pod(&[("app", "hello")]);
    let labels = foreign.labels.clone();
    fixture.index.begin_list();
    fixture.index.apply("ns", "p2", foreign);
    fixture.index.end_list();
    let owner = PodOwner { chain: Chain::ReplicaSets, name: "hello".into(), uid: "u".into() };
    fixture.index.track(&fixture.key, PodSet::Selector(labels), Some(owner));
    fixture.engine.follow(&fixture.key, subject("100m"), 2);
    fixture.feed.next().await; // The index reports the foreign pod.
    fixture.feed.next().await;
    assert_eq!(fixture.blend(2, 1).desired, Some(5), "500m over 100m");
}

/// Goal: a sleeping revision is not evaluated, and wakes by its load alone.
#[tokio::test(start_paused = true)]
async fn nothing_is_evaluated_without_replicas() {
    let fixture = Fixture::new();
    fixture.mock.on(PODS, 200, pods(1)).on(USAGE, 200, usage(&[10]));
    fixture.engine.follow(&fixture.key, subject("100m"), 1);
    fixture.feed.next().await;
    assert_eq!(fixture.blend(1, 0).desired, Some(0));
    fixture.engine.follow(&fixture.key, subject("100m"), 0);
    fixture.mock.request_lines();
    tokio::time::sleep(2 * PERIOD).await;
    assert_eq!(fixture.mock.request_lines(), [""; 0]);
    assert_eq!(fixture.blend(0, 3).desired, Some(3));
    fixture.engine.follow(&fixture.key, subject("100m"), 3);
    assert_eq!(fixture.blend(3, 0).desired, Some(3), "the measurement before the sleep does not count");
    fixture.engine.forget(&fixture.key);
    fixture.mock.request_lines();
    tokio::time::sleep(2 * PERIOD).await;
    assert_eq!(fixture.mock.request_lines(), [""; 0], "forgotten");
}

/// Goal: an edited plan restarts the evaluation, an equal one continues.
#[tokio::test(start_paused = true)]
async fn only_a_changed_subject_restarts_the_evaluation() {
    let fixture = Fixture::new();
    fixture.mock.on(PODS, 200, pods(1)).on(USAGE, 200, usage(&[10]));
    fixture.engine.follow(&fixture.key, subject("100m"), 1);
    fixture.feed.next().await;
    fixture.mock.request_lines();
    fixture.engine.follow(&fixture.key, subject("100m"), 1);
    tokio::time::sleep(PERIOD / 2).await;
    assert_eq!(fixture.mock.request_lines(), [""; 0]);
    fixture.engine.follow(&fixture.key, subject("50m"), 1);
    assert_eq!(fixture.blend(1, 0).desired, Some(1), "not evaluated yet");
    fixture.feed.next().await;
    assert_eq!(fixture.blend(1, 0).desired, Some(0));
}
