//! More pods than the node can run.

use super::cluster::{Cluster, container, deployment, is_ready};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::json;

fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "PodScheduled" && c.reason.as_deref() == Some("Unschedulable"))
}

/// Goal: a Deployment with too many replicas starts as many pods as the node can run. A bounded number of further pods
/// waits as Pending, with a scheduler's explanation. They start when other pods end. Deleting the Deployment deletes
/// all.
#[tokio::test(flavor = "multi_thread")]
async fn pods_beyond_the_capacity_of_the_node_wait_until_another_ends() {
    let cluster = Cluster::start_with(|options| options.pods_max = 2).await;
    cluster.create::<Deployment>(deployment(i32::MAX, container("hello", json!({})))).await;
    let has_waiting = |pods: &[Pod]| {
        assert!(pods.iter().filter(|pod| is_ready(pod)).count() <= 2 && pods.len() <= 502, "{} pods", pods.len());
        pods.iter().filter(|pod| is_ready(pod)).count() == 2
            && pods.iter().filter(|pod| is_unschedulable(pod)).count() > 9
    };
    let pods = cluster.until("two ready pods and others that wait", has_waiting).await;
    let has_explanation = |message: &str| message.contains("Too many pods");
    cluster.until_event("FailedScheduling", |event| event.message.as_deref().is_some_and(has_explanation)).await;
    let deployments: Api<Deployment> = cluster.api();
    let scale = async |replicas: i32| {
        cluster.patch::<Deployment>("a", json!({"spec": {"replicas": replicas}})).await;
        let are_there = |pods: &[Pod]| i32::try_from(pods.len()) == Ok(replicas);
        cluster.until(&format!("{replicas} pods"), are_there).await
    };
    let remaining = scale(4).await;
    assert_eq!(remaining.iter().filter(|pod| is_unschedulable(pod)).count(), 2, "pods without a node go first");
    let first = pods.iter().find(|pod| is_ready(pod)).expect("a ready pod").name_any();
    cluster.api::<Pod>().delete(&first, &DeleteParams::default()).await.expect("deleted");
    let is_replaced = |pods: &[Pod]| {
        let others = pods.iter().filter(|pod| is_ready(pod) && pod.name_any() != first);
        pods.len() == 4 && others.count() == 2
    };
    cluster.until("a pod that waited runs", is_replaced).await;
    deployments.delete("a", &DeleteParams::default()).await.expect("deleted");
    cluster.until("no pods", |pods: &[Pod]| pods.is_empty()).await;
    cluster.until("no sets", |sets: &[ReplicaSet]| sets.is_empty()).await;
    cluster.stop().await;
}
