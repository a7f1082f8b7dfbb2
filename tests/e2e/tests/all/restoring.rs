//! Restoring workloads: by the autoscaler, and by `kubectl zeroscale release` if the autoscaler was removed first.

use crate::shared::until_scaler;
use anyhow::Context;
use autoscaler::release::{Scope, release};
use common::names;
use common_api::ZeroScaler;
use e2e::test_env::{SOON, comparable, program};
use e2e::{Entry, TestEnv, Workload};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::{DeleteParams, ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use local::up::{PlaneId, UpOptions};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Returns the names of Zeroscale's slices.
async fn slices(env: &TestEnv) -> anyhow::Result<Vec<String>> {
    let ours = ListParams::default().labels(&format!("{}={}", names::SLICE_MANAGED_BY, names::MANAGED_BY));
    Ok(env.api::<EndpointSlice>().list(&ours).await?.iter().map(ResourceExt::name_any).collect())
}

/// Releases a scope and returns the performed steps, line by line.
async fn released(env: &TestEnv, scope: Scope) -> anyhow::Result<String> {
    let mut steps = String::new();
    release(&env.client, &scope, |step| steps.push_str(&format!("{step}\n"))).await?;
    Ok(steps)
}

/// Creates a workload without a ZeroScaler; returns its Service.
async fn create_unscaled(env: &TestEnv, name: &str, replicas: i32) -> anyhow::Result<String> {
    let workload = Workload::new(name).replicas(replicas);
    env.create::<Deployment>(workload.deployment(&program()?)).await?;
    comparable(env.create::<Service>(workload.service()).await?)
}

/// Observes the minimum number of ready addresses in a Service's slices, from now on until it is cancelled.
async fn min_addresses(env: &TestEnv, service: &str, until: CancellationToken) -> anyhow::Result<JoinHandle<usize>> {
    let slices: Api<EndpointSlice> = env.api();
    let list = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
    let listed = slices.list(&list).await?;
    let ready = |slice: &EndpointSlice| {
        let is_ready = |e: &&Endpoint| e.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true);
        slice.endpoints.iter().flatten().filter(is_ready).count()
    };
    let mut now: BTreeMap<String, usize> = listed.items.iter().map(|s| (s.name_any(), ready(s))).collect();
    let watch = WatchParams::default().labels(&format!("kubernetes.io/service-name={service}"));
    let version = listed.metadata.resource_version.unwrap_or_default();
    let events = slices.watch(&watch, &version).await?.take_until(until.cancelled_owned());
    Ok(tokio::spawn(async move {
        let mut events = std::pin::pin!(events);
        let mut fewest: usize = now.values().sum();
        while let Some(event) = events.next().await {
            match event.expect("the watch goes on") {
                WatchEvent::Added(slice) | WatchEvent::Modified(slice) => {
                    _ = now.insert(slice.name_any(), ready(&slice))
                }
                WatchEvent::Deleted(slice) => _ = now.remove(&slice.name_any()),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(error) => panic!("{error}"),
            }
            fewest = fewest.min(now.values().sum());
        }
        fewest
    }))
}

