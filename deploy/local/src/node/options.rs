//! Options of a node, and `local node`, which makes this machine a node of any API server.
//!
//! A kubelet runs 110 pods by default. A machine with little memory or few process ids runs fewer; limits of the
//! control group apply too. Further pods stay Pending (see [`super::pods`]).

use super::proxy::ServiceTable;
use super::{backoff, run};
use crate::Range;
use crate::usage::UsageTable;
use anyhow::Context;
use clap::Args;
use common_runtime::api_server;
use kube::config::KubeConfigOptions;
use procfs::{Current, Meminfo};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Options of a node.
#[derive(Clone)]
pub struct NodeOptions {
    /// Name of the Node object.
    pub name: String,
    /// Address of the machine in the status of pods.
    pub host_ip: IpAddr,
    /// Range of pod addresses. Every address in it must be usable on this machine.
    pub pod_cidr: Range,
    /// Addresses in `pod_cidr` that no pod gets.
    pub reserved: Vec<Ipv4Addr>,
    /// Range from which the API server allocates ClusterIPs. It must not overlap `pod_cidr`.
    pub service_cidr: Range,
    /// Folder for logs; created if it does not exist.
    pub work_dir: PathBuf,
    /// Also run pods of the default scheduler. Use it only if no scheduler runs.
    pub default_scheduler: bool,
    /// Maximum number of running pods; other pods wait.
    pub pods_max: usize,
    /// First and longest delay between restarts of a container.
    pub restart_backoff: (Duration, Duration),
    /// Receives the addresses at which Services can be reached.
    pub services: ServiceTable,
    /// Receives the function that measures containers.
    pub usage: UsageTable,
}

impl NodeOptions {
    /// Returns the options of a node in the embedded cluster.
    pub fn new(name: impl Into<String>, pod_cidr: Range, service_cidr: Range, work_dir: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            host_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            pod_cidr,
            reserved: Vec::new(),
            service_cidr,
            work_dir: work_dir.into(),
            default_scheduler: true,
            pods_max: pods_max(),
            restart_backoff: backoff::DELAYS,
            services: ServiceTable::default(),
            usage: UsageTable::default(),
        }
    }
}

/// Arguments of `local node`.
#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    /// Path of the kubeconfig [default: as for kubectl].
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Address range of pods; each must be an address of this machine (ip route add local RANGE dev lo). Must not be
    /// loopback unless the API server is embedded.
    #[arg(long, value_name = "RANGE")]
    pod_cidr: Range,
    /// Range from which the API server allocates ClusterIPs.
    #[arg(long, value_name = "RANGE")]
    service_cidr: Range,
    /// Name of the node.
    #[arg(long, default_value = "zeroscale-local")]
    name: String,
    /// Address of this machine in the status of pods.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host_ip: IpAddr,
    /// Folder for logs [default: a temporary folder, removed at the end].
    #[arg(long)]
    work_dir: Option<PathBuf>,
    /// Also run pods of the default scheduler, not only those with `schedulerName: zeroscale-local`. Use it only if no
    /// scheduler runs.
    #[arg(long)]
    default_scheduler: bool,
}

impl NodeArgs {
    /// Runs the node until `shutdown`. Fails if the kubeconfig cannot be read, or as [`run`] does.
    pub async fn run(self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let NodeArgs { kubeconfig, pod_cidr, service_cidr, name, host_ip, work_dir, default_scheduler } = self;
        let config = api_server::config(kubeconfig.as_deref(), &KubeConfigOptions::default()).await?;
        let client = api_server::client(config, "node")?;
        let temporary = tempfile::tempdir().context("cannot create a folder for logs")?; // Removed at the end.
        let work_dir = work_dir.unwrap_or_else(|| temporary.path().to_owned());
        let options =
            NodeOptions { host_ip, default_scheduler, ..NodeOptions::new(name, pod_cidr, service_cidr, work_dir) };
        run(options, client, shutdown).await
    }
}

/// Maximum number of pods of a node, as a kubelet's default.
const PODS_MAX: u64 = 110;
/// Assumed memory of a pod in bytes: a small program with its stack and buffers.
const MEMORY_OF_POD: u64 = 16 << 20;
/// Assumed number of threads of a pod.
const TASKS_OF_POD: u64 = 16;

/// Returns the number of pods that this machine can run now; at least one.
fn pods_max() -> usize {
    let memory = Meminfo::current().ok().map(|info| info.mem_available.unwrap_or(info.mem_free));
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/pids.max", "/proc/sys/kernel/pid_max"].map(limit);
    bound(&[memory, limits[0]], &[limits[1], limits[2]])
}

/// Reads a limit of the kernel. Returns `None` if the file does not exist or sets no limit.
fn limit(path: impl AsRef<Path>) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Computes the number of pods from bytes of memory and numbers of threads. Unknown values set no limit.
fn bound(memory: &[Option<u64>], tasks: &[Option<u64>]) -> usize {
    let by_memory = memory.iter().flatten().map(|bytes| bytes / MEMORY_OF_POD);
    let by_tasks = tasks.iter().flatten().map(|tasks| tasks / TASKS_OF_POD);
    let least = by_memory.chain(by_tasks).fold(PODS_MAX, u64::min).max(1);
    usize::try_from(least).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scarcest_resource_bounds_the_number_of_pods() {
        let gibibyte = Some(1 << 30);
        for (memory, tasks, pods) in [
            ([None, None], [None, None], 110),
            ([Some(64 << 30), None], [Some(32768), Some(4194304)], 110),
            ([Some(64 << 30), gibibyte], [None, Some(4194304)], 64),
            ([gibibyte, None], [Some(512), None], 32),
            ([Some(0), None], [None, None], 1),
        ] {
            assert_eq!(bound(&memory, &tasks), pods, "{memory:?} {tasks:?}");
        }
    }
}
