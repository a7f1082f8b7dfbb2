//! Several activators and pods with a hard limit: the default binaries, each as a separate process, in either kind of
//! installation. Pods count their concurrent requests.
//!
//! Each client sends its next request when it has a response, and there are more clients than pods. So pods are never
//! idle, and the distribution of requests over clients and pods does not depend on the speed of the machine.

use anyhow::ensure;
use common_runtime::environment::Mode;
use e2e::space::SOON;
use e2e::{CountingPods, MultiActivatorCluster, Process};
use faults::stalls::Stalls;
use std::time::Duration;

const WORK: Duration = Duration::from_millis(50);
const PODS: u32 = 5;

/// Two activators that share one limit.
struct SharedLimit {
    cluster: MultiActivatorCluster,
    pods: CountingPods,
    activators: Vec<Process>,
}

impl SharedLimit {
    async fn start(mode: Mode) -> anyhow::Result<Self> {
        let cluster = MultiActivatorCluster::start(mode).await?;
        let pods = CountingPods::start(&cluster.pod_addresses(PODS)?, WORK).await?;
        let mut activators = Vec::new();
        for n in [0, 1] {
            activators.push(Process::start("activator", &[], &cluster.environment(n))?);
        }
        for n in [0, 1] {
            cluster.until_serving(n).await?;
        }
        cluster.publish(&[(0, true), (1, true)]).await?;
        cluster.set_pods(&pods.addresses()).await?;
        for n in [0, 1] {
            cluster.until_sharing(n, "shared").await?;
            ensure!(cluster.load(n).get("/").await?.status == 200, "activator {n}");
        }
        Ok(Self { cluster, pods, activators })
    }

    /// Waits until every pod has responded to `more` requests since `before` was taken.
    async fn until_served(&self, what: &str, before: &[u64], more: u64) -> anyhow::Result<()> {
        let reached = || self.pods.served().iter().zip(before).all(|(now, before)| *now >= before + more);
        until(what, reached).await
    }
}

async fn until(what: &str, mut reached: impl FnMut() -> bool) -> anyhow::Result<()> {
    let (begun, stalls) = (tokio::time::Instant::now(), Stalls::new());
    while !reached() {
        ensure!(begun.elapsed() < SOON + stalls.total(), "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Goal: each client is served as often as any other, whichever activator it uses, although one activator has three
/// times as many clients, and pods have equal shares. A killed activator loses only the requests that it carried, and
/// the other one has all pods soon. No pod ever runs two requests at once.
async fn two_activators_share_one_limit(mode: Mode) -> anyhow::Result<()> {
    let shared = SharedLimit::start(mode).await?;
    let (few, many) = (4, 12);
    let before = shared.pods.served();
    let [at_few, at_many] = [shared.cluster.load(0).start(few, "/"), shared.cluster.load(1).start(many, "/")];
    shared.until_served("every pod's part", &before, 60).await?;
    let [few_served, many_served] = [at_few.end().await?.ok, at_many.end().await?.ok];
    let each: Vec<u64> = shared.pods.served().iter().zip(&before).map(|(now, before)| now - before).collect();
    eprintln!("{mode:?}: {few_served} answers for {few} clients, {many_served} for {many}; pods: {each:?}");

    let all: u64 = each.iter().sum();
    let even = |served: &u64| (12..=28).contains(&(100 * served / all));
    ensure!(each.iter().all(even), "shares of pods: {each:?}");
    // With divided pods, a client of the few would get three times as much as one of the many.
    let ratio = (few_served as f64 / few as f64) / (many_served as f64 / many as f64);
    ensure!((0.55..=1.8).contains(&ratio), "a client of the few has {ratio:.2} times as much as one of the many");
    the_survivor_has_all_pods(shared).await
}

/// Kills the first activator. Both have more clients than pods, so that the killed one has some on all pods.
async fn the_survivor_has_all_pods(mut shared: SharedLimit) -> anyhow::Result<()> {
    let before = shared.pods.served();
    let surviving = shared.cluster.load(1).start(8, "/");
    let carried: Vec<_> = (0..8)
        .map(|_| {
            let load = shared.cluster.load(0);
            // Until the activator is gone.
            tokio::spawn(async move { while load.get("/").await.is_ok_and(|answer| answer.status == 200) {} })
        })
        .collect();
    shared.until_served("both to be under way", &before, 10).await?;
    ensure!(carried.iter().all(|client| !client.is_finished()), "something was lost before");
    shared.activators.remove(0).kill().await?;
    shared.cluster.publish(&[(1, true)]).await?;
    for client in carried {
        client.await?;
    }
    let before = shared.pods.served();
    shared.until_served("all pods to be used by the other one", &before, 10).await?;
    shared.cluster.until_sharing(1, "alone").await?;
    let before = shared.pods.served();
    shared.until_served("all pods to be used by the one that is alone", &before, 10).await?;
    surviving.end().await?;
    ensure!(shared.pods.most() == 1, "a pod ran {} requests at once", shared.pods.most());
    for activator in shared.activators {
        activator.kill().await?;
    }
    Ok(())
}

/// Goal: if one of them is configured not to share, like one of an older version, none shares, and all requests get a
/// response under the limit.
#[tokio::test(flavor = "multi_thread")]
async fn one_activator_that_does_not_share_makes_all_divide() -> anyhow::Result<()> {
    let cluster = MultiActivatorCluster::start(Mode::Knative).await?;
    let pods = CountingPods::start(&cluster.pod_addresses(4)?, WORK).await?;
    let mut activators = Vec::new();
    for n in [0, 1] {
        let mut env = cluster.environment(n);
        if n == 0 {
            env.push(("ZEROSCALE_SHARE_PODS", "false".to_owned()));
        }
        activators.push(Process::start("activator", &[], &env)?);
    }
    for n in [0, 1] {
        cluster.until_serving(n).await?;
    }
    cluster.publish(&[(0, true), (1, true)]).await?;
    cluster.set_pods(&pods.addresses()).await?;
    cluster.until_sharing(1, "divided").await?;
    let clients = [cluster.load(0).start(4, "/"), cluster.load(1).start(4, "/")];
    until("every pod's part", || pods.served().iter().all(|served| *served >= 10)).await?;
    for clients in clients {
        ensure!(clients.end().await?.ok > 0);
    }
    ensure!(pods.most() == 1, "a pod ran {} requests at once", pods.most());
    for activator in activators {
        activator.kill().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_activators_share_one_limit_in_standalone() -> anyhow::Result<()> {
    two_activators_share_one_limit(Mode::Standalone).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_activators_share_one_limit_in_place_of_knatives() -> anyhow::Result<()> {
    two_activators_share_one_limit(Mode::Knative).await
}
