//! `local node` as a separate process.

use super::cluster::{Cluster, PATIENCE, address, container, eventually, get, is_alive, pid, pod};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};

/// Kills the node when a test ends in any way.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(cluster: &Cluster, third: u8) -> Killed {
    let kubeconfig = cluster.work.path().join("kubeconfig");
    cluster.server.write_kubeconfig(&kubeconfig).expect("a kubeconfig");
    let pods = cluster.pods.to_string();
    // Within the cluster's range of pods, in a part that the other node has not used yet.
    let range = format!("{}.{third}.0/24", pods.rsplitn(3, '.').last().expect("a prefix"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_local"));
    command.args([
        "node",
        "--name",
        "alone",
        "--pod-cidr",
        &range,
        "--service-cidr",
        &cluster.services_range.to_string(),
    ]);
    command.arg("--kubeconfig").arg(kubeconfig).arg("--work-dir").arg(cluster.work.path().join("alone"));
    Killed(command.stdin(Stdio::null()).spawn().expect("a node"))
}

fn for_the_lone_node(name: &str) -> Value {
    let mut manifest = pod(name, container("hello", json!({})));
    manifest["spec"]["nodeName"] = json!("alone");
    manifest
}

/// Goal: nothing remains of a killed node. Method: SIGKILL, which it cannot handle.
#[tokio::test(flavor = "multi_thread")]
async fn pods_die_with_a_node_that_is_killed() {
    let cluster = Cluster::start().await;
    let mut node = start(&cluster, 100);
    cluster.create::<Pod>(for_the_lone_node("p")).await;
    let pods = cluster.until_pods_ready(1).await;
    let process = pid(&pods[0]).expect("a process");
    assert!(is_alive(process));
    node.0.kill().expect("killed");
    node.0.wait().expect("an end");
    eventually("its pod's process ends", || !is_alive(process)).await;
    // Another node with this name takes over the pod and counts a restart.
    let _node = start(&cluster, 101);
    let again = |pods: &[Pod]| {
        let container = pods.first().and_then(|p| p.status.as_ref()?.container_statuses.as_ref()?.first());
        container.is_some_and(|c| c.ready && c.restart_count == 1)
    };
    let pods = cluster.until("a restart", again).await;
    let answered = async {
        while get(address(&pods[0]), "/").await.is_err() {
            tokio::task::yield_now().await; // A pod without a probe is ready once it runs.
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.expect("it answers");
    cluster.stop().await;
}
