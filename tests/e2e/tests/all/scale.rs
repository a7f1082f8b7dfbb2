//! Scaling up with load, down without it, to zero and back.

use e2e::test_env::{ASLEEP, SOON};
use e2e::{Entry, TestEnv, Workload, both_ways};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Stable window of the tests' workloads, and the delay until a report counts.
const WINDOW: Duration = Duration::from_secs(8);

async fn load_brings_the_expected_pods_and_silence_takes_them(entry: Entry) -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    // 20 clients with requests of a second keep 20 in flight, if less than 0.4 s pass from a response to the next
    // request. With 70 % of 10 as the target, that requires 3 pods.
    let workload = Workload::new("scale").env("HELLO_LATENCY_MS", 1000).set("scale.load.concurrency", 10);
    env.deploy(&workload).await?;
    let (load, stop) = (env.load(entry, "scale"), CancellationToken::new());
    let mut stalls = env.stalls.recent(WINDOW);
    let steady = tokio::spawn({
        let (load, stop) = (load.clone(), stop.clone());
        async move { load.steady(20, "/", stop).await }
    });
    env.until(ASLEEP, "three ready pods", async || Ok(env.ready_pods("scale").await? == 3)).await?;
    // A full stable window later there are still three pods: neither panic nor oscillation. Stalled clients send less,
    // and reports of a stalled thread are missing in the averages; the window after that counts.
    let mut since = Instant::now();
    let what = "three or four replicas for a whole stable window";
    let calm = async || {
        let (replicas, stalled) = (env.replicas("scale").await?, stalls.share());
        if !(3..=4).contains(&replicas) {
            anyhow::ensure!(stalled > 0.0, "{replicas} replicas under steady load, and no thread stalled");
            since = Instant::now();
        }
        Ok(since.elapsed() > WINDOW)
    };
    env.until(ASLEEP, what, calm).await?;
    stop.cancel();
    steady.await?.none_lost()?;
    env.until_asleep("scale").await?;
    env.end().await;
    Ok(())
}
both_ways!(load_brings_the_expected_pods_and_silence_takes_them);

async fn ten_times_to_zero_and_back(entry: Entry) -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    env.deploy(&Workload::new("again")).await?;
    let load = env.load(entry, "again");
    for turn in 0..10 {
        let answer = load.get("/").await?;
        assert_eq!(answer.status, 200, "turn {turn}: {:?}", answer.body);
        env.until_asleep("again").await?;
    }
    env.end().await;
    Ok(())
}
both_ways!(ten_times_to_zero_and_back);

async fn requests_that_race_the_scale_to_zero_are_not_lost(entry: Entry) -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    env.deploy(&Workload::new("race")).await?;
    let load = env.load(entry, "race");
    assert_eq!(load.get("/").await?.status, 200);
    // The critical moment is when the replicas become zero: send bursts as soon as that is observed, and around it.
    let mut answered = 0;
    while answered < 1000 {
        env.until(ASLEEP, "zero replicas", async || Ok(env.replicas("race").await? == 0)).await?;
        let outcome = load.burst(100, "/").await;
        outcome.none_lost()?;
        answered += outcome.ok;
    }
    env.end().await;
    Ok(())
}
both_ways!(requests_that_race_the_scale_to_zero_are_not_lost);

async fn an_edit_under_load_drops_nothing(entry: Entry) -> anyhow::Result<()> {
    use kube::api::{Patch, PatchParams};
    let env = TestEnv::start().await?;
    env.deploy(&Workload::new("edit").env("HELLO_LATENCY_MS", 20)).await?;
    let (load, stop) = (env.load(entry, "edit"), CancellationToken::new());
    let steady = tokio::spawn({
        let (load, stop) = (load.clone(), stop.clone());
        async move { load.steady(8, "/", stop).await }
    });
    env.until(SOON, "a ready pod", async || Ok(env.ready_pods("edit").await? >= 1)).await?;
    let host = format!("edited.{}.example.com", env.namespace);
    let edits = [
        serde_json::json!({"scale": {"min": 2}}),
        serde_json::json!({"concurrency": 2}),
        serde_json::json!({"wake": {"timeout": "30s"}}),
        serde_json::json!({"hosts": [host]}),
        serde_json::json!({"concurrency": 0}),
    ];
    for edit in edits {
        let (api, edit) = (env.api::<common_api::ZeroScaler>(), serde_json::json!({"spec": edit}));
        api.patch("edit", &PatchParams::default(), &Patch::Merge(edit)).await?;
        tokio::time::sleep(Duration::from_millis(500)).await; // Load under each version is the purpose of this test.
    }
    env.until(SOON, "two ready pods", async || Ok(env.ready_pods("edit").await? >= 2)).await?;
    stop.cancel();
    steady.await?.none_lost()?;
    env.end().await;
    Ok(())
}
both_ways!(an_edit_under_load_drops_nothing);

async fn a_pod_killed_under_load_costs_no_get(entry: Entry) -> anyhow::Result<()> {
    use kube::api::DeleteParams;
    let env = TestEnv::start().await?;
    let workload = Workload::new("killed").env("HELLO_LATENCY_MS", 5).set("scale.min", 3);
    env.deploy(&workload).await?;
    let load = env.load(entry, "killed");
    assert_eq!(load.get("/").await?.status, 200);
    env.until(SOON, "three ready pods", async || Ok(env.ready_pods("killed").await? == 3)).await?;
    env.until_led("killed", 1).await?; // Until then the ingress uses only the pods, and never retries.
    let stop = CancellationToken::new();
    let steady = tokio::spawn({
        let (load, stop) = (load.clone(), stop.clone());
        async move { load.steady(8, "/", stop).await }
    });
    for _ in 0..3 {
        let victim = env.pods("killed").await?.into_iter().find(e2e::test_env::is_ready);
        let name = victim.and_then(|pod| pod.metadata.name).ok_or_else(|| anyhow::anyhow!("no ready pod"))?;
        let at_once = DeleteParams::default().grace_period(0);
        env.api::<k8s_openapi::api::core::v1::Pod>().delete(&name, &at_once).await?;
        env.until(SOON, "three ready pods again", async || {
            let pods = env.pods("killed").await?;
            let gone = pods.iter().all(|pod| pod.metadata.name.as_deref() != Some(&name));
            Ok(gone && pods.iter().filter(|pod| e2e::test_env::is_ready(pod)).count() == 3)
        })
        .await?;
    }
    stop.cancel();
    steady.await?.none_lost()?;
    env.end().await;
    Ok(())
}
both_ways!(a_pod_killed_under_load_costs_no_get);
