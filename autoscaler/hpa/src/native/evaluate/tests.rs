//! Tests of whole reconciles against a mock API server.

use super::super::Wiring;
use super::*;
use crate::fixture::{Mock, scale, with_apps};
use crate::options::ControllerOptions;
use hpa_core::pod::{Container, Phase, Pod, Readiness};
use hpa_core::reconcile::{Action, Conclusion, ErrorLabel};
use hpa_core::status::timestamp;
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus};
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const SCALE: &str = "/apis/apps/v1/namespaces/shop/deployments/web/scale";
const USAGE: &str = "GET /apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=app%3Dweb";

fn spec(min: i32, max: i32, metrics: Value) -> HorizontalPodAutoscalerSpec {
    let spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": min, "maxReplicas": max, "metrics": metrics,
    });
    serde_json::from_value(spec).expect("a spec")
}

fn cpu(percent: i32) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn pods(count: usize) -> Vec<Pod> {
    let long_ago = NOW - Duration::from_secs(3600);
    let pod = |i| Pod {
        name: format!("p{i}"),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        phase: Phase::Running,
        start_time: Some(long_ago),
        ready: Some(Readiness { status: Some(true), last_transition: long_ago }),
        containers: vec![Container {
            name: "app".into(),
            requests: [("cpu".to_owned(), 1000)].into(),
            ..Container::default()
        }],
        ..Pod::default()
    };
    (0..count).map(pod).collect()
}

fn usage(values: &[&str]) -> Value {
    let item = |(i, value): (usize, &&str)| {
        json!({
            "metadata": {"name": format!("p{i}")}, "timestamp": "2023-11-14T22:13:20Z", "window": "30s",
            "containers": [{"name": "app", "usage": {"cpu": value, "memory": "1Mi"}}],
        })
    };
    json!({"items": values.iter().enumerate().map(item).collect::<Vec<_>>()})
}

async fn pass(
    mock: &Mock,
    spec: &HorizontalPodAutoscalerSpec,
    pods: &[Pod],
) -> (Conclusion, Option<HorizontalPodAutoscalerStatus>, usize) {
    let key = Key::new("shop", "web");
    let controller = Controller::new(Wiring::alone(mock.client(), ControllerOptions::default()));
    controller.selectors.lock().register("shop", "web");
    for pod in pods {
        controller.pods.apply(&Key::new("shop", pod.name.as_str()), "1", Some(pod.clone()));
        // Pods of another namespace with the same labels do not count.
        let other = Pod { name: format!("{}-elsewhere", pod.name), ..pod.clone() };
        controller.pods.apply(&Key::new("shop2", other.name.as_str()), "1", Some(other));
    }
    let status = HorizontalPodAutoscalerStatus::default();
    let autoscaler = Autoscaler { namespace: "shop", name: "web", spec, status: &status };
    let (finish, target) = controller.evaluate(&key, autoscaler, &mut Memory::default(), NOW).await;
    let written = finish.status.clone();
    (finish.conclude(Ok(())), written, target.measured.len())
}

/// Goal: a whole reconcile, request by request: cpu and memory share one list, and the scale is written as it was read.
#[tokio::test]
async fn a_busy_target_grows() {
    let mock = Mock::default();
    with_apps(&mock);
    mock.on(&format!("GET {SCALE}"), 200, scale(3)).on(&format!("PUT {SCALE}"), 200, scale(5));
    mock.on(USAGE, 200, usage(&["300m", "500m", "700m"]));
    let memory = json!({"type": "Resource", "resource": {
        "name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"},
    }});
    let spec = spec(2, 6, json!([cpu(30), memory]));
    let (conclusion, status, measured) = pass(&mock, &spec, &pods(3)).await;
    assert_eq!((conclusion.action, conclusion.error_label, measured), (Action::ScaleUp, ErrorLabel::None, 2));
    let messages: Vec<_> = conclusion.events.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(messages, ["New size: 5; reason: cpu resource utilization (percentage of request) above target"]);
    let status = status.expect("a status");
    assert_eq!((status.current_replicas, status.desired_replicas), (Some(3), 5));
    assert_eq!(status.last_scale_time.as_ref().map(timestamp), Some(NOW));
    let expected = ["GET /apis/apps", "GET /apis/apps/v1", &format!("GET {SCALE}"), USAGE, &format!("PUT {SCALE}")];
    let asked = mock.requests();
    assert_eq!(asked.iter().map(|(line, _)| line.as_str()).collect::<Vec<_>>(), expected);
    assert_eq!((&asked[4].1["spec"]["replicas"], &asked[4].1["metadata"]["resourceVersion"]), (&json!(5), &json!("7")));
}

