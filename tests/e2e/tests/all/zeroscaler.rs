//! One ZeroScaler next to an ordinary Deployment and its Service, without objects of Knative's groups.

use crate::install::rights::Record;
use crate::shared::until_scaler;
use anyhow::Context;
use clap::Parser;
use cli::arguments::Arguments;
use common::names;
use common_api::ZeroScaler;
use common_api::zeroscaler::SleepState;
use e2e::test_env::{SOON, comparable, program};
use e2e::{Entry, TestEnv, Workload};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Event, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use local::up::{PlaneId, UpOptions};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// Goal: the life of a workload: its missing Service is reported, it is adopted unchanged, at zero and Ready, woken by
/// its first request, restored byte for byte.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_scales_to_zero_wakes_and_is_restored() -> anyhow::Result<()> {
    let env = TestEnv::with_short_grace(UpOptions::default()).await?;
    let hello = Workload::new("hello").replicas(1);
    env.create::<Deployment>(hello.deployment(&program()?)).await?;
    env.create::<ZeroScaler>(hello.scaler()).await?;
    env.until_condition("hello", "Ready", Some(("False", "ServiceNotFound"))).await?;
    assert_eq!(env.condition("hello", "Adopted").await?.map(|adopted| adopted.0), Some("False".into()));
    let before = env.create::<Service>(hello.service()).await?;
    env.until_served("hello").await?;
    let load = env.load(Entry::Service, "hello");
    assert_eq!(load.get("/").await?.status, 200);
    env.until_asleep("hello").await?;
    until_scaler(&env, "hello", "a status that says so", |object| {
        object.is_ready() && object.status.is_some_and(|status| status.state == SleepState::Asleep)
    })
    .await?;
    assert_eq!(env.condition("hello", "Active").await?.map(|active| active.0), Some("False".into()));
    assert_eq!(load.get("/").await?.status, 200, "woken");
    let status = env.scaler("hello").await?.status.context("a status")?;
    assert_eq!(status.service.as_deref(), Some("hello"));
    assert!(status.backend.is_some(), "activators need it to reach the pods");
    let found = status.adopted.context("the former state")?;
    let selectors: Vec<_> = found.services.into_iter().map(|service| service.selector).collect();
    assert_eq!((found.replicas, selectors), (Some(1), vec![[("app".to_owned(), "hello".to_owned())].into()]));

    env.until_asleep("hello").await?;
    env.delete_scaler("hello").await?;
    assert_eq!(comparable(env.api::<Service>().get("hello").await?)?, comparable(before)?);
    assert_eq!(env.replicas("hello").await?, 1, "replicas as at adoption");
    env.until(SOON, "the pods behind the Service, and nothing of ours", async || {
        let slices = ListParams::default().labels("kubernetes.io/service-name=hello");
        let slices = env.api::<EndpointSlice>().list(&slices).await?;
        let manager = |slice: &EndpointSlice| slice.labels().get(names::SLICE_MANAGED_BY).cloned();
        let ours = slices.iter().any(|slice| manager(slice).as_deref() == Some(names::MANAGED_BY));
        Ok(!slices.items.is_empty() && !ours && env.api::<Service>().get_opt("hello-private").await?.is_none())
    })
    .await?;
    env.until(SOON, "an answer from a pod", async || Ok(load.get("/").await?.status == 200)).await?;
    env.end().await
}

