//! ZeroScalers alongside other controllers: tools that reapply manifests, and targets of other kinds.

use crate::install::manifests::{apply, documents, folder};
use crate::shared::until_scaler;
use anyhow::{Context, bail};
use common_api::ZeroScaler;
use e2e::bare::definition;
use e2e::test_env::{ASLEEP, SOON, program};
use e2e::{Entry, Load, TestEnv, Workload};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use local::up::UpOptions;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Time between two applications of manifests, and the total time.
const EACH: Duration = Duration::from_secs(2);
const ALL: Duration = Duration::from_secs(20);

/// Goal: a tool that reapplies the manifests of a workload and its Service under load, including replicas and selector,
/// costs no request. The autoscaler never decides that there is no load, and the Service stays taken over. Method:
/// server-side apply, forced, as Argo CD and Flux do, with load by the Service's address and by the activator.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_reapplies_manifests_costs_no_request() -> anyhow::Result<()> {
    let env = TestEnv::with_short_grace(UpOptions::default()).await?;
    let workload = Workload::new("applied").replicas(1).env("HELLO_LATENCY_MS", 100).set("scale.load.concurrency", 4);
    let deployment = workload.deployment(&program()?);
    let params = PatchParams::apply("gitops").force();
    let apply = async || -> anyhow::Result<()> {
        env.api::<Deployment>().patch("applied", &params, &Patch::Apply(&deployment)).await?;
        env.api::<Service>().patch("applied", &params, &Patch::Apply(&workload.service())).await?;
        Ok(())
    };
    apply().await?;
    env.create::<ZeroScaler>(workload.scaler()).await?;
    env.until_served("applied").await?;
    let by_service = Load::new(env.service_address("applied").await?, format!("applied.{}", env.namespace));
    let by_host = env.load(Entry::Activator, "applied");
    // Many short requests, of which one may be lost, and long ones that stay in flight however slow their clients are.
    // The long ones alone need two pods at the activator, since Kubernetes leads other requests past it while the
    // selector is restored.
    let loads = [(by_service, 3, "/"), (by_host.clone(), 3, "/"), (by_host, 4, "/?latency_ms=2000")];
    let loads = loads.map(|(load, clients, path)| load.start(clients, path));
    // Ten requests at once, and at least four; fewer than three per pod.
    env.until(SOON, "two pods, and a status that says so", async || {
        let desired = env.scaler("applied").await?.status.and_then(|status| status.desired);
        Ok(env.ready_pods("applied").await? >= 2 && desired >= Some(2))
    })
    .await?;

    let (begun, mut next) = (Instant::now(), Instant::now());
    let mut decided = BTreeSet::new();
    while begun.elapsed() < ALL {
        if Instant::now() >= next {
            apply().await?;
            next += EACH;
        }
        decided.extend(env.scaler("applied").await?.status.and_then(|status| status.desired));
        assert!(env.replicas("applied").await? >= 1, "scaled to zero under load");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for clients in loads {
        clients.end().await?;
    }
    // Four pods for ten requests. Two reports in one second, after the machine stalled, count twice in the panic
    // window.
    assert!(decided.iter().all(|pods| (2..=8).contains(pods)), "{decided:?}");
    env.until(SOON, "the Service to be taken over again", async || {
        let selector = env.api::<Service>().get("applied").await?.spec.and_then(|spec| spec.selector);
        Ok(selector.is_none_or(|selector| selector.is_empty()))
    })
    .await?;
    env.until_asleep("applied").await?;
    env.load(Entry::Activator, "applied").get_ok("/").await?;
    env.delete_scaler("applied").await?;
    let restored = env.api::<Service>().get("applied").await?;
    assert_eq!(restored.spec.and_then(|spec| spec.selector), Some([("app".into(), "applied".into())].into()));
    env.end().await
}

/// Returns the definition of a kind with the shape of Argo's Rollouts.
fn rollouts() -> Value {
    let scale = json!({
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.HPAReplicas",
        "labelSelectorPath": ".status.selector",
    });
    definition("argoproj.io", "v1alpha1", "Rollout", json!({"status": {}, "scale": scale}))
}

/// Simulates the controller of an object until the test ends: creates pods for a StatefulSet, and a ReplicaSet for
/// other kinds. An error is printed, and the step is repeated.
fn control(env: &TestEnv, api: Api<DynamicObject>, name: &str, pods: Value) -> JoinHandle<()> {
    let (sets, own, name) = (env.api::<ReplicaSet>(), env.api::<Pod>(), name.to_owned());
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let done = match api.resource_url().ends_with("/statefulsets") {
                true => control_pods(&own, &api, &name, &pods).await,
                false => control_replica_set(&sets, &api, &name, &pods).await,
            };
            if let Err(error) = done {
                eprintln!("the controller of {name}: {error:#}");
            }
        }
    })
}

