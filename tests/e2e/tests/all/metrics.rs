//! Scaling by the CPU time that pods really use, together with requests.

use anyhow::Context;
use e2e::test_env::{ASLEEP, SOON};
use e2e::{Entry, TestEnv, Workload};
use kube::Client;
use serde_json::{Value, json};

/// Returns the CPU usage of all pods of `app`, in billionths of a core, according to `metrics.k8s.io`.
async fn cpu_usage(client: &Client, namespace: &str, app: &str) -> anyhow::Result<u64> {
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods?labelSelector=app%3D{app}");
    let list: Value = client.request(http::Request::get(path).body(Vec::new())?).await?;
    anyhow::ensure!(list["kind"] == "PodMetricsList", "{list}");
    let containers = list["items"].as_array().into_iter().flatten().flat_map(|pod| pod["containers"].as_array());
    let cpu = containers.flatten().filter_map(|container| container["usage"]["cpu"].as_str()?.strip_suffix('n'));
    Ok(cpu.filter_map(|nanos| nanos.parse::<u64>().ok()).sum())
}

/// Goal: without a HorizontalPodAutoscaler object, real CPU time adds pods although concurrency requires one. Without
/// load the workload scales to zero, and a request wakes it. Method: twenty requests per second, each of 12 ms of CPU
/// time: 240 millicores. A loaded machine provides only a part of that, hence a target of a sixteenth.
#[tokio::test(flavor = "multi_thread")]
async fn cpu_time_adds_pods_and_idle_time_removes_them() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    if !env.has_metrics().await? {
        eprintln!("this API server does not serve the usage of pods");
        return env.end().await;
    }
    let target = json!({"type": "Utilization", "averageUtilization": 60});
    let workload = Workload::new("cpu")
        .cpu("25m")
        .set("scale.load.concurrency", 1000)
        .set("scale.max", 3)
        .set("metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]))
        .set("behavior", json!({"scaleDown": {"stabilizationWindowSeconds": 1}}))
        .set("scale.grace", "6s");
    env.deploy(&workload).await?;
    let load = env.load(Entry::Service, "cpu");
    load.get_ok("/").await.context("a request wakes it, whatever the metrics")?;
    let computing = load.start_open(20.0, 40, "/?cpu_ms=12");
    env.until(ASLEEP, "three ready pods", async || Ok(env.ready_pods("cpu").await? == 3)).await?;
    let namespace = &env.namespace;
    let busy = async || Ok(cpu_usage(&env.cluster.client(), namespace, "cpu").await? > 30_000_000);
    env.until(SOON, "more usage in metrics.k8s.io than the target of two pods", busy).await?;
    computing.end().await?;
    env.until_asleep("cpu").await?;
    load.get_ok("/").await.context("a request wakes it again")?;
    env.end().await
}
