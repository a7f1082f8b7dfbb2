//! Upgrade under load: each replica is replaced as by a Deployment with `maxUnavailable: 0`, so the new one is ready
//! before the old one has to end. The stat link requires tokens, as in the manifests.

use crate::install::tokens::total_of;
use anyhow::ensure;
use e2e::test_env::{LINGER, SOON};
use e2e::{Entry, LoadOutcome, TestEnv, Workload};
use local::up::{PlaneId, UpOptions};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Reasons for which no stat may be dropped while planes come and go, nor while buckets change owners.
pub(crate) const REASONS: [&str; 8] =
    ["Misrouted", "Expired", "QueueFull", "Impostor", "NotFinite", "Negative", "TooLarge", "Future"];

/// Replaces both replicas of a plane, one after the other; the new ones are numbered from `new` on.
async fn roll(env: &TestEnv, plane: fn(usize) -> PlaneId, (old, new): (usize, usize)) -> anyhow::Result<()> {
    for n in 0..2 {
        env.cluster.start_plane(plane(new + n))?;
        env.cluster.ready_planes(5).await;
        // Like a Deployment's rollout: the old one ends when another is in the path.
        for name in NAMES {
            env.until_led_by(name, |activators| activators >= 2).await?;
        }
        if plane(0) == PlaneId::Autoscaler(0) {
            nothing_is_dropped(env, &[old + n]).await?;
        }
        env.cluster.drain_plane(plane(old + n)).await;
        env.cluster.ready_planes(4).await;
    }
    Ok(())
}

/// Reports whether threads stalled so long, or so often, that stats may be late and token reviews may time out.
pub(crate) fn is_late(env: &TestEnv) -> bool {
    env.stalls.longest() > Duration::from_millis(500) || env.stalls.total() > Duration::from_secs(5)
}

async fn nothing_is_dropped(env: &TestEnv, autoscalers: &[usize]) -> anyhow::Result<()> {
    for reason in REASONS {
        let dropped = total_of(env, autoscalers, "zeroscale_stats_dropped_total", reason).await?;
        let excused = reason == "Expired" && is_late(env);
        ensure!(dropped == 0.0 || excused, "autoscalers {autoscalers:?} dropped {dropped} stats: {reason}");
    }
    let refused = total_of(env, autoscalers, "zeroscale_stat_refusals_total", "").await?;
    ensure!(refused == 0.0 || is_late(env), "autoscalers {autoscalers:?} refused {refused} handshakes of planes");
    Ok(())
}

fn steady(env: &TestEnv, name: &str, stop: &CancellationToken) -> JoinHandle<LoadOutcome> {
    let (load, stop) = (env.load(Entry::Service, name), stop.clone());
    tokio::spawn(async move { load.steady(3, "/", stop).await })
}

/// Goal: no request fails, no workload is scaled to zero under load, no stat is dropped for one of [`REASONS`]. An idle
/// workload is scaled to zero by the new version, which accepts the stats and attestations of every activator.
async fn upgraded_under_load(first: fn(usize) -> PlaneId, second: fn(usize) -> PlaneId) -> anyhow::Result<()> {
    let options = UpOptions { activators: 2, autoscalers: 2, linger: LINGER, ..UpOptions::default() };
    let env = TestEnv::sleeping_soon(options).await?;
    let stop = CancellationToken::new();
    let mut clients = Vec::new();
    for name in NAMES {
        env.deploy(&Workload::new(name).env("HELLO_LATENCY_MS", 50)).await?;
        let load = env.load(Entry::Service, name);
        env.until(SOON, "an ingress that knows it", async || Ok(load.get("/").await?.status == 200)).await?;
        clients.push(steady(&env, name, &stop));
    }
    for name in NAMES {
        env.until(SOON, "a ready pod", async || Ok(env.ready_pods(name).await? >= 1)).await?;
    }
    roll(&env, first, (0, 2)).await?;
    roll(&env, second, (0, 2)).await?;
    for name in NAMES {
        ensure!(env.replicas(name).await? >= 1, "{name} was put to sleep under load");
    }
    stop.cancel();
    for client in clients {
        let outcome = client.await?;
        outcome.none_lost()?;
        ensure!(outcome.ok > 0);
    }
    for name in NAMES {
        env.until_asleep(name).await?;
    }
    nothing_is_dropped(&env, &[2, 3]).await?;
    ensure!(total_of(&env, &[2, 3], "zeroscale_stats_recorded_total", "").await? > 0.0);
    env.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn activators_first() -> anyhow::Result<()> {
    upgraded_under_load(PlaneId::Activator, PlaneId::Autoscaler).await
}

#[tokio::test(flavor = "multi_thread")]
async fn autoscalers_first() -> anyhow::Result<()> {
    upgraded_under_load(PlaneId::Autoscaler, PlaneId::Activator).await
}
