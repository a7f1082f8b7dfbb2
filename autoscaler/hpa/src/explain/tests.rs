//! Tests of the recorded reconciles and their display.

use super::*;
use common_runtime::admin::get;
use common_runtime::telemetry::Metrics;
use hpa_core::reconcile::{ErrorLabel, MetricRun};
use hpa_core::status::Event;
use serde_json::from_value;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const NOW: Timestamp = Timestamp::from_secs(1_785_542_400);

fn status(usage: i64) -> HorizontalPodAutoscalerStatus {
    let current = json!({"averageUtilization": 90, "averageValue": format!("{usage}m")});
    let condition =
        |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason, "message": "m"});
    let status = json!({
        "currentReplicas": 2, "desiredReplicas": 4,
        "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": current}}],
        "conditions": [condition("AbleToScale", "ReadyForNewScale"), condition("ScalingActive", "ValidMetricFound")],
    });
    from_value(status).expect("a status")
}

fn conclusion(action: Action, error: Option<&str>) -> Conclusion {
    let events = vec![Event::normal("SuccessfulRescale", "New size: 4; reason: cpu resource above target".into())];
    Conclusion {
        events: if action == Action::None { Vec::new() } else { events },
        error: error.map(str::to_owned),
        action,
        error_label: ErrorLabel::None,
        desired_replicas: Some(4),
        metrics: vec![MetricRun { kind: "Resource".into(), proposed: Some(4), action, error: ErrorLabel::None }],
    }
}

/// Goal: the admin port serves the document, which can be formatted as a table.
#[tokio::test]
async fn the_admin_port_serves_the_explanation() {
    let (explanations, shutdown) = (Arc::new(Explanations::default()), CancellationToken::new());
    let key = Key::new("shop", "web");
    let at = |seconds| NOW + Duration::from_secs(seconds);
    let record = |usage, action, seconds, error| {
        let (status, conclusion) = (status(usage), conclusion(action, error));
        explanations.record_reconcile(&key, (1, 9), Some(2), &status, &conclusion, at(seconds));
    };
    explanations.record_blocked(&key, "another manager writes its status: kcm", NOW);
    record(900, Action::ScaleUp, 15, None);
    record(450, Action::None, 30, None);
    record(460, Action::None, 45, None);
    record(460, Action::None, 60, Some("failed to rescale Deployment/shop/web: no"));
    let listen = ([127, 0, 0, 1], 0).into();
    let pages = vec![page(explanations.clone())];
    let admin = common_runtime::admin::serve(listen, Metrics::default(), pages, shutdown.clone()).await.expect("bind");

    let (_, document) = get(admin, None, "/explain/shop/web").await.expect("explained");
    let table = table(&document);
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines[0], "shop/web: replicas 2, wants 4, bounds 1..9", "{table}");
    assert_eq!(lines[1], "  Resource cpu 90% 460m a pod proposes 4");
    assert_eq!(lines[3], "  +ScalingActive ValidMetricFound: m");
    assert_eq!(lines.len(), 9, "{table}");
    assert!(lines[5].ends_with("failed to rescale Deployment/shop/web: no [cpu 90% 460m a pod]"), "{table}");
    let calm = "2026-08-01 00:00:30      15s        2      4  ReadyForNewScale, ValidMetricFound [cpu 90% 450m a pod]";
    assert_eq!(lines[6], calm, "two reconciles, with the measurements of the first");
    assert!(lines[7].ends_with("New size: 4; reason: cpu resource above target [cpu 90% 900m a pod]"), "{table}");
    assert!(lines[8].ends_with("another manager writes its status: kcm"), "{table}");

    explanations.remove(&key);
    let (status, document) = get(admin, None, "/explain/shop/web").await.expect("a response");
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(document["error"], "this process has not evaluated a HorizontalPodAutoscaler of that name");
    shutdown.cancel();
}

#[test]
fn the_history_and_its_texts_are_bounded() {
    let (explanations, key) = (Explanations::default(), Key::new("shop", "web"));
    for n in 0..200 {
        explanations.record_blocked(&key, &n.to_string(), NOW);
    }
    explanations.record_blocked(&key, &"é".repeat(1000), NOW);
    let objects = explanations.0.read();
    let history = &objects[&key].history;
    assert_eq!((history.len(), history.front().map(|first| first.why.as_str())), (ENTRIES_MAX, Some("181")));
    assert_eq!(history.back().map(|last| last.why.chars().count()), Some(TEXT_MAX));
}

#[test]
fn each_measurement_is_displayed() {
    let memory = json!({"name": "memory", "current": {"averageValue": "128Mi", "averageUtilization": 50}});
    let qps = json!({"metric": {"name": "qps"}, "current": {"averageValue": "20k"}});
    let queue = json!({"metric": {"name": "q"}, "current": {"value": "-1500m"}});
    let app_cpu = json!({"name": "cpu", "container": "app", "current": {"averageValue": "250m"}});
    for (status, text) in [
        (json!({"type": "Resource", "resource": memory}), "memory 50% 128Mi a pod"),
        (json!({"type": ""}), "failed"),
        (json!({"type": "ContainerResource", "containerResource": app_cpu}), "app/cpu 250m a pod"),
        (json!({"type": "Pods", "pods": qps}), "qps 20k a pod"),
        (json!({"type": "Object", "object": {"metric": {"name": "hits"}, "current": {"value": "7"}}}), "hits 7"),
        (json!({"type": "External", "external": queue}), "q -1500m"),
    ] {
        assert_eq!(displayed(&from_value(status).expect("a status")), text);
    }
}
