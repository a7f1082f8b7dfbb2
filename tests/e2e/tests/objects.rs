//! What happens to the objects of others: untouched, adopted, given back.

use common::names;
use common_api::PodAutoscaler;
use e2e::test_env::SOON;
use e2e::{Entry, TestEnv, Workload};
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

async fn condition(env: &TestEnv, name: &str, type_: &str) -> anyhow::Result<Option<(String, String)>> {
    let status = env.autoscaler(name).await?.status.unwrap_or_default();
    let found = status.conditions.into_iter().find(|c| c.type_ == type_);
    Ok(found.map(|c| (c.status, c.reason)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_service_of_the_same_name_is_untouched_and_replicas_too() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let workload = Workload::new("foreign").replicas(2);
    let before = env.create::<Service>(service("foreign")).await?;
    env.create::<k8s_openapi::api::apps::v1::Deployment>(workload.deployment(&e2e::test_env::program()?)).await?;
    env.create::<PodAutoscaler>(workload.pod_autoscaler()).await?;
    env.until(SOON, "Ready=False, ServiceNotOwned", async || {
        Ok(condition(&env, "foreign", "Ready").await? == Some(("False".into(), "ServiceNotOwned".into())))
    })
    .await?;
    // Longer than the stable window and the grace that this workload would be given.
    let end = tokio::time::Instant::now() + Duration::from_secs(15);
    while tokio::time::Instant::now() < end {
        assert_eq!(env.replicas("foreign").await?, 2);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(essence(&env.api::<Service>().get("foreign").await?)?, essence(&before)?);
    env.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adopted_service_sleeps_and_is_given_back_byte_for_byte() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let workload = Workload::new("adopt").replicas(1).annotate("zeroscale.dev/adopt-service", "true");
    let before = env.create::<Service>(service("adopt")).await?;
    env.deploy(&workload).await?;
    env.until(SOON, "a Service without selector", async || {
        let service = env.api::<Service>().get("adopt").await?;
        Ok(service.spec.is_some_and(|s| s.selector.is_none_or(|s| s.is_empty())))
    })
    .await?;
    let load = env.load(Entry::Ingress, "adopt");
    assert_eq!(load.get("/").await?.status, 200);
    env.until_asleep("adopt").await?;
    assert_eq!(load.get("/").await?.status, 200, "woken through the adopted Service");

    env.api::<PodAutoscaler>().delete("adopt", &DeleteParams::default()).await?;
    env.until(SOON, "the PodAutoscaler to go", async || {
        Ok(env.api::<PodAutoscaler>().get_opt("adopt").await?.is_none())
    })
    .await?;
    assert_eq!(essence(&env.api::<Service>().get("adopt").await?)?, essence(&before)?);
    assert_eq!(env.replicas("adopt").await?, 1, "replicas as at adoption");
    env.until(SOON, "the pods behind the Service", async || {
        let slices = ListParams::default().labels("kubernetes.io/service-name=adopt");
        let slices = env.api::<EndpointSlice>().list(&slices).await?;
        let managers = |slice: &EndpointSlice| {
            slice.metadata.labels.as_ref().and_then(|l| l.get("endpointslice.kubernetes.io/managed-by").cloned())
        };
        Ok(!slices.items.is_empty() && slices.iter().all(|s| managers(s).as_deref() != Some(names::MANAGED_BY)))
    })
    .await?;
    env.until(SOON, "an answer from a pod", async || Ok(load.get("/").await?.status == 200)).await?;
    env.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn opting_out_gives_an_adopted_service_back() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let before = env.create::<Service>(service("optout")).await?;
    env.deploy(&Workload::new("optout").replicas(1).annotate("zeroscale.dev/adopt-service", "true")).await?;
    env.until(SOON, "adoption", async || {
        let service = env.api::<Service>().get("optout").await?;
        Ok(service.metadata.annotations.is_some_and(|a| a.contains_key(names::ADOPTED_SELECTOR)))
    })
    .await?;
    let out = json!({"metadata": {"annotations": {"zeroscale.dev/adopt-service": null}}});
    env.api::<PodAutoscaler>().patch("optout", &PatchParams::default(), &Patch::Merge(out)).await?;
    env.until(SOON, "the Service as it was", async || {
        Ok(essence(&env.api::<Service>().get("optout").await?)? == essence(&before)?)
    })
    .await?;
    env.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_autoscaler_leaves_its_target_awake() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    env.deploy(&Workload::new("gone")).await?;
    assert_eq!(env.load(Entry::Ingress, "gone").get("/").await?.status, 200);
    env.until_asleep("gone").await?;
    env.api::<PodAutoscaler>().delete("gone", &DeleteParams::default()).await?;
    env.until(SOON, "the PodAutoscaler and its Services to go", async || {
        let services = env.api::<Service>();
        Ok(env.api::<PodAutoscaler>().get_opt("gone").await?.is_none()
            && services.get_opt("gone").await?.is_none()
            && services.get_opt("gone-private").await?.is_none())
    })
    .await?;
    assert_eq!(env.replicas("gone").await?, 1, "at least one replica is restored");
    env.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_pod_autoscaler_is_refused_by_field_and_changes_nothing() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let workload = Workload::new("bad").replicas(2).annotate("autoscaling.knative.dev/window", "1s");
    env.create::<k8s_openapi::api::apps::v1::Deployment>(workload.deployment(&e2e::test_env::program()?)).await?;
    match env.create::<PodAutoscaler>(workload.pod_autoscaler()).await {
        Err(error) => assert!(format!("{error:#}").contains("window"), "{error:#}"),
        Ok(_) => {
            env.until(SOON, "a status that names the field", async || {
                let status = env.autoscaler("bad").await?.status.unwrap_or_default();
                let named = |c: &common_api::Condition| c.message.contains("autoscaling.knative.dev/window");
                Ok(status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "False" && named(c)))
            })
            .await?;
        }
    }
    assert_eq!(env.replicas("bad").await?, 2);
    // What is no PodAutoscaler at all, the API server refuses itself.
    let mut nonsense = workload.pod_autoscaler();
    nonsense["metadata"]["name"] = json!("worse");
    nonsense["spec"]["containerConcurrency"] = json!("many");
    let raw = http::Request::post(format!(
        "/apis/autoscaling.internal.knative.dev/v1alpha1/namespaces/{}/podautoscalers",
        env.namespace
    ))
    .header("content-type", "application/json")
    .body(serde_json::to_vec(&nonsense)?)?;
    let refused = env.client.request::<Value>(raw).await.expect_err("a number is wanted");
    assert!(refused.to_string().contains("containerConcurrency"), "{refused}");
    env.end().await;
    Ok(())
}
