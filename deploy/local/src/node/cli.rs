//! `local node`: makes this machine a node of any API server.

use super::{NodeOptions, run};
use crate::Range;
use anyhow::Context;
use clap::Args;
use common_runtime::api_server;
use kube::config::KubeConfigOptions;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use tokio_util::sync::CancellationToken;

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
    /// Runs the node until `shutdown`.
    ///
    /// # Errors
    /// Fails if the kubeconfig cannot be read, or as [`run`] does.
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
