//! Installation for some namespaces: everything works with Roles in these, and the planes request nothing elsewhere.

use crate::install::manifests::{documents, folder, objects};
use crate::install::rights::{Record, Right, ensure_all_used, exercise, rights};
use anyhow::{Context, ensure};
use common_api::ZeroScaler;
use common_runtime::namespaces::Namespaces;
use e2e::space::SOON;
use e2e::{TestEnv, bare};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use local::up::{PlaneId, UpOptions};
use serde_json::{Value, json};

/// Namespace in which nothing is permitted any more.
const DENIED: &str = "listed-and-denied";

/// Goal: planes that watch two namespaces work in one of them with Roles only, although the other one has revoked their
/// permissions before they restarted. They request nothing cluster-wide and nothing unnecessary. They ignore a
/// ZeroScaler elsewhere, and observe a namespace's confinement of hosts.
#[tokio::test(flavor = "multi_thread")]
async fn roles_in_the_watched_namespaces_suffice() -> anyhow::Result<()> {
    let record = Record::default();
    let namespaces = Namespaces::only(["listed", DENIED]);
    let options = UpOptions { autoscalers: 2, audit: Some(record.audit()), namespaces, ..UpOptions::default() };
    let env = TestEnv::with_short_grace(options).await?;
    ensure!(env.namespace == "listed");
    let bindings: Api<RoleBinding> = Api::namespaced(env.client.clone(), DENIED);
    bindings.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    for plane in [PlaneId::Activator(0), PlaneId::Autoscaler(0)] {
        env.cluster.drain_plane(plane).await;
        env.cluster.start_plane(plane)?;
    }
    let elsewhere: Api<ZeroScaler> = Api::namespaced(env.client.clone(), "default");
    let scaler = bare::zeroscaler("elsewhere", json!({"target": {"kind": "Deployment", "name": "elsewhere"}}));
    elsewhere.create(&PostParams::default(), &serde_json::from_value(scaler)?).await?;
    let exercised = exercise(&env, &record).await;
    let confined = match exercised {
        Ok(()) => check_confinement(&env).await,
        Err(error) => Err(error),
    };
    let untouched = elsewhere.get("elsewhere").await?;
    env.end().await?;

    let denied = record.denied_where(|access| access.namespace != DENIED);
    ensure!(denied.is_empty(), "missing rights: {denied:#?}");
    ensure!(!record.denied().is_empty(), "no plane requested the revoked permissions");
    confined?;
    let observed = untouched.status.as_ref().and_then(|status| status.observed_generation);
    ensure!(observed.is_none() && untouched.metadata.finalizers.is_none(), "{untouched:?}");
    let anywhere = rights("namespaced")?.into_iter().map(Right::anywhere);
    ensure_all_used(&record, anywhere.collect())
}

/// Checks that an annotation of the namespace takes a host away, although the planes may not watch namespaces.
async fn check_confinement(env: &TestEnv) -> anyhow::Result<()> {
    let workload = e2e::Workload::new("confined").set("hosts", vec!["confined.example.com"]);
    env.create::<k8s_openapi::api::apps::v1::Deployment>(workload.deployment(&e2e::space::program()?)).await?;
    env.create::<ZeroScaler>(workload.set("services", json!([{"name": "confined", "create": true}])).scaler()).await?;
    let owned =
        async || Ok(env.condition("confined", "HostsOwned").await?.is_some_and(|(status, ..)| status == "True"));
    env.until(SOON, "a host", owned).await?;
    let only = json!({"metadata": {"annotations": {"zeroscale.dev/hosts": "other.example.com"}}});
    let namespaces: Api<Namespace> = Api::all(env.client.clone());
    namespaces.patch(&env.namespace, &PatchParams::default(), &Patch::Merge(only)).await?;
    // The annotation is read every ten seconds.
    env.until(3 * SOON, "a host to be taken away", async || Ok(!owned().await?)).await
}

/// Goal: a namespace's permissions equal the cluster's, without those that only a cluster role can grant.
#[test]
fn a_namespaces_permissions_equal_the_clusters() -> anyhow::Result<()> {
    let rules = |file: &str, kind: &str, name: &str| -> anyhow::Result<Vec<Value>> {
        let all = documents(&folder().join(file))?;
        let role = all.into_iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        Ok(role.context("a role")?["rules"].as_array().context("rules")?.clone())
    };
    for name in ["zeroscale-activator", "zeroscale-autoscaler"] {
        let own = rules("namespaced/rights/roles.yaml", "Role", name)?;
        let mut whole = rules("base/roles.yaml", "ClusterRole", name)?;
        whole.retain(|rule| rule["resources"] != json!(["tokenreviews"]));
        for rule in whole.iter_mut().filter(|rule| rule["resources"] == json!(["namespaces"])) {
            rule["verbs"] = json!(["get"]);
        }
        assert_eq!(own, whole, "{name}");
    }
    let all = objects("namespaced")?;
    let wide: Vec<_> = all.iter().filter(|object| object["metadata"]["namespace"].is_null()).collect();
    ensure!(wide.is_empty(), "objects of the whole cluster: {wide:#?}");
    Ok(())
}
