//! Every part as a process of its own: `local api`, `local node`, and the two binaries as a cluster runs them, told all
//! they know by Knative's environment variables and a kubeconfig. The test does what is left of a cluster: it keeps the
//! endpoints of the system's Services as a kubelet's probes and Kubernetes' controllers would.

use anyhow::Context;
use common::names;
use e2e::space::SOON;
use e2e::{Load, Process, Space, Workload};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use local::up::is_ready;
use local::up::system::{self, Member};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// One of the two binaries and its place.
#[derive(Clone, Copy)]
struct Plane {
    binary: &'static str,
    service: &'static str,
    /// Its pod's address and its main port.
    address: SocketAddr,
}

struct Parts {
    client: Client,
    kubeconfig: PathBuf,
}

impl Parts {
    /// Starts a plane as its container would be, and publishes it once it is ready.
    async fn start(&self, plane: Plane) -> anyhow::Result<Process> {
        let ip = plane.address.ip().to_string();
        let env = [
            ("KUBECONFIG", self.kubeconfig.display().to_string()),
            ("POD_NAME", pod_name(plane)),
            ("POD_IP", ip.clone()),
            ("SYSTEM_NAMESPACE", system::NAMESPACE.to_owned()),
            ("CLUSTER_DOMAIN", system::DOMAIN.to_owned()),
            ("ZEROSCALE_MODE", "standalone".to_owned()),
            ("ZEROSCALE_RESOLVER", "endpoints".to_owned()),
            ("ZEROSCALE_LISTEN_ADDRESS", ip),
        ];
        let process = Process::start(plane.binary, &[], &env)?;
        let deadline = tokio::time::Instant::now() + SOON;
        while !is_ready(plane.address).await {
            anyhow::ensure!(tokio::time::Instant::now() < deadline, "{} does not become ready", plane.binary);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.publish(plane, true).await?;
        Ok(process)
    }

    /// Kills it by SIGKILL; its endpoint is no longer ready afterwards.
    async fn kill(&self, plane: Plane, process: Process) -> anyhow::Result<()> {
        process.kill().await?;
        self.publish(plane, false).await
    }

    async fn publish(&self, plane: Plane, ready: bool) -> anyhow::Result<()> {
        let member = Member { name: pod_name(plane), address: plane.address.ip(), ready };
        system::publish(&self.client, plane.service, &[member]).await
    }
}

fn pod_name(plane: Plane) -> String {
    format!("{}-0", plane.binary)
}

async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?)
}

/// For how long the API server is away: longer than a lease lasts. `E2E_OUTAGE_SECONDS` says otherwise.
const OUTAGE: Duration = Duration::from_secs(17);