/// Creates and deletes the pods of a StatefulSet, with names and owners as its controller sets them.
async fn control_pods(own: &Api<Pod>, api: &Api<DynamicObject>, name: &str, pods: &Value) -> anyhow::Result<()> {
    let Some(object) = api.get_opt(name).await? else { return Ok(()) };
    let wanted = object.data["spec"]["replicas"].as_u64().unwrap_or(1);
    for number in 0..=wanted {
        let pod = format!("{name}-{number}");
        match (own.get_opt(&pod).await?, number < wanted) {
            (None, true) => {
                let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name,
                    "uid": object.metadata.uid, "controller": true});
                let labels = &pods["template"]["metadata"]["labels"];
                let metadata = json!({"name": pod, "labels": labels, "ownerReferences": [owner]});
                let pod = serde_json::from_value(json!({"metadata": metadata, "spec": pods["template"]["spec"]}))?;
                own.create(&PostParams::default(), &pod).await?;
            }
            (Some(found), false) if found.metadata.deletion_timestamp.is_none() => {
                own.delete(&pod, &DeleteParams::default()).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Creates and scales the ReplicaSet of an object, and sets a Rollout's status.
async fn control_replica_set(
    sets: &Api<ReplicaSet>,
    api: &Api<DynamicObject>,
    name: &str,
    pods: &Value,
) -> anyhow::Result<()> {
    let Some(object) = api.get_opt(name).await? else { return Ok(()) };
    let wanted = object.data["spec"]["replicas"].as_i64().unwrap_or(1);
    match sets.get_opt(name).await?.and_then(|set| set.spec?.replicas) {
        None => {
            let spec = json!({"replicas": wanted, "selector": pods["selector"], "template": pods["template"]});
            let set = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
            sets.create(&PostParams::default(), &set).await?;
        }
        Some(have) if i64::from(have) != wanted => {
            let patch = Patch::Merge(json!({"spec": {"replicas": wanted}}));
            sets.patch(name, &PatchParams::default(), &patch).await?;
        }
        Some(_) => {}
    }
    if object.types.is_some_and(|types| types.kind == "Rollout") && object.data["status"].is_null() {
        let status = json!({"status": {"selector": format!("app={name}"), "HPAReplicas": wanted}});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    }
    Ok(())
}

/// Goal: StatefulSets, and unknown kinds, scale to zero, wake and are restored like Deployments: a kind with a pod
/// template, and one whose pods only its status identifies. Without the permission to read them, that is reported.
/// Method: the test simulates their controllers.
#[tokio::test(flavor = "multi_thread")]
async fn targets_of_other_kinds_scale_to_zero_wake_and_are_restored() -> anyhow::Result<()> {
    let env = TestEnv::with_short_grace(UpOptions::default()).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(env.client.clone());
    apply(&env.client, &rollouts(), false).await?;
    // A real API server has a controller for StatefulSets.
    let has_controllers = std::env::var_os("E2E_KUBECONFIG").is_some();
    let rows = [
        ("rolled", "argoproj.io", "v1alpha1", "Rollout", true),
        ("elsewhere", "argoproj.io", "v1alpha1", "Rollout", false),
        ("stateful", "apps", "v1", "StatefulSet", true),
    ];
    for (name, group, version, kind, has_template) in rows {
        let types = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::namespaced_with(env.client.clone(), &env.namespace, &types);
        let workload = Workload::new(name);
        let pods = workload.deployment(&program()?)["spec"].clone();
        let reference = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
        let spec = if has_template { pods.clone() } else { json!({"replicas": 0, "workloadRef": reference}) };
        let mut object =
            json!({"apiVersion": types.api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        if kind == "StatefulSet" {
            object["spec"]["serviceName"] = json!(name);
        }
        env.until(SOON, "the kind to be served", async || {
            match api.create(&PostParams::default(), &serde_json::from_value(object.clone())?).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
                created => Ok(created.map(|_| true)?),
            }
        })
        .await?;
        let control = (kind == "Rollout" || !has_controllers).then(|| control(&env, api.clone(), name, pods));
        env.create::<Service>(workload.service()).await?;
        let mut scaler = workload.scaler();
        scaler["spec"]["target"] = json!({"apiVersion": types.api_version, "kind": kind, "name": name});
        env.create::<ZeroScaler>(scaler).await?;
        if name == "rolled" {
            let message = "spec.target: rollouts.argoproj.io of argoproj.io/v1alpha1";
            until_scaler(&env, name, "the missing permission to be reported", |object| {
                let ready = object.condition("Ready");
                ready.is_some_and(|ready| ready.reason == "TargetUnreadable" && ready.message.starts_with(message))
            })
            .await?;
            for object in documents(&folder().join("argo-rollouts/roles.yaml"))? {
                apply(&env.client, &object, false).await?;
            }
        }
        env.until(ASLEEP, "Ready", async || Ok(env.scaler(name).await?.is_ready())).await?;
        let load = env.load(Entry::Activator, name);
        let replicas = async || -> anyhow::Result<i64> {
            api.get(name).await?.data["spec"]["replicas"].as_i64().context("replicas")
        };
        for turn in ["woken", "woken again"] {
            let Ok(answer) = load.get("/").await else {
                let (has, pods) = (replicas().await?, env.pods(name).await?.len());
                let status = env.scaler(name).await?.status;
                bail!("{kind} {name}, {turn}: no answer; {has} replicas, {pods} pods; {status:#?}");
            };
            assert_eq!(answer.status, 200, "{kind} {name}: {turn}");
            let is_asleep = async || Ok(replicas().await? == 0 && env.pods(name).await?.is_empty());
            env.until(ASLEEP, "no replicas and no pods", is_asleep).await?;
        }
        env.delete_scaler(name).await?;
        assert_eq!(replicas().await?, 1, "{kind} {name}: restored");
        if let Some(control) = control {
            assert!(!control.is_finished(), "{:?}", control.await);
            control.abort();
        }
        api.delete(name, &DeleteParams::default()).await?;
    }
    definitions.delete("rollouts.argoproj.io", &DeleteParams::default()).await?;
    env.end().await
}
