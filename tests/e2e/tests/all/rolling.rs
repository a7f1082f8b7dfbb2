//! Activators that are replaced one after the other, while requests continue.

use anyhow::Context;
use e2e::test_env::{LINGER, SOON};
use e2e::{Entry, Load, LoadOutcome, TestEnv, Workload};
use local::up::{PlaneId, UpOptions};
use std::io::ErrorKind;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const NAME: &str = "rolled";
const ACTIVATORS: usize = 2;
/// Concurrent requests.
const CLIENTS: usize = 8;
/// Number of planes, including the autoscaler.
const PLANES: usize = ACTIVATORS + 1;

fn steady(load: &Load, stop: &CancellationToken) -> JoinHandle<LoadOutcome> {
    let (load, stop) = (load.clone(), stop.clone());
    tokio::spawn(async move { load.steady(CLIENTS, "/", stop).await })
}

/// Goal: an activator that could not start, because its port was in use, is started again.
#[tokio::test(flavor = "multi_thread")]
async fn an_activator_that_could_not_start_is_started_again() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let activator = PlaneId::Activator(0);
    env.cluster.drain_plane(activator).await;
    // A child process of another test also has the socket for a moment, from its fork until it runs its program.
    let taken = tokio::time::timeout(SOON, async {
        loop {
            match tokio::net::TcpListener::bind(env.cluster.address(activator)).await {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    tokio::time::sleep(Duration::from_millis(20)).await
                }
                bound => break bound,
            }
        }
    });
    let taken = taken.await.context("its port is not free")??;
    env.cluster.start_plane(activator)?;
    // Readiness probes get no response; after a few of them the activator has failed at least once.
    for _ in 0..5 {
        taken.accept().await?;
    }
    drop(taken);
    env.cluster.ready_planes(2).await;
    env.end().await;
    Ok(())
}

/// Goal: activators that end in order cost no request, and a workload at zero then wakes through either of them. An
/// activator that is killed loses only the requests in its hands and those that reached it before its last thread
/// ended.
#[tokio::test(flavor = "multi_thread")]
async fn activators_are_replaced_under_load() -> anyhow::Result<()> {
    let env = TestEnv::with(UpOptions { activators: 2, linger: LINGER, ..UpOptions::default() }).await?;
    env.cluster.ready_planes(PLANES).await;
    let awake = Workload::new(NAME).env("HELLO_LATENCY_MS", 20).set("scale.min", 2);
    env.deploy(&awake).await?;
    env.deploy(&Workload::new("asleep")).await?;
    env.until(SOON, "two ready pods", async || Ok(env.ready_pods(NAME).await? == 2)).await?;
    let load = env.load(Entry::Service, NAME);
    assert_eq!(load.get("/").await?.status, 200);

    let stop = CancellationToken::new();
    let running = steady(&load, &stop);
    for n in 0..ACTIVATORS {
        env.cluster.drain_plane(PlaneId::Activator(n)).await;
        env.cluster.start_plane(PlaneId::Activator(n))?;
        env.cluster.ready_planes(PLANES).await;
        env.until_led(NAME, ACTIVATORS).await?; // Like a Deployment's rollout.
    }
    stop.cancel();
    let rolled = running.await?;
    eprintln!("{} answered while both were replaced in order", rolled.ok);
    rolled.none_lost()?;
    let woken = env.load(Entry::Service, "asleep").get("/").await?;
    assert_eq!(woken.status, 200, "it wakes: {:?}", woken.body);

    let stop = CancellationToken::new();
    let running = steady(&load, &stop);
    env.cluster.kill_plane(PlaneId::Activator(0));
    env.cluster.start_plane(PlaneId::Activator(0))?;
    env.cluster.ready_planes(PLANES).await;
    stop.cancel();
    let killed = running.await?;
    eprintln!("{} answered while one was killed, {} lost", killed.ok, killed.failures());
    assert!(killed.failures() <= 2 * CLIENTS, "{:?}", killed.failed);
    env.end().await;
    Ok(())
}