/// Goal: a label is sufficient, and removing it restores everything; both also while no autoscaler runs. A label with a
/// meaningless value is reported on the workload and has no effect.
#[tokio::test(flavor = "multi_thread")]
async fn a_label_creates_a_zeroscaler_and_its_removal_deletes_it() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    env.cluster.drain_plane(PlaneId::Autoscaler(0)).await;
    let labelled = Workload::new("labelled");
    let mut deployment = labelled.deployment(&program()?);
    deployment["metadata"]["labels"] = json!({"zeroscale.dev/enabled": "true"});
    env.create::<Deployment>(deployment).await?;
    let before = env.create::<Service>(labelled.service()).await?;
    let mut odd = Workload::new("odd").deployment(&program()?);
    odd["metadata"]["labels"] = json!({"zeroscale.dev/enabled": "True"});
    env.create::<Deployment>(odd).await?;
    env.cluster.start_plane(PlaneId::Autoscaler(0))?;
    until_scaler(&env, "labelled", "a ZeroScaler that is ready", |object| object.is_ready()).await?;
    assert_eq!(env.load(Entry::Activator, "labelled").get("/").await?.status, 200);
    env.until(SOON, "an event", async || {
        let events = env.api::<Event>().list(&ListParams::default()).await?.items;
        let is_it = |event: &Event| event.reason.as_deref() == Some("LabelNotUnderstood");
        Ok(events.iter().filter(|event| is_it(event)).any(|event| event.involved_object.name.as_deref() == Some("odd")))
    })
    .await?;
    assert!(env.api::<ZeroScaler>().get_opt("odd").await?.is_none(), "its label has no valid value");
    // While the label exists, a deleted object is replaced: remove labels before uninstalling.
    let scalers = env.api::<ZeroScaler>();
    let first = scalers.get("labelled").await?.metadata.uid;
    scalers.delete("labelled", &DeleteParams::default()).await?;
    let is_another = |object: ZeroScaler| object.is_ready() && object.metadata.uid != first;
    until_scaler(&env, "labelled", "another ZeroScaler that is ready", is_another).await?;
    let away = json!({"metadata": {"labels": {"zeroscale.dev/enabled": null}}});
    env.cluster.drain_plane(PlaneId::Autoscaler(0)).await;
    env.patch::<Deployment>("labelled", away).await?;
    env.cluster.start_plane(PlaneId::Autoscaler(0))?;
    env.until_gone("labelled").await?;
    assert_eq!(comparable(env.api::<Service>().get("labelled").await?)?, comparable(before)?);
    env.end().await
}

/// Goal: if a HorizontalPodAutoscaler scales the same target, the autoscaler does not compete with it: the conflict is
/// reported until one of both is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_horizontalpodautoscaler_of_the_same_target_is_reported() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "claimed"});
    let horizontal = json!({"metadata": {"name": "rival"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target}});
    env.create::<HorizontalPodAutoscaler>(horizontal).await?;
    env.create_workload(&Workload::new("claimed").replicas(1)).await?;
    until_scaler(&env, "claimed", "the conflict to be named", |object| {
        object.condition("Ready").is_some_and(|ready| ready.status == "False" && ready.message.contains("\"rival\""))
    })
    .await?;
    let selector = env.api::<Service>().get("claimed").await?.spec.and_then(|spec| spec.selector);
    assert!(selector.is_some_and(|selector| !selector.is_empty()), "nothing was taken over");
    env.api::<HorizontalPodAutoscaler>().delete("rival", &DeleteParams::default()).await?;
    env.until_served("claimed").await?;
    env.end().await
}

/// Goal: one wake and one scaling to zero cost at most six writes, including events; the first is the patch that a
/// request waits for. Method: all requests of the autoscaler from the first client request to the status that reports
/// zero again.
#[tokio::test(flavor = "multi_thread")]
async fn a_wake_and_a_sleep_cost_at_most_six_writes() -> anyhow::Result<()> {
    let record = Record::default();
    let env = TestEnv::with_short_grace(UpOptions { audit: Some(record.audit()), ..UpOptions::default() }).await?;
    env.create_workload(&Workload::new("thrifty")).await?;
    let asleep = async |woken: bool| {
        env.until(e2e::test_env::ASLEEP, "a status that says asleep", async || {
            let object = env.scaler("thrifty").await?;
            let is_ready = object.is_ready();
            let status = object.status.unwrap_or_default();
            Ok(is_ready && status.state == SleepState::Asleep && status.last_wake.is_some() == woken)
        })
        .await
    };
    asleep(false).await?;
    env.until_addresses("thrifty", |count| count == 1).await?;
    let mut last = (record.writes().len(), Instant::now());
    env.until(SOON, "two seconds without a write", async || {
        let count = record.writes().len();
        if count != last.0 {
            last = (count, Instant::now());
        }
        Ok(last.1.elapsed() > Duration::from_secs(2))
    })
    .await?;
    let before = record.writes().len();
    assert_eq!(env.load(Entry::Activator, "thrifty").get("/").await?.status, 200);
    asleep(true).await?;
    let cost = record.writes().split_off(before);
    assert!(cost.len() <= 6, "{}: {cost:#?}", cost.len());
    assert_eq!(cost[0], ("patch".to_owned(), "deployments/scale".to_owned()), "a request waits for it");
    env.end().await
}

