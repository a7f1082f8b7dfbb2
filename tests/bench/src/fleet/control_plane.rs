//! A whole control plane around autoscalers in standalone: an API server, the controllers that create pods and slices
//! for Deployments and Services, and a node that reports pods as running.
//!
//! The API server is embedded and the controllers are ours, unless [`KUBECONFIG`] names a cluster. That cluster must be
//! new, with controllers and without nodes. [`POD_CIDR`] must then contain addresses that are local to this machine but
//! not loopback, which a real API server refuses. The planes use its first addresses, the pods those after them.
//!
//! Autoscalers elect leaders with the timing and buckets of a deployment.

use super::objects::{self, NAMESPACE, RevisionKind};
use super::{Autoscaler, CREATING, NUMBERS, RECONCILED_WITHIN, create_config, name};
use crate::process::Process;
use crate::settings::Settings;
use anyhow::{Context, ensure};
use common::names;
use common_runtime::environment::Mode;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use rustix::process::Signal;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, timeout};

/// Variable with the kubeconfig of a cluster to measure on.
const KUBECONFIG: &str = "BENCH_KUBECONFIG";
/// Variable with the address range of planes and pods on that cluster, such as `10.244.128.0/17`.
const POD_CIDR: &str = "BENCH_POD_CIDR";

/// Number of namespaces for workloads. Kubernetes' controllers compare each Deployment with all ReplicaSets of its
/// namespace, so one namespace would be slow.
const NAMESPACES: u32 = 16;

/// Number of addresses reserved for planes, before those of pods.
const PLANES: u32 = 256;

/// Number of Services created concurrently. Kubernetes allocates their addresses one by one, and a request that waits
/// too long fails.
const CREATING_SERVICES: usize = 4;

/// Maximum time to wait until our resources are served.
const SERVED_WITHIN: Duration = Duration::from_secs(60);

/// Maximum number of workloads for which the default range of port numbers suffices.
const NUMBERED: usize = 9_000;

/// Interval between polls of leases.
const POLL_EVERY: Duration = Duration::from_millis(250);

/// State of an activator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActivatorState {
    Ready,
    /// Terminating, but still serving.
    Terminating,
}

pub(crate) struct ControlPlane {
    pub(crate) client: Client,
    kubeconfig: PathBuf,
    /// Address before the first plane.
    network: Ipv4Addr,
    /// Embedded API server and its output, which must have a reader. `None` on a real cluster.
    api: Option<(Process, UnboundedReceiver<String>)>,
    _kubelet: Process,
    _files: tempfile::TempDir,
}

impl ControlPlane {
    /// Starts a control plane for `workloads`, with the namespaces, definitions and settings of an installation.
    pub(crate) async fn start(settings: &Settings, workloads: usize) -> anyhow::Result<Self> {
        let files = tempfile::tempdir()?;
        let (kubeconfig, network, api) = match std::env::var_os(KUBECONFIG) {
            Some(path) => {
                let range = std::env::var(POD_CIDR).with_context(|| format!("{KUBECONFIG} needs {POD_CIDR}"))?;
                let first = range.split('/').next().unwrap_or_default().parse().context(POD_CIDR)?;
                (PathBuf::from(path), first, None)
            }
            None => {
                let path = files.path().join("kubeconfig");
                let api = Process::role_with_output(&["api", &path.display().to_string(), "127.128.0.0/14"])?;
                let IpAddr::V4(first) = settings.ip() else { anyhow::bail!("planes need IPv4 addresses") };
                (path, Ipv4Addr::from(u32::from(first) - 1), Some(api))
            }
        };
        let client = e2e::space::client(&kubeconfig).await?;
        let namespaces = (0..NAMESPACES).map(namespace);
        for name in namespaces.chain([e2e::bare::SYSTEM.to_owned()]) {
            e2e::bare::create_namespace(&client, &name).await?;
        }
        e2e::bare::define_resources(&client).await?;
        for crd in common_api::crds::crds() {
            let name = crd.name_any();
            let served = await_condition(Api::all(client.clone()), &name, conditions::is_crd_established());
            timeout(SERVED_WITHIN, served).await.with_context(|| name.clone())??;
        }
        let elections = json!({"lease-duration": "15s", "renew-deadline": "10s", "retry-period": "3s", "buckets": "4"});
        create_config(&client, "config-leader-election", elections).await?;
        let ports = if workloads > NUMBERED { json!({"range": NUMBERS}) } else { json!({}) };
        create_config(&client, "config-ports", ports).await?;
        let first = Ipv4Addr::from(u32::from(network) + PLANES + 1).to_string();
        let path = kubeconfig.display().to_string();
        let mut role = vec!["kubelet", &path, &first];
        role.extend(api.is_some().then_some("--controllers"));
        let (kubelet, _) = Process::role(&role)?;
        Ok(Self { client, kubeconfig, network, api, _kubelet: kubelet, _files: files })
    }

