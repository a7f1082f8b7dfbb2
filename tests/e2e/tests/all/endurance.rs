//! Longer tests: events that must not happen while nothing changes.

use common::names;
use e2e::relay::Relay;
use e2e::test_env::{ASLEEP, SOON};
use e2e::{Entry, TestEnv, Workload};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use local::up::{PlaneId, UpOptions};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// Number of pods that a steady load keeps.
const PODS: usize = 25;
/// Time in which nothing may happen: the default stable window, and the delay until a decision is carried out.
const QUIET: Duration = Duration::from_secs(80);

/// Goal: a steady load keeps its pods. Plain pods report nothing themselves: if the activators left the path, their
/// load would count as zero.
#[tokio::test(flavor = "multi_thread")]
async fn a_steady_load_keeps_its_25_pods() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    // Default configuration except for the target and the maximum.
    let mut workload = Workload::new("plain").env("HELLO_LATENCY_MS", 4000);
    workload.spec = json!({"scale": {"load": {"concurrency": 2}, "max": PODS}});
    env.deploy(&workload).await?;
    let activator = env.cluster.address(PlaneId::Activator(0)).ip().to_string();
    // 35 requests in flight at 70 % of 2 each need 25 pods. The load is twice that, because a slow machine does not
    // always run its clients.
    let clients = env.load(Entry::Service, "plain").start(70, "/");
    env.until(ASLEEP, "25 ready pods", async || Ok(env.ready_pods("plain").await? >= PODS)).await?;
    let end = tokio::time::Instant::now() + QUIET;
    while tokio::time::Instant::now() < end {
        let managed =
            format!("kubernetes.io/service-name=plain,endpointslice.kubernetes.io/managed-by={}", names::MANAGED_BY);
        let slices = env.api::<EndpointSlice>().list(&ListParams::default().labels(&managed)).await?;
        let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        let addresses: BTreeSet<_> = endpoints.flat_map(|endpoint| endpoint.addresses.iter().cloned()).collect();
        assert_eq!(addresses, [activator.clone()].into(), "the path stays with the activators");
        let replicas = env.replicas("plain").await?;
        assert_eq!(replicas, i32::try_from(PODS)?, "the load asks for more");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    clients.end().await?;
    env.end().await
}

/// Goal: missing stats without an attestation do not count as zero.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_stat_link_under_load_scales_nothing_down() -> anyhow::Result<()> {
    let link = Relay::start().await?;
    // The link is joined as soon as the autoscaler's address is known; until then the activator retries.
    let options = UpOptions { stat_url: Some(format!("ws://{}", link.address)), ..UpOptions::default() };
    let env = TestEnv::with_short_grace(options).await?;
    link.join(env.cluster.address(PlaneId::Autoscaler(0)));
    // Four times the load of its three pods, so that a dip while a slow machine does not run its clients has no effect.
    let workload =
        Workload::new("link").env("HELLO_LATENCY_MS", 4000).set("scale.load.concurrency", 10).set("scale.max", 3);
    env.deploy(&workload).await?;
    let clients = env.load(Entry::Service, "link").start(80, "/");
    env.until(ASLEEP, "three ready pods", async || Ok(env.ready_pods("link").await? >= 3)).await?;
    link.cut();
    let end = tokio::time::Instant::now() + QUIET;
    while tokio::time::Instant::now() < end {
        let replicas = env.replicas("link").await?;
        assert!(replicas >= 3, "{replicas} replicas while no activator could report");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    link.join(env.cluster.address(PlaneId::Autoscaler(0)));
    clients.end().await?;
    env.until(SOON + ASLEEP, "sleep once the link is back", async || Ok(env.replicas("link").await? == 0)).await?;
    env.end().await
}
