//! Every part as a separate process ([`e2e::parts`]): each may be killed, and the API server may be unavailable.

use anyhow::Context;
use e2e::parts::{Parts, Plane};
use e2e::space::SOON;
use e2e::{Load, Process, Space, Workload};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::ListParams;
use std::time::Duration;

/// Duration of the API server's outage: longer than a lease. `E2E_OUTAGE_SECONDS` overrides it.
const OUTAGE: Duration = Duration::from_secs(17);

/// Checks an outage of the API server: no running workload is scaled down for missing data, a workload at zero wakes as
/// soon as the API server is back, and no request is lost. `asleep` is a client of a workload at zero.
async fn an_api_server_outage_costs_no_request(
    space: &Space,
    api: &Process,
    activator: Plane,
    asleep: &Load,
) -> anyhow::Result<()> {
    let outage = std::env::var("E2E_OUTAGE_SECONDS").ok().map(|text| text.parse().map(Duration::from_secs));
    let outage = outage.transpose().context("E2E_OUTAGE_SECONDS")?.unwrap_or(OUTAGE);
    space.deploy(&Workload::new("busy").env("HELLO_LATENCY_MS", 100)).await?;
    let busy = Load::new(activator.address, format!("busy.{}", space.namespace)).start(3, "/");
    space.until(SOON, "a ready pod", async || Ok(space.ready_pods("busy").await? >= 1)).await?;

    api.freeze()?;
    // The fault itself. A client here waits for a minute, so it sends its request in the last part of a longer outage.
    tokio::time::sleep(outage.saturating_sub(OUTAGE)).await;
    let held = asleep.spawn_get("/");
    tokio::time::sleep(outage.min(OUTAGE)).await;
    api.thaw()?;
    held.await??.ok()?;
    // The autoscaler that now decides has observed less than a window of the load.
    let end = tokio::time::Instant::now() + Duration::from_secs(8);
    while tokio::time::Instant::now() < end {
        assert!(space.replicas("busy").await? >= 1, "scaled to zero under load");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    busy.end().await?;
    Ok(())
}

/// Goal: a request gets a response although each plane, or both in either order, was killed before; the scenarios above
/// and below follow in the same cluster.
#[tokio::test(flavor = "multi_thread")]
async fn requests_outlive_killed_planes_and_an_api_server_outage() -> anyhow::Result<()> {
    let parts = Parts::start(&[("scale-to-zero-grace-period", "6s")]).await?;
    let (activator, autoscaler) = (parts.activator, parts.autoscaler);
    let deciding = parts.run(autoscaler).await?;
    let forwarding = parts.run(activator).await?;

    let space = Space::create_in(parts.client.clone()).await?;
    space.deploy(&Workload::new("hello")).await?;
    let load = Load::new(activator.address, format!("hello.{}", space.namespace));
    load.get_ok("/").await?;
    space.until_asleep("hello").await?;

    // No autoscaler runs while the request arrives; it waits for the next one.
    parts.kill(autoscaler, deciding).await?;
    let held = load.spawn_get("/");
    let deciding = parts.run(autoscaler).await?;
    held.await??.ok()?;
    space.until_asleep("hello").await?;

    parts.kill(activator, forwarding).await?;
    load.get("/").await.expect_err("no activator listens");
    let forwarding = parts.run(activator).await?;
    load.get_ok("/").await?;

    // Both, in either order, while a pod runs.
    parts.kill(autoscaler, deciding).await?;
    parts.kill(activator, forwarding).await?;
    let forwarding = parts.run(activator).await?;
    let deciding = parts.run(autoscaler).await?;
    load.get_ok("/").await?;
    parts.kill(activator, forwarding).await?;
    parts.kill(autoscaler, deciding).await?;
    let deciding = parts.run(autoscaler).await?;
    let forwarding = parts.run(activator).await?;
    load.get_ok("/").await?;
    space.until_asleep("hello").await?;

    let forwarding = slices_are_kept_while_the_only_activator_is_not_ready(&parts, &space, forwarding).await?;
    space.until_asleep("hello").await?;
    an_api_server_outage_costs_no_request(&space, &parts.api, activator, &load).await?;

    space.delete().await?;
    parts.end(forwarding, deciding).await
}

/// Returns the addresses in a Service's slices, and the version of each slice.
async fn slices(space: &Space, service: &str) -> anyhow::Result<Vec<(Vec<String>, Option<String>)>> {
    let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
    let found = space.api::<EndpointSlice>().list(&of_service).await?.items.into_iter().map(|slice| {
        let version = slice.resource_version();
        (slice.endpoints.into_iter().flatten().flat_map(|endpoint| endpoint.addresses).collect(), version)
    });
    Ok(found.collect())
}

/// Goal: a single activator that is suspended, or killed and restarted, is not ready for a moment. The slices of
/// workloads at zero are not rewritten for it, and requests that arrive meanwhile get a response afterwards.
async fn slices_are_kept_while_the_only_activator_is_not_ready(
    parts: &Parts,
    space: &Space,
    forwarding: Process,
) -> anyhow::Result<Process> {
    let load = Load::new(space.service_address("hello").await?, format!("hello.{}", space.namespace));
    let activator = [parts.activator.address.ip().to_string()];
    let until_to_activator = async || {
        let is_so = async || Ok(slices(space, "hello").await?.iter().all(|(to, _)| *to == activator));
        space.until(SOON, "slices that lead to the activator", is_so).await
    };

    // A workload that is created now gets no endpoints, which proves that the autoscaler knows the activator's state.
    let until_known = async |new: &str| {
        let before = slices(space, "hello").await?;
        anyhow::ensure!(before.len() == 1 && before[0].0 == activator, "{before:?}");
        parts.publish(parts.activator, false).await?;
        space.create_workload(&Workload::new(new)).await?;
        let is_numbered = async || {
            let allocated = space.condition(new, "PortsAllocated").await?;
            Ok(allocated.is_some_and(|(status, ..)| status == "True"))
        };
        space.until(SOON, "a number", is_numbered).await?;
        anyhow::ensure!(!space.scaler(new).await?.is_ready(), "{new}: no activator is ready to serve it");
        let after = slices(space, "hello").await?;
        anyhow::ensure!(after == before, "{after:?} after {before:?}");
        Ok(())
    };
    until_to_activator().await?;
    forwarding.freeze()?;
    until_known("still").await?;
    let held = load.spawn_get("/");
    forwarding.thaw()?;
    held.await??.ok()?;
    parts.publish(parts.activator, true).await?;
    space.until_served("still").await?;
    // The pod had the traffic while the activator was not ready.
    space.until_asleep("hello").await?;
    until_to_activator().await?;

    forwarding.kill().await?;
    until_known("dead").await?;
    let forwarding = parts.run(parts.activator).await?;
    load.get_ok("/").await?;
    Ok(forwarding)
}
