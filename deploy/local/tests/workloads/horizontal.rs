//! Plain HorizontalPodAutoscalers against the server, with real pods.

use super::cluster::{Cluster, PATIENCE, container, deployment};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Event;
use serde_json::json;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Whether the conditions of the only one have these reasons, by type and in any order.
fn says(all: &[HorizontalPodAutoscaler], reasons: &[(&str, &str)]) -> bool {
    let status = all.first().and_then(|hpa| hpa.status.as_ref());
    let conditions: Vec<_> = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten().collect();
    let says = |(kind, reason): &(&str, &str)| {
        conditions.iter().any(|c| c.type_ == *kind && c.reason.as_deref() == Some(*reason))
    };
    reasons.iter().all(says)
}

/// Goal: through discovery, the scale subresource and the status, over real sockets: a target below its bounds is lifted;
/// without a metrics API it then stays, and says why; a target that goes is said to be gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_plain_horizontal_pod_autoscaler_is_evaluated() {
    let cluster = Cluster::start().await;
    let stop = CancellationToken::new();
    let period = Duration::from_millis(200);
    let controller = tokio::spawn(local::controllers::horizontal::run(cluster.client.clone(), period, stop.clone()));
    cluster.create::<Deployment>(deployment(1, container("hello", json!({})))).await;
    cluster
        .create::<HorizontalPodAutoscaler>(json!({
            "metadata": {"name": "a"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
                "minReplicas": 2, "maxReplicas": 3,
            },
        }))
        .await;
    cluster.until_pods_ready(2).await;
    let failed = [("ScalingActive", "FailedGetResourceMetric"), ("AbleToScale", "SucceededGetScale")];
    let all = cluster.until("a reason", |all: &[HorizontalPodAutoscaler]| says(all, &failed)).await;
    let status = all[0].status.as_ref().expect("a status");
    assert_eq!((status.current_replicas, status.desired_replicas), (Some(2), 2));
    assert!(status.last_scale_time.is_some());
    let conditions = status.conditions.iter().flatten();
    let messages: Vec<_> = conditions.filter_map(|condition| condition.message.as_deref()).collect();
    let missing = "the server could not find the requested resource (get pods.metrics.k8s.io)";
    assert!(messages.iter().any(|message| message.ends_with(missing)), "{messages:?}");

    let rescaled = |event: &Event| {
        event.reason.as_deref() == Some("SuccessfulRescale")
            && event.message.as_deref()
                == Some("New size: 2; reason: Current number of replicas below Spec.MinReplicas")
    };
    cluster.until("an event", |events: &[Event]| events.iter().any(rescaled)).await;

    cluster.api::<Deployment>().delete("a", &Default::default()).await.expect("deleted");
    let gone = [("AbleToScale", "FailedGetScale")];
    cluster.until("its target is missed", |all: &[HorizontalPodAutoscaler]| says(all, &gone)).await;
    stop.cancel();
    let ended = tokio::time::timeout(PATIENCE, controller).await.expect("it stops");
    ended.expect("no panic").expect("no error");
    cluster.stop().await;
}
