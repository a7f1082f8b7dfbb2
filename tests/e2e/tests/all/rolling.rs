//! Activators that are replaced one after the other, while requests continue.

use anyhow::{Context, ensure};
use common_api::ZeroScaler;
use e2e::test_env::{LINGER, SOON};
use e2e::{Answer, Entry, Load, TestEnv, Workload};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::DeleteParams;
use local::up::{PlaneId, UpOptions};
use std::io::ErrorKind;
use std::time::Duration;
use tokio::net::TcpListener;

const ACTIVATORS: usize = 2;
/// Concurrent requests.
const CLIENTS: usize = 8;
/// Number of planes, including the autoscaler.
const PLANES: usize = ACTIVATORS + 1;

/// Returns how often activators are rolled, and the minimum number of requests; `E2E_ROLLS` overrides them, such as
/// `10,100000`.
fn rolls() -> anyhow::Result<(usize, usize)> {
    let text = std::env::var("E2E_ROLLS").unwrap_or_else(|_| "2,200".to_owned());
    let (rolls, requests) = text.split_once(',').context("E2E_ROLLS: ROLLS,REQUESTS")?;
    Ok((rolls.parse()?, requests.parse()?))
}

/// Goal: replacing activators under load costs no request, neither to a workload that is awake, nor to one that is
/// woken when an activator has to end. A killed activator loses only the requests that it carried, and the next ones.
#[tokio::test(flavor = "multi_thread")]
async fn activators_are_replaced_under_load() -> anyhow::Result<()> {
    let (rolls, requests) = rolls()?;
    let env = TestEnv::with(UpOptions { activators: 2, linger: LINGER, ..UpOptions::default() }).await?;
    env.deploy(&Workload::new("rolled").env("HELLO_LATENCY_MS", 50).set("scale.min", 2)).await?;
    env.until(SOON, "two ready pods", async || Ok(env.ready_pods("rolled").await? == 2)).await?;
    // Clients that keep their connections to the Service's own address, and clients that connect anew each time.
    let persistent = Load::new(env.service_address("rolled").await?, "rolled");
    let anew = env.load(Entry::Service, "rolled");
    let (mut rolled, mut answered) = (0, 0);
    while rolled < rolls || answered < requests {
        let running = [persistent.start(CLIENTS / 2, "/"), anew.start(CLIENTS / 2, "/")];
        for n in 0..ACTIVATORS {
            let sleeper = format!("sleeper-{rolled}-{n}");
            env.deploy(&Workload::new(&sleeper)).await?;
            env.until_addresses(&sleeper, ACTIVATORS).await?;
            let called = Load::new(env.service_address(&sleeper).await?, "sleeper").spawn_get("/");
            env.cluster.drain_plane(PlaneId::Activator(n)).await;
            env.cluster.start_plane(PlaneId::Activator(n))?;
            env.cluster.wait_until_ready(PLANES).await;
            // Like a Deployment's rollout: the next one ends when the one before is in the path.
            env.until_addresses("rolled", ACTIVATORS).await?;
            called.await?.and_then(Answer::ok).with_context(|| sleeper.clone())?;
            env.api::<ZeroScaler>().delete(&sleeper, &DeleteParams::default()).await?;
            env.api::<Deployment>().delete(&sleeper, &DeleteParams::default()).await?;
        }
        for clients in running {
            let outcome = clients.end().await.with_context(|| format!("roll {rolled}, after {answered} requests"))?;
            answered += outcome.ok;
        }
        rolled += 1;
    }
    eprintln!("{answered} requests and {} wakes through {rolled} rolls", 2 * rolled);

    let running = anew.start(CLIENTS, "/");
    env.cluster.kill_plane(PlaneId::Activator(0));
    env.cluster.start_plane(PlaneId::Activator(0))?;
    env.cluster.wait_until_ready(PLANES).await;
    let killed = running.stop().await?;
    eprintln!("{} answered while one was killed, {} lost", killed.ok, killed.failures());
    ensure!(killed.failures() <= 2 * CLIENTS, "{:?}", killed.failed);
    a_failed_start_is_repeated(&env, PlaneId::Activator(1)).await?;
    env.end().await
}

/// Goal: an activator that could not start, because its port was in use, is started again.
async fn a_failed_start_is_repeated(env: &TestEnv, activator: PlaneId) -> anyhow::Result<()> {
    env.cluster.drain_plane(activator).await;
    // A child process of another test also has the socket for a moment, from its fork until it runs its program.
    let taken = tokio::time::timeout(SOON, async {
        loop {
            match TcpListener::bind(env.cluster.address(activator)).await {
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
    env.cluster.wait_until_ready(PLANES).await;
    Ok(())
}
