//! A plane as a process, and the minimal cluster that it needs.

use common::backend::{Backend, Protocol};
use common::names;
use e2e::load::{Load, metrics};
use e2e::space::until;
use e2e::{Process, bare};
use kube::Client;
use local::api::ApiServer;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::process::Command;

/// The activator's own address.
const IP: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 77, 0, 1));

/// Address of the activator's metrics.
pub(super) const METRICS: SocketAddr = SocketAddr::new(IP, 9090);

/// Host of the workload with a pod.
pub(super) const WARM: &str = "warm.ns";

/// Host of the workload without a pod.
pub(super) const ASLEEP: &str = "asleep.ns";

/// Hosts of the sleeping workloads with a waiting page: that of the attacker, and another.
pub(super) const PAGED: &str = "paged.ns";
pub(super) const PAGED_TOO: &str = "paged-too.ns";

/// Hosts of the workloads whose pod sends large bodies, over HTTP/1.1 and over HTTP/2.
pub(super) const BODIES: &str = "bodies.ns";
pub(super) const BODIES_HTTP2: &str = "bodies-http2.ns";

/// A workload in the namespace `ns`.
pub(super) struct Workload {
    /// Name of the workload.
    pub(super) name: &'static str,
    /// Protocol of its pod.
    pub(super) protocol: Protocol,
    /// Address of its pod, if it has one.
    pub(super) pod: Option<SocketAddr>,
    /// A browser gets the waiting page.
    pub(super) has_page: bool,
}

/// An API server with our definitions and the namespaces of the run.
pub(super) struct Cluster {
    client: Client,
    kubeconfig: PathBuf,
    _server: ApiServer,
    _files: tempfile::TempDir,
}

/// A running activator.
pub(super) struct Plane {
    /// Address at which the activator serves.
    pub(super) address: SocketAddr,
    /// Its process.
    pub(super) process: Process,
    _cluster: Cluster,
    _autoscaler: TcpListener,
}

impl Cluster {
    /// Starts an API server for Services in `range`.
    pub(super) async fn start(range: &str) -> anyhow::Result<Self> {
        let (server, client) = bare::start(range).await?;
        bare::define_resources(&client).await?;
        bare::create_namespace(&client, "ns").await?;
        let files = tempfile::tempdir()?;
        let kubeconfig = files.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig())?;
        Ok(Self { client, kubeconfig, _server: server, _files: files })
    }

    /// Starts `program` as the pod `name` at `ip`, with this further environment.
    pub(super) fn spawn(
        &self,
        program: &Path,
        (name, ip): (&str, IpAddr),
        more: &[(&str, String)],
        log: Stdio,
    ) -> anyhow::Result<Process> {
        let mut command = Command::new(program);
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("POD_NAME", name)
            .env("POD_IP", ip.to_string())
            .env("SYSTEM_NAMESPACE", bare::SYSTEM)
            .env("ZEROSCALE_MODE", "standalone")
            .env("ZEROSCALE_LISTEN_ADDRESS", ip.to_string())
            .envs(more.iter().map(|(name, value)| (name, value)))
            .stderr(log);
        Process::spawn(command)
    }
}

impl Plane {
    /// Starts `program` with a memory limit of `limit` bytes and these workloads, which include [`WARM`] and
    /// [`ASLEEP`].
    pub(super) async fn start(program: &Path, limit: u64, workloads: &[Workload]) -> anyhow::Result<Self> {
        let cluster = Cluster::start("127.78.0.0/24").await?;
        // The stat link waits for a handshake response that never arrives.
        let autoscaler = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let environment = [
            ("ZEROSCALE_STAT_URL", format!("ws://{}", autoscaler.local_addr()?)),
            ("ZEROSCALE_MEMORY_LIMIT", limit.to_string()),
            ("RUST_LOG", std::env::var("RUST_LOG").unwrap_or("error".to_owned())),
        ];
        let process = cluster.spawn(program, ("activator-0", IP), &environment, Stdio::inherit())?;
        let address = SocketAddr::new(IP, names::ACTIVATOR_HTTP1_PORT);
        for Workload { name, protocol, pod, has_page } in workloads {
            let backend = Backend { protocol: *protocol, ..Backend::plain(name) };
            let wake = if *has_page { json!({"page": {}}) } else { json!({}) };
            bare::create_backend(&cluster.client, name, backend, wake).await?;
            if let Some(pod) = pod {
                bare::set_pods(&cluster.client, name, protocol.port_name(), &[*pod]).await?;
            }
        }
        let plane = Self { address, process, _cluster: cluster, _autoscaler: autoscaler };
        until("the activator to serve", async || plane.answers(WARM).await == Some(200)).await?;
        until("the other workload to be known", async || plane.answers(ASLEEP).await.is_none()).await?;
        for Workload { name, .. } in workloads {
            let host = format!("{name}.ns");
            until("every workload to be known", async || plane.answers(&host).await != Some(404)).await?;
        }
        Ok(plane)
    }

    /// Reads the metrics whose name begins with `family`, and returns the rest of each line.
    pub(super) async fn metrics(&self, family: &str) -> anyhow::Result<Vec<String>> {
        let page = metrics(METRICS).await?;
        Ok(page.lines().filter_map(|line| line.strip_prefix(family)).map(str::to_owned).collect())
    }

    /// Sends a request to `host`, and returns the status of the response if it arrives within 200 ms.
    async fn answers(&self, host: &str) -> Option<u16> {
        let load = Load::new(self.address, host);
        let answer = tokio::time::timeout(Duration::from_millis(200), load.get("/")).await;
        Some(answer.ok()?.ok()?.status.as_u16())
    }
}