/// Runs `kubectl-zeroscale` in the test's namespace; returns its output and its result.
pub(crate) async fn command_line(env: &TestEnv, words: &[&str]) -> (String, anyhow::Result<()>) {
    let kubeconfig = env.cluster.kubeconfig.display().to_string();
    let place = ["kubectl-zeroscale", "--kubeconfig", &kubeconfig, "--namespace", &env.namespace];
    let mut out = Vec::new();
    let outcome = cli::run(Arguments::parse_from(place.iter().chain(words)), &mut out).await;
    (String::from_utf8_lossy(&out).into_owned(), outcome)
}

async fn terminal(env: &TestEnv, words: &[&str]) -> anyhow::Result<String> {
    let (printed, outcome) = command_line(env, words).await;
    outcome.map(|()| printed)
}

/// Goal: by hand a workload is woken without a request, scaled to zero before its window ends, and paused. A request to
/// a paused workload without pods is refused at once with the reason. Method: a target that selects its pods by
/// expressions, which no Service can.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_is_woken_paused_and_scaled_to_zero_by_hand() -> anyhow::Result<()> {
    let env = TestEnv::with_short_grace(UpOptions::default()).await?;
    let hello = Workload::new("hello").set("scale.window", "1h"); // No part of this test waits for it.
    let mut deployment = hello.deployment(&program()?);
    let expression = json!({"key": "app", "operator": "In", "values": ["hello", "other"]});
    deployment["spec"]["selector"] = json!({"matchExpressions": [expression]});
    env.create::<Deployment>(deployment).await?;
    env.create::<Service>(hello.service()).await?;
    env.create::<ZeroScaler>(hello.scaler()).await?;
    env.until_served("hello").await?;

    let woken = terminal(&env, &["wake", "hello", "--wait"]).await?;
    assert!(woken.contains("zeroscale.dev/hello awake after"), "{woken}");
    let is_shown = async || Ok(terminal(&env, &["status"]).await.is_ok_and(|table| table.contains("Awake")));
    env.until(SOON, "a status that says so", is_shown).await?;
    terminal(&env, &["pause", "hello"]).await?;
    env.until_condition("hello", "Active", Some(("True", "Paused"))).await?;
    let refused = format!("{:#}", terminal(&env, &["sleep", "hello"]).await.expect_err("it is paused"));
    assert!(refused.contains("paused"), "{refused}");
    assert!(env.replicas("hello").await? > 0, "kept");

    terminal(&env, &["resume", "hello"]).await?;
    let asleep = terminal(&env, &["sleep", "hello", "--wait"]).await?;
    assert!(asleep.contains("asleep after"), "{asleep}");
    assert_eq!(env.replicas("hello").await?, 0);
    let load = env.load(Entry::Activator, "hello");
    terminal(&env, &["pause", "hello"]).await?;
    let is_paused = |object: ZeroScaler| object.condition("Active").is_some_and(|active| active.reason == "Paused");
    until_scaler(&env, "hello", "the pause in the status", is_paused).await?;
    env.until(SOON, "a refusal at once", async || Ok(load.get("/").await?.status == 503)).await?;
    let refused = load.get("/").await?;
    assert!(String::from_utf8_lossy(&refused.body).contains("paused"), "{:?}", refused.body);
    assert_eq!(env.replicas("hello").await?, 0, "no request wakes it");
    terminal(&env, &["resume", "hello"]).await?;
    env.until(SOON, "an answer", async || Ok(load.get("/").await?.status == 200)).await?;
    let unknown = format!("{:#}", terminal(&env, &["wake", "nobody"]).await.expect_err("there is none"));
    assert!(unknown.contains("no ZeroScaler \"nobody\""), "{unknown}");
    env.end().await
}
