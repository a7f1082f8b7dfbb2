//! Tests of whole reconciles against a mock API server.

use super::super::Wiring;
use super::*;
use crate::fixture::{Mock, scale, with_apps};
use crate::options::ControllerOptions;
use hpa_core::reconcile::{Action, Conclusion};
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus};
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const SCALE: &str = "/apis/apps/v1/namespaces/shop/deployments/web/scale";

fn spec(metric: Value) -> HorizontalPodAutoscalerSpec {
    let spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2, "maxReplicas": 6, "metrics": [metric],
    });
    serde_json::from_value(spec).expect("a spec")
}

fn cpu() -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": 30});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

async fn pass(mock: &Mock, metric: Value) -> (Conclusion, HorizontalPodAutoscalerStatus) {
    let key = Key::new("shop", "web");
    let controller = Controller::new(Wiring::alone(mock.client(), ControllerOptions::default()));
    controller.selectors.lock().register("shop", "web");
    let (spec, status) = (spec(metric), HorizontalPodAutoscalerStatus::default());
    let autoscaler = Autoscaler { namespace: "shop", name: "web", spec: &spec, status: &status };
    let (finish, _) = controller.evaluate(&key, autoscaler, &mut Memory::default(), NOW).await;
    let written = finish.status.clone().expect("a status");
    (finish.conclude(Ok(())), written)
}

/// Goal: after a conflict the scale is read again, and the same replicas are written to the new version, with at most
/// five attempts.
#[tokio::test(start_paused = true)]
async fn after_a_conflict_the_scale_is_read_again() {
    let (get, put) = (format!("GET {SCALE}"), format!("PUT {SCALE}"));
    let prepared = || {
        let mock = Mock::default();
        with_apps(&mock);
        let mut newer = scale(4);
        newer["metadata"]["resourceVersion"] = json!("8");
        mock.on(&get, 200, scale(1)).on(&get, 200, newer).reject(&put, 409, "modified");
        mock
    };
    let mock = prepared();
    mock.on(&put, 200, scale(2));
    let (conclusion, status) = pass(&mock, cpu()).await;
    let puts: Vec<_> = mock.requests().into_iter().filter(|(line, _)| *line == put).map(|(_, body)| body).collect();
    let written = |body: &Value| (body["metadata"]["resourceVersion"].clone(), body["spec"]["replicas"].clone());
    assert_eq!(puts.iter().map(written).collect::<Vec<_>>(), [(json!("7"), json!(2)), (json!("8"), json!(2))]);
    assert_eq!((conclusion.action, status.current_replicas), (Action::ScaleUp, Some(1)));

    let mock = prepared();
    let (conclusion, status) = pass(&mock, cpu()).await;
    assert_eq!(mock.request_lines().iter().filter(|line| **line == put).count(), 5);
    assert_eq!(conclusion.error.as_deref(), Some("failed to rescale Deployment/shop/web: modified"));
    let conditions = status.conditions.expect("conditions");
    assert_eq!(conditions[0].reason.as_deref(), Some("FailedUpdateScale"));
}

/// Goal: each layer adds its prefix to an error.
#[tokio::test]
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
            cpu(),
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
        let mock = Mock::default();
        with_apps(&mock);
        mock.on(&format!("GET {SCALE}"), 200, scale(3));
        let (conclusion, status) = pass(&mock, entry).await;
        let events: Vec<_> = conclusion.events.iter().map(|event| (event.reason, event.message.clone())).collect();
        let all = format!("invalid metrics (1 invalid out of 1), first error is: {outer}{inner}");
        assert_eq!(events, [(reason, inner), ("FailedComputeMetricsReplicas", all)]);
        let active = status.conditions.expect("conditions").remove(1);
        let names_layer = active.message.is_some_and(|message| message.contains(outer));
        assert_eq!((active.reason.as_deref(), names_layer), (Some(reason), false));
    }
}
