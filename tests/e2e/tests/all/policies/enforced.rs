//! NetworkPolicies enforced in front of pods and activators.

use super::enforcer::{Endpoint, Peer, enforce};
use super::{policy, until_numbered};
use anyhow::{Context, ensure};
use common_api::zeroscaler::conditions::GUARDED;
use e2e::netns::ip;
use e2e::test_env::SOON;
use e2e::{TestEnv, Workload};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use local::up::system::NAMESPACE;
use local::up::{PlaneId, UpOptions};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::Command;

/// Addresses of pods and planes, which all belong to the network namespace of the cluster.
const PODS: &str = "10.78.0.0/18";
/// Variable that is set in the process with that namespace.
const INSIDE: &str = "E2E_NETWORK_NAMESPACE";
const ACTIVATORS: usize = 2;

/// The cluster, and a client of each kind.
struct Rig {
    env: TestEnv,
    peers: Vec<Peer>,
}

impl Rig {
    async fn start() -> anyhow::Result<Self> {
        ip("link set lo up")?;
        ip(&format!("route add local {PODS} dev lo"))?;
        let options =
            UpOptions { activators: u16::try_from(ACTIVATORS)?, pod_cidr: Some(PODS.parse()?), ..UpOptions::default() };
        let env = TestEnv::with(options).await?;
        let partner = format!("{}-partner", env.namespace);
        let namespace = json!({"metadata": {"name": partner, "labels": {"team": "a"}}});
        let namespaces: Api<Namespace> = Api::all(env.client.clone());
        namespaces.create(&PostParams::default(), &serde_json::from_value(namespace)?).await?;
        let peers = vec![
            Peer::new(1, "client", &env.namespace, ("role", "client"), PODS)?,
            Peer::new(2, "stranger", &env.namespace, ("role", "stranger"), PODS)?,
            Peer::new(3, "partner", &partner, ("role", "client"), PODS)?,
            Peer::new(4, "activator", NAMESPACE, ("app", "activator"), PODS)?,
        ];
        Ok(Self { env, peers })
    }

    /// Returns all endpoints without a Pod object.
    fn endpoints(&self) -> Vec<Endpoint> {
        let plane = |address: SocketAddr| Endpoint {
            address: address.ip(),
            namespace: NAMESPACE.to_owned(),
            labels: [("app".to_owned(), "activator".to_owned())].into(),
        };
        let planes = self.activators(0).into_iter().map(plane);
        self.peers.iter().map(|peer| peer.endpoint.clone()).chain(planes).collect()
    }

    /// Returns a port of all activators.
    fn activators(&self, port: u16) -> Vec<SocketAddr> {
        let ip = |n| self.env.cluster.address(PlaneId::Activator(n)).ip();
        (0..ACTIVATORS).map(|n| SocketAddr::new(ip(n), port)).collect()
    }

    async fn pods(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let pods = self.env.pods("web").await?;
        let address = |pod: &Pod| pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok();
        Ok(pods.iter().filter_map(address).map(|ip| SocketAddr::new(ip, 8080)).collect())
    }

    /// Waits until exactly these clients are served at each address.
    async fn until_served(&self, what: &str, at: &[SocketAddr], expected: &[&str]) -> anyhow::Result<()> {
        ensure!(!at.is_empty(), "{what}: no address");
        let host = format!("web.{}", self.env.namespace);
        let mut last = Vec::new();
        let found = self.env.until(SOON, what, async || {
            last.clear();
            for at in at {
                let mut served = Vec::new();
                for peer in &self.peers {
                    if peer.is_served(*at, &host)? {
                        served.push(peer.name);
                    }
                }
                last.push(served);
            }
            Ok(last.iter().all(|served| served == expected))
        });
        found.await.with_context(|| format!("{last:?} are served in place of {expected:?}"))
    }
}

/// Goal: a client reaches a guarded workload through the activators if and only if the workload's NetworkPolicies
/// admit it to the pods, also after changes of policies and labels. Method: the embedded cluster in a network
/// namespace, clients in namespaces of their own, and a small enforcer between them. All run in a process of their own,
/// since all threads of the cluster must be in its namespace.
#[test]
fn policies_are_enforced_in_front_of_activators() -> anyhow::Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run());
    }
    let name = "policies::enforced::policies_are_enforced_in_front_of_activators";
    let mut inside = Command::new("unshare");
    inside.arg("-n").arg(std::env::current_exe()?).args([name, "--exact", "--nocapture"]);
    let output = inside.env(INSIDE, "1").env_remove("E2E_KUBECONFIG").env_remove("E2E_POD_CIDR").output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    ensure!(text(&output.stdout).contains("1 passed"), "{}", text(&output.stdout));
    Ok(())
}

