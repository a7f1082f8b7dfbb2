//! Attacks on other namespaces by a tenant that may write everything in its own namespace, and nothing else.
//!
//! The account has all verbs on all relevant namespaced kinds in its namespace, including statuses: more than
//! Kubernetes' `edit`. The embedded API server enforces its roles, as a real one does.

use anyhow::{Context, ensure};
use common::names;
use common_api::ZeroScaler;
use e2e::bare::zeroscaler;
use e2e::space::SOON;
use e2e::{Load, Space, TestEnv, Workload};
use http::StatusCode;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use local::up::{PlaneId, UpOptions};
use serde_json::{Value, json};
use std::net::SocketAddr;

const HOSTS: &str = "zeroscale.dev/hosts";

/// Namespace, and the same with the client of an account that may do everything there and nothing elsewhere.
struct Tenant {
    space: Space,
    own: Space,
}

impl Tenant {
    async fn create_in(env: &TestEnv) -> anyhow::Result<Self> {
        let space = Space::create_in(env.client.clone()).await?;
        let all = |group: &str, resources: Value| json!({"apiGroups": [group], "resources": resources, "verbs": ["*"]});
        space.create::<ServiceAccount>(json!({"metadata": {"name": "tenant"}})).await?;
        let role = json!({"metadata": {"name": "all"}, "rules": [
            all("", json!(["services", "services/status", "endpoints", "configmaps", "secrets"])),
            all("apps", json!(["deployments", "deployments/scale"])),
            all("discovery.k8s.io", json!(["endpointslices"])),
            all("zeroscale.dev", json!(["*"])),
        ]});
        space.create::<Role>(role).await?;
        let binding = json!({
            "metadata": {"name": "all"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": space.namespace}],
        });
        space.create::<RoleBinding>(binding).await?;
        let token = e2e::accounts::token(&space.client, (&space.namespace, "tenant"), &[], None).await?;
        let kubeconfig = Kubeconfig::read_from(&env.cluster.kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.auth_info = Default::default();
        config.auth_info.token = Some(token.into());
        Ok(Self { own: Space::existing(Client::try_from(config)?, space.namespace.clone()), space })
    }

    /// Returns the message about hosts that the workload does not own.
    async fn unowned_hosts(&self, name: &str) -> anyhow::Result<String> {
        let owned = self.space.condition(name, "HostsOwned").await?;
        Ok(owned.filter(|(status, ..)| status == "False").map(|(.., message)| message).unwrap_or_default())
    }
}

/// Checks the account's limits, so that the test proves its claim.
async fn is_confined(tenant: &Tenant, env: &TestEnv) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {HOSTS: "*.com"}}}));
    let denied =
        |outcome: Result<(), kube::Error>| matches!(outcome, Err(kube::Error::Api(status)) if status.code == 403);
    let namespaces: Api<Namespace> = Api::all(tenant.own.client.clone());
    let own = namespaces.patch(&tenant.space.namespace, &PatchParams::default(), &patch).await;
    ensure!(denied(own.map(drop)), "its own Namespace");
    let others: Api<ZeroScaler> = Api::namespaced(tenant.own.client.clone(), &env.namespace);
    ensure!(denied(others.patch("hello", &PatchParams::default(), &patch).await.map(drop)), "another's ZeroScaler");
    let maps: Api<ConfigMap> = Api::namespaced(tenant.own.client.clone(), "zeroscale-system");
    let map = serde_json::from_value(json!({"metadata": {"name": "hosts.x"}}))?;
    ensure!(denied(maps.create(&PostParams::default(), &map).await.map(drop)), "the ledger");
    Ok(())
}

/// Creates Services and slices that imitate the autoscaler's for the revision `name`, and lead to `address`.
async fn forge(tenant: &Tenant, name: &str, service: &str, address: &str) -> anyhow::Result<()> {
    let backend = json!({"revision": name, "service": service, "hosts": [service, "shop.example.com"],
        "probe": {"type": "tcp"}, "timeoutMs": 1000, "maxHeld": 10});
    let labels = json!({names::SIDE: "Private", names::WORKLOAD: name,
        "kubernetes.io/service-name": names::private_service(name)});
    // A ZeroScaler of the same name whose workload does not exist.
    let target = json!({"target": {"name": name}, "services": [{"name": format!("{name}-missing")}]});
    let scaler: ZeroScaler = tenant.own.create(zeroscaler(name, target)).await?;
    let private = json!({
        "metadata": {"name": names::private_service(name), "labels": labels,
            "annotations": {"zeroscale.dev/backend": backend.to_string()},
            "ownerReferences": [{"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler",
                "name": name, "uid": scaler.metadata.uid, "controller": true}]},
        "spec": {"ports": [{"name": "http", "port": 80}]},
    });
    let private: Service = tenant.own.create(private).await?;
    let slice = json!({
        "metadata": {"name": format!("{name}-forged"), "labels": labels, "ownerReferences": [{
            "apiVersion": "v1", "kind": "Service", "name": names::private_service(name), "uid": private.metadata.uid,
            "controller": true}]},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
    });
    tenant.own.create::<EndpointSlice>(slice).await.map(drop)
}

