//! Scaling up with load, down without it, to zero and back. Each scenario runs through Services and directly at the
//! activator, side by side in one cluster.

use anyhow::Context;
use common_api::ZeroScaler;
use e2e::test_env::{ASLEEP, SOON};
use e2e::{Entry, TestEnv, Workload};
use local::up::UpOptions;
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Stable window of the tests' workloads, and the delay until a report counts.
const WINDOW: Duration = Duration::from_secs(8);
/// Interval at which a workload is checked that is about to be at zero.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Defines a test of a scenario with both entries.
macro_rules! both_ways {
    ($scenario:ident) => {
        mod $scenario {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn through_its_service_and_directly_at_the_activator() -> anyhow::Result<()> {
                let env = TestEnv::with_short_grace(UpOptions::default()).await?;
                tokio::try_join!($scenario(&env, Entry::Service), $scenario(&env, Entry::Activator))?;
                env.end().await
            }
        }
    };
}

/// Returns a workload whose name contains the entry.
fn workload(name: &str, entry: Entry) -> Workload {
    Workload::new(&format!("{name}-{entry:?}").to_lowercase())
}

async fn a_steady_load_keeps_three_pods_until_it_ends(env: &TestEnv, entry: Entry) -> anyhow::Result<()> {
    // 20 clients with requests of a second keep 20 in flight, if less than 0.4 s pass from a response to the next
    // request. With 70 % of 10 as the target, that requires 3 pods.
    let workload = workload("scale", entry).env("HELLO_LATENCY_MS", 1000).set("scale.load.concurrency", 10);
    let name = &workload.name;
    env.deploy(&workload).await?;
    let mut stalls = env.stalls.recent(WINDOW);
    let clients = env.load(entry, name).start(20, "/");
    env.until(ASLEEP, "three ready pods", async || Ok(env.ready_pods(name).await? == 3)).await?;
    // A full stable window later there are still three pods: neither panic nor oscillation. Stalled clients send less,
    // and reports of a stalled thread are missing in the averages; the window after that counts.
    let mut since = Instant::now();
    let what = "three or four replicas for a whole stable window";
    let calm = async || {
        let (replicas, stalled) = (env.replicas(name).await?, stalls.share());
        if !(3..=4).contains(&replicas) {
            anyhow::ensure!(stalled > 0.0, "{replicas} replicas under steady load, and no thread stalled");
            since = Instant::now();
        }
        Ok(since.elapsed() > WINDOW)
    };
    env.until(ASLEEP, what, calm).await?;
    clients.end().await?;
    env.until_asleep(name).await
}
both_ways!(a_steady_load_keeps_three_pods_until_it_ends);

/// Goal: no request is lost: neither of those that wake a workload at zero, nor of those that arrive when its replicas
/// become zero and its last pod ends.
async fn ten_times_to_zero_and_back(env: &TestEnv, entry: Entry) -> anyhow::Result<()> {
    let workload = workload("again", entry).env("HELLO_START_MS", 300);
    let name = &workload.name;
    env.deploy(&workload).await?;
    anyhow::ensure!(env.is_asleep(name).await?, "an adopted target at zero stays there");
    let load = env.load(entry, name);
    load.burst(500, "/").await.none_lost()?;
    for turn in 0..10 {
        if turn % 2 == 0 {
            // The critical moment is when the replicas become zero: send as soon as that is observed.
            let at_zero = async {
                while env.replicas(name).await? > 0 {
                    sleep(POLL_INTERVAL).await;
                }
                anyhow::Ok(())
            };
            timeout(ASLEEP + env.stalls.total(), at_zero).await.context("no replicas")??;
        } else {
            env.until_asleep(name).await?;
        }
        load.burst(200, "/").await.none_lost().with_context(|| format!("turn {turn}"))?;
    }
    Ok(())
}
both_ways!(ten_times_to_zero_and_back);

async fn edits_under_load_cost_no_request(env: &TestEnv, entry: Entry) -> anyhow::Result<()> {
    let workload = workload("edit", entry).env("HELLO_LATENCY_MS", 50);
    let name = &workload.name;
    env.deploy(&workload).await?;
    let clients = env.load(entry, name).start(8, "/");
    env.until(SOON, "a ready pod", async || Ok(env.ready_pods(name).await? >= 1)).await?;
    let host = format!("{name}.{}.example.com", env.namespace);
    let edits = [
        json!({"scale": {"min": 2}}),
        json!({"concurrency": 2}),
        json!({"wake": {"timeout": "30s"}}),
        json!({"hosts": [host]}),
        json!({"concurrency": 0}),
    ];
    for edit in edits {
        env.patch::<ZeroScaler>(name, json!({"spec": edit})).await?;
        sleep(Duration::from_millis(500)).await; // Load under each version is the purpose of this test.
    }
    env.until(SOON, "two ready pods", async || Ok(env.ready_pods(name).await? >= 2)).await?;
    clients.end().await?;
    Ok(())
}
both_ways!(edits_under_load_cost_no_request);
