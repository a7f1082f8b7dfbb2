//! Activators of a release share a hard limit over TLS by the chart's values alone: processes with the environment,
//! files and permissions of its Deployments' Pods.
//!
//! Controllers create these Pods, and [`Kubelet`] runs them. The workload's pods are listeners of the test.

use crate::install::chart::chart;
use crate::install::releases::ToolCluster;
use crate::install::site::SYSTEM;
use anyhow::{Context, ensure};
use e2e::kubelet::Kubelet;
use e2e::load::metrics;
use e2e::multi_activator_cluster::until_sharing;
use e2e::process::LogLines;
use e2e::space::until;
use e2e::{CountingPods, Load, Process, Space, Workload, bare};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use local::up::ranges::Ranges;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};

const PODS: u32 = 5;
const WORK: Duration = Duration::from_millis(50);

/// Running release of two activators and an autoscaler.
struct Release {
    cluster: ToolCluster,
    ranges: Ranges,
    kubelet: Kubelet,
    running: Vec<(Process, LogLines)>,
    _controllers: DropGuard,
}

impl Release {
    /// Installs the chart with these values of `stats`, and the Secrets `stat-tls` and `activator-tls` of one CA.
    async fn install(stats: Value) -> anyhow::Result<Self> {
        let (ranges, stop) = (Ranges::take(std::process::id(), None, None)?, CancellationToken::new());
        let cluster = ToolCluster::start(&ranges.services.to_string()).await?;
        tokio::spawn(local::controllers::run(cluster.client.clone(), stop.clone()));
        bare::create_namespace(&cluster.client, SYSTEM).await?;
        for secret in secrets()? {
            bare::create(&cluster.client, Some(SYSTEM), secret).await?;
        }
        let (values, chart) = (cluster.folder.path().join("values.yaml"), chart().display().to_string());
        let text = json!({"images": {"registry": "zeroscale"}, "autoscaler": {"replicas": 1}, "stats": stats});
        std::fs::write(&values, text.to_string())?;
        let values = values.display().to_string();
        cluster.run("helm", &["install", "zeroscale", &chart, "--namespace", SYSTEM, "--values", &values]).await?;
        // The test replaces its HorizontalPodAutoscaler.
        let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
        cluster.api::<Deployment>(SYSTEM).patch_scale("activator", &PatchParams::default(), &two).await?;
        let (autoscaler, activators) = (ranges.autoscaler(0), [0, 1].map(|n| ranges.activator(n)));
        let kubeconfig = std::fs::read_to_string(cluster.folder.path().join("kubeconfig"))?;
        let kubelet = Kubelet::new(cluster.client.clone(), SYSTEM, kubeconfig)?;
        let mut release = Self { cluster, ranges, kubelet, running: Vec::new(), _controllers: stop.drop_guard() };
        release.run("autoscaler", 8080, &[autoscaler]).await?;
        release.run("activator", 8012, &activators).await?;
        Ok(release)
    }

    /// Runs the Pods of a Deployment at these addresses, and waits until each serves.
    async fn run(&mut self, app: &str, port: u16, addresses: &[IpAddr]) -> anyhow::Result<()> {
        let pods = pods(&self.cluster.api(SYSTEM), app, addresses.len()).await?;
        for (pod, ip) in pods.iter().zip(addresses) {
            self.running.push(self.kubelet.run(pod, app, *ip).await?);
            let at = SocketAddr::new(*ip, port);
            until(&format!("{app} to serve"), async || local::up::is_ready(at).await == Some(true)).await?;
            Kubelet::set_ready(&self.cluster.client, pod, *ip).await?;
        }
        Ok(())
    }

    async fn until_all_are(&self, sharing: &str) -> anyhow::Result<()> {
        for n in [0, 1] {
            let reached = until_sharing(self.ranges.activator(n), sharing).await;
            reached.with_context(|| format!("the planes log: {:#?}", self.log_lines(&["WARN"])))?;
        }
        Ok(())
    }

    fn log_lines(&self, parts: &[&str]) -> Vec<String> {
        self.running.iter().flat_map(|(_, log)| log.with(parts)).collect()
    }

    /// Reports whether an activator relays requests to the other one.
    async fn relays(&self, n: usize) -> bool {
        has_counted(self.ranges.activator(n), "zeroscale_relayed_total").await.unwrap_or_default()
    }
}

