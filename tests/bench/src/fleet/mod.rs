//! A large cluster around one autoscaler: an API server and pods in separate processes, and the objects of thousands of
//! revisions, created concurrently.
//!
//! A [`Fleet`] has no controllers. In [`Mode::Knative`] the objects are as Knative's controllers leave them
//! ([`objects`]), in [`Mode::Standalone`] as users write them. A [`ControlPlane`] also has the controllers, and a node
//! for their pods.

mod control_plane;
mod objects;

use crate::cluster;
use crate::process::Process;
use crate::role::queue_proxies;
use crate::settings::Settings;
use anyhow::{Context, ensure};
use common::names;
use common_runtime::environment::Mode;
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, timeout};

/// The clock of [`Fleet::until_patched`].
pub(crate) use crate::role::api::monotonic_nanos;
pub(crate) use control_plane::{ActivatorState, ControlPlane, namespace_of};
pub(crate) use objects::{NAMESPACE, RevisionKind};

/// Number of objects created concurrently.
const CREATING: usize = 48;

/// Range of port numbers. It is larger than the default one, because one namespace gets at most nine tenths of it.
const NUMBERS: &str = "10000-64999";

/// Default port of autoscalers' dashboards.
const DASHBOARD_PORT: u16 = 8090;

/// Number of pods in one process. Each has a listener and a connection.
const PODS_PER_PROCESS: u32 = 2_500;

/// Time without a write after which everything counts as reconciled.
const QUIET: Duration = Duration::from_secs(3);

/// Maximum time to wait until an autoscaler responds, and the interval of polls.
const READY_WITHIN: Duration = Duration::from_secs(120);
const READY_POLL: Duration = Duration::from_millis(5);

/// Maximum time to wait for reconciliations or lists.
const RECONCILED_WITHIN: Duration = Duration::from_secs(240);

pub(crate) struct Fleet {
    mode: Mode,
    ip: IpAddr,
    client: Client,
    api: UnboundedReceiver<String>,
    /// Number of pods in each process, and the output of that process.
    pods: Vec<(u32, UnboundedReceiver<String>)>,
    network: Ipv4Addr,
    kubeconfig: PathBuf,
    processes: Vec<Process>,
    _files: tempfile::TempDir,
}

pub(crate) struct Autoscaler {
    pub(crate) process: Process,
    pub(crate) stats: SocketAddr,
    pub(crate) dashboard: SocketAddr,
    admin: SocketAddr,
}

impl Fleet {
    pub(crate) async fn start(settings: &Settings, mode: Mode) -> anyhow::Result<Self> {
        let files = tempfile::tempdir()?;
        let kubeconfig = files.path().join("kubeconfig");
        let path = kubeconfig.display().to_string();
        // Addresses of Services are only reported, never used.
        let (process, api) = Process::role_with_output(&["api", &path, "127.128.0.0/14"])?;
        let client = e2e::space::client(&kubeconfig).await?;
        e2e::bare::create_namespace(&client, e2e::bare::SYSTEM).await?;
        e2e::bare::create_namespace(&client, NAMESPACE).await?;
        e2e::bare::define_resources(&client).await?;
        e2e::bare::define_shared_resources(&client).await?;
        if mode == Mode::Standalone {
            create_config(&client, "config-ports", json!({"range": NUMBERS})).await?;
        }
        let [low, high, ..] = std::process::id().to_le_bytes();
        let network = Ipv4Addr::new(127, 208 + high % 32, low & 0xC0, 1);
        let (pods, processes) = (Vec::new(), vec![process]);
        Ok(Self { mode, ip: settings.ip(), client, api, pods, network, kubeconfig, processes, _files: files })
    }

    /// Creates `count` revisions whose names begin with `prefix`, and their pods if they have any.
    pub(crate) async fn fill(&mut self, prefix: &str, kind: RevisionKind, count: usize) -> anyhow::Result<()> {
        let total = u32::try_from(count)?;
        if kind == RevisionKind::Scraped {
            ensure!(self.pods.is_empty(), "a fleet can be filled with scraped revisions only once");
            for begin in (0..total).step_by(PODS_PER_PROCESS as usize) {
                let (first, count) = (queue_proxies::address(self.network, begin), PODS_PER_PROCESS.min(total - begin));
                let role = ["queue-proxies", &first.to_string(), &count.to_string()];
                let (process, answered) = Process::role_with_output(&role)?;
                self.processes.push(process);
                self.pods.push((count, answered));
            }
        }
        let (client, network, mode) = (&self.client, self.network, self.mode);
        let created = stream::iter(0..total).map(|n| async move {
            let (name, pod) = (name(prefix, n), queue_proxies::address(network, n));
            objects::create(client, NAMESPACE, mode, kind, &name, pod).await.with_context(|| name.clone())
        });
        created.buffer_unordered(CREATING).try_collect().await
    }

    /// Starts the autoscaler, and waits until it responds.
    pub(crate) async fn start_autoscaler(&self) -> anyhow::Result<Autoscaler> {
        Autoscaler::start(self.kubeconfig(), self.mode, ("autoscaler-0", self.ip), false).await
    }

    /// Creates revisions as `Self::fill` does, starts an autoscaler, and waits until it has reconciled them.
    pub(crate) async fn start_filled(
        &mut self,
        prefix: &str,
        kind: RevisionKind,
        count: usize,
    ) -> anyhow::Result<Autoscaler> {
        self.fill(prefix, kind, count).await?;
        let autoscaler = self.start_autoscaler().await?;
        self.until_reconciled(2 * count).await?;
        Ok(autoscaler)
    }

