//! Several activators and pods with a hard limit: the default binaries, each as a separate process, in either kind of
//! installation. Pods count their concurrent requests.
//!
//! Each client sends its next request when it has a response, and there are more clients than pods. So pods are never
//! idle, and the distribution of requests over clients and pods does not depend on the speed of the machine.

use anyhow::ensure;
use common_runtime::environment::Mode;
use e2e::space::until;
use e2e::{CountingPods, MultiActivatorCluster, Process};
use std::time::Duration;

const WORK: Duration = Duration::from_millis(50);

/// Two activators that share one limit.
struct SharedLimit {
    cluster: MultiActivatorCluster,
    pods: CountingPods,
    activators: Vec<Process>,
}

impl SharedLimit {
    /// Starts everything; the first activator has this further environment. Waits until the second one reports this use
    /// of the pods.
    async fn start(mode: Mode, pods: u32, more: &[(&'static str, String)], sharing: &str) -> anyhow::Result<Self> {
        let cluster = MultiActivatorCluster::start(mode).await?;
        let pods = CountingPods::start(&cluster.pod_addresses(pods)?, WORK).await?;
        let first = [&cluster.environment(0)[..], more].concat();
        let activators =
            vec![Process::start("activator", &[], &first)?, Process::start("activator", &[], &cluster.environment(1))?];
        for n in [0, 1] {
            cluster.until_serving(n).await?;
        }
        cluster.publish(&[(0, true), (1, true)]).await?;
        cluster.set_pods(&pods.addresses()).await?;
        cluster.until_sharing(1, sharing).await?;
        for n in [0, 1] {
            ensure!(cluster.load(n).get("/").await?.status == 200, "activator {n}");
        }
        Ok(Self { cluster, pods, activators })
    }

    /// Waits until every pod has responded to `more` requests since `before` was taken.
    async fn until_served(&self, what: &str, before: &[u64], more: u64) -> anyhow::Result<()> {
        let reached = || self.pods.served().iter().zip(before).all(|(now, before)| *now >= before + more);
        until(what, async || reached()).await
    }

    /// Ends the activators. No pod may have run two requests at once.
    async fn end(self) -> anyhow::Result<()> {
        ensure!(self.pods.most() == 1, "a pod ran {} requests at once", self.pods.most());
        for mut activator in self.activators {
            activator.kill().await?;
        }
        Ok(())
    }
}

/// Goal: each client is served as often as any other, whichever activator it uses, although one activator has three
/// times as many clients, and pods have equal shares. A killed activator loses only the requests that it carried, and
/// the other one has all pods soon. No pod ever runs two requests at once.
async fn two_activators_share_one_limit(mode: Mode) -> anyhow::Result<()> {
    let shared = SharedLimit::start(mode, 5, &[], "shared").await?;
    shared.cluster.until_sharing(0, "shared").await?;
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
    shared.end().await
}

/// Goal: if one of them is configured not to share, like one of an older version, none shares, and all requests get a
/// response under the limit.
#[tokio::test(flavor = "multi_thread")]
async fn one_activator_that_does_not_share_makes_all_divide() -> anyhow::Result<()> {
    let own = [("ZEROSCALE_SHARE_PODS", "false".to_owned())];
    let divided = SharedLimit::start(Mode::Knative, 4, &own, "divided").await?;
    let clients = [0, 1].map(|n| divided.cluster.load(n).start(4, "/"));
    divided.until_served("every pod's part", &[0; 4], 10).await?;
    for clients in clients {
        ensure!(clients.end().await?.ok > 0);
    }
    divided.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_activators_share_one_limit_in_standalone() -> anyhow::Result<()> {
    two_activators_share_one_limit(Mode::Standalone).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_activators_share_one_limit_in_place_of_knatives() -> anyhow::Result<()> {
    two_activators_share_one_limit(Mode::Knative).await
}