async fn has_counted(ip: IpAddr, counter: &str) -> anyhow::Result<bool> {
    let page = metrics(SocketAddr::new(ip, 9090)).await?;
    Ok(page.lines().any(|line| line.starts_with(counter) && !line.ends_with(" 0")))
}

/// Returns the planes' certificates: the autoscaler's for activators, and the activators' for each other.
fn secrets() -> anyhow::Result<Vec<Value>> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let secret = |(name, service): (&str, &str)| {
        let key = KeyPair::generate()?;
        let own = CertificateParams::new(vec![format!("{service}.{SYSTEM}.svc")])?.signed_by(&key, &authority)?;
        let files = json!({"tls.crt": own.pem(), "tls.key": key.serialize_pem(), "ca.crt": authority.pem()});
        Ok(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "kubernetes.io/tls",
            "stringData": files}))
    };
    [("stat-tls", "autoscaler"), ("activator-tls", "activator-service")].into_iter().map(secret).collect()
}

/// Returns the Pods with this label, once there are `count`.
async fn pods(api: &Api<Pod>, app: &str, count: usize) -> anyhow::Result<Vec<Pod>> {
    let labels = ListParams::default().labels(&format!("app={app}"));
    let all = async || api.list(&labels).await.map(|list| list.items).unwrap_or_default();
    until(&format!("pods of {app}"), async || all().await.len() == count).await?;
    Ok(all().await)
}

/// Goal: by the chart's values alone, activators relay to each other over TLS: clients of both are served, no pod
/// exceeds its limit, and stats use TLS, too.
#[tokio::test(flavor = "multi_thread")]
async fn activators_of_a_release_share_pods_over_tls() -> anyhow::Result<()> {
    let release = Release::install(json!({"tlsSecret": "stat-tls", "activatorTlsSecret": "activator-tls"})).await?;
    let first = release.ranges.pods.first().to_bits() + 1;
    let addresses = (first..first + PODS).map(|ip| SocketAddr::from((Ipv4Addr::from_bits(ip), 8080)));
    let counting = CountingPods::start(&addresses.collect::<Vec<_>>(), WORK).await?;
    let space = Space::create_in(release.cluster.client.clone()).await?;
    let app = Workload::new("app").replicas(5).set("concurrency", 1).set("scale.min", 5).set("scale.max", 5);
    space.create_workload(&app).await?;
    for (pod, at) in pods(&space.api(), "app", PODS as usize).await?.iter().zip(counting.addresses()) {
        Kubelet::set_ready(&space.client, pod, at.ip()).await?;
    }
    space.until_served("app").await?;
    release.until_all_are("shared").await?;

    let load = |n| Load::new(SocketAddr::new(release.ranges.activator(n), 8012), format!("app.{}", space.namespace));
    for n in [0, 1] {
        load(n).get_ok("/").await.with_context(|| format!("activator {n}"))?;
    }
    let clients = [load(0).start(8, "/"), load(1).start(8, "/")];
    until("a request to be relayed", async || release.relays(0).await || release.relays(1).await).await?;
    until("every pod's part", async || counting.served().iter().all(|served| *served >= 20)).await?;
    for clients in clients {
        ensure!(clients.end().await?.ok > 0);
    }
    ensure!(counting.most() == 1, "a pod ran {} requests at once", counting.most());

    let has_stats = has_counted(release.ranges.autoscaler(0), "zeroscale_stats_recorded_total").await?;
    ensure!(has_stats, "no stats were received over TLS");
    Ok(())
}

/// Goal: without a certificate for activators, or with a wrong one, pods are divided, and the log says why.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_without_certificates_for_activators_divides_pods() -> anyhow::Result<()> {
    let wrong = json!({"tlsSecret": "stat-tls", "activatorTlsSecret": "stat-tls"});
    let name = "must contain the name activator-service.zeroscale-system.svc";
    for (stats, warning) in [(json!({"tlsSecret": "stat-tls"}), "ZEROSCALE_STAT_TLS_CERT and _KEY"), (wrong, name)] {
        let release = Release::install(stats).await?;
        release.until_all_are("divided").await?;
        until(warning, async || !release.log_lines(&[warning]).is_empty()).await?;
    }
    Ok(())
}
