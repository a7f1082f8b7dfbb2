//! Tests of ZeroScalers that request metrics.

use super::fixture::{Fixture, assert_condition, condition, reports};
use super::kpa_knative::status;
use super::kpa_standalone::{acted, pass, patched, put_settled, scaler, settled};
use crate::metric_engine::tests::USAGE;
use crate::standalone::Hpa;
use autoscaler_core::history::Cause;
use autoscaler_core::scale_to_zero::Reason;
use common_runtime::namespaces::Namespaces;
use serde_json::{Value, json};

fn requests_cpu(percent: i32) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    })
}

/// Returns a running workload whose two pods have been evaluated once, with this CPU usage.
async fn evaluated(cpu: [u32; 2]) -> Fixture {
    let mut f = settled(requests_cpu(50), status("True", "", 600, 2, 2), 2);
    f.ready(2);
    f.pods_use(&cpu);
    f.decides(Some(1), -1);
    pass(&mut f, vec![]).await.expect("not evaluated yet, so no pod is removed");
    let request = f.cx.ports.requests.next().await;
    assert_eq!(*request.key(), f.key, "evaluated");
    f
}

#[tokio::test]
async fn a_metric_that_requests_more_pods_than_the_load_wins() {
    let mut f = evaluated([150, 150]).await; // 150 % of the request; the target is 50 %.
    let script = vec![patched(6), reports().with(|body| assert_eq!(body["status"]["desired"], 6))];
    pass(&mut f, script).await.expect("a pass");
    assert_eq!(acted(&f), (Some(6), true, Cause::Rule(Reason::Metrics)));
    let blended = f.fakes.blended.lock().clone().expect("blended");
    assert_eq!((&*blended.metric, blended.asked), ("cpu resource utilization (percentage of request)", 6));

    f.decides(Some(9), -1);
    pass(&mut f, vec![]).await.expect("no more pods may be added so soon after four");
    assert_eq!(acted(&f).0, Some(6));
    assert_eq!(f.fakes.blended.lock().clone().map(|b| b.metric.to_string()).as_deref(), Some("concurrency"));
}

/// Goal: a failing metric prevents any reduction, even of the last pod, is reported, and does not prevent a wake.
#[tokio::test]
async fn a_failing_metric_blocks_scaling_down_but_not_up() {
    let mut f = evaluated([10, 10]).await;
    f.metrics.replace(USAGE, 503, json!({"kind": "Status", "message": "the metrics are down", "code": 503}));
    // Another plan starts a new evaluation.
    f.put_autoscaler(scaler(requests_cpu(60), status("True", "", 600, 2, 2)));
    f.decides(Some(0), -1);
    pass(&mut f, vec![]).await.expect("no pod is removed before the evaluation");
    f.cx.ports.requests.next().await;
    let script = vec![reports().with(|body| {
        assert_condition(body, "MetricsMeasured", "False", "FailedGetResourceMetric");
        let message = condition(body, "MetricsMeasured").2;
        assert!(message.contains("the metrics are down"), "{message}");
        assert_eq!(body["status"]["desired"], 2);
    })];
    pass(&mut f, script).await.expect("a pass");
    assert_eq!(acted(&f), (Some(2), false, Cause::Rule(Reason::MetricFailed)));
    f.decides(Some(4), -1);
    pass(&mut f, vec![patched(4), reports()]).await.expect("a pass");
}

#[tokio::test]
async fn an_invalid_plan_is_reported_with_the_path_of_its_field() {
    let spec = json!({"metrics": [{"type": "Resource"}], "behavior": {"scaleUp": {"policies": []}}});
    let mut f = settled(spec, status("False", "NoTraffic", 3600, 0, 0), 0);
    let script = vec![reports().with(|body| {
        assert_condition(body, "Ready", "False", "Invalid");
        let message = condition(body, "Ready").2;
        for path in ["spec.metrics[0].resource", "spec.behavior.scaleUp.policies"] {
            assert!(message.contains(path), "{message}");
        }
    })];
    pass(&mut f, script).await.expect("a pass");
    assert_eq!(*f.fakes.blended.lock(), None);
}

#[tokio::test]
async fn without_the_engine_metrics_have_no_effect() {
    let mut f = Fixture::standalone_with(Hpa::Off, Namespaces::ALL);
    put_settled(&f, requests_cpu(50), status("False", "NoTraffic", 3600, 0, 0), 0);
    f.decides(Some(1), -1);
    let ignored = reports().with(|body| assert_condition(body, "MetricsMeasured", "False", "AnnotationIgnored"));
    pass(&mut f, vec![patched(1), ignored]).await.expect("a pass");
}
