//! PodAutoscalers that ask for metrics: class HPA, and class KPA with `zeroscale.dev/metrics`.

use super::fixture::{Fixture, USAGE, assert_condition, condition};
use super::kpa_standalone::{acted, autoscaler, pass, patched, put_status, settled, status};
use autoscaler_core::history::Cause;
use autoscaler_core::scale_to_zero::Reason;
use serde_json::{Value, json};

const CLASS: &str = "autoscaling.knative.dev/class";
const HPA: &str = "hpa.autoscaling.knative.dev";
const CPU: &str = "- {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}";

fn combined() -> Value {
    json!({"zeroscale.dev/metrics": CPU, "zeroscale.dev/behavior": "scaleDown: {stabilizationWindowSeconds: 0}"})
}

/// One that runs, and whose pods were looked at once.
async fn looked_at(annotations: Value, replicas: i32, cpu: &[u32]) -> Fixture {
    let mut f = Fixture::standalone();
    settled(&f, annotations, status("True", "", 600, replicas, replicas), replicas);
    f.ready(replicas);
    f.pods_use(cpu);
    f.decides(Some(1), -1);
    pass(&mut f, vec![]).await.expect("not looked at yet, so nothing goes");
    let request = f.cx.ports.requests.next().await;
    assert_eq!(*request.key(), f.key, "looked at");
    f
}

/// Goal: with load and processor time the largest answer is patched, and the history names it.
#[tokio::test]
async fn a_metric_that_asks_for_more_than_the_load_wins() {
    let mut f = looked_at(combined(), 2, &[150, 150]).await; // 150 % of the request, 50 % aimed for.
    let script = vec![patched(6), put_status().with(|body| assert_eq!(body["status"]["desiredScale"], 6))];
    pass(&mut f, script).await.expect("a pass");
    assert_eq!(acted(&f), (Some(6), true, Cause::Rule(Reason::Metrics)));
    let blended = f.fakes.blended.lock().clone().expect("told");
    assert_eq!((&*blended.metric, blended.asked), ("cpu resource utilization (percentage of request)", 6));

    f.decides(Some(9), -1);
    pass(&mut f, vec![]).await.expect("four were added a moment ago, and no more may be");
    assert_eq!(acted(&f).0, Some(6));
    assert_eq!(f.fakes.blended.lock().clone().map(|b| b.metric.to_string()).as_deref(), Some("concurrency"));
}

/// Goal: a metric that is there but fails keeps what there is, down to the last pod, says so, and keeps nobody asleep.
#[tokio::test]
async fn a_failing_metric_blocks_down_and_zero_but_not_up() {
    let mut f = looked_at(combined(), 2, &[10, 10]).await;
    f.metrics.now(USAGE, 503, json!({"kind": "Status", "message": "the metrics are down", "code": 503}));
    let mut edited = combined();
    edited["zeroscale.dev/period"] = json!("1s"); // Another plan is looked at anew.
    f.put_autoscaler(edited_status(edited, 2));
    f.decides(Some(0), -1);
    pass(&mut f, vec![]).await.expect("nothing goes before the look");
    f.cx.ports.requests.next().await;
    let script = vec![put_status().with(|body| {
        assert_condition(body, "MetricsMeasured", "False", "FailedGetResourceMetric");
        let message = condition(body, "MetricsMeasured").2;
        assert!(message.contains("the metrics are down"), "{message}");
        assert_eq!(body["status"]["desiredScale"], 2);
    })];
    pass(&mut f, script).await.expect("a pass");
    assert_eq!(acted(&f), (Some(2), false, Cause::Rule(Reason::MetricFailed)));
    f.decides(Some(4), -1);
    pass(&mut f, vec![patched(4), put_status()]).await.expect("a pass");
}

fn edited_status(annotations: Value, replicas: i32) -> Value {
    autoscaler(annotations, status("True", "", 600, replicas, replicas))
}

/// Goal: class HPA without a HorizontalPodAutoscaler: its metric scales, its target is not the load's, the load wakes
/// it.
#[tokio::test]
async fn class_hpa_is_scaled_by_its_metric_and_woken_by_its_load() {
    let annotations = json!({
        CLASS: HPA, "autoscaling.knative.dev/metric": "cpu", "autoscaling.knative.dev/target": "50",
    });
    let mut f = looked_at(annotations.clone(), 1, &[100]).await;
    f.decides(Some(50), -1);
    let script = vec![patched(2), put_status()];
    pass(&mut f, script).await.expect("a pass");
    let target = f.fakes.deciding.lock().as_ref().map(|(subject, _)| subject.spec.target_value);
    assert_eq!(target, Some(70.0), "the cluster's, not 50 percent");
    assert_eq!(acted(&f).2, Cause::Rule(Reason::Metrics), "fifty pods for the load are not asked for");

    let mut f = Fixture::standalone();
    settled(&f, annotations, status("False", "NoTraffic", 3600, 0, 0), 0);
    f.decides(Some(3), -1);
    pass(&mut f, vec![patched(1), put_status()]).await.expect("woken");
}

/// Goal: what cannot be read is named by annotation and path, and nothing is scaled by it.
#[tokio::test]
async fn a_plan_that_breaks_a_rule_is_named_by_annotation_and_path() {
    let mut f = Fixture::standalone();
    let annotations = json!({"zeroscale.dev/metrics": "- {type: Resource}", "zeroscale.dev/period": "0s"});
    settled(&f, annotations, status("False", "NoTraffic", 3600, 0, 0), 0);
    let script = vec![put_status().with(|body| {
        assert_condition(body, "Ready", "False", "Invalid");
        let message = condition(body, "Ready").2;
        for path in
            ["metadata.annotations.zeroscale.dev/metrics[0].resource", "metadata.annotations.zeroscale.dev/period"]
        {
            assert!(message.contains(path), "{message}");
        }
    })];
    pass(&mut f, script).await.expect("a pass");
    assert_eq!(*f.fakes.blended.lock(), None);
}

/// Goal: where nobody looks at metrics, class KPA goes on by its load.
#[tokio::test]
async fn without_the_engine_metrics_have_no_effect() {
    let mut f = Fixture::without_metrics();
    settled(&f, combined(), status("False", "NoTraffic", 3600, 0, 0), 0);
    f.decides(Some(1), -1);
    let script = vec![
        patched(1),
        put_status().with(|body| assert_condition(body, "SettingsHonored", "False", "AnnotationIgnored")),
    ];
    pass(&mut f, script).await.expect("a pass");
}
