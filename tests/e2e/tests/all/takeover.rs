//! An autoscaler that owns workloads under load ends, in order or by a crash.

use anyhow::Context;
use common::RevisionKey;
use common::ownership::{bucket_names, owner};
use e2e::test_env::{ASLEEP, SOON};
use e2e::{Entry, TestEnv, Workload};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use local::up::{PlaneId, UpOptions, system};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// Duration of leases here: long enough to distinguish an orderly exit on a slow machine from an expired lease.
const LEASE: Duration = Duration::from_secs(8);
/// Time that a takeover may take after a lease's end or an orderly exit.
const TAKEOVER: Duration = Duration::from_secs(4);
const BUCKETS: u32 = 4; // Standalone's default.
const NAME: &str = "owned";

/// Starts two autoscalers with short leases.
async fn env() -> anyhow::Result<TestEnv> {
    let env = TestEnv::with(UpOptions { autoscalers: 2, ..UpOptions::default() }).await?;
    let data = json!({"lease-duration": "8s", "renew-deadline": "6s", "retry-period": "1s"});
    env.configure("config-leader-election", data).await?;
    for n in 0..2 {
        env.cluster.drain_plane(PlaneId::Autoscaler(n)).await; // The lease settings are read at the start.
        env.cluster.start_plane(PlaneId::Autoscaler(n))?;
    }
    env.cluster.wait_until_ready(3).await;
    Ok(env)
}

/// Returns the holder of the workload's lease, or `None` if there currently is none.
async fn holder(env: &TestEnv) -> anyhow::Result<Option<PlaneId>> {
    let names = bucket_names(BUCKETS);
    let key = RevisionKey::new(env.namespace.as_str(), NAME);
    let lease = owner(&names, &key.to_string()).context("buckets")?;
    let leases: Api<Lease> = Api::namespaced(env.client.clone(), system::NAMESPACE);
    let holder = leases.get(lease).await?.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    Ok((0..2).map(PlaneId::Autoscaler).find(|plane| holder.starts_with(&format!("{}_", plane.name()))))
}

/// Waits until a process other than `former` holds the lease; returns it and the time since `since`.
async fn next_holder(env: &TestEnv, former: Option<PlaneId>, since: Instant) -> anyhow::Result<(PlaneId, Duration)> {
    let mut next = None;
    env.until(SOON, "another owner", async || {
        next = holder(env).await?.filter(|holder| Some(*holder) != former);
        Ok(next.is_some())
    })
    .await?;
    Ok((next.context("just found")?, since.elapsed()))
}

/// Goal: after an orderly exit another process takes over within seconds, after a crash within the lease duration and
/// these seconds. Meanwhile the replicas do not decrease, a ten-fold surge that begins with the crash is scaled up to,
/// and no request is lost.
#[tokio::test(flavor = "multi_thread")]
async fn another_autoscaler_takes_over_under_load() -> anyhow::Result<()> {
    let env = env().await?;
    // Requests of half a second, seven per pod.
    let workload = Workload::new(NAME).env("HELLO_LATENCY_MS", 500).set("scale.load.concurrency", 10);
    env.deploy(&workload).await?;
    let load = env.load(Entry::Activator, NAME);
    let calm = load.start(4, "/");
    env.until(ASLEEP, "a ready pod", async || Ok(env.ready_pods(NAME).await? >= 1)).await?;

    let (first, _) = next_holder(&env, None, Instant::now()).await?;
    let (begun, stalled) = (Instant::now(), env.stalls.total());
    let (drained, taken) = tokio::join!(env.cluster.drain_plane(first), next_holder(&env, Some(first), begun));
    let ((), (second, took)) = (drained, taken?);
    let lost = env.stalls.total() - stalled;
    assert!(took < TAKEOVER + lost, "taken over {took:?} after an orderly exit began");
    env.cluster.start_plane(first)?;
    env.cluster.wait_until_ready(3).await;
    assert!(env.replicas(NAME).await? >= 1);

    // The lease may have been handed back by now.
    let second = holder(&env).await?.unwrap_or(second);
    let before = env.replicas(NAME).await?;
    env.cluster.kill_plane(second);
    let (killed, stalled) = (Instant::now(), env.stalls.total());
    let surge = load.start(40, "/");
    let (_, took) = next_holder(&env, Some(second), killed).await?;
    let lost = env.stalls.total() - stalled;
    assert!(took < LEASE + TAKEOVER + lost, "taken over {took:?} after a crash");
    env.until(ASLEEP, "replicas for ten times the load", async || {
        let replicas = env.replicas(NAME).await?;
        assert!(replicas >= before, "{replicas} replicas under load, {before} before");
        Ok(replicas >= 6)
    })
    .await?;
    env.until(ASLEEP, "pods for ten times the load", async || Ok(env.ready_pods(NAME).await? >= 6)).await?;
    calm.end().await?;
    surge.end().await?;
    env.end().await
}
