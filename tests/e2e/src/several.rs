//! Environment of several activators that are separate processes: an API server with their Service, and one workload
//! whose pods have a hard limit. The test publishes which of them are ready, as Kubernetes' controllers would.
//!
//! In the drop-in they have exactly the permissions of Knative's own roles.

use crate::accounts;
use crate::bare::{self, create};
use crate::{Load, space};
use anyhow::Context;
use common::backend::{Backend, Protocol};
use common::names;
use common_api::ZeroScaler;
use common_runtime::environment::Mode;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Endpoints;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use local::api::ApiServer;
use local::up::ranges::Ranges;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Name and namespace of the workload.
const NAME: &str = "app";
const NAMESPACE: &str = "ns";
/// Port of every pod.
const POD_PORT: u16 = 8080;
/// Upstream's port for metrics.
const METRICS_PORT: u16 = 9090;
/// Field manager of the test's writes.
const FIELD_MANAGER: &str = "test";

/// Everything except the activators and the pods.
pub struct Several {
    mode: Mode,
    client: Client,
    kubeconfig: PathBuf,
    stat_url: String,
    ranges: Ranges,
    stats: JoinHandle<()>,
    server: ApiServer,
    _folder: TempDir,
}

impl Drop for Several {
    fn drop(&mut self) {
        self.stats.abort();
    }
}

impl Several {
    /// Starts the environment with a workload whose pods run one request at a time; it has no pods yet.
    ///
    /// # Errors
    /// Fails if the API server does not start or rejects an object.
    pub async fn start(mode: Mode) -> anyhow::Result<Self> {
        let ranges = Ranges::take(std::process::id(), None, None)?;
        let (server, client) = bare::start(&ranges.services.to_string()).await?;
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let stat_url = format!("ws://{}", listener.local_addr()?);
        let stats = tokio::spawn(read_stats(listener));
        let several = Self { mode, client, kubeconfig, stat_url, ranges, stats, server, _folder: folder };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        create(&several.client, None, namespace).await?;
        let file = match mode {
            Mode::Standalone => {
                several.standalone().await?;
                several.server.kubeconfig()
            }
            Mode::Knative => {
                several.knative().await?;
                several.own_kubeconfig().await?
            }
        };
        std::fs::write(&several.kubeconfig, file)?;
        Ok(several)
    }

    /// Returns the environment of activator number `n`, as a separate process.
    pub fn environment(&self, n: usize) -> Vec<(&'static str, String)> {
        let ip = self.ranges.activator(n).to_string();
        let mode = match self.mode {
            Mode::Standalone => "standalone",
            Mode::Knative => "knative",
        };
        vec![
            ("KUBECONFIG", self.kubeconfig.display().to_string()),
            ("POD_NAME", format!("activator-{n}")),
            ("POD_IP", ip.clone()),
            ("SYSTEM_NAMESPACE", bare::SYSTEM.to_owned()),
            ("CLUSTER_DOMAIN", "cluster.local".to_owned()),
            ("ZEROSCALE_MODE", mode.to_owned()),
            ("ZEROSCALE_STAT_URL", self.stat_url.clone()),
            ("ZEROSCALE_LISTEN_ADDRESS", ip),
        ]
    }

    /// Returns the address for requests to activator number `n`.
    pub fn activator(&self, n: usize) -> SocketAddr {
        SocketAddr::new(self.ranges.activator(n), names::ACTIVATOR_HTTP1_PORT)
    }

    /// Returns addresses for `count` pods.
    ///
    /// # Errors
    /// Fails if there are not enough.
    pub fn pod_addresses(&self, count: u32) -> anyhow::Result<Vec<SocketAddr>> {
        let first = self.ranges.pods.first().to_bits() + 1;
        Ok((first..first + count).map(|ip| SocketAddr::new(Ipv4Addr::from_bits(ip).into(), POD_PORT)).collect())
    }

    /// Returns a client of the workload that uses activator number `n`.
    pub fn load(&self, n: usize) -> Load {
        let load = Load::new(self.activator(n), format!("{NAME}.{NAMESPACE}"));
        match self.mode {
            Mode::Standalone => load,
            Mode::Knative => load.with("knative-serving-namespace", NAMESPACE).with("knative-serving-revision", NAME),
        }
    }

    /// Waits until activator number `n` serves.
    ///
    /// # Errors
    /// Fails if it does not.
    pub async fn until_serving(&self, n: usize) -> anyhow::Result<()> {
        let address = self.activator(n);
        until(&format!("activator {n} to serve"), async || local::up::is_ready(address).await == Some(true)).await
    }