/// Goal: objects that are deleted after the autoscaler was removed hang until they are released. Then replicas,
/// Services and slices equal their former state byte for byte, and the Service has an endpoint all the time. Objects
/// that are not deleted are restored as well, and the next autoscaler takes them over again.
#[tokio::test(flavor = "multi_thread")]
async fn workloads_are_released_without_an_autoscaler() -> anyhow::Result<()> {
    let env = TestEnv::with_short_grace(UpOptions::default()).await?;
    let mut before = Vec::new();
    for (name, replicas) in [("going", 2), ("staying", 1), ("orphan", 1)] {
        before.push(create_unscaled(&env, name, replicas).await?);
        env.create::<ZeroScaler>(Workload::new(name).scaler()).await?;
    }
    let made = Workload::new("made").set("services", json!([{"name": "made", "create": true}]));
    env.create::<Deployment>(made.deployment(&program()?)).await?;
    env.create::<ZeroScaler>(made.scaler()).await?;
    for name in ["going", "staying", "orphan", "made"] {
        env.until_served(name).await?;
        env.until_asleep(name).await?;
    }
    env.cluster.kill_plane(PlaneId::Autoscaler(0));

    let scalers = env.api::<ZeroScaler>();
    for name in ["going", "made"] {
        scalers.delete(name, &DeleteParams::default()).await?;
        assert!(scalers.get(name).await?.metadata.deletion_timestamp.is_some(), "it hangs");
    }
    // Without its finalizer the object is deleted, and nothing is restored.
    env.patch::<ZeroScaler>("orphan", json!({"metadata": {"finalizers": null}})).await?;
    scalers.delete("orphan", &DeleteParams::default()).await?;
    env.until_gone("orphan").await?;

    let ends = CancellationToken::new();
    let fewest = min_addresses(&env, "going", ends.clone()).await?;
    let steps = released(&env, Scope::Named(env.namespace.clone(), vec!["going".to_owned()])).await?;
    let done = ["Deployment going was scaled from 0 to 2", "service/going was given back"];
    assert!(done.iter().all(|step| steps.contains(step)), "{steps}");
    env.until_gone("going").await?;
    let is_rid_of_slices = async || Ok(!slices(&env).await?.iter().any(|slice| slice.starts_with("going")));
    env.until(SOON, "no slice of ours for it", is_rid_of_slices).await?;
    ends.cancel();
    assert!(fewest.await? >= 1, "the Service was without an endpoint");
    assert!(scalers.get("made").await?.metadata.deletion_timestamp.is_some(), "it is in no released scope");
    let steps = released(&env, Scope::Namespace(env.namespace.clone())).await?;
    let done = ["service/orphan in namespace", "belonged to a ZeroScaler that is gone"];
    assert!(done.iter().all(|step| steps.contains(step)), "{steps}");
    env.until_gone("made").await?;
    for (name, before) in ["going", "staying", "orphan"].into_iter().zip(&before) {
        assert_eq!(comparable(env.api::<Service>().get(name).await?)?, *before, "{name}");
    }
    assert_eq!((env.replicas("going").await?, env.replicas("staying").await?, env.replicas("made").await?), (2, 1, 1));
    env.until(SOON, "no slice and no Service of ours", async || {
        let services = env.api::<Service>().list(&ListParams::default()).await?;
        let left: Vec<_> = services.iter().map(ResourceExt::name_any).collect();
        Ok(slices(&env).await?.is_empty() && left == ["going", "orphan", "staying"])
    })
    .await?;
    let steps = released(&env, Scope::All).await?;
    assert!(!steps.contains("was scaled") && !steps.contains("service/"), "nothing is left to do: {steps}");
    let unknown = Scope::Named(env.namespace.clone(), vec!["nobody".to_owned()]);
    let error = released(&env, unknown).await.expect_err("unknown").to_string();
    assert!(error.contains("ZeroScaler \"nobody\" does not exist"), "{error}");

    env.cluster.start_plane(PlaneId::Autoscaler(0))?;
    env.cluster.wait_until_ready(2).await;
    env.until_asleep("staying").await?;
    env.load(Entry::Activator, "staying").get_ok("/").await.context("taken over again")?;
    env.end().await
}

