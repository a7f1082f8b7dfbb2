//! The API server of a cluster: its own, or that of another cluster.

use crate::api::{ApiOptions, ApiServer};
use crate::up::options::UpOptions;
use crate::up::ranges::Ranges;
use anyhow::Context;
use kube::Config;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The embedded API server and how to reach it.
pub(super) struct Embedded {
    pub(super) server: ApiServer,
    pub(super) config: Config,
    pub(super) kubeconfig: PathBuf,
}

impl Embedded {
    /// Starts it, and writes its kubeconfig, which says where the dashboard is, if there is one.
    pub(super) async fn start(
        options: &UpOptions,
        ranges: &Ranges,
        folder: &Path,
        dashboard: Option<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let audit = options.audit.clone();
        let api = ApiOptions { listen: options.api, audit, dashboard, ..ApiOptions::new(ranges.services()?) };
        let server = ApiServer::start(api)
            .await
            .with_context(|| format!("--api {} cannot be bound; choose another, or port 0", options.api))?;
        let kubeconfig = options.kubeconfig.clone().unwrap_or_else(|| folder.join("kubeconfig"));
        server.write_kubeconfig(&kubeconfig)?;
        // Plain HTTP, as it never leaves loopback.
        let mut config = Config::new(server.url().parse().context("URL of the API server")?);
        config.auth_info.token = Some(server.token().to_owned().into());
        Ok(Self { server, config, kubeconfig })
    }
}

/// How to reach the API server that a kubeconfig names.
pub(super) async fn external_config(path: &Path) -> anyhow::Result<Config> {
    let kubeconfig = kube::config::Kubeconfig::read_from(path)
        .with_context(|| format!("--external {}: no kubeconfig", path.display()))?;
    Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .with_context(|| format!("--external {}", path.display()))
}