    /// Waits until activator number `n` reports this use of pods with a hard limit (`zeroscale_pod_sharing`).
    ///
    /// # Errors
    /// Fails if it does not.
    pub async fn until_standing(&self, n: usize, sharing: &str) -> anyhow::Result<()> {
        until_standing(self.activator(n).ip(), sharing).await
    }

    /// Publishes activators: their numbers, and the readiness of each.
    ///
    /// # Errors
    /// Fails if the API server rejects the write.
    pub async fn list(&self, activators: &[(usize, bool)]) -> anyhow::Result<()> {
        let ip = |n: &usize| self.ranges.activator(*n).to_string();
        let labels = json!({"kubernetes.io/service-name": names::ACTIVATOR_SERVICE});
        match self.mode {
            Mode::Standalone => {
                let endpoint =
                    |(n, ready): &(usize, bool)| json!({"addresses": [ip(n)], "conditions": {"ready": ready}});
                let slice = json!({
                    "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                    "metadata": {"name": "activators", "labels": labels},
                    "endpoints": activators.iter().map(endpoint).collect::<Vec<_>>(),
                    "ports": [{"name": "http", "port": names::ACTIVATOR_HTTP1_PORT}],
                });
                self.apply::<EndpointSlice>(bare::SYSTEM, slice).await
            }
            Mode::Knative => {
                let of = |wanted: bool| {
                    let some = activators.iter().filter(move |(_, ready)| *ready == wanted);
                    some.map(|(n, _)| json!({"ip": ip(n)})).collect::<Vec<_>>()
                };
                let endpoints = json!({
                    "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": names::ACTIVATOR_SERVICE},
                    "subsets": [{"addresses": of(true), "notReadyAddresses": of(false),
                        "ports": [{"name": "http", "port": names::ACTIVATOR_HTTP1_PORT}]}],
                });
                self.apply::<Endpoints>(bare::SYSTEM, endpoints).await?;
                let public = json!({
                    "apiVersion": "v1", "kind": "Endpoints",
                    "metadata": {"name": NAME, "labels": knative_labels(names::SERVICE_TYPE_PUBLIC)},
                    "subsets": [{"addresses": of(true), "ports": [{"name": "http", "port": names::ACTIVATOR_HTTP1_PORT}]}],
                });
                self.apply::<Endpoints>(NAMESPACE, public).await
            }
        }
    }

    /// Sets the workload's pods.
    ///
    /// # Errors
    /// Fails if the API server rejects the write.
    pub async fn set_pods(&self, pods: &[SocketAddr]) -> anyhow::Result<()> {
        let name = names::private_service(NAME);
        let ips = pods.iter().map(|pod| pod.ip().to_string());
        match self.mode {
            Mode::Standalone => {
                let scaler = Api::<ZeroScaler>::namespaced(self.client.clone(), NAMESPACE).get(NAME).await?;
                let slice = json!({
                    "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                    "metadata": {
                        "name": name,
                        "labels": {names::SIDE: names::SERVICE_TYPE_PRIVATE, names::WORKLOAD: NAME},
                        "ownerReferences": [{
                            "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "name": NAME,
                            "uid": scaler.metadata.uid, "controller": true,
                        }],
                    },
                    "ports": [{"name": "http", "port": POD_PORT}],
                    "endpoints": ips.map(|ip| json!({"addresses": [ip]})).collect::<Vec<_>>(),
                });
                self.apply::<EndpointSlice>(NAMESPACE, slice).await
            }
            Mode::Knative => {
                let endpoints = json!({
                    "apiVersion": "v1", "kind": "Endpoints",
                    "metadata": {"name": name, "labels": knative_labels(names::SERVICE_TYPE_PRIVATE)},
                    "subsets": [{"addresses": ips.map(|ip| json!({"ip": ip})).collect::<Vec<_>>(),
                        "ports": [{"name": "http", "port": POD_PORT}]}],
                });
                self.apply::<Endpoints>(NAMESPACE, endpoints).await
            }
        }
    }

    /// Creates a ZeroScaler with a status as the autoscaler writes it.
    async fn standalone(&self) -> anyhow::Result<()> {
        bare::define_resources(&self.client).await?;
        let scaler = json!({
            "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "metadata": {"name": NAME},
            "spec": {"target": {"name": NAME}},
        });
        create(&self.client, Some(NAMESPACE), scaler).await?;
        let backend = Backend { container_concurrency: 1, ..Backend::plain(NAME) };
        let port = json!({"name": Protocol::Http1.port_name(), "port": 80, "protocol": "http1"});
        let status = json!({"status": {"service": NAME, "backend": backend, "ports": [port]}});
        let api: Api<ZeroScaler> = Api::namespaced(self.client.clone(), NAMESPACE);
        api.patch_status(NAME, &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(())
    }

    /// Creates a Revision as Knative's controllers write it, and the account of their activators.
    async fn knative(&self) -> anyhow::Result<()> {
        bare::install_activators_part_of_knative(&self.client).await?;
        let revision = json!({
            "apiVersion": "serving.knative.dev/v1", "kind": "Revision",
            "metadata": {"name": NAME, "labels": knative_labels("")},
            "spec": {"containerConcurrency": 1, "timeoutSeconds": 300,
                "containers": [{"image": NAME, "ports": [{"containerPort": 8080}]}]},
        });
        create(&self.client, Some(NAMESPACE), revision).await?;
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": names::private_service(NAME), "labels": knative_labels(names::SERVICE_TYPE_PRIVATE)},
            "spec": {"ports": [{"name": "http", "port": 80, "targetPort": POD_PORT}], "selector": {"app": NAME}},
        });
        create(&self.client, Some(NAMESPACE), service).await?;
        for object in knatives_rights() {
            let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
            create(&self.client, namespace.as_deref(), object).await?;
        }
        Ok(())
    }

    /// Returns a kubeconfig of the account `activator`.
    async fn own_kubeconfig(&self) -> anyhow::Result<String> {
        let token = accounts::token(&self.client, (bare::SYSTEM, "activator"), &[], None).await?;
        accounts::with_token(&self.server.kubeconfig(), &token)
    }

    async fn apply<K>(&self, namespace: &str, object: Value) -> anyhow::Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + serde::de::DeserializeOwned,
        K::DynamicType: Default,
    {
        let name = serde_json::from_value::<DynamicObject>(object.clone())?.name_any();
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        api.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&object)).await?;
        Ok(())
    }
}

