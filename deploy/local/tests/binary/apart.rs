//! API server and node as separate processes.

use crate::process::{Local, children, eventually};
use crate::up::{client, deployment, get};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::PostParams;
use rustix::process::Signal;
use std::time::Duration;

#[tokio::test]
async fn a_deployment_runs_on_a_node_in_a_separate_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    // Low octets are free: clusters that choose their own begin above.
    let octet = 2 + std::process::id() % 30;
    let (pods, services) = (format!("127.{octet}.0.0/17"), format!("127.{octet}.128.0/17"));
    let file = kubeconfig.to_str().expect("UTF-8");
    let mut api = Local::start(["api", "--kubeconfig", file, "--service-cidr", &services]);
    assert_eq!(api.ready().await.kubeconfig, kubeconfig);
    let client = client(&kubeconfig).await;

    let ranges = ["--pod-cidr", &pods, "--service-cidr", &services, "--default-scheduler"];
    let mut node = Local::start(["node", "--kubeconfig", file, "--name", "apart"].iter().chain(&ranges));
    let object = serde_yaml_ng::from_str(&deployment("hello", 2)).expect("a Deployment");
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    deployments.create(&PostParams::default(), &object).await.expect("created");
    eventually("two ready replicas", async || {
        let status = deployments.get("hello").await.expect("there").status.unwrap_or_default();
        status.ready_replicas == Some(2)
    })
    .await;
    for pod in Api::<Pod>::namespaced(client.clone(), "default").list(&Default::default()).await.expect("pods") {
        let address = pod.status.and_then(|status| status.pod_ip).expect("an address");
        assert!(address.starts_with(&format!("127.{octet}.")), "{address}");
        let answer = get(format!("{address}:8080").parse().expect("an address"), "hello").await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    let running = children(node.pid());
    assert_eq!(running.len(), 2);
    node.signal(Signal::TERM);
    assert_eq!(node.ended(Duration::from_secs(15)).await.code(), Some(0));
    assert!(!running.iter().any(|pod| pod.is_alive()), "pods end before their node does");
    let nodes = Api::<Node>::all(client).list(&Default::default()).await.expect("nodes");
    assert!(nodes.items.is_empty(), "a node removes its Node object at its end");
    api.signal(Signal::TERM);
    assert_eq!(api.ended(Duration::from_secs(15)).await.code(), Some(0));
}
