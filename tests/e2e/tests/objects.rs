//! What happens to the objects of others: untouched, adopted, given back.

use common::names;
use common_api::PodAutoscaler;
use e2e::world::SOON;
use e2e::{Entry, Workload, World};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;

/// A plain Service in front of the workload `name`, as somebody had it before.
fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "labels": {"team": "a"}, "annotations": {"note": "mine"}},
        "spec": {"selector": {"app": name}, "ports": [{"name": "web", "port": 80, "targetPort": 8080}]}})
}

/// All of a Service that its owner could have written.
fn essence(service: &Service) -> anyhow::Result<String> {
    let mut service = service.clone();
    service.metadata.resource_version = None;
    service.metadata.managed_fields = None;
    Ok(serde_json::to_string(&service)?)
}

async fn condition(world: &World, name: &str, type_: &str) -> anyhow::Result<Option<(String, String)>> {
    let status = world.autoscaler(name).await?.status.unwrap_or_default();
    let found = status.conditions.into_iter().find(|c| c.type_ == type_);
    Ok(found.map(|c| (c.status, c.reason)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_service_of_the_same_name_is_untouched_and_replicas_too() -> anyhow::Result<()> {
    let world = World::start().await?;
    let workload = Workload::new("foreign").replicas(2);
    let before = world.create::<Service>(service("foreign")).await?;
    world.create::<k8s_openapi::api::apps::v1::Deployment>(workload.deployment(&e2e::world::program()?)).await?;
    world.create::<PodAutoscaler>(workload.pod_autoscaler()).await?;
    world
        .until(SOON, "Ready=False, ServiceNotOwned", async || {
            Ok(condition(&world, "foreign", "Ready").await? == Some(("False".into(), "ServiceNotOwned".into())))
        })
        .await?;
    // Longer than the stable window and the grace that this workload would be given.
    let end = tokio::time::Instant::now() + Duration::from_secs(15);
    while tokio::time::Instant::now() < end {
        assert_eq!(world.replicas("foreign").await?, 2);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(essence(&world.api::<Service>().get("foreign").await?)?, essence(&before)?);
    world.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adopted_service_sleeps_and_is_given_back_byte_for_byte() -> anyhow::Result<()> {
    let world = World::start().await?;
    let workload = Workload::new("adopt").replicas(1).annotate("zeroscale.dev/adopt-service", "true");
    let before = world.create::<Service>(service("adopt")).await?;
    world.deploy(&workload).await?;
    world
        .until(SOON, "a Service without selector", async || {
            let service = world.api::<Service>().get("adopt").await?;
            Ok(service.spec.is_some_and(|s| s.selector.is_none_or(|s| s.is_empty())))
        })
        .await?;
    let load = world.load(Entry::Ingress, "adopt");
    assert_eq!(load.get("/").await?.status, 200);
    world.until_asleep("adopt").await?;
    assert_eq!(load.get("/").await?.status, 200, "woken through the adopted Service");

    world.api::<PodAutoscaler>().delete("adopt", &DeleteParams::default()).await?;
    world
        .until(SOON, "the PodAutoscaler to go", async || {
            Ok(world.api::<PodAutoscaler>().get_opt("adopt").await?.is_none())
        })
        .await?;
    assert_eq!(essence(&world.api::<Service>().get("adopt").await?)?, essence(&before)?);
    assert_eq!(world.replicas("adopt").await?, 1, "replicas as at adoption");
    world
        .until(SOON, "the pods behind the Service", async || {
            let slices = ListParams::default().labels("kubernetes.io/service-name=adopt");
            let slices = world.api::<EndpointSlice>().list(&slices).await?;
            let managers = |slice: &EndpointSlice| {
                slice.metadata.labels.as_ref().and_then(|l| l.get("endpointslice.kubernetes.io/managed-by").cloned())
            };
            Ok(!slices.items.is_empty() && slices.iter().all(|s| managers(s).as_deref() != Some(names::MANAGED_BY)))
        })
        .await?;
    world.until(SOON, "an answer from a pod", async || Ok(load.get("/").await?.status == 200)).await?;
    world.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn opting_out_gives_an_adopted_service_back() -> anyhow::Result<()> {
    let world = World::start().await?;
    let before = world.create::<Service>(service("optout")).await?;
    world.deploy(&Workload::new("optout").replicas(1).annotate("zeroscale.dev/adopt-service", "true")).await?;
    world
        .until(SOON, "adoption", async || {
            let service = world.api::<Service>().get("optout").await?;
            Ok(service.metadata.annotations.is_some_and(|a| a.contains_key(names::ADOPTED_SELECTOR)))
        })
        .await?;
    let out = json!({"metadata": {"annotations": {"zeroscale.dev/adopt-service": null}}});
    world.api::<PodAutoscaler>().patch("optout", &PatchParams::default(), &Patch::Merge(out)).await?;
    world
        .until(SOON, "the Service as it was", async || {
            Ok(essence(&world.api::<Service>().get("optout").await?)? == essence(&before)?)
        })
        .await?;
    world.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_autoscaler_leaves_its_target_awake() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.deploy(&Workload::new("gone")).await?;
    assert_eq!(world.load(Entry::Ingress, "gone").get("/").await?.status, 200);
    world.until_asleep("gone").await?;
    world.api::<PodAutoscaler>().delete("gone", &DeleteParams::default()).await?;
    world
        .until(SOON, "the PodAutoscaler and its Services to go", async || {
            let services = world.api::<Service>();
            Ok(world.api::<PodAutoscaler>().get_opt("gone").await?.is_none()
                && services.get_opt("gone").await?.is_none()
                && services.get_opt("gone-private").await?.is_none())
        })
        .await?;
    assert_eq!(world.replicas("gone").await?, 1, "at least one replica is restored");
    world.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_pod_autoscaler_is_refused_by_field_and_changes_nothing() -> anyhow::Result<()> {
    let world = World::start().await?;
    let workload = Workload::new("bad").replicas(2).annotate("autoscaling.knative.dev/window", "1s");
    world.create::<k8s_openapi::api::apps::v1::Deployment>(workload.deployment(&e2e::world::program()?)).await?;
    match world.create::<PodAutoscaler>(workload.pod_autoscaler()).await {
        Err(error) => assert!(format!("{error:#}").contains("window"), "{error:#}"),
        Ok(_) => {
            world
                .until(SOON, "a status that names the field", async || {
                    let status = world.autoscaler("bad").await?.status.unwrap_or_default();
                    let named = |c: &common_api::Condition| c.message.contains("autoscaling.knative.dev/window");
                    Ok(status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "False" && named(c)))
                })
                .await?;
        }
    }
    assert_eq!(world.replicas("bad").await?, 2);
    // What is no PodAutoscaler at all, the API server refuses itself.
    let mut nonsense = workload.pod_autoscaler();
    nonsense["metadata"]["name"] = json!("worse");
    nonsense["spec"]["containerConcurrency"] = json!("many");
    let raw = http::Request::post(format!(
        "/apis/autoscaling.internal.knative.dev/v1alpha1/namespaces/{}/podautoscalers",
        world.namespace
    ))
    .header("content-type", "application/json")
    .body(serde_json::to_vec(&nonsense)?)?;
    let refused = world.client.request::<Value>(raw).await.expect_err("a number is wanted");
    assert!(refused.to_string().contains("containerConcurrency"), "{refused}");
    world.end().await;
    Ok(())
}
