//! Workloads with the same labels, one of which is served: pods of other owners do not count and get no requests.

use crate::install::rights::Record;
use anyhow::{Context, ensure};
use common_api::zeroscaler::SleepState;
use e2e::space::SOON;
use e2e::test_env::program;
use e2e::{Entry, Load, TestEnv, Workload};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Pod, Service};
use kube::api::{DeleteParams, ListParams};
use local::up::UpOptions;
use serde_json::{Value, json};
use std::time::Duration;

/// Longest time until a workload with a window of six seconds is at zero.
const ASLEEP: Duration = Duration::from_secs(60);

/// Returns a Deployment with the labels of `web`.
fn like_web(name: &str, replicas: i32) -> anyhow::Result<Value> {
    let mut deployment = Workload::new("web").replicas(replicas).deployment(&program()?);
    deployment["metadata"]["name"] = json!(name);
    Ok(deployment)
}

async fn ready(env: &TestEnv, name: &str) -> anyhow::Result<usize> {
    let pods = env.pods("web").await?;
    let is_of = |pod: &&Pod| pod.metadata.name.as_ref().is_some_and(|pod| pod.starts_with(&format!("{name}-")));
    Ok(pods.iter().filter(is_of).filter(|pod| e2e::space::is_ready(pod)).count())
}

/// Sends one request; a pod of `web` must respond.
async fn call(load: &Load) -> anyhow::Result<()> {
    let answer = load.get("/").await?;
    let pod = answer.pod().unwrap_or_default();
    ensure!(answer.status == 200 && pod.starts_with("web-"), "{} by {pod:?}", answer.status);
    Ok(())
}

/// Sends requests until the condition holds.
async fn call_until(
    env: &TestEnv,
    load: &Load,
    what: &str,
    state: impl AsyncFn() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    env.until(SOON, what, async || {
        for _ in 0..20 {
            call(load).await?;
        }
        state().await
    })
    .await
}

async fn until_asleep(env: &TestEnv) -> anyhow::Result<()> {
    env.until(ASLEEP, "the workload to be at zero", async || {
        let state = env.scaler("web").await?.status.map(|status| status.state);
        Ok(state == Some(SleepState::Asleep) && env.replicas("web").await? == 0 && ready(env, "web").await? == 0)
    })
    .await
}

/// Goal: pods of other owners with the same labels, one of a Deployment and one without an owner, never get a request:
/// neither when they appear while the workload is awake, nor while it scales to zero and wakes. They do not count and
/// do not prevent scaling to zero. The condition names them, is reported once, and ends with them; Ready stays True.
/// Method: each response contains the name of its pod. The other pods appear under load.
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_other_owners_get_no_request_and_do_not_count() -> anyhow::Result<()> {
    let record = Record::default();
    let env = TestEnv::with_short_grace(UpOptions { audit: Some(record.audit()), ..UpOptions::default() }).await?;
    env.create_workload(&Workload::new("web")).await?;
    env.until_served("web").await?;
    ensure!(env.condition("web", "PodsOwned").await?.is_none(), "no other pods exist yet");
    let load = env.load(Entry::Activator, "web");
    call(&load).await?;
    env.create::<Deployment>(like_web("other", 2)?).await?;
    call_until(&env, &load, "the others", async || Ok(ready(&env, "other").await? == 2)).await?;
    let template = like_web("stray", 1)?["spec"]["template"].clone();
    let stray = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stray", "labels": {"app": "web"}},
        "spec": template["spec"]});
    env.create::<Pod>(stray).await?;
    call_until(&env, &load, "the condition", async || {
        let Some((status, reason, message)) = env.condition("web", "PodsOwned").await? else { return Ok(false) };
        ensure!((status.as_str(), reason.as_str()) == ("False", "SelectorOverlaps"), "{status} {reason}: {message}");
        Ok(message.contains("(app=web) also matches pods of Deployment other and Pod stray."))
    })
    .await?;
    let status = env.scaler("web").await?.status.context("a status")?;
    let pods = status.pods.context("pods")?;
    ensure!((pods.ready, pods.actual) == (1, 1), "{pods:?}");
    ensure!(env.scaler("web").await?.is_ready(), "it is served");

    until_asleep(&env).await?;
    ensure!(ready(&env, "other").await? == 2, "the others stay");
    for load in [Load::new(env.service_address("web").await?, "web"), env.load(Entry::Activator, "web")] {
        call(&load).await?;
        for _ in 0..50 {
            call(&load).await?;
        }
    }
    ensure!(record.has_request("autoscaler", "get", "replicasets"), "controllers of the other pods are not read");
    ensure!(record.denied().is_empty(), "missing rights: {:#?}", record.denied());

    env.api::<Pod>().delete("stray", &DeleteParams::default()).await?;
    env.api::<Deployment>().delete("other", &DeleteParams::background()).await?;
    call_until(&env, &load, "the end of the condition", async || {
        Ok(env.condition("web", "PodsOwned").await?.is_none())
    })
    .await?;
    until_asleep(&env).await?;
    env.until(SOON, "the private Service's own selector", async || {
        let private = env.api::<Service>().get("web-private").await?;
        Ok(private.spec.and_then(|spec| spec.selector).is_some())
    })
    .await?;
    call(&load).await?;
    let events = env.api::<Event>().list(&ListParams::default()).await?.items;
    let count = events.iter().filter(|event| event.reason.as_deref() == Some("SelectorOverlaps")).count();
    ensure!(count == 1, "{count} events");
    env.end().await
}