fn knative_labels(kind: &str) -> Value {
    json!({
        names::SERVICE_TYPE: kind, "networking.internal.knative.dev/serverlessservice": NAME,
        names::REVISION: NAME, names::REVISION_UID: "1234", names::CONFIGURATION: "app", names::SERVICE: "app",
    })
}

/// Returns the permissions of `config/core/200-roles/activator.yaml` of Knative Serving.
fn knatives_rights() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    let subject = json!({"kind": "ServiceAccount", "name": "activator", "namespace": bare::SYSTEM});
    let read = json!(["get", "list", "watch"]);
    let own = json!([{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": read}]);
    let wide = json!([
        {"apiGroups": [""], "resources": ["services", "endpoints"], "verbs": read},
        {"apiGroups": ["serving.knative.dev"], "resources": ["revisions"], "verbs": read},
    ]);
    let mut rights = vec![json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "activator", "namespace": bare::SYSTEM},
    })];
    for (prefix, metadata, rules) in [
        ("", json!({"name": "knative-serving-activator", "namespace": bare::SYSTEM}), own),
        ("Cluster", json!({"name": "knative-serving-activator-cluster"}), wide),
    ] {
        let (version, role) = (format!("{rbac}/v1"), format!("{prefix}Role"));
        let named = json!({"apiGroup": rbac, "kind": role, "name": metadata["name"]});
        rights.push(json!({"apiVersion": version, "kind": role, "metadata": metadata, "rules": rules}));
        rights.push(json!({
            "apiVersion": version, "kind": format!("{prefix}RoleBinding"), "metadata": metadata, "roleRef": named,
            "subjects": [subject],
        }));
    }
    rights
}

/// Waits until the activator at an address reports this use of pods with a hard limit (`zeroscale_pod_sharing`).
///
/// # Errors
/// Fails if it does not.
pub async fn until_standing(activator: IpAddr, sharing: &str) -> anyhow::Result<()> {
    let load = Load::new(SocketAddr::new(activator, METRICS_PORT), "metrics");
    let line = format!("zeroscale_pod_sharing{{standing=\"{sharing}\"}} 1");
    let holds = async || {
        let page = load.get("/metrics").await;
        page.is_ok_and(|page| String::from_utf8_lossy(&page.body).lines().any(|found| found == line))
    };
    until(&format!("the activator at {activator} to be {sharing}"), holds).await
}

/// Waits until a condition holds.
///
/// # Errors
/// Fails if it does not hold in a minute.
pub async fn until(what: &str, holds: impl AsyncFn() -> bool) -> anyhow::Result<()> {
    let reached = async {
        while !holds().await {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(space::SOON, reached).await.with_context(|| format!("waited in vain for {what}"))
}

/// Serves stats: reads everything and sends nothing.
async fn read_stats(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
            while let Some(Ok(_)) = socket.next().await {}
        });
    }
}
