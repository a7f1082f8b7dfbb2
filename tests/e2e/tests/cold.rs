//! From zero: requests that find nobody, and wake a workload.

use e2e::{Entry, TestEnv, Workload, both_ways};
use local::up::{Event, Phases};
use std::time::Duration;

async fn the_first_request_is_answered(entry: Entry) -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    env.deploy(&Workload::new("hello")).await?;
    assert_eq!(env.replicas("hello").await?, 0, "an adopted target at zero stays there");
    let answer = env.load(entry, "hello").get("/").await?;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    assert_eq!(env.replicas("hello").await?, 1);
    env.end().await;
    Ok(())
}
both_ways!(the_first_request_is_answered);

async fn none_of_500_at_once_is_lost(entry: Entry) -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    env.deploy(&Workload::new("burst").env("HELLO_START_MS", 300).env("HELLO_LATENCY_MS", 20)).await?;
    let outcome = env.load(entry, "burst").burst(500, "/").await;
    outcome.none_lost()?;
    assert_eq!(outcome.ok, 500);
    env.end().await;
    Ok(())
}
both_ways!(none_of_500_at_once_is_lost);

async fn a_program_that_never_becomes_ready_is_refused_in_bounded_time(entry: Entry) -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let workload = Workload::new("never").env("HELLO_NEVER_READY", 1).annotate("zeroscale.dev/timeout", "3s");
    env.deploy(&workload).await?;
    let stalled = env.stalls.total();
    let answer = env.load(entry, "never").get("/").await?;
    assert!([503, 504].contains(&answer.status.as_u16()), "{} {:?}", answer.status, answer.body);
    let lost = env.stalls.total() - stalled;
    assert!(answer.took < Duration::from_secs(5) + lost, "refused only after {:?}", answer.took);
    assert!(!answer.body.is_empty(), "a refusal names its bound");
    env.end().await;
    Ok(())
}
both_ways!(a_program_that_never_becomes_ready_is_refused_in_bounded_time);

async fn a_program_that_crashes_is_refused_with_the_reason(entry: Entry) -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    env.deploy(&Workload::new("crash").env("HELLO_START_MS", 60_000).env("HELLO_EXIT_AFTER_MS", 1)).await?;
    let answer = env.load(entry, "crash").get("/").await?;
    assert_eq!(answer.status, 503, "{:?}", answer.body);
    env.end().await;
    Ok(())
}
both_ways!(a_program_that_crashes_is_refused_with_the_reason);

async fn an_unknown_host_is_not_found(entry: Entry) -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    assert_eq!(env.load(entry, "nobody").get("/").await?.status, 404);
    env.end().await;
    Ok(())
}
both_ways!(an_unknown_host_is_not_found);

async fn a_host_of_its_own_leads_to_a_service(entry: Entry) -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let host = format!("{}.example.com", env.namespace);
    env.deploy(&Workload::new("hosts").annotate("zeroscale.dev/hosts", &host)).await?;
    let load = e2e::Load::new(env.entry(entry), host.to_uppercase());
    env.until(e2e::test_env::SOON, "the host to lead to the service", async || Ok(load.get("/").await?.status == 200))
        .await?;
    env.end().await;
    Ok(())
}
both_ways!(a_host_of_its_own_leads_to_a_service);

/// The narration of a cold start accounts for all of its time.
#[tokio::test(flavor = "multi_thread")]
async fn a_cold_start_is_told_with_its_phases() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let mut events = env.cluster.events();
    env.deploy(&Workload::new("told")).await?;
    env.load(Entry::Ingress, "told").get("/").await?;
    let mut scaled = false;
    let (cold, at) = loop {
        match tokio::time::timeout(e2e::test_env::SOON, events.recv()).await?? {
            Event::ColdStart { cold, scaled: at } if cold.key.name() == "told" => break (cold, at),
            Event::Scale(scale) => scaled |= scale.key.name() == "told" && (scale.from, scale.to) == (0, 1),
            _ => {}
        }
    };
    let p = Phases::of(&cold, at);
    assert_eq!(p.signal + p.scale + p.pod + p.probe + p.forward, cold.total());
    assert!(at.is_some() && !p.pod.is_zero(), "patch and pod are told apart: {p:?}");
    assert!(scaled, "the scaling was told before the answer");
    env.end().await;
    Ok(())
}
