//! Minutes of it: what must not happen while nothing changes.

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
use tokio_util::sync::CancellationToken;

/// The stable window of the default configuration.
const WINDOW: Duration = Duration::from_secs(60);
/// How long nothing may happen.
const MINUTES: Duration = Duration::from_secs(180);

/// Plain pods report nothing themselves: if the activators left the path, their load would read as none.
#[tokio::test(flavor = "multi_thread")]
async fn steady_load_on_25_plain_pods_never_dips() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    // Default configuration but for the target.
    // Requests that last much longer than a busy client takes between two keep the load what it is meant to be.
    let mut workload = Workload::new("plain").env("HELLO_LATENCY_MS", 4000);
    workload.spec = json!({"scale": {"load": {"concurrency": 2}}});
    env.deploy(&workload).await?;
    let (load, stop) = (env.load(Entry::Ingress, "plain"), CancellationToken::new());
    let activator = env.cluster.address(PlaneId::Activator(0)).ip().to_string();
    let mut stalls = env.stalls.recent(WINDOW);
    // 35 in flight at 70 % of 2 each are 25 pods.
    let steady = tokio::spawn({
        let (load, stop) = (load.clone(), stop.clone());
        async move { load.steady(35, "/", stop).await }
    });
    env.until(ASLEEP, "25 ready pods", async || Ok(env.ready_pods("plain").await? >= 25)).await?;
    let end = tokio::time::Instant::now() + MINUTES;
    while tokio::time::Instant::now() < end {
        let managed =
            format!("kubernetes.io/service-name=plain,endpointslice.kubernetes.io/managed-by={}", names::MANAGED_BY);
        let slices = env.api::<EndpointSlice>().list(&ListParams::default().labels(&managed)).await?;
        let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        let addresses: BTreeSet<_> = endpoints.flat_map(|endpoint| endpoint.addresses.iter().cloned()).collect();
        assert_eq!(addresses, [activator.clone()].into(), "the path stays with the activators");
        let replicas = env.replicas("plain").await?;
        // Clients that stall send less.
        let stalled = stalls.share();
        assert!(
            f64::from(replicas) >= 24.0 - 25.0 * stalled,
            "{replicas} replicas under steady load for 25; threads stalled {stalled:.3} of the window",
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    stop.cancel();
    steady.await?.none_lost()?;
    env.end().await;
    Ok(())
}

/// Silence without attestation is not zero.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_stat_link_under_load_scales_nothing_down() -> anyhow::Result<()> {
    let cable = Relay::start().await?;
    // The cable is joined as soon as the autoscaler's address is known; until then the activator retries.
    let options = UpOptions { stat_url: Some(format!("ws://{}", cable.address)), ..UpOptions::default() };
    let env = TestEnv::with(options).await?;
    cable.join(env.cluster.address(PlaneId::Autoscaler(0)));
    let workload = Workload::new("link").env("HELLO_LATENCY_MS", 1000).set("scale.load.concurrency", 10);
    env.deploy(&workload).await?;
    let (load, stop) = (env.load(Entry::Ingress, "link"), CancellationToken::new());
    let steady = tokio::spawn({
        let (load, stop) = (load.clone(), stop.clone());
        async move { load.steady(20, "/", stop).await }
    });
    env.until(ASLEEP, "three ready pods", async || Ok(env.ready_pods("link").await? >= 3)).await?;
    let settled = env.replicas("link").await?;
    cable.cut();
    let end = tokio::time::Instant::now() + MINUTES;
    while tokio::time::Instant::now() < end {
        let replicas = env.replicas("link").await?;
        assert!(replicas >= settled.min(3), "{replicas} replicas while nobody could report");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    cable.join(env.cluster.address(PlaneId::Autoscaler(0)));
    stop.cancel();
    steady.await?.none_lost()?;
    env.until(SOON + ASLEEP, "sleep once the link is back", async || Ok(env.replicas("link").await? == 0)).await?;
    env.end().await;
    Ok(())
}
