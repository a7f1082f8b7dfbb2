//! NetworkPolicies of workloads, which stay in force for requests through activators.

mod enforced;
mod enforcer;

use anyhow::{Context, ensure};
use common_api::zeroscaler::conditions::GUARDED;
use e2e::test_env::SOON;
use e2e::{Entry, TestEnv, Workload};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use local::up::system::NAMESPACE;
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio::task::block_in_place;

/// Guarded numbers by default.
const GUARDED_NUMBERS: std::ops::RangeInclusive<u16> = 10_000..=19_999;
/// Maximum time of a connect, which otherwise takes less than a millisecond.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

fn activators() -> Value {
    json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
        "podSelector": {"matchLabels": {"app": "activator"}},
    })
}

/// Returns a policy for the pods with a label.
fn policy(name: &str, label: (&str, &str), ingress: Value) -> Value {
    let (label, value) = label;
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name},
        "spec": {"podSelector": {"matchLabels": {label: value}}, "policyTypes": ["Ingress"], "ingress": ingress},
    })
}

/// Returns the number of a workload's only port.
async fn number(env: &TestEnv, name: &str) -> anyhow::Result<Option<u16>> {
    let status = env.scaler(name).await?.status.unwrap_or_default();
    Ok(status.ports.first().and_then(|port| port.number))
}

/// Waits until the only port of a workload has a number that is guarded or not, and its Service leads there.
async fn until_numbered(env: &TestEnv, name: &str, is_guarded: bool) -> anyhow::Result<u16> {
    let mut found = 0;
    let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
    env.until(SOON, &format!("a number of {name}, guarded: {is_guarded}"), async || {
        let Some(number) = number(env, name).await?.filter(|number| GUARDED_NUMBERS.contains(number) == is_guarded)
        else {
            return Ok(false);
        };
        found = number;
        let slices = env.api::<EndpointSlice>().list(&of_service).await?.items;
        let mut ports = slices.iter().flat_map(|slice| slice.ports.iter().flatten()).filter_map(|port| port.port);
        Ok(ports.any(|port| port == i32::from(number)))
    })
    .await?;
    Ok(found)
}

/// Returns the policies for guarded numbers of the test's workloads.
async fn guards(env: &TestEnv) -> anyhow::Result<Vec<NetworkPolicy>> {
    let policies: Api<NetworkPolicy> = Api::namespaced(env.client.clone(), NAMESPACE);
    let mut all = policies.list(&ListParams::default().labels("zeroscale.dev/guards")).await?.items;
    let prefix = format!("{}/", env.namespace);
    all.retain(|one| one.annotations().get("zeroscale.dev/workload").is_some_and(|key| key.starts_with(&prefix)));
    Ok(all)
}

/// Waits until there is one such policy with these rules after the first one, which admits activators and autoscalers.
async fn until_guard(env: &TestEnv, number: u16, expected: Value) -> anyhow::Result<()> {
    let ports = json!([{"protocol": "TCP", "port": number}]);
    let planes = json!({"from": [{"podSelector": {"matchExpressions": [
        {"key": "app", "operator": "In", "values": ["activator", "autoscaler"]},
    ]}}], "ports": ports});
    let others = expected.as_array().context("rules")?.iter().map(|from| match from {
        Value::Null => json!({"ports": ports}),
        from => json!({"from": from, "ports": ports}),
    });
    let rules: Vec<Value> = [planes].into_iter().chain(others).collect();
    let wanted = json!({
        "podSelector": {"matchLabels": {"app": "activator"}}, "policyTypes": ["Ingress"], "ingress": rules,
    });
    let mut last = Value::Null;
    let found = env.until(SOON, "the policy in front of the activators", async || {
        last = json!(guards(env).await?.iter().map(|guard| &guard.spec).collect::<Vec<_>>());
        Ok(last == json!([wanted]))
    });
    found.await.with_context(|| format!("{last:#} in place of {wanted:#}"))
}