async fn run() -> anyhow::Result<()> {
    let rig = Rig::start().await?;
    tokio::select! {
        failed = enforce(rig.env.client.clone(), rig.endpoints()) => match failed.context("the enforcer")? {},
        done = scenario(&rig) => done?,
    }
    rig.env.end().await
}

async fn scenario(rig: &Rig) -> anyhow::Result<()> {
    const ALL: [&str; 4] = ["client", "stranger", "partner", "activator"];
    let env = &rig.env;
    let client = json!({"podSelector": {"matchLabels": {"role": "client"}}});
    let team = json!({"namespaceSelector": {"matchLabels": {"team": "a"}}});
    let rules = |rules: Value| json!({"spec": {"ingress": rules}});
    env.deploy(&Workload::new("web")).await?;
    let open = rig.activators(until_numbered(env, "web", false).await?);
    rig.until_served("without a policy", &open, &ALL).await?;
    rig.until_served("without a policy, at the pods", &rig.pods().await?, &ALL).await?;

    let ingress = json!([{"from": [client], "ports": [{"port": 8080}]}]);
    env.create::<NetworkPolicy>(policy("web", ("app", "web"), ingress)).await?;
    let guarded = rig.activators(until_numbered(env, "web", true).await?);
    // Activators relay to each other. The policy does not admit them to the pods, but to the numbers.
    rig.until_served("one peer", &guarded, &["client", "activator"]).await?;
    rig.until_served("one peer, at the pods", &rig.pods().await?, &["client"]).await?;
    rig.until_served("the former number", &open, &[]).await?;
    rig.until_served("the shared port", &rig.activators(8012), &[]).await?;

    env.patch::<NetworkPolicy>("web", rules(json!([{"from": [client, team]}]))).await?;
    rig.until_served("one more peer", &guarded, &["client", "partner", "activator"]).await?;
    let namespaces: Api<Namespace> = Api::all(env.client.clone());
    let unlabelled = Patch::Merge(json!({"metadata": {"labels": {"team": null}}}));
    let partner = format!("{}-partner", env.namespace);
    namespaces.patch(&partner, &PatchParams::default(), &unlabelled).await?;
    rig.until_served("a namespace without its label", &guarded, &["client", "activator"]).await?;
    env.patch::<NetworkPolicy>("web", rules(json!([{"from": [client], "ports": [{"port": 9999}]}]))).await?;
    rig.until_served("another port", &guarded, &["activator"]).await?;
    env.patch::<NetworkPolicy>("web", rules(json!([{"from": [team]}]))).await?;
    rig.until_served("the peer is removed", &guarded, &["activator"]).await?;

    // The labels of the workload's pods decide: of a running pod, then of the template.
    let selector = |label: &str| json!({"spec": {"podSelector": {"matchLabels": {"app": null, label: "on"}}}});
    env.patch::<NetworkPolicy>("web", rules(json!([{"from": [client]}]))).await?;
    env.patch::<NetworkPolicy>("web", selector("debug")).await?;
    rig.until_served("a policy for other pods", &guarded, &ALL).await?;
    let pod = env.pods("web").await?.first().context("a pod")?.name_any();
    env.patch::<Pod>(&pod, json!({"metadata": {"labels": {"debug": "on"}}})).await?;
    env.until_condition("web", GUARDED, Some(("True", "PoliciesFollowed"))).await?;
    rig.until_served("a policy for the running pod", &guarded, &["client", "activator"]).await?;
    rig.until_served("the same, at the pod", &rig.pods().await?, &["client"]).await?;
    env.patch::<Pod>(&pod, json!({"metadata": {"labels": {"debug": null}}})).await?;
    rig.until_served("the pod without its label", &guarded, &ALL).await?;
    env.patch::<Deployment>("web", json!({"spec": {"template": {"metadata": {"labels": {"debug": "on"}}}}})).await?;
    rig.until_served("a policy for the template", &guarded, &["client", "activator"]).await?;

    let strange = policy("strange", ("pod-template-hash", "1"), json!([{}]));
    env.create::<NetworkPolicy>(strange).await?;
    env.until_condition("web", GUARDED, Some(("False", "PolicyNotFollowed"))).await?;
    for (what, at) in [("guarded", &guarded), ("former", &open), ("shared", &rig.activators(8012))] {
        rig.until_served(&format!("a policy that cannot be followed, {what} numbers"), at, &[]).await?;
    }
    env.api::<NetworkPolicy>().delete("strange", &DeleteParams::default()).await?;
    let again = rig.activators(until_numbered(env, "web", true).await?);
    rig.until_served("without that policy", &again, &["client", "activator"]).await
}
