//! A cluster whose parts are separate processes: `local api`, `local node`, and the two binaries as in a cluster,
//! configured only by Knative's environment variables and a kubeconfig. The test does the rest of a cluster: it
//! maintains the endpoints of the system's Services, as a kubelet's probes and Kubernetes' controllers would.

use crate::process::Process;
use crate::space::{client, until};
use anyhow::Context;
use common::names;
use common_runtime::namespaces::Namespaces;
use kube::Client;
use local::up::is_ready;
use local::up::ranges::Ranges;
use local::up::system::{self, Member};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// One of the two binaries and its address.
#[derive(Clone, Copy)]
pub struct Plane {
    binary: &'static str,
    /// Number among the planes of its kind.
    index: usize,
    /// Address of its pod, with its main port.
    pub address: SocketAddr,
}

impl Plane {
    fn pod_name(self) -> String {
        format!("{}-{}", self.binary, self.index)
    }

    fn service(self) -> &'static str {
        if self.binary == "activator" { names::ACTIVATOR_SERVICE } else { names::AUTOSCALER_SERVICE }
    }

    fn member(self, ready: bool) -> Member {
        Member { name: self.pod_name(), address: self.address.ip(), ready }
    }
}

/// API server and node, with addresses for an activator and an autoscaler.
pub struct Parts {
    /// An administrator's client.
    pub client: Client,
    /// The API server's process.
    pub api: Process,
    /// The node's process.
    pub node: Process,
    /// Address of the activator.
    pub activator: Plane,
    /// Address of the autoscaler.
    pub autoscaler: Plane,
    /// An administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    ranges: Ranges,
    _folder: TempDir,
}

impl Parts {
    /// Starts the API server and the node. The grace period before scaling to zero is 6 s.
    pub async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let file = kubeconfig.to_str().context("UTF-8")?;
        let ranges = Ranges::take(std::process::id(), None, None)?;
        let (pods, services) = (ranges.pods.to_string(), ranges.services.to_string());
        let plane = |binary, ip, port| Plane { binary, index: 0, address: SocketAddr::new(ip, port) };
        let autoscaler = plane("autoscaler", ranges.autoscaler(0), names::STAT_PORT);
        let activator = plane("activator", ranges.activator(0), names::ACTIVATOR_HTTP1_PORT);
        let mut api = Process::start("local", &["api", "--kubeconfig", file, "--service-cidr", &services], &[])?;
        let line = api.line().await?;
        anyhow::ensure!(line.starts_with("ready api=http://127.0.0.1:"), "{line}");
        let client = client(&kubeconfig).await?;
        let settings = [("scale-to-zero-grace-period".to_owned(), "6s".to_owned())].into();
        system::create(&client, Some(settings), &Namespaces::default()).await?;
        let node = ["node", "--kubeconfig", file, "--pod-cidr", &pods, "--service-cidr", &services];
        let node = Process::start("local", &node, &[])?;
        Ok(Self { client, api, node, activator, autoscaler, kubeconfig, ranges, _folder: folder })
    }

    /// Starts a plane as in its container, and publishes it once it is ready.
    pub async fn run(&self, plane: Plane) -> anyhow::Result<Process> {
        let process = self.start_plane(plane, &self.kubeconfig, &[]).await?;
        self.publish(plane, true).await?;
        Ok(process)
    }

    /// Starts a plane with this kubeconfig and extra environment, and waits until it is ready.
    pub async fn start_plane(
        &self,
        plane: Plane,
        kubeconfig: &Path,
        extra: &[(&'static str, String)],
    ) -> anyhow::Result<Process> {
        let process = Process::start(plane.binary, &[], &self.environment(plane, kubeconfig, extra))?;
        self.until_ready(plane).await?;
        Ok(process)
    }

    /// Returns the environment of a plane, with this kubeconfig and extra variables.
    pub fn environment(
        &self,
        plane: Plane,
        kubeconfig: &Path,
        extra: &[(&'static str, String)],
    ) -> Vec<(&'static str, String)> {
        let ip = plane.address.ip().to_string();
        let mut environment = vec![
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("POD_NAME", plane.pod_name()),
            ("POD_IP", ip.clone()),
            ("SYSTEM_NAMESPACE", system::NAMESPACE.to_owned()),
            ("CLUSTER_DOMAIN", system::DOMAIN.to_owned()),
            ("ZEROSCALE_MODE", "standalone".to_owned()),
            ("ZEROSCALE_RESOLVER", "endpoints".to_owned()),
            ("ZEROSCALE_LISTEN_ADDRESS", ip),
        ];
        environment.extend_from_slice(extra);
        environment
    }

    /// Waits until a plane is ready.
    pub async fn until_ready(&self, plane: Plane) -> anyhow::Result<()> {
        let what = format!("{} to be ready", plane.binary);
        until(&what, async || is_ready(plane.address).await == Some(true)).await
    }

    /// Kills a plane by SIGKILL, and marks its endpoint as not ready.
    pub async fn kill(&self, plane: Plane, mut process: Process) -> anyhow::Result<()> {
        process.kill().await?;
        self.publish(plane, false).await
    }

    /// Publishes the readiness of a plane.
    pub async fn publish(&self, plane: Plane, ready: bool) -> anyhow::Result<()> {
        self.publish_all(&[(plane, ready)]).await
    }

    /// Publishes all planes of a kind, each with its readiness.
    pub async fn publish_all(&self, planes: &[(Plane, bool)]) -> anyhow::Result<()> {
        let Some((first, _)) = planes.first() else { return Ok(()) };
        let members: Vec<_> = planes.iter().map(|(plane, ready)| plane.member(*ready)).collect();
        system::publish(&self.client, first.service(), &members).await
    }

    /// Returns the address of a second autoscaler.
    pub fn second_autoscaler(&self) -> Plane {
        let address = SocketAddr::new(self.ranges.autoscaler(1), names::STAT_PORT);
        Plane { index: 1, address, ..self.autoscaler }
    }

    /// Ends all processes in order; each must exit successfully.
    pub async fn end(self, activator: Process, autoscaler: Process) -> anyhow::Result<()> {
        self.publish(self.activator, false).await?;
        let ended = tokio::try_join!(activator.terminate(), autoscaler.terminate(), self.node.terminate())?;
        let codes = (ended.0.code(), ended.1.code(), ended.2.code());
        anyhow::ensure!(codes == (Some(0), Some(0), Some(0)), "activator, autoscaler and node end with {codes:?}");
        let code = self.api.terminate().await?.code();
        anyhow::ensure!(code == Some(0), "the API server ends with {code:?}");
        Ok(())
    }
}
