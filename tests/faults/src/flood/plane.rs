//! A plane as a process, and the minimal cluster that it needs.

use anyhow::{Context, ensure};
use common::backend::{Backend, Protocol};
use common::names;
use common_api::ZeroScaler;
use futures::future::{BoxFuture, FutureExt};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::runtime::wait::conditions::is_crd_established;
use kube::{Api, Client, Config, ResourceExt};
use local::api::{ApiOptions, ApiServer};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// Maximum time to wait for a state that is usually reached within moments.
const SOON: Duration = Duration::from_secs(20);

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

/// A plane's process. It is killed when dropped.
pub(super) struct Process(Child);

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
        let server = ApiServer::start(ApiOptions::new(range.parse()?)).await?;
        let config = Kubeconfig::from_yaml(&server.kubeconfig())?;
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in common_api::crds() {
            definitions.create(&PostParams::default(), &definition).await?;
            let name = definition.name_any();
            let served = await_condition(definitions.clone(), &name, is_crd_established());
            tokio::time::timeout(SOON, served).await.context("ZeroScalers are not served")??;
        }
        for name in [names::SYSTEM_NAMESPACE, "ns"] {
            let namespaces: Api<Namespace> = Api::all(client.clone());
            namespaces.create(&PostParams::default(), &object(json!({"metadata": {"name": name}}))?).await?;
        }
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
        let child = Command::new(program)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("POD_NAME", name)
            .env("POD_IP", ip.to_string())
            .env("SYSTEM_NAMESPACE", names::SYSTEM_NAMESPACE)
            .env("ZEROSCALE_MODE", "standalone")
            .env("ZEROSCALE_LISTEN_ADDRESS", ip.to_string())
            .envs(more.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| program.display().to_string())?;
        Ok(Process(child))
    }
}

impl Process {
    /// Returns the peak of its resident memory, in bytes.
    pub(super) fn peak(&self) -> anyhow::Result<u64> {
        self.status("VmHWM:")
    }

    /// Returns its current resident memory, in bytes.
    pub(super) fn resident(&self) -> anyhow::Result<u64> {
        self.status("VmRSS:")
    }

    /// Returns the number of its open descriptors.
    pub(super) fn descriptors(&self) -> anyhow::Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.0.id())).context("it has ended")?.count())
    }

    fn status(&self, field: &str) -> anyhow::Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).context("it has ended")?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)).context("it has ended")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
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
        let plane = Self { address, process, _cluster: cluster, _autoscaler: autoscaler };
        for workload in workloads {
            workload.create(&plane._cluster.client).await?;
        }
        until("the activator to serve", || plane.answers(WARM).map(|status| status == Some(200)).boxed()).await?;
        until("the other workload to be known", || plane.answers(ASLEEP).map(|status| status.is_none()).boxed())
            .await?;
        for Workload { name, .. } in workloads {
            let host = format!("{name}.ns");
            until("every workload to be known", || plane.answers(&host).map(|status| status != Some(404)).boxed())
                .await?;
        }
        Ok(plane)
    }

    /// Reads the metrics whose name begins with `family`, and returns the rest of each line.
    pub(super) async fn metrics(&self, family: &str) -> anyhow::Result<Vec<String>> {
        let mut stream = TcpStream::connect(METRICS).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: metrics\r\nconnection: close\r\n\r\n").await?;
        let mut page = Vec::new();
        stream.read_to_end(&mut page).await?;
        let page = String::from_utf8_lossy(&page);
        Ok(page.lines().filter_map(|line| line.strip_prefix(family)).map(str::to_owned).collect())
    }

    /// Sends a request to `host`, and returns the status of the response if it arrives within 200 ms.
    async fn answers(&self, host: &str) -> Option<u16> {
        let answer = async {
            let mut stream = TcpStream::connect(self.address).await.ok()?;
            let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.ok()?;
            answer.split(' ').nth(1)?.parse().ok()
        };
        tokio::time::timeout(Duration::from_millis(200), answer).await.ok().flatten()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

impl Workload {
    /// Creates the workload's ZeroScaler with the status that an autoscaler writes, and its EndpointSlice if it has a
    /// pod.
    async fn create(&self, client: &Client) -> anyhow::Result<()> {
        let (name, service) = (self.name, names::private_service(self.name));
        let labels = json!({names::SIDE: names::SERVICE_TYPE_PRIVATE, names::WORKLOAD: name});
        let port = self.protocol.port_name();
        let scalers: Api<ZeroScaler> = Api::namespaced(client.clone(), "ns");
        let wake = if self.has_page { json!({"page": {}}) } else { json!({}) };
        let scaler = json!({"metadata": {"name": name}, "spec": {"target": {"name": name}, "wake": wake}});
        let created = scalers.create(&PostParams::default(), &object(scaler)?).await?;
        let backend = Backend { protocol: self.protocol, ..Backend::plain(name) };
        let protocol = if self.protocol == Protocol::H2c { "h2c" } else { "http1" };
        let ports = json!([{"name": port, "port": 80, "protocol": protocol}]);
        let status = json!({"status": {"service": name, "backend": backend, "ports": ports}});
        scalers.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        let Some(pod) = self.pod else { return Ok(()) };
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": service,
                "labels": labels,
                "ownerReferences": [{
                    "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "name": name,
                    "uid": created.metadata.uid, "controller": true,
                }],
            },
            "ports": [{"name": port, "port": pod.port()}],
            "endpoints": [{"addresses": [pod.ip().to_string()]}],
        });
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "ns");
        slices.patch(&service, &PatchParams::apply("faults").force(), &Patch::Apply(&slice)).await?;
        Ok(())
    }
}

fn object<T: DeserializeOwned>(json: serde_json::Value) -> anyhow::Result<T> {
    Ok(serde_json::from_value(json)?)
}

/// Waits up to `SOON` for a state.
pub(super) async fn until<'a>(what: &str, reached: impl Fn() -> BoxFuture<'a, bool>) -> anyhow::Result<()> {
    let deadline = Instant::now() + SOON;
    while !reached().await {
        ensure!(Instant::now() < deadline, "waited {SOON:?} for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Returns the path of a plane's program. Cargo builds it in this program's profile, so that the run measures the
/// current source.
pub(super) fn program(plane: &str) -> anyhow::Result<PathBuf> {
    let us = std::env::current_exe()?;
    let folder = us.parent().context("a folder")?;
    if let Some(cargo) = std::env::var_os("CARGO") {
        let profile = folder.file_name().context("a profile")?;
        let profile = if profile == "debug" { "dev".as_ref() } else { profile };
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "-p", plane, "--bin", plane, "--profile"]).arg(profile);
        ensure!(build.status()?.success(), "the {plane} does not build");
    }
    let program = folder.join(plane);
    ensure!(program.is_file(), "{} is missing: build it in the same profile", program.display());
    Ok(program)
}
