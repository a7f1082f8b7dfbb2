//! Scaling from zero: requests that find no pod and wake a workload.

use anyhow::Context;
use common_api::ZeroScaler;
use e2e::test_env::SOON;
use e2e::{Entry, TestEnv, Workload, both_ways};
use k8s_openapi::api::core::v1::{Event as Told, Service};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use local::up::{Event, Phases, system};
use serde_json::json;
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
    let workload = Workload::new("never").env("HELLO_NEVER_READY", 1).set("wake.timeout", "3s");
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

/// Goal: the ingress is a shared port: it serves workloads by their hosts, and no other hosts.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_of_its_own_leads_to_a_service() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let nobody = e2e::Load::new(env.cluster.ingress, format!("nobody.{}", env.namespace));
    assert_eq!(nobody.get("/").await?.status, 404);
    let host = format!("{}.example.com", env.namespace);
    env.deploy(&Workload::new("hosts").set("hosts", vec![host.clone()])).await?;
    let load = e2e::Load::new(env.cluster.ingress, host.to_uppercase());
    env.until(SOON, "the host to lead to the service", async || Ok(load.get("/").await?.status == 200)).await?;
    env.end().await;
    Ok(())
}

/// Goal: the report of a cold start accounts for all of its time.
#[tokio::test(flavor = "multi_thread")]
async fn a_cold_start_is_told_with_its_phases() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let mut events = env.cluster.events();
    env.deploy(&Workload::new("told")).await?;
    env.load(Entry::Service, "told").get("/").await?;
    // Two planes report it, each at its own time.
    let (mut scaled, mut started) = (false, None);
    while !scaled || started.is_none() {
        match tokio::time::timeout(SOON, events.recv()).await?? {
            Event::ColdStart { cold, scaled } if cold.key.name() == "told" => started = Some((cold, scaled)),
            Event::Scale(scale) => scaled |= scale.key.name() == "told" && (scale.from, scale.to) == (0, 1),
            _ => {}
        }
    }
    let (cold, at) = started.expect("told");
    let p = Phases::from_cold_start(&cold, at);
    assert_eq!(p.signal + p.scale + p.pod + p.probe + p.forward, cold.total());
    assert!(at.is_some() && !p.pod.is_zero(), "patch and pod are told apart: {p:?}");
    env.end().await;
    Ok(())
}

/// Goal: if the API server refuses to scale a workload, a waiting client gets its error in the response, and the owner
/// gets it in the status and in an event. Method: a target of a kind that the autoscaler may read but not patch.
#[tokio::test(flavor = "multi_thread")]
async fn a_wake_that_is_refused_is_told_to_who_waits() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let group = format!("{}.example.com", env.namespace);
    let definitions: Api<CustomResourceDefinition> = Api::all(env.client.clone());
    let definition = json!({
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }, "subresources": {"scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            }}}],
        },
    });
    definitions.create(&PostParams::default(), &serde_json::from_value(definition)?).await?;
    let (roles, bindings): (Api<ClusterRole>, Api<ClusterRoleBinding>) =
        (Api::all(env.client.clone()), Api::all(env.client.clone()));
    let role = json!({
        "metadata": {"name": group},
        "rules": [{"apiGroups": [group], "resources": ["widgets"], "verbs": ["get", "list", "watch"]}],
    });
    let binding = json!({
        "metadata": {"name": group},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": group},
        "subjects": [{"kind": "ServiceAccount", "name": "autoscaler", "namespace": system::NAMESPACE}],
    });
    roles.create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "Widget"));
    let widgets: Api<DynamicObject> = Api::namespaced_with(env.client.clone(), &env.namespace, &resource);
    env.until(SOON, "the kind to be served", async || Ok(widgets.list(&ListParams::default()).await.is_ok())).await?;

    let workload = Workload::new("refused").set("wake.timeout", "5s");
    let mut widget = workload.deployment(&e2e::test_env::program()?);
    (widget["apiVersion"], widget["kind"]) = (json!(resource.api_version), json!("Widget"));
    widgets.create(&PostParams::default(), &serde_json::from_value(widget)?).await?;
    let mut scaler = workload.scaler();
    scaler["spec"]["target"] = json!({"apiVersion": resource.api_version, "kind": "Widget", "name": "refused"});
    env.create::<Service>(workload.service()).await?;
    env.create::<ZeroScaler>(scaler).await?;
    env.until_served("refused").await?;

    let answer = env.load(Entry::Activator, "refused").get("/").await?;
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!(answer.status, 504, "{body}");
    let (_, why) = body.trim_end().split_once("the workload could not be woken: ").context(body.clone())?;
    env.until(SOON, "the status to say why", async || {
        let ready = env.condition("refused", "Ready").await?;
        Ok(ready == Some(("False".into(), "FailedUpdateScale".into(), why.to_owned())))
    })
    .await?;
    let events = env.api::<Told>().list(&ListParams::default()).await?;
    let told = |event: &Told| event.message.as_deref().is_some_and(|message| message.contains(why));
    assert!(events.iter().any(told), "{why}: {events:#?}");

    // A target that is gone need not get its replicas back, which would be refused as well.
    widgets.delete("refused", &DeleteParams::default()).await?;
    env.api::<ZeroScaler>().delete("refused", &DeleteParams::default()).await?;
    env.until_gone("refused").await?;
    definitions.delete(&format!("widgets.{group}"), &DeleteParams::default()).await?;
    bindings.delete(&group, &DeleteParams::default()).await?;
    roles.delete(&group, &DeleteParams::default()).await?;
    env.end().await;
    Ok(())
}
