//! The Service proxy in a cluster.

use super::cluster::{Cluster, container, deployment, eventually, get, http_probe};
use common_runtime::resolve::Resolve;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::DeleteParams;
use local::node::proxy::ServiceResolver;
use serde_json::json;
use std::collections::BTreeSet;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_ip_leads_to_every_ready_pod_and_is_refused_without_pods() {
    let cluster = Cluster::start().await;
    let ports = json!([{"name": "http", "port": 8099, "targetPort": "http1"}]);
    let service = json!({"metadata": {"name": "a"}, "spec": {"selector": {"app": "a"}, "ports": ports}});
    let service: Service = cluster.create(service).await;
    let container = container("hello", json!({"readinessProbe": http_probe("/healthz")}));
    cluster.create::<Deployment>(deployment(2, container)).await;
    cluster.until_pods_ready(2).await;
    let ip = service.spec.and_then(|s| s.cluster_ip).expect("an address");
    let address = format!("{ip}:8099").parse().expect("an address");
    let mut served = BTreeSet::new();
    let all = async {
        while served.len() < 2 {
            match get(address, "/").await {
                Ok(answer) => served.extend(answer.lines().find(|l| l.starts_with("x-pod")).map(str::to_owned)),
                Err(_) => tokio::task::yield_now().await, // The proxy does not know the pods yet.
            }
        }
    };
    tokio::time::timeout(super::cluster::PATIENCE, all).await.expect("both pods answer");
    let resolver = ServiceResolver::new(cluster.services.clone(), "cluster.local");
    assert_eq!(resolver.resolve("a.default.svc.cluster.local", 8099).await.expect("known"), [address]);
    cluster.patch::<Deployment>("a", json!({"spec": {"replicas": 0}})).await;
    cluster.until("no pods", |pods: &[Pod]| pods.is_empty()).await;
    get(address, "/").await.expect_err("no pod is left");
    cluster.api::<Service>().delete("a", &DeleteParams::default()).await.expect("deleted");
    eventually("the Service to be removed", || cluster.services.lookup("default", "a", 8099).is_none()).await;
    cluster.stop().await;
}