/// Goal: after a conflict the scale is read again, and the same number is written to the new version, at most five
/// times.
#[tokio::test(start_paused = true)]
async fn a_conflict_is_met_with_a_fresh_read() {
    let (get, put) = (format!("GET {SCALE}"), format!("PUT {SCALE}"));
    let prepared = || {
        let mock = Mock::default();
        with_apps(&mock);
        let mut newer = scale(4);
        newer["metadata"]["resourceVersion"] = json!("8");
        mock.on(&get, 200, scale(1)).on(&get, 200, newer).refuses(&put, 409, "modified");
        mock
    };
    let spec = spec(2, 6, json!([cpu(30)]));
    let mock = prepared();
    mock.on(&put, 200, scale(2));
    let (conclusion, status, _) = pass(&mock, &spec, &pods(1)).await;
    let puts: Vec<_> = mock.requests().into_iter().filter(|(line, _)| *line == put).map(|(_, body)| body).collect();
    let seen = |body: &Value| (body["metadata"]["resourceVersion"].clone(), body["spec"]["replicas"].clone());
    assert_eq!(puts.iter().map(seen).collect::<Vec<_>>(), [(json!("7"), json!(2)), (json!("8"), json!(2))]);
    assert_eq!((conclusion.action, status.and_then(|status| status.current_replicas)), (Action::ScaleUp, Some(1)));

    let mock = prepared();
    let (conclusion, status, _) = pass(&mock, &spec, &pods(1)).await;
    assert_eq!(mock.request_lines().iter().filter(|line| **line == put).count(), 5);
    assert_eq!(conclusion.error.as_deref(), Some("failed to rescale Deployment/shop/web: modified"));
    let conditions = status.and_then(|status| status.conditions).expect("conditions");
    assert_eq!(conditions[0].reason.as_deref(), Some("FailedUpdateScale"));
}

/// Goal: each layer adds its prefix to an error.
#[tokio::test]
async fn errors_are_layered_as_upstreams() {
    let metric =
        |name: &str| json!({"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "1"}});
    let mut object = metric("hits");
    object["describedObject"] = json!({"apiVersion": "v1", "kind": "Service", "name": "web"});
    let missing = |what: &str| format!("the server could not find the requested resource (get {what})");
    let no_custom = "no custom metrics API (custom.metrics.k8s.io) registered";
    let usage = missing("pods.metrics.k8s.io");
    let queue = missing("queue.external.metrics.k8s.io");
    for (entry, reason, outer, inner) in [
        (
            cpu(30),
            "FailedGetResourceMetric",
            "failed to get cpu resource metric value: ",
            format!(
                "failed to get cpu utilization: unable to get metrics for resource cpu: \
                 unable to fetch metrics from resource metrics API: {usage}"
            ),
        ),
        (
            json!({"type": "Pods", "pods": metric("qps")}),
            "FailedGetPodsMetric",
            "failed to get pods metric value: ",
            format!("unable to get metric qps: unable to fetch metrics from custom metrics API: {no_custom}"),
        ),
        (
            json!({"type": "Object", "object": object}),
            "FailedGetObjectMetric",
            "failed to get object metric value: failed to get hits object metric: ",
            format!(
                "unable to get metric hits: Service on shop web/unable to fetch metrics from custom metrics API: {no_custom}"
            ),
        ),
        (
            json!({"type": "External", "external": metric("queue")}),
            "FailedGetExternalMetric",
            "failed to get queue external metric value: failed to get queue external metric: ",
            format!(
                "unable to get external metric shop/queue/nil: unable to fetch metrics from external metrics API: {queue}"
            ),
        ),
    ] {
        let mock = Mock::default();
        with_apps(&mock);
        mock.on(&format!("GET {SCALE}"), 200, scale(3));
        let (conclusion, status, _) = pass(&mock, &spec(2, 6, json!([entry])), &pods(3)).await;
        let told: Vec<_> = conclusion.events.iter().map(|event| (event.reason, event.message.clone())).collect();
        let all = format!("invalid metrics (1 invalid out of 1), first error is: {outer}{inner}");
        assert_eq!(told, [(reason, inner), ("FailedComputeMetricsReplicas", all)]);
        let active = status.and_then(|status| status.conditions).expect("conditions").remove(1);
        let names_layer = active.message.is_some_and(|message| message.contains(outer));
        assert_eq!((active.reason.as_deref(), names_layer), (Some(reason), false));
    }
}
