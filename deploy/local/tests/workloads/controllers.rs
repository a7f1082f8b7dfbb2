//! Deployments and slices against the server.

use super::cluster::{Cluster, address, as_deployment, container, deployment, get, http_probe, is_ready, names};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_wakes_scales_and_sleeps() {
    let cluster = Cluster::start().await;
    let container = container("hello", json!({"readinessProbe": http_probe("/healthz")}));
    cluster.create::<Deployment>(deployment(0, container)).await;
    for replicas in [1, 3, 0, 2] {
        cluster.patch::<Deployment>("a", json!({"spec": {"replicas": replicas}})).await;
        let settled = |all: &[Deployment]| {
            let status = as_deployment(all).and_then(|d| d.status.as_ref());
            status.is_some_and(|s| {
                let wanted = (replicas > 0).then_some(replicas);
                s.ready_replicas == wanted && s.replicas == wanted && s.unavailable_replicas.is_none()
            })
        };
        cluster.until(&format!("{replicas} replicas"), settled).await;
        let pods = cluster.until("as many pods", |pods: &[Pod]| pods.len() == replicas as usize).await;
        for pod in &pods {
            get(address(pod), "/").await.expect("an answer");
        }
    }
    cluster.stop().await;
}

/// Goal: a roll respects its bounds at every moment that a watch can see. Method: 25 % of 4, so at most 5 pods and at
/// least 3 ready.
#[tokio::test(flavor = "multi_thread")]
async fn a_roll_replaces_every_pod_within_its_bounds() {
    let cluster = Cluster::start().await;
    let container = |text: &str| {
        let env = json!([{"name": "HELLO_TEXT", "value": text}, {"name": "HELLO_START_MS", "value": "30"}]);
        container("hello", json!({"readinessProbe": http_probe("/healthz"), "env": env}))
    };
    cluster.create::<Deployment>(deployment(4, container("old"))).await;
    let old = names(&cluster.until_pods_ready(4).await);
    let settled =
        |all: &[Deployment]| as_deployment(all).and_then(|d| d.status.as_ref()?.available_replicas) == Some(4);
    cluster.until("all available", settled).await;
    cluster.patch::<Deployment>("a", json!({"spec": deployment(4, container("new"))["spec"]})).await;
    let mut worst = (0, usize::MAX);
    let rolled = |pods: &[Pod]| {
        let active = pods.iter().filter(|p| p.metadata.deletion_timestamp.is_none()).count();
        worst = (worst.0.max(active), worst.1.min(pods.iter().filter(|p| is_ready(p)).count()));
        pods.len() == 4 && pods.iter().all(|p| is_ready(p) && !old.contains(&p.name_any()))
    };
    let pods = cluster.until("four new pods", rolled).await;
    assert!(worst.0 <= 5 && worst.1 >= 3, "most active and fewest ready: {worst:?}");
    assert!(get(address(&pods[0]), "/").await.expect("an answer").contains("new"));
    let sets = cluster.list::<ReplicaSet>().await;
    assert_eq!(sets.items.len(), 2, "the old set stays, at zero");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_deployment_takes_everything_with_it() {
    let cluster = Cluster::start().await;
    cluster.create::<Deployment>(deployment(2, container("hello", json!({})))).await;
    cluster.until_pods_ready(2).await;
    cluster.api::<Deployment>().delete("a", &DeleteParams::background()).await.expect("deleted");
    cluster.until("no pods", |pods: &[Pod]| pods.is_empty()).await;
    cluster.until("no sets", |sets: &[ReplicaSet]| sets.is_empty()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_pod_is_replaced() {
    let cluster = Cluster::start().await;
    cluster.create::<Deployment>(deployment(1, container("hello", json!({})))).await;
    let first = names(&cluster.until_pods_ready(1).await);
    cluster.api::<Pod>().delete(&first[0], &DeleteParams::default().grace_period(0)).await.expect("deleted");
    let another = |pods: &[Pod]| pods.iter().any(|p| is_ready(p) && p.name_any() != first[0]);
    cluster.until("another pod", another).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_and_endpoints_follow_the_pods() {
    let cluster = Cluster::start().await;
    cluster
        .create::<Service>(json!({
            "metadata": {"name": "a", "labels": {"team": "x"}},
            "spec": {"selector": {"app": "a"}, "ports": [{"name": "http", "port": 80, "targetPort": "http1"}]},
        }))
        .await;
    let container = container("hello", json!({"readinessProbe": http_probe("/healthz")}));
    cluster.create::<Deployment>(deployment(2, container)).await;
    let ready = |slices: &[EndpointSlice]| -> usize {
        let endpoints = slices.iter().flat_map(|s| s.endpoints.iter().flatten());
        endpoints.filter(|e| e.conditions.as_ref().and_then(|c| c.ready) == Some(true)).count()
    };
    let slices = cluster.until("two ready endpoints", |slices: &[EndpointSlice]| ready(slices) == 2).await;
    assert_eq!(slices.len(), 1);
    assert_eq!(slices[0].labels().get("team").map(String::as_str), Some("x"));
    assert_eq!(slices[0].ports.as_ref().expect("ports")[0].port, Some(8080));
    // The selector is removed: the slice stays unchanged, whatever happens to the pods.
    cluster.patch::<Service>("a", json!({"spec": {"selector": null}})).await;
    cluster.patch::<Deployment>("a", json!({"spec": {"replicas": 0}})).await;
    cluster.until("no pods", |pods: &[Pod]| pods.is_empty()).await;
    let slices = cluster.list::<EndpointSlice>().await;
    let addresses: usize = slices.iter().filter(|s| ready(std::slice::from_ref(s)) > 0).count();
    assert!(addresses >= 1, "{slices:#?}");
    cluster.api::<Service>().delete("a", &DeleteParams::default()).await.expect("deleted");
    cluster.until("no slices", |slices: &[EndpointSlice]| slices.is_empty()).await;
    cluster.stop().await;
}