/// Goal: no request for a name of another namespace's Services, or for a host of another namespace, reaches the tenant,
/// at zero or awake, whatever the tenant writes and however old its objects are. The tenant's own workloads work.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_takes_no_request_of_another_namespace() -> anyhow::Result<()> {
    let env = TestEnv::with_short_grace(UpOptions::default()).await?;
    let tenant = Tenant::create_in(&env).await?;
    let (prod, evil) = (env.namespace.as_str(), tenant.space.namespace.as_str());
    // Older than its competitors, and without claims yet.
    let awake = Workload::new("hello").env("HELLO_TEXT", "evil").set("scale.min", 1);
    tenant.own.create_workload(&awake).await?;
    env.until(SOON, "the tenant's workload", async || Ok(tenant.space.scaler("hello").await?.is_ready())).await?;
    let hello = Workload::new("hello").env("HELLO_TEXT", "prod").set("hosts", vec!["shop.example.com"]);
    env.deploy(&hello).await?;
    is_confined(&tenant, &env).await?;
    let by = |at: SocketAddr, host: &str| Load::new(at, host);
    let (activator, entries) = (env.activator(), [env.activator(), env.cluster.ingress]);
    let prods = ["", ".svc", ".svc.cluster.local"].map(|end| format!("hello.{prod}{end}"));
    let prods: Vec<String> = prods.into_iter().chain(["shop.example.com".to_owned()]).collect();
    for entry in entries {
        let is_served = async || Ok(by(entry, "shop.example.com").get("/").await?.body == "prod");
        env.until(SOON, "an answer by its host", is_served).await?;
    }

    // Everything that the tenant can write.
    let wildcards = ["", ".svc", ".svc.cluster.local"].map(|end| format!("*.{prod}{end}"));
    let others = ["*.svc", "*.local", "*.svc.cluster.local", "*.example.com", "evil.example.org"];
    let hosts = prods.iter().cloned().chain(wildcards).chain(others.map(str::to_owned));
    let request =
        async |hosts: &[String]| tenant.own.patch::<ZeroScaler>("hello", json!({"spec": {"hosts": hosts}})).await;
    request(&hosts.collect::<Vec<_>>()).await?;
    let bare = request(&["hello".to_owned()]).await;
    ensure!(bare.is_err_and(|error| error.to_string().contains("spec.hosts[0]")), "a name without a dot");
    let server = by(activator, &format!("hello.{evil}"));
    ensure!(server.get("/").await?.body == "evil", "the name of its own Service");
    let pods = tenant.space.pods("hello").await?;
    let address = pods.iter().find_map(|pod| pod.status.as_ref()?.pod_ip.clone()).context("a pod of the tenant's")?;
    for (n, service) in prods.iter().enumerate() {
        forge(&tenant, &format!("forged-{n}"), service, &address).await?;
    }
    forge(&tenant, "shop", "hello", &address).await?;
    env.until(SOON, "the free host", async || Ok(by(activator, "evil.example.org").get("/").await?.body == "evil"))
        .await?;
    env.until(SOON, "all other hosts to be reported", async || {
        let message = tenant.unowned_hosts("hello").await?;
        let mut others = prods.iter().cloned().chain([format!("*.{prod}"), "*.svc".to_owned()]);
        Ok(others.all(|host| message.contains(&format!("{host} "))) && !message.contains("evil.example.org"))
    })
    .await?;

    let check = async |when: &str| -> anyhow::Result<()> {
        for (entry, host) in entries.iter().flat_map(|entry| prods.iter().map(move |host| (*entry, host))) {
            let answer = by(entry, host).get("/").await?;
            ensure!((answer.status, &answer.body[..]) == (StatusCode::OK, b"prod"), "{when}, {host}: {answer:?}");
        }
        let nobody = by(activator, &format!("nobody.{prod}")).get("/").await?;
        ensure!(nobody.status == StatusCode::NOT_FOUND, "{when}: {nobody:?}");
        Ok(())
    };
    check("awake").await?;
    env.until_asleep("hello").await?;
    check("asleep").await?;
    // Restarted activators and autoscalers reach the same result.
    env.cluster.drain_plane(PlaneId::Autoscaler(0)).await;
    env.cluster.drain_plane(PlaneId::Activator(0)).await;
    env.cluster.start_plane(PlaneId::Autoscaler(0))?;
    env.cluster.start_plane(PlaneId::Activator(0))?;
    env.cluster.wait_until_ready(2).await;
    check("after a restart").await?;
    tenant.space.delete().await?;
    env.end().await
}