/// Goal: a workload is guarded while a policy selects its pods, also before it wakes. Its former number is closed, its
/// new one has a policy, the shared ports refuse it with the reason and do not wake it, and changes are followed.
/// Method: one workload on the embedded cluster, which does not enforce policies.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_is_guarded_while_policies_select_its_pods() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    let policies = env.api::<NetworkPolicy>();
    let own = json!({"matchLabels": {"kubernetes.io/metadata.name": env.namespace}});
    let client = json!({"matchLabels": {"role": "client"}});
    env.deploy(&Workload::new("web")).await?;
    let (service, shared) = (env.load(Entry::Service, "web"), env.load(Entry::Activator, "web"));
    let open = until_numbered(&env, "web", false).await?;
    ensure!(guards(&env).await?.is_empty() && env.is_asleep("web").await?, "nothing guards it, nothing woke it");

    let ingress = json!([{"from": [activators(), {"podSelector": client}], "ports": [{"port": "http1"}]}]);
    env.create::<NetworkPolicy>(policy("web", ("app", "web"), ingress)).await?;
    let guarded = until_numbered(&env, "web", true).await?;
    let peer = json!({"podSelector": client, "namespaceSelector": own});
    until_guard(&env, guarded, json!([[activators(), peer]])).await?;
    let message = env.until_condition("web", GUARDED, Some(("True", "PoliciesFollowed"))).await?;
    ensure!(message.contains("NetworkPolicies web,"), "{message}");
    let former = SocketAddr::new(env.activator().ip(), open);
    env.until(SOON, "the former number to be closed", async || Ok(is_closed(former))).await?;
    let refused = shared.get("/").await?;
    ensure!(refused.status == 403, "{refused:?}");
    ensure!(refused.text().contains("call its Service"), "{refused:?}");
    ensure!(env.is_asleep("web").await?, "a refused request woke it");
    ensure!(service.get("/").await?.status == 200, "its Service leads to the new number");
    ensure!(number(&env, "web").await? == Some(guarded), "it has the number that it got asleep");
    ensure!(env.scaler("web").await?.is_ready());

    // Other writers change the policy for its number.
    let ours: Api<NetworkPolicy> = Api::namespaced(env.client.clone(), NAMESPACE);
    let name = guards(&env).await?.first().context("a policy")?.name_any();
    let opened = json!({"spec": {"ingress": [{}]}});
    ours.patch(&name, &PatchParams::default(), &Patch::Merge(opened)).await?;
    until_guard(&env, guarded, json!([[activators(), peer]])).await?;
    ours.delete(&name, &DeleteParams::default()).await?;
    until_guard(&env, guarded, json!([[activators(), peer]])).await?;

    // The labels of its pods decide.
    let selector = |label: &str| json!({"spec": {"podSelector": {"matchLabels": {"app": null, label: "front"}}}});
    env.patch::<NetworkPolicy>("web", selector("tier")).await?;
    env.until_condition("web", GUARDED, None).await?;
    until_guard(&env, guarded, json!([null])).await?;
    ensure!(number(&env, "web").await? == Some(guarded), "it keeps its number");
    env.until(SOON, "the shared ports", async || Ok(shared.get("/").await?.status == 200)).await?;
    let labels = json!({"spec": {"template": {"metadata": {"labels": {"tier": "front"}}}}});
    env.patch::<Deployment>("web", labels).await?;
    env.until_condition("web", GUARDED, Some(("True", "PoliciesFollowed"))).await?;
    until_guard(&env, guarded, json!([[activators(), peer]])).await?;

    // A policy that cannot be followed admits no client.
    let strange = policy("strange", ("pod-template-hash", "1"), json!([{}]));
    env.create::<NetworkPolicy>(strange).await?;
    let message = env.until_condition("web", GUARDED, Some(("False", "PolicyNotFollowed"))).await?;
    ensure!(message.contains("\"strange\" cannot be followed") && message.contains("pod template"), "{message}");
    env.until(SOON, "no number, and Ready to be False", async || {
        let (status, reason, _) = env.condition("web", "Ready").await?.context("Ready")?;
        let is_reported = (status.as_str(), reason.as_str()) == ("False", "PolicyNotFollowed");
        Ok(is_reported && number(&env, "web").await?.is_none() && guards(&env).await?.is_empty())
    })
    .await?;
    let barred = SocketAddr::new(env.activator().ip(), guarded);
    env.until(SOON, "its number to be closed", async || Ok(is_closed(barred))).await?;
    ensure!(shared.get("/").await?.status == 403);
    policies.delete("strange", &DeleteParams::default()).await?;
    let again = until_numbered(&env, "web", true).await?;
    until_guard(&env, again, json!([[activators(), peer]])).await?;
    env.until_served("web").await?;
    ensure!(service.get("/").await?.status == 200);

    // Without the activators' general policy this one would close their other ports.
    let general = ours.get("activator").await?;
    ours.delete("activator", &DeleteParams::default()).await?;
    let message = env.until_condition("web", GUARDED, Some(("False", "PolicyNotFollowed"))).await?;
    ensure!(message.contains("NetworkPolicy \"activator\""), "{message}");
    env.until(SOON, "no policy of ours", async || Ok(guards(&env).await?.is_empty())).await?;
    let mut restored = NetworkPolicy { spec: general.spec, ..NetworkPolicy::default() };
    restored.metadata.name = Some("activator".to_owned());
    ours.create(&PostParams::default(), &restored).await?;
    until_numbered(&env, "web", true).await?;

    env.delete_scaler("web").await?;
    env.until(SOON, "no policy of ours", async || Ok(guards(&env).await?.is_empty())).await?;
    env.end().await
}

fn is_closed(at: SocketAddr) -> bool {
    block_in_place(|| TcpStream::connect_timeout(&at, CONNECT_WITHIN)).is_err()
}