/// Nothing of what runs is scaled down for want of news, a sleeping service wakes as soon as the API server is back,
/// and no request is lost. `asleep` is a client of a service that sleeps.
async fn an_api_server_that_is_away_costs_nothing(
    space: &Space,
    api: &Process,
    activator: Plane,
    asleep: &Load,
) -> anyhow::Result<()> {
    let outage = std::env::var("E2E_OUTAGE_SECONDS").ok().map(|text| text.parse().map(Duration::from_secs));
    let outage = outage.transpose().context("E2E_OUTAGE_SECONDS")?.unwrap_or(OUTAGE);
    space.deploy(&Workload::new("busy").env("HELLO_LATENCY_MS", 100)).await?;
    let stop = CancellationToken::new();
    let busy = tokio::spawn({
        let (load, stop) = (Load::new(activator.address, format!("busy.{}", space.namespace)), stop.clone());
        async move { load.steady(3, "/", stop).await }
    });
    space.until(SOON, "a ready pod", async || Ok(space.ready_pods("busy").await? >= 1)).await?;

    api.freeze()?;
    // The fault itself. A client here waits for a minute, so it calls within the last part of a longer one.
    tokio::time::sleep(outage.saturating_sub(OUTAGE)).await;
    let held = tokio::spawn({
        let load = asleep.clone();
        async move { load.get("/").await }
    });
    tokio::time::sleep(outage.min(OUTAGE)).await;
    api.thaw()?;
    let answer = held.await??;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    // Whoever decides now has seen less than a window of it.
    let end = tokio::time::Instant::now() + Duration::from_secs(8);
    while tokio::time::Instant::now() < end {
        assert!(space.replicas("busy").await? >= 1, "put to sleep under load");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.cancel();
    busy.await?.none_lost()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_request_is_answered_and_each_plane_may_be_killed() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    let file = kubeconfig.to_str().context("UTF-8")?;
    // Clusters that choose a range for themselves begin above.
    let octet = u8::try_from(32 + std::process::id() % 30)?;
    let (pods, services) = (format!("127.{octet}.0.0/18"), format!("127.{octet}.128.0/17"));
    let place = |third: u8, port| SocketAddr::new(IpAddr::from([127, octet, third, 1]), port);
    let autoscaler =
        Plane { binary: "autoscaler", service: names::AUTOSCALER_SERVICE, address: place(96, names::STAT_PORT) };
    let activator = Plane {
        binary: "activator",
        service: names::ACTIVATOR_SERVICE,
        address: place(64, names::ACTIVATOR_HTTP1_PORT),
    };

    let mut api = Process::start("local", &["api", "--kubeconfig", file, "--service-cidr", &services], &[])?;
    assert!(api.line().await?.starts_with("ready api=http://127.0.0.1:"));
    let client = client(&kubeconfig).await?;
    let settings = [("scale-to-zero-grace-period".to_owned(), "6s".to_owned())].into();
    system::create(&client, Some(settings)).await?;
    let node = ["node", "--kubeconfig", file, "--pod-cidr", &pods, "--service-cidr", &services];
    let node = Process::start("local", &node, &[])?;
    let parts = Parts { client: client.clone(), kubeconfig };
    let deciding = parts.start(autoscaler).await?;
    let forwarding = parts.start(activator).await?;

    let space = Space::create_in(client).await?;
    space.deploy(&Workload::new("hello")).await?;
    let load = Load::new(activator.address, format!("hello.{}", space.namespace));
    let answer = load.get("/").await?;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    space.until_asleep("hello").await?;

    // Nobody decides while the request comes in; it waits for the next autoscaler.
    parts.kill(autoscaler, deciding).await?;
    let held = tokio::spawn({
        let load = load.clone();
        async move { load.get("/").await }
    });
    let deciding = parts.start(autoscaler).await?;
    let answer = held.await??;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    space.until_asleep("hello").await?;

    parts.kill(activator, forwarding).await?;
    load.get("/").await.expect_err("nobody listens");
    let forwarding = parts.start(activator).await?;
    let answer = load.get("/").await?;
    assert_eq!(answer.status, 200, "{:?}", answer.body);

    // Both, in either order, with a pod that runs.
    parts.kill(autoscaler, deciding).await?;
    parts.kill(activator, forwarding).await?;
    let forwarding = parts.start(activator).await?;
    let deciding = parts.start(autoscaler).await?;
    assert_eq!(load.get("/").await?.status, 200);
    parts.kill(activator, forwarding).await?;
    parts.kill(autoscaler, deciding).await?;
    let deciding = parts.start(autoscaler).await?;
    let forwarding = parts.start(activator).await?;
    assert_eq!(load.get("/").await?.status, 200);
    space.until_asleep("hello").await?;

    an_api_server_that_is_away_costs_nothing(&space, &api, activator, &load).await?;

    space.delete().await?;
    parts.publish(activator, false).await?;
    let ended = tokio::try_join!(forwarding.terminate(), deciding.terminate(), node.terminate())?;
    assert_eq!((ended.0.code(), ended.1.code(), ended.2.code()), (Some(0), Some(0), Some(0)));
    assert_eq!(api.terminate().await?.code(), Some(0));
    Ok(())
}
