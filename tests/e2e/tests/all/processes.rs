//! Every part as a separate process ([`e2e::parts`]): each may be killed, and the API server may be unavailable.

use e2e::parts::{Parts, Plane};
use e2e::space::SOON;
use e2e::{Load, Process, Space, Workload};
use std::time::Duration;

/// Duration of the API server's outage: longer than a lease.
const OUTAGE: Duration = Duration::from_secs(17);

/// Checks an outage of the API server: no running workload is scaled down for missing data, a workload at zero wakes as
/// soon as the API server is back, and no request is lost. `asleep` is a client of a workload at zero.
async fn an_api_server_outage_costs_no_request(
    space: &Space,
    api: &Process,
    activator: Plane,
    asleep: &Load,
) -> anyhow::Result<()> {
    space.deploy(&Workload::new("busy").env("HELLO_LATENCY_MS", 100)).await?;
    let busy = Load::new(activator.address, format!("busy.{}", space.namespace)).start(3, "/");
    space.until(SOON, "a ready pod", async || Ok(space.ready_pods("busy").await? >= 1)).await?;

    api.freeze()?;
    let held = asleep.spawn_get("/");
    tokio::time::sleep(OUTAGE).await; // The fault itself.
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

/// Goal: a request gets a response although each plane, or both in either order, was killed before; the scenario above
/// follows in the same cluster.
#[tokio::test(flavor = "multi_thread")]
async fn requests_outlive_killed_planes_and_an_api_server_outage() -> anyhow::Result<()> {
    let parts = Parts::start().await?;
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

    an_api_server_outage_costs_no_request(&space, &parts.api, activator, &load).await?;

    space.delete().await?;
    parts.end(forwarding, deciding).await
}
