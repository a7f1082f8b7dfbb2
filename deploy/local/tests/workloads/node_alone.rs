//! `local node` as a separate process.

use super::cluster::{Cluster, container, eventually, first_response, is_alive, is_restarted, pid, pod};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};

/// A node process. Dropping it kills it.
struct NodeProcess(Child);

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(cluster: &Cluster, third: u8) -> NodeProcess {
    let kubeconfig = cluster.work.path().join("kubeconfig");
    cluster.server.write_kubeconfig(&kubeconfig).expect("a kubeconfig");
    let pods = cluster.pods.to_string();
    // Within the cluster's range of pods, in a part that the other node has not used yet.
    let range = format!("{}.{third}.0/24", pods.rsplitn(3, '.').last().expect("a prefix"));
    let services = cluster.services_range.to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_local"));
    command.args(["node", "--name", "alone", "--pod-cidr", &range, "--service-cidr", &services]);
    command.arg("--kubeconfig").arg(kubeconfig).arg("--work-dir").arg(cluster.work.path().join("alone"));
    NodeProcess(command.stdin(Stdio::null()).spawn().expect("a node"))
}

/// Returns a pod that is bound to the separate node.
fn bound_pod(name: &str) -> Value {
    let mut manifest = pod(name, container("hello", json!({})));
    manifest["spec"]["nodeName"] = json!("alone");
    manifest
}

/// Goal: nothing remains of a killed node. Method: SIGKILL, which it cannot handle.
#[tokio::test(flavor = "multi_thread")]
async fn pods_end_with_a_killed_node_and_restart_on_its_successor() {
    let cluster = Cluster::start().await;
    let mut node = start(&cluster, 100);
    cluster.create::<Pod>(bound_pod("p")).await;
    let pods = cluster.until_pods_ready(1).await;
    let process = pid(&pods[0]).expect("a process");
    assert!(is_alive(process));
    node.0.kill().expect("killed");
    node.0.wait().expect("an end");
    eventually("its pod's process ends", || !is_alive(process)).await;
    // Another node with this name takes over the pod and counts a restart.
    let _node = start(&cluster, 101);
    let pods = cluster.until("a restart", |pods: &[Pod]| pods.iter().any(is_restarted)).await;
    first_response(&pods[0]).await;
    cluster.stop().await;
}