    /// Reports whether the API server is a real one.
    pub(crate) fn is_real(&self) -> bool {
        self.api.is_none()
    }

    /// Returns the address of a plane. Numbers start at 0.
    pub(crate) fn plane_address(&self, number: u32) -> IpAddr {
        Ipv4Addr::from(u32::from(self.network) + 1 + number).into()
    }

    /// Creates sleeping workloads with these numbers, with Services, as users create them.
    pub(crate) async fn fill(&self, prefix: &str, numbers: Range<u32>) -> anyhow::Result<()> {
        let services = stream::iter(numbers.clone()).map(|n| async move {
            let name = name(prefix, n);
            objects::create_service(&self.client, &namespace_of(&name), &name)
                .await
                .with_context(|| format!("Service {name}"))
        });
        services.buffer_unordered(CREATING_SERVICES).try_collect::<()>().await?;
        let created = stream::iter(numbers).map(|n| async move {
            let name = name(prefix, n);
            let (namespace, no_pod) = (namespace_of(&name), Ipv4Addr::UNSPECIFIED);
            let created =
                objects::create(&self.client, &namespace, Mode::Standalone, RevisionKind::Asleep, &name, no_pod).await;
            created.with_context(|| name.clone())
        });
        created.buffer_unordered(CREATING).try_collect().await
    }

    /// Creates a Deployment without pods, and nothing else.
    pub(crate) async fn create_deployment(&self, name: &str) -> anyhow::Result<()> {
        objects::create_target(&self.client, &namespace_of(name), name).await.with_context(|| name.to_owned())
    }

    /// Sets the replicas of a Deployment, as an autoscaler does.
    pub(crate) async fn scale(&self, name: &str, replicas: i32) -> anyhow::Result<()> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), &namespace_of(name));
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        api.patch(&objects::target(name), &PatchParams::default(), &patch).await.with_context(|| name.to_owned())?;
        Ok(())
    }

    /// Starts the autoscaler `number` at the address of that plane, and waits until it responds. With `is_paced`, it
    /// writes no faster than a deployed one.
    pub(crate) async fn start_autoscaler(&self, number: u32, is_paced: bool) -> anyhow::Result<Autoscaler> {
        let (kubeconfig, ip) = (self.kubeconfig.display().to_string(), self.plane_address(number));
        let name = format!("autoscaler-{number}");
        Autoscaler::start(kubeconfig, Mode::Standalone, (name.as_str(), ip), is_paced).await
    }

    /// Waits until the autoscaler `number` leads some of the workloads, so it has listed everything.
    pub(crate) async fn until_leading(&self, number: u32) -> anyhow::Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), e2e::bare::SYSTEM);
        let name = format!("autoscaler-{number}_");
        let deadline = Instant::now() + RECONCILED_WITHIN;
        loop {
            let leases = leases.list(&ListParams::default()).await?;
            let mut holders = leases.iter().filter_map(|lease| lease.spec.as_ref()?.holder_identity.as_deref());
            if holders.any(|holder| holder.starts_with(&name)) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{name} leads nothing after {RECONCILED_WITHIN:?}");
            sleep(POLL_EVERY).await;
        }
    }

    /// Writes the slice with exactly these activators, as Kubernetes does.
    pub(crate) async fn publish(&self, activators: &[(IpAddr, ActivatorState)]) -> anyhow::Result<()> {
        let endpoint = |(address, state): &(IpAddr, ActivatorState)| {
            let ready = *state == ActivatorState::Ready;
            let conditions = json!({"ready": ready, "serving": true, "terminating": !ready});
            json!({"addresses": [address], "conditions": conditions})
        };
        let endpoints: Vec<_> = activators.iter().map(endpoint).collect();
        let name = "activator-service-bench";
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": names::ACTIVATOR_SERVICE}},
            "ports": [{"name": "http", "port": names::ACTIVATOR_HTTP1_PORT, "protocol": "TCP"}],
            "endpoints": endpoints,
        });
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), e2e::bare::SYSTEM);
        api.patch(name, &PatchParams::apply("bench").force(), &Patch::Apply(&slice)).await?;
        Ok(())
    }

    /// Ends every watch, and forces the watchers to list again. Returns whether this API server supports that.
    pub(crate) fn forget_history(&self) -> anyhow::Result<bool> {
        self.api.as_ref().map(|(api, _)| api.signal(Signal::USR1)).transpose().map(|sent| sent.is_some())
    }
}

fn namespace(number: u32) -> String {
    format!("{NAMESPACE}-{number:02}")
}

/// Returns the namespace of a workload, which follows from the number at the end of its name.
pub(crate) fn namespace_of(workload: &str) -> String {
    let number = workload.rsplit('-').next().and_then(|number| number.parse().ok());
    namespace(number.unwrap_or(0) % NAMESPACES)
}
