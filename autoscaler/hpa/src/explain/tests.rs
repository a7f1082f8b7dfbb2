//! Tests of the recorded reconciles and their display.

use super::*;
use common_runtime::admin::get;
use common_runtime::telemetry::Metrics;
use hpa_core::condition::{Condition, ConditionType};
use hpa_core::reconcile::{ErrorLabel, MetricRun};
use hpa_core::status::{Current, Event, MetricStatus};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const NOW: Timestamp = Timestamp::from_secs(1_785_542_400);

fn status(usage: i64) -> Status {
    let current = Current { average_utilization: Some(90), ..Current::average(usage) };
    let condition = |kind, reason: &str| Condition {
        kind,
        status: Some(true),
        reason: reason.into(),
        message: "m".into(),
        last_transition: None,
    };
    Status {
        current_replicas: 2,
        desired_replicas: 4,
        current_metrics: vec![MetricStatus::Resource { name: "cpu".into(), current }],
        conditions: vec![
            condition(ConditionType::AbleToScale, "ReadyForNewScale"),
            condition(ConditionType::ScalingActive, "ValidMetricFound"),
        ],
        ..Status::default()
    }
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

/// Goal: the admin port serves the document, and it is formatted as a table.
#[tokio::test]
async fn why_is_answered_over_the_admin_port() {
    let (explanations, shutdown) = (Arc::new(Explanations::default()), CancellationToken::new());
    let key = Key::new("shop", "web");
    let at = |seconds| NOW + Duration::from_secs(seconds);
    let told = |usage, action, seconds, error| {
        let (status, conclusion) = (status(usage), conclusion(action, error));
        explanations.passed(&key, (1, 9), Some(2), &status, &conclusion, at(seconds));
    };
    explanations.refused(&key, "another manager writes its status: kcm", NOW);
    told(900, Action::ScaleUp, 15, None);
    told(450, Action::None, 30, None);
    told(460, Action::None, 45, None);
    told(460, Action::None, 60, Some("failed to rescale Deployment/shop/web: no"));
    let listen = ([127, 0, 0, 1], 0).into();
    let pages = vec![page(explanations.clone())];
    let admin = common_runtime::admin::serve(listen, Metrics::default(), pages, shutdown.clone()).await.expect("bind");

    let (_, document) = get(admin, None, "/explain/shop/web").await.expect("explained");
    let table = table(&document);
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines[0], "shop/web: replicas 2, wants 4, bounds 1..9", "{table}");
    assert_eq!(lines[1], "  Resource cpu 90% 460m a pod asks for 4");
    assert_eq!(lines[3], "  +ScalingActive ValidMetricFound: m");
    assert_eq!(lines.len(), 9, "{table}");
    assert!(lines[5].ends_with("failed to rescale Deployment/shop/web: no [cpu 90% 460m a pod]"), "{table}");
    let calm = "2026-08-01 00:00:30      15s        2      4  ReadyForNewScale, ValidMetricFound [cpu 90% 450m a pod]";
    assert_eq!(lines[6], calm, "two passes, with the measurements of the first");
    assert!(lines[7].ends_with("New size: 4; reason: cpu resource above target [cpu 90% 900m a pod]"), "{table}");
    assert!(lines[8].ends_with("another manager writes its status: kcm"), "{table}");

    explanations.forget(&key);
    let (status, document) = get(admin, None, "/explain/shop/web").await.expect("an answer");
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(document["error"], "no HorizontalPodAutoscaler of that name has been evaluated here");
    shutdown.cancel();
}

#[test]
fn what_is_kept_is_bounded() {
    let (explanations, key) = (Explanations::default(), Key::new("shop", "web"));
    for n in 0..200 {
        explanations.refused(&key, &n.to_string(), NOW);
    }
    let kept = |explanations: &Explanations| {
        let all = explanations.0.read();
        (all[&key].history.len(), all[&key].bytes, all[&key].history.back().map(|last| last.summary.why.clone()))
    };
    let (entries, bytes, last) = kept(&explanations);
    assert!(entries <= ENTRIES_MAX && entries > 20 && bytes <= BYTES_MAX, "{entries} {bytes}");
    assert_eq!(last.as_deref(), Some("199"), "the oldest go");
    for n in 0..50 {
        explanations.refused(&key, &format!("{n}{}", "é".repeat(1000)), NOW);
    }
    let (entries, bytes, _) = kept(&explanations);
    assert!(entries >= 1 && bytes <= BYTES_MAX, "{entries} {bytes}");
}
