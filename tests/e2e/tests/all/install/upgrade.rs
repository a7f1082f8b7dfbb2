//! Upgrade under load: each replica is replaced as by a Deployment with `maxUnavailable: 0`, so the new one is ready
//! before the old one has to end. The stat link requires tokens, as in the manifests.

use crate::install::tokens::total_of;
use anyhow::{Context, ensure};
use e2e::test_env::{LINGER, SOON};
use e2e::{Answer, Entry, Load, TestEnv, Workload};
use local::up::{PlaneId, UpOptions};
use std::time::Duration;
use tokio::net::TcpListener;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Concurrent requests while an activator is killed.
const CLIENTS: usize = 8;
/// Reasons for which no stat may be dropped while planes come and go, nor while buckets change owners.
const REASONS: [&str; 8] =
    ["Misrouted", "Expired", "QueueFull", "Impostor", "NotFinite", "Negative", "TooLarge", "Future"];

/// Replaces one replica of a plane. A workload at zero is called when the old one has to end.
async fn replace(env: &TestEnv, old: PlaneId, new: PlaneId) -> anyhow::Result<()> {
    let sleeper = format!("sleeper-{}", old.name());
    env.deploy(&Workload::new(&sleeper)).await?;
    env.cluster.start_plane(new)?;
    env.cluster.wait_until_ready(5).await;
    // Like a Deployment's rollout: the old one ends when another is in the path.
    for name in NAMES.into_iter().chain([&*sleeper]) {
        env.until_addresses(name, |activators| activators >= 2).await?;
    }
    if let PlaneId::Autoscaler(n) = old {
        nothing_is_dropped(env, &[n]).await?;
    }
    let called = Load::new(env.service_address(&sleeper).await?, "sleeper").spawn_get("/");
    env.cluster.drain_plane(old).await;
    env.cluster.wait_until_ready(4).await;
    called.await?.and_then(Answer::ok).with_context(|| sleeper.clone())?;
    Ok(())
}

/// Reports whether threads stalled so long, or so often, that stats may be late and token reviews may time out.
pub(crate) fn is_late(env: &TestEnv) -> bool {
    env.stalls.longest() > Duration::from_millis(500) || env.stalls.total() > Duration::from_secs(5)
}

pub(crate) async fn nothing_is_dropped(env: &TestEnv, autoscalers: &[usize]) -> anyhow::Result<()> {
    for reason in REASONS {
        let dropped = total_of(env, autoscalers, "zeroscale_stats_dropped_total", reason).await?;
        let excused = reason == "Expired" && is_late(env);
        ensure!(dropped == 0.0 || excused, "autoscalers {autoscalers:?} dropped {dropped} stats: {reason}");
    }
    let refused = total_of(env, autoscalers, "zeroscale_stat_refusals_total", "").await?;
    ensure!(refused == 0.0 || is_late(env), "autoscalers {autoscalers:?} refused {refused} handshakes of planes");
    Ok(())
}

/// Goal: no request fails, neither of clients that keep their connections nor of others, nor one that wakes a workload
/// when a plane has to end. No workload is scaled to zero under load, no stat is dropped for one of [`REASONS`]. An idle
/// workload is scaled to zero by the new version, which accepts the stats and attestations of every activator. A killed
/// activator loses only the requests that it carried, and the next ones.
#[tokio::test(flavor = "multi_thread")]
async fn both_planes_are_upgraded_under_load() -> anyhow::Result<()> {
    let options = UpOptions { activators: 2, autoscalers: 2, linger: LINGER, ..UpOptions::default() };
    let env = TestEnv::with_short_grace(options).await?;
    let mut clients = Vec::new();
    for name in NAMES {
        env.deploy(&Workload::new(name).env("HELLO_LATENCY_MS", 50)).await?;
        let load = env.load(Entry::Service, name);
        env.until(SOON, "an ingress that knows it", async || Ok(load.get("/").await?.status == 200)).await?;
        clients.push(load.start(3, "/"));
        clients.push(Load::new(env.service_address(name).await?, name).start(2, "/"));
    }
    for name in NAMES {
        env.until(SOON, "a ready pod", async || Ok(env.ready_pods(name).await? >= 1)).await?;
    }
    // Old and new activators meet old and new autoscalers.
    for n in 0..2 {
        replace(&env, PlaneId::Activator(n), PlaneId::Activator(2 + n)).await?;
        replace(&env, PlaneId::Autoscaler(n), PlaneId::Autoscaler(2 + n)).await?;
    }
    for name in NAMES {
        ensure!(env.replicas(name).await? >= 1, "{name} was scaled to zero under load");
    }
    for clients in clients {
        ensure!(clients.end().await?.ok > 0);
    }
    for name in NAMES {
        env.until_asleep(name).await?;
    }
    nothing_is_dropped(&env, &[2, 3]).await?;
    ensure!(total_of(&env, &[2, 3], "zeroscale_stats_recorded_total", "").await? > 0.0);

    let load = env.load(Entry::Service, NAMES[0]);
    load.get_ok("/").await?;
    let running = load.start(CLIENTS, "/");
    env.cluster.kill_plane(PlaneId::Activator(2));
    env.cluster.start_plane(PlaneId::Activator(2))?;
    env.cluster.wait_until_ready(4).await;
    let killed = running.stop().await;
    eprintln!("{} answered while one was killed, {} lost", killed.ok, killed.failures());
    ensure!(killed.failures() <= 2 * CLIENTS, "{:?}", killed.failed);
    a_failed_start_is_repeated(&env, PlaneId::Activator(3)).await?;
    env.end().await
}

/// Goal: an activator that could not start, because its port was in use, is started again.
async fn a_failed_start_is_repeated(env: &TestEnv, activator: PlaneId) -> anyhow::Result<()> {
    env.cluster.drain_plane(activator).await;
    // A child process of another test also has the socket for a moment, from its fork until it runs its program.
    let mut taken = None;
    env.until(SOON, "its port to be free", async || {
        taken = TcpListener::bind(env.cluster.address(activator)).await.ok();
        Ok(taken.is_some())
    })
    .await?;
    let taken = taken.context("just bound")?;
    env.cluster.start_plane(activator)?;
    // Readiness probes get no response; after a few of them the activator has failed at least once.
    for _ in 0..5 {
        taken.accept().await?;
    }
    drop(taken);
    env.cluster.wait_until_ready(4).await;
    Ok(())
}
