//! Pods of several containers, and pods without a listener on their port.

use common_api::ZeroScaler;
use e2e::test_env::program;
use e2e::{Entry, TestEnv, Workload};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use local::up::UpOptions;
use serde_json::json;
use std::time::Duration;

/// Time that the sidecar takes to start.
const STARTS: Duration = Duration::from_millis(1500);

/// Goal: a request also waits for the sidecar's readiness probe, on the activator's schedule and not on the kubelet's;
/// once awake it does not wait. Method: the sidecar is slow, and the kubelet's period is a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_for_the_sidecar() -> anyhow::Result<()> {
    let env = TestEnv::with_short_grace(UpOptions::default()).await?;
    let workload = Workload::new("pair");
    let mut deployment = workload.deployment(&program()?);
    let sidecar = json!({
        "name": "proxy", "image": "local/hello", "command": [program()?],
        "ports": [{"name": "status", "containerPort": 15021}],
        "env": [{"name": "HELLO_START_MS", "value": STARTS.as_millis().to_string()}],
        "readinessProbe": {"httpGet": {"path": "/healthz/ready", "port": "status"}, "periodSeconds": 60},
    });
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array_mut().expect("containers");
    containers.insert(0, sidecar);
    env.create::<Deployment>(deployment).await?;
    env.create::<Service>(workload.service()).await?;
    env.create::<ZeroScaler>(workload.scaler()).await?;
    env.until_served("pair").await?;
    let load = env.load(Entry::Activator, "pair");
    let cold = load.get("/").await?;
    anyhow::ensure!(cold.status == 200 && cold.took >= STARTS, "{cold:?}");
    anyhow::ensure!(cold.took < Duration::from_secs(20), "it waited for the kubelet: {cold:?}");
    let warm = load.get("/").await?;
    anyhow::ensure!(warm.status == 200 && warm.took < STARTS, "{warm:?}");
    env.end().await
}