/// Goal: an edit of the target restores the former workload with its Service, byte for byte, and takes over the new
/// one; also if the edit is made while no autoscaler runs.
#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_the_target_restores_the_former_one() -> anyhow::Result<()> {
    let env = TestEnv::with_short_grace(UpOptions::default()).await?;
    let before = [create_unscaled(&env, "former", 2).await?, create_unscaled(&env, "latter", 1).await?];
    env.create::<ZeroScaler>(Workload::new("former").scaler()).await?;
    env.until_served("former").await?;
    env.until_asleep("former").await?;
    let moved = async |to: &str, from: &str, replicas: i32, before: &str| -> anyhow::Result<()> {
        until_scaler(&env, "former", "the other one to be served", |object| {
            object.is_ready() && object.status.is_some_and(|status| status.service.as_deref() == Some(to))
        })
        .await?;
        assert_eq!(env.replicas(from).await?, replicas, "{from} has its former replicas");
        assert_eq!(comparable(env.api::<Service>().get(from).await?)?, before);
        env.until(SOON, "slices of ours for the other one alone", async || {
            let ours = slices(&env).await?; // Those of the former one stay until Kubernetes' own slices exist.
            Ok(!ours.is_empty() && ours.iter().all(|slice| slice.starts_with(to)))
        })
        .await?;
        assert_eq!(env.load(Entry::Service, to).get("/").await?.status, 200, "{to} is served");
        let load = env.load(Entry::Service, from);
        env.until(SOON, "the former one by its own pods", async || Ok(load.get("/").await?.status == 200)).await
    };
    env.patch::<ZeroScaler>("former", json!({"spec": {"target": {"name": "latter"}}})).await?;
    moved("latter", "former", 2, &before[0]).await?;
    env.cluster.kill_plane(PlaneId::Autoscaler(0));
    env.patch::<ZeroScaler>("former", json!({"spec": {"target": {"name": "former"}}})).await?;
    env.cluster.start_plane(PlaneId::Autoscaler(0))?;
    moved("former", "latter", 1, &before[1]).await?;
    env.end().await
}

/// Goal: a namespace whose workloads are at zero ends soon after it is deleted; without an autoscaler it hangs until it
/// is released.
#[tokio::test(flavor = "multi_thread")]
async fn the_deletion_of_a_namespace_waits_only_for_the_autoscaler() -> anyhow::Result<()> {
    let env = TestEnv::with_short_grace(UpOptions::default()).await?;
    let namespaces: Api<Namespace> = Api::all(env.client.clone());
    let is_gone = async |name: &str| -> anyhow::Result<bool> { Ok(namespaces.get_opt(name).await?.is_none()) };
    let (first, second) =
        (e2e::Space::create_in(env.client.clone()).await?, e2e::Space::create_in(env.client.clone()).await?);
    first.deploy(&Workload::new("hello")).await?;
    second.deploy(&Workload::new("hello")).await?;
    // Kubernetes waits five seconds before it deletes the contents, and eight more once it has found a finalizer.
    namespaces.delete(&first.namespace, &DeleteParams::default()).await?;
    env.until(SOON, "the ZeroScaler to be deleted", async || {
        let left = first.api::<ZeroScaler>().get_opt("hello").await?;
        Ok(left.is_none_or(|object| object.metadata.deletion_timestamp.is_some()))
    })
    .await?;
    let (begun, stalled) = (Instant::now(), env.stalls.total());
    first.until_gone("hello").await?;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5) + (env.stalls.total() - stalled), "{took:?}");
    env.until(SOON, "the end of the first", async || is_gone(&first.namespace).await).await?;

    env.cluster.kill_plane(PlaneId::Autoscaler(0));
    namespaces.delete(&second.namespace, &DeleteParams::default()).await?;
    let is_empty = async || Ok(second.api::<Deployment>().list(&ListParams::default()).await?.items.is_empty());
    env.until(SOON, "nothing but the ZeroScaler", is_empty).await?;
    assert!(!is_gone(&second.namespace).await?, "it hangs");
    release(&env.client, &Scope::Namespace(second.namespace.clone()), |_| ()).await?;
    env.until(SOON, "the end of the second", async || is_gone(&second.namespace).await).await?;
    env.cluster.start_plane(PlaneId::Autoscaler(0))?;
    env.cluster.wait_until_ready(2).await;
    env.end().await
}
