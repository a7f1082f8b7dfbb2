//! Environment of several activators that are separate processes: an API server with their Service, and one workload
//! whose pods have a hard limit. The test publishes which of them are ready, as Kubernetes' controllers would.
//!
//! In the drop-in they have exactly the permissions of Knative's own roles.

use crate::accounts;
use crate::bare::{self, create};
use crate::load::{self, Load};
use crate::space::until;
use common::backend::{Backend, Protocol};
use common::names;
use common_runtime::environment::Mode;
use futures::StreamExt;
use kube::Client;
use local::api::ApiServer;
use local::up::ranges::Ranges;
use serde_json::{Value, json};
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

/// Everything except the activators and the pods.
pub struct MultiActivatorCluster {
    mode: Mode,
    client: Client,
    kubeconfig: PathBuf,
    stat_url: String,
    ranges: Ranges,
    stats: JoinHandle<()>,
    server: ApiServer,
    _folder: TempDir,
}

impl Drop for MultiActivatorCluster {
    fn drop(&mut self) {
        self.stats.abort();
    }
}

impl MultiActivatorCluster {
    /// Starts the environment with a workload whose pods run one request at a time; it has no pods yet.
    pub async fn start(mode: Mode) -> anyhow::Result<Self> {
        let ranges = Ranges::take(std::process::id(), None, None)?;
        let (server, client) = bare::start(&ranges.services.to_string()).await?;
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let stat_url = format!("ws://{}", listener.local_addr()?);
        let stats = tokio::spawn(read_stats(listener));
        let cluster = Self { mode, client, kubeconfig, stat_url, ranges, stats, server, _folder: folder };
        bare::create_namespace(&cluster.client, NAMESPACE).await?;
        let file = match mode {
            Mode::Standalone => {
                bare::define_resources(&cluster.client).await?;
                let backend = Backend { container_concurrency: 1, ..Backend::plain(NAME) };
                bare::create_backend(&cluster.client, NAME, backend, json!({})).await?;
                cluster.server.kubeconfig()
            }
            Mode::Knative => {
                cluster.knative().await?;
                cluster.own_kubeconfig().await?
            }
        };
        std::fs::write(&cluster.kubeconfig, file)?;
        Ok(cluster)
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
    pub async fn until_serving(&self, n: usize) -> anyhow::Result<()> {
        let address = self.activator(n);
        until(&format!("activator {n} to serve"), async || local::up::is_ready(address).await == Some(true)).await
    }

    /// Waits until activator number `n` reports this use of pods with a hard limit (`zeroscale_pod_sharing`).
    pub async fn until_sharing(&self, n: usize, sharing: &str) -> anyhow::Result<()> {
        until_sharing(self.activator(n).ip(), sharing).await
    }

    /// Publishes activators: their numbers, and the readiness of each.
    pub async fn publish(&self, activators: &[(usize, bool)]) -> anyhow::Result<()> {
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
                bare::apply(&self.client, bare::SYSTEM, slice).await
            }
            Mode::Knative => {
                let addresses = |is_ready: bool| {
                    let selected = activators.iter().filter(move |(_, ready)| *ready == is_ready);
                    selected.map(|(n, _)| json!({"ip": ip(n)})).collect::<Vec<_>>()
                };
                let endpoints = json!({
                    "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": names::ACTIVATOR_SERVICE},
                    "subsets": [{"addresses": addresses(true), "notReadyAddresses": addresses(false),
                        "ports": [{"name": "http", "port": names::ACTIVATOR_HTTP1_PORT}]}],
                });
                bare::apply(&self.client, bare::SYSTEM, endpoints).await?;
                let public = json!({
                    "apiVersion": "v1", "kind": "Endpoints",
                    "metadata": {"name": NAME, "labels": bare::knative_labels(NAME, names::SERVICE_TYPE_PUBLIC)},
                    "subsets": [{"addresses": addresses(true),
                        "ports": [{"name": "http", "port": names::ACTIVATOR_HTTP1_PORT}]}],
                });
                bare::apply(&self.client, NAMESPACE, public).await
            }
        }
    }

    /// Sets the workload's pods.
    pub async fn set_pods(&self, pods: &[SocketAddr]) -> anyhow::Result<()> {
        match self.mode {
            Mode::Standalone => bare::set_pods(&self.client, NAME, Protocol::Http1.port_name(), pods).await,
            Mode::Knative => {
                let endpoints = json!({
                    "apiVersion": "v1", "kind": "Endpoints",
                    "metadata": {"name": names::private_service(NAME),
                        "labels": bare::knative_labels(NAME, names::SERVICE_TYPE_PRIVATE)},
                    "subsets": [{"addresses": pods.iter().map(|pod| json!({"ip": pod.ip()})).collect::<Vec<_>>(),
                        "ports": [{"name": "http", "port": POD_PORT}]}],
                });
                bare::apply(&self.client, NAMESPACE, endpoints).await
            }
        }
    }

    /// Creates a Revision as Knative's controllers write it, and the account of their activators.
    async fn knative(&self) -> anyhow::Result<()> {
        bare::install_knative_for_activators(&self.client).await?;
        bare::create_revision(&self.client, NAME, 300, POD_PORT).await?;
        for object in knative_account() {
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
}

/// Returns the account `activator` with the permissions of Knative Serving's `config/core/200-roles/activator.yaml`.
fn knative_account() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    let subject = json!({"kind": "ServiceAccount", "name": "activator", "namespace": bare::SYSTEM});
    let read = json!(["get", "list", "watch"]);
    let own = json!([{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": read}]);
    let wide = json!([
        {"apiGroups": [""], "resources": ["services", "endpoints"], "verbs": read},
        {"apiGroups": ["serving.knative.dev"], "resources": ["revisions"], "verbs": read},
    ]);
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "activator", "namespace": bare::SYSTEM},
    })];
    for (prefix, metadata, rules) in [
        ("", json!({"name": "knative-serving-activator", "namespace": bare::SYSTEM}), own),
        ("Cluster", json!({"name": "knative-serving-activator-cluster"}), wide),
    ] {
        let (version, role) = (format!("{rbac}/v1"), format!("{prefix}Role"));
        let named = json!({"apiGroup": rbac, "kind": role, "name": metadata["name"]});
        objects.push(json!({"apiVersion": version, "kind": role, "metadata": metadata, "rules": rules}));
        objects.push(json!({
            "apiVersion": version, "kind": format!("{prefix}RoleBinding"), "metadata": metadata, "roleRef": named,
            "subjects": [subject],
        }));
    }
    objects
}

/// Waits until the activator at an address reports this use of pods with a hard limit (`zeroscale_pod_sharing`).
pub async fn until_sharing(activator: IpAddr, sharing: &str) -> anyhow::Result<()> {
    let admin = SocketAddr::new(activator, METRICS_PORT);
    let expected = format!("zeroscale_pod_sharing{{standing=\"{sharing}\"}} 1");
    let holds = async || load::metrics(admin).await.is_ok_and(|page| page.lines().any(|line| line == expected));
    until(&format!("the activator at {activator} to be {sharing}"), holds).await
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
