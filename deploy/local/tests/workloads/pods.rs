//! Pods on the node.

use super::cluster::{
    Cluster, address, container, eventually, first_response, get, http_probe, is_alive, is_ready, is_restarted, pid,
    pod,
};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;

/// Goal: an activator may try a pod before Kubernetes reports it ready. A pod is not ready before its startup probe
/// succeeds. Method: a readiness probe that never succeeds, and a program that starts late.
#[tokio::test(flavor = "multi_thread")]
async fn the_address_is_published_before_readiness_and_a_startup_probe_delays_readiness() {
    let cluster = Cluster::start().await;
    cluster.create::<Pod>(pod("p", container("hello", json!({"readinessProbe": http_probe("/?status=500")})))).await;
    let with_address = |pods: &[Pod]| pods.iter().any(|p| p.status.as_ref().is_some_and(|s| s.pod_ip.is_some()));
    let pods = cluster.until("an address", with_address).await;
    assert!(!is_ready(&pods[0]));
    let probes = json!({
        "env": [{"name": "HELLO_START_MS", "value": "300"}],
        "startupProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 30},
    });
    cluster.create::<Pod>(pod("q", container("hello", probes))).await;
    let pods = cluster.until_pods_ready(1).await;
    let started = pods.iter().find(|pod| is_ready(pod)).expect("the ready one");
    get(address(started), "/").await.expect("it listens by now");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_comes_from_fields_and_config_maps() {
    let cluster = Cluster::start().await;
    cluster.create::<ConfigMap>(json!({"metadata": {"name": "c"}, "data": {"text": "from the map"}})).await;
    let env = json!([
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "HELLO_TEXT", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "text"}}},
    ]);
    let script = json!({"command": ["/bin/sh", "-c", "echo $WHO $POD_IP $(PORT); exec sleep 100"], "env": env});
    cluster.create::<Pod>(pod("p", container("none", script))).await;
    let pods = cluster.until_pods_ready(1).await;
    let expected = format!("p {} 8080\n", address(&pods[0]).ip());
    let log = format!("logs/default_p_{}/main/0.log", pods[0].uid().unwrap_or_default());
    let log = cluster.work.path().join(log);
    eventually("the log", || std::fs::read(&log).is_ok_and(|log| log == expected.as_bytes())).await;
    cluster.create::<Pod>(pod("q", container("hello", json!({"env": env})))).await;
    let pods = cluster.until_pods_ready(2).await;
    let q = pods.iter().find(|p| p.name_any() == "q").expect("q");
    assert!(first_response(q).await.contains("from the map"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_never_restart_succeed_or_fail_by_their_exit_code() {
    let cluster = Cluster::start().await;
    for (name, code, phase) in [("good", 0, "Succeeded"), ("bad", 1, "Failed")] {
        let mut manifest = pod(name, container("none", json!({"command": ["/bin/sh", "-c", format!("exit {code}")]})));
        manifest["spec"]["restartPolicy"] = json!("Never");
        cluster.create::<Pod>(manifest).await;
        let has_phase = |pod: &Pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some(phase);
        cluster.until(phase, |pods: &[Pod]| pods.iter().any(|pod| pod.name_any() == name && has_phase(pod))).await;
    }
    cluster.stop().await;
}

/// Goal: a failing liveness probe results in a new process. Method: an exec probe for a file that only the second run
/// finds.
#[tokio::test(flavor = "multi_thread")]
async fn a_failing_liveness_probe_restarts_the_container() {
    let cluster = Cluster::start().await;
    let mark = cluster.work.path().join("mark").display().to_string();
    let probe = json!({"exec": {"command": ["test", "-e", mark]}, "periodSeconds": 1, "failureThreshold": 2});
    let script = format!("trap 'touch {mark}; exit 1' TERM; while :; do sleep 0.01; done");
    let manifest = pod("p", container("none", json!({"command": ["/bin/sh", "-c", script], "livenessProbe": probe})));
    cluster.create::<Pod>(manifest).await;
    cluster.until("one restart", |pods: &[Pod]| pods.iter().any(is_restarted)).await;
    cluster.until_event("Killing", |_| true).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_killed_after_its_grace_period_or_at_once_by_a_forced_deletion() {
    let cluster = Cluster::start().await;
    let script = "trap '' TERM; while :; do sleep 0.01; done";
    let mut manifest = pod("p", container("none", json!({"command": ["/bin/sh", "-c", script]})));
    manifest["spec"]["terminationGracePeriodSeconds"] = json!(1);
    cluster.create::<Pod>(manifest).await;
    let process = pid(&cluster.until_pods_ready(1).await[0]).expect("a process");
    eventually("the script's trap is set", || ignores_sigterm(process)).await;
    let begun = tokio::time::Instant::now();
    cluster.api::<Pod>().delete("p", &DeleteParams::default()).await.expect("deleted");
    cluster.until("no pod", |pods: &[Pod]| pods.is_empty()).await;
    assert!(begun.elapsed() >= std::time::Duration::from_millis(900), "the grace period is one second");
    assert!(!is_alive(process));
    cluster.create::<Pod>(pod("q", container("hello", json!({})))).await;
    let process = pid(&cluster.until_pods_ready(1).await[0]).expect("a process");
    cluster.api::<Pod>().delete("q", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    eventually("the process ends", || !is_alive(process)).await;
    cluster.stop().await;
}

/// Reports whether the process ignores SIGTERM, signal 15.
fn ignores_sigterm(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    ignored.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & 1 << 14 != 0)
}
