//! `local up` as a user runs it: a process with its ingress on a free port, and a namespace in it.

use crate::space::client;
use crate::{Load, Process, Space};
use anyhow::Context;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use tempfile::NamedTempFile;

/// One cluster.
pub struct Up {
    /// A namespace in the cluster.
    pub space: Space,
    /// Port of the ingress.
    pub port: u16,
    /// Address of the dashboard.
    pub dashboard: String,
    process: Process,
    _settings: NamedTempFile,
}

impl Up {
    /// Starts a cluster whose workloads scale to zero soon.
    pub async fn start() -> anyhow::Result<Self> {
        let mut settings = NamedTempFile::new()?;
        writeln!(settings, "scale-to-zero-grace-period: 6s")?;
        let file = settings.path().to_str().context("UTF-8")?;
        let args = ["up", "--ingress", "127.0.0.1:0", "--config-autoscaler", file];
        let mut process = Process::start("local", &args, &[])?;
        let ready = process.line().await?;
        let word = |name: &str| {
            let found = ready.split_whitespace().find_map(|word| word.strip_prefix(name));
            found.with_context(|| format!("{name} in {ready}"))
        };
        let port = word("ingress=http://127.0.0.1:")?.parse()?;
        let client = client(Path::new(word("kubeconfig=")?)).await?;
        let space = Space::create_in(client).await?;
        let dashboard = process.line().await?;
        let dashboard = dashboard.trim().strip_prefix("dashboard ").with_context(|| dashboard.clone())?.to_owned();
        Ok(Self { space, port, dashboard, process, _settings: settings })
    }

    /// Returns the URL of a Service, as a user opens it.
    pub fn url(&self, name: &str, path: &str) -> String {
        format!("http://{}:{}{path}", self.host(name), self.port)
    }

    /// Returns a client of a Service.
    pub fn load(&self, name: &str) -> Load {
        Load::new(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)), self.host(name))
    }

    /// Returns the next line of output.
    pub async fn line(&mut self) -> anyhow::Result<String> {
        self.process.line().await
    }

    /// Shuts everything down.
    pub async fn end(self) -> anyhow::Result<()> {
        self.space.delete().await?;
        let ended = self.process.terminate().await?;
        anyhow::ensure!(ended.success(), "{ended}");
        Ok(())
    }

    fn host(&self, name: &str) -> String {
        format!("{name}.{}.localhost", self.space.namespace)
    }
}
