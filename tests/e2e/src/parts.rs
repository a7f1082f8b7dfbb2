//! A cluster whose parts are separate processes: `local api`, `local node`, and the two binaries as in a cluster,
//! configured only by Knative's environment variables and a kubeconfig. The test does the rest of a cluster: it
//! maintains the endpoints of the system's Services, as a kubelet's probes and Kubernetes' controllers would.

use crate::process::Process;
use crate::space::{SOON, client};
use anyhow::Context;
use common::names;
use common_runtime::namespaces::Namespaces;
use kube::Client;
use local::up::is_ready;
use local::up::ranges::Ranges;
use local::up::system::{self, Member};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
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
    /// Starts the API server and the node. `settings` are the autoscaler's.
    ///
    /// # Errors
    /// Fails if a binary is not built or does not start.
    pub async fn start(settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let file = kubeconfig.to_str().context("UTF-8")?;
        let ranges = Ranges::take(std::process::id(), None, None)?;
        let (pods, services) = (ranges.pods.to_string(), ranges.services.to_string());
        let autoscaler =
            Plane { binary: "autoscaler", index: 0, address: SocketAddr::new(ranges.autoscaler(0), names::STAT_PORT) };
        let activator = Plane {
            binary: "activator",
            index: 0,
            address: SocketAddr::new(ranges.activator(0), names::ACTIVATOR_HTTP1_PORT),
        };
        let mut api = Process::start("local", &["api", "--kubeconfig", file, "--service-cidr", &services], &[])?;
        anyhow::ensure!(api.line().await?.starts_with("ready api=http://127.0.0.1:"), "the API server says otherwise");
        let client = client(&kubeconfig).await?;
        let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        system::create(&client, Some(settings.collect()), &Namespaces::default()).await?;
        let node = ["node", "--kubeconfig", file, "--pod-cidr", &pods, "--service-cidr", &services];
        let node = Process::start("local", &node, &[])?;
        Ok(Self { client, api, node, activator, autoscaler, kubeconfig, ranges, _folder: folder })
    }

    /// Starts a plane as in its container, and publishes it once it is ready.
    ///
    /// # Errors
    /// Fails if it does not become ready.
    pub async fn run(&self, plane: Plane) -> anyhow::Result<Process> {
        let process = self.start_plane(plane, &self.kubeconfig, &[]).await?;
        self.publish(plane, true).await?;
        Ok(process)
    }

    /// Starts a plane with this kubeconfig and more environment, and waits until it is ready.
    ///
    /// # Errors
    /// Fails if it does not become ready.
    pub async fn start_plane(
        &self,
        plane: Plane,
        kubeconfig: &Path,
        more: &[(&'static str, String)],
    ) -> anyhow::Result<Process> {
        let process = Process::start(plane.binary, &[], &self.environment(plane, kubeconfig, more))?;
        self.until_ready(plane).await?;
        Ok(process)
    }

    /// Returns the environment of a plane, with this kubeconfig and more variables.
    pub fn environment(
        &self,
        plane: Plane,
        kubeconfig: &Path,
        more: &[(&'static str, String)],
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
        environment.extend_from_slice(more);
        environment
    }

    /// Waits until a plane is ready.
    ///
    /// # Errors
    /// Fails if it does not become ready.
    pub async fn until_ready(&self, plane: Plane) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + SOON;
        while is_ready(plane.address).await != Some(true) {
            anyhow::ensure!(tokio::time::Instant::now() < deadline, "{} does not become ready", plane.binary);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Kills a plane by SIGKILL, and marks its endpoint as not ready.
    ///
    /// # Errors
    /// Fails if it has already ended, or if the API server does not respond.
    pub async fn kill(&self, plane: Plane, process: Process) -> anyhow::Result<()> {
        process.kill().await?;
        self.publish(plane, false).await
    }

    /// Publishes the readiness of a plane.
    ///
    /// # Errors
    /// Fails if the API server does not respond.
    pub async fn publish(&self, plane: Plane, ready: bool) -> anyhow::Result<()> {
        self.publish_all(&[(plane, ready)]).await
    }

    /// Publishes all planes of a kind, each with its readiness.
    ///
    /// # Errors
    /// Fails if the API server does not respond.
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
    ///
    /// # Errors
    /// Fails if one does not end, or not with code 0.
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
