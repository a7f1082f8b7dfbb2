//! Pods on the node: their environment, probes and ends, the samples, port collisions with programs that listen on more
//! than the assigned address, and more pods than the node can run.

use super::cluster::{
    Cluster, PATIENCE, address, container, deployment, eventually, first_response, get, http_probe, is_alive, is_ready,
    is_restarted, pid, pod, terminated, waiting,
};
use common_runtime::resolve::Resolve;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use local::node::proxy::ServiceResolver;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU16, Ordering};

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
        {"name": "TEXT", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "text"}}},
    ]);
    let script = json!({"command": ["/bin/sh", "-c", "echo $WHO $POD_IP $(PORT) $TEXT; exec sleep 100"], "env": env});
    cluster.create::<Pod>(pod("p", container("none", script))).await;
    let pods = cluster.until_pods_ready(1).await;
    let expected = format!("p {} 8080 from the map\n", address(&pods[0]).ip());
    let log = format!("logs/default_p_{}/main/0.log", pods[0].uid().unwrap_or_default());
    let log = cluster.work.path().join(log);
    eventually("the log", || std::fs::read(&log).is_ok_and(|log| log == expected.as_bytes())).await;
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

async fn expect_collision(cluster: &Cluster, loser: &str, words: &[&str]) {
    let reported = |pods: &[Pod]| {
        // The reason is of the waiting container, or of its last run if a busy node did not write that in time.
        let of_loser = pods.iter().filter(|p| p.name_any() == loser);
        of_loser
            .flat_map(|pod| waiting(pod).into_iter().chain(terminated(pod)))
            .any(|(reason, message)| reason == "PortCollision" && words.iter().all(|word| message.contains(word)))
    };
    cluster.until(&format!("{loser} reports a PortCollision with {words:?}"), reported).await;
    cluster.until_event("PortCollision", |event| event.involved_object.name.as_deref() == Some(loser)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collision_names_the_program_that_listens_on_every_address() {
    let cluster = Cluster::start().await;
    // A separate port, since tests run in parallel and this one is taken on all addresses.
    let port = own_port();
    let ports = json!({"ports": [{"containerPort": port}]});
    cluster.create::<Pod>(pod("greedy", container("everywhere", ports.clone()))).await;
    cluster.until_event("ListensOnEveryAddress", |_| true).await;
    cluster.create::<Pod>(pod("victim", container("hello", ports))).await;
    expect_collision(&cluster, "victim", &["default/greedy", "every address", "$HOST:$PORT"]).await;
    cluster.stop().await;
}

/// Returns a port that no other test uses, below those that the kernel allocates. A search for a free port would bind
/// it, and a process that another test is just starting may keep it open for a moment.
fn own_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = u16::try_from(std::process::id() % 5_000).expect("small");
    20_000 + 2 * process + NEXT.fetch_add(1, Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sample_deployment_becomes_ready_and_responds() {
    let cluster = Cluster::start().await;
    let mut count = 0;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../samples");
    for file in std::fs::read_dir(folder).expect("the samples").map(|entry| entry.expect("an entry").path()) {
        if file.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("readable");
        for document in serde_yaml_ng::Deserializer::from_str(&text) {
            let mut object = Value::deserialize(document).expect("valid YAML");
            if object["kind"] != "Deployment" {
                continue;
            }
            object["spec"]["replicas"] = json!(1);
            // Manifests expect the program next to the running binary, but tests run from another folder.
            object["spec"]["template"]["spec"]["containers"][0]["command"][0] = json!(env!("CARGO_BIN_EXE_local"));
            cluster.create::<Deployment>(object).await;
            count += 1;
        }
    }
    assert!(count >= 2, "found only {count} Deployments");
    for pod in cluster.until_pods_ready(count).await {
        let response = first_response(&pod).await;
        assert!(response.contains("200 OK"), "{response}");
    }
    cluster.stop().await;
}

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
    tokio::time::timeout(PATIENCE, all).await.expect("both pods answer");
    let resolver = ServiceResolver::new(cluster.services.clone(), "cluster.local");
    assert_eq!(resolver.resolve("a.default.svc.cluster.local", 8099).await.expect("known"), [address]);
    cluster.patch::<Deployment>("a", json!({"spec": {"replicas": 0}})).await;
    cluster.until("no pods", |pods: &[Pod]| pods.is_empty()).await;
    get(address, "/").await.expect_err("no pod is left");
    cluster.api::<Service>().delete("a", &DeleteParams::default()).await.expect("deleted");
    eventually("the Service to be removed", || cluster.services.lookup("default", "a", 8099).is_none()).await;
    cluster.stop().await;
}