    /// Waits until the autoscaler has written at least `least` times, and then nothing for `QUIET`.
    pub(crate) async fn until_reconciled(&mut self, least: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + RECONCILED_WITHIN;
        let (mut last, mut since) = (self.writes().await?, Instant::now());
        let least = last + least as u64;
        while last < least || since.elapsed() < QUIET {
            ensure!(Instant::now() < deadline, "{last} writes of at least {least} in {RECONCILED_WITHIN:?}");
            let now = self.writes().await?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Waits until all pods are scraped once per second.
    pub(crate) async fn until_scraped(&mut self) -> anyhow::Result<()> {
        for (count, pods) in &mut self.pods {
            while pods.try_recv().is_ok() {} // Skip earlier reports.
            let mut before = None;
            let scraped = async {
                loop {
                    let answered: u64 = pods.recv().await.context("the pods have gone")?.parse()?;
                    let scrapes = before.replace(answered).map_or(0, |before| answered - before);
                    // Some scrapes come slightly later than a second after the previous one.
                    if scrapes * 10 >= u64::from(*count) * 9 {
                        return anyhow::Ok(());
                    }
                }
            };
            timeout(RECONCILED_WITHIN, scraped)
                .await
                .with_context(|| format!("not all of {count} pods are scraped"))??;
        }
        Ok(())
    }

    /// Returns the number of responses of all pods so far.
    pub(crate) async fn scrapes(&mut self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for (_, pods) in &mut self.pods {
            while pods.try_recv().is_ok() {} // Skip earlier reports.
            sum += pods.recv().await.context("the pods have gone")?.parse::<u64>()?;
        }
        Ok(sum)
    }

    /// Waits for a patch of the revision's replicas. Returns its time of arrival on the monotonic clock.
    pub(crate) async fn until_patched(&mut self, revision: &str, within: Duration) -> anyhow::Result<i128> {
        let wanted = format!("scale {} ", objects::target(revision));
        let patch = async {
            loop {
                let line = self.api.recv().await.context("the API server has gone")?;
                if let Some(nanos) = line.strip_prefix(&wanted) {
                    return Ok(nanos.parse()?);
                }
            }
        };
        timeout(within, patch).await.with_context(|| format!("no patch of {revision}"))?
    }

    pub(crate) fn kubeconfig(&self) -> String {
        self.kubeconfig.display().to_string()
    }

    /// Returns the number of writes so far, except renewals of leases.
    pub(crate) async fn writes(&mut self) -> anyhow::Result<u64> {
        loop {
            let line = self.api.recv().await.context("the API server has gone")?;
            if let Some(writes) = line.strip_prefix("writes ") {
                return Ok(writes.parse()?);
            }
        }
    }
}

/// Creates a ConfigMap in the system namespace.
async fn create_config(client: &Client, name: &str, data: serde_json::Value) -> anyhow::Result<()> {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    e2e::bare::create(client, Some(e2e::bare::SYSTEM), map).await.map(drop)
}

impl Autoscaler {
    /// Starts the autoscaler with this pod name and address, and waits until it responds. With `is_paced`, it writes at
    /// its default rate. It then takes half an hour to reconcile a new large cluster.
    async fn start(kubeconfig: String, mode: Mode, (name, ip): (&str, IpAddr), is_paced: bool) -> anyhow::Result<Self> {
        let mode = if mode == Mode::Knative { "knative" } else { "standalone" };
        let mut more = vec![
            ("CLUSTER_DOMAIN", "cluster.local".to_owned()),
            ("ZEROSCALE_MODE", mode.to_owned()),
            ("ZEROSCALE_RESOLVER", "endpoints".to_owned()),
        ];
        // Dashboards listen on loopback, and two of them cannot share an address.
        let own = match ip {
            IpAddr::V4(ip) if !ip.is_loopback() => IpAddr::from([127, 0, 0, ip.octets()[3]]),
            _ => ip,
        };
        let dashboard = SocketAddr::new(own, DASHBOARD_PORT);
        more.push(("ZEROSCALE_DASHBOARD_ADDRESS", dashboard.to_string()));
        if !is_paced {
            more.extend(["KUBE_API_QPS", "KUBE_API_BURST"].map(|name| (name, "100000".to_owned())));
        }
        let process = Process::plane("autoscaler", kubeconfig, (name, ip), "error", more)?;
        let stats = SocketAddr::new(ip, names::STAT_PORT);
        let deadline = Instant::now() + READY_WITHIN;
        while local::up::is_ready(stats).await != Some(true) {
            ensure!(Instant::now() < deadline, "the autoscaler was not ready within {READY_WITHIN:?}");
            tokio::time::sleep(READY_POLL).await;
        }
        Ok(Self { process, stats, dashboard, admin: SocketAddr::new(ip, cluster::METRICS_PORT) })
    }

    /// Returns the number of writes to the API server since the start, whatever their outcome.
    pub(crate) async fn writes(&self) -> anyhow::Result<f64> {
        let metrics = cluster::get(self.admin, "metrics", "/metrics").await?;
        let counts =
            metrics.lines().filter_map(|line| line.strip_prefix("zeroscale_api_writes_total{")?.split_once("} "));
        let counts: Vec<f64> = counts.filter_map(|(_, count)| count.trim().parse().ok()).collect();
        ensure!(!counts.is_empty(), "the autoscaler has no metric of writes");
        Ok(counts.iter().sum())
    }
}

/// Returns the revision of a scale target.
pub(crate) fn revision_of(target: &str) -> &str {
    target.strip_suffix(objects::TARGET).unwrap_or(target)
}

pub(crate) fn name(prefix: &str, n: u32) -> String {
    format!("{prefix}-{n:05}")
}
