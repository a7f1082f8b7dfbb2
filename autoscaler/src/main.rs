//! `autoscaler`: the process; `autoscaler why`, which asks a running one for its reasons; and `autoscaler release`, which
//! gives workloads back where none runs.
//!
//! Under a name that begins with `kubectl-` it is a plugin of kubectl: the commands alone.
//!
//! Settings come from Knative's environment variables and our own ([`autoscaler::Options::from_env`]); flags beat them.
//!
//! Not here: upstream's klog flags (`config-logging`, or `RUST_LOG`).

use anyhow::Context;
use autoscaler::release::{Scope, release};
use autoscaler::{Options, api_rate, explain};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use common_runtime::shutdown::signal_token;
use common_runtime::telemetry::{Format, init_logs};
use common_runtime::tls::{Trust, files};
use common_runtime::{api_server, environment, heap, resolve};
use kube::config::KubeConfigOptions;
use mimalloc::MiMalloc;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Decides how many pods each revision should have.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Path of a kubeconfig; default: `KUBECONFIG`, else the pod's own service account.
    #[arg(long, global = true)]
    kubeconfig: Option<PathBuf>,
    /// Who looks at metrics that ZeroScalers ask for: `engine` (this process; default in standalone) or `off`.
    /// Default: `ZEROSCALE_HPA`.
    #[arg(long, value_name = "WHO")]
    hpa: Option<String>,
    /// Writes to the API server each second; 0: as many as upstream's processes that do the same (`KUBE_API_QPS`).
    #[arg(long, value_parser = api_rate::parse_qps)]
    kube_api_qps: Option<f64>,
    /// Writes to the API server at once; 0: likewise (`KUBE_API_BURST`).
    #[arg(long)]
    kube_api_burst: Option<u32>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print why a workload has the scale it has.
    Why {
        /// NAMESPACE/NAME of its ZeroScaler (in a Knative install: PodAutoscaler), or of its HorizontalPodAutoscaler.
        revision: String,
        /// Admin address of the autoscaler (or autoscaler-hpa) that owns it.
        #[arg(long, default_value = "127.0.0.1:9090")]
        admin: SocketAddr,
        /// The admin port speaks TLS: authorities that its certificate must be signed by, a file of PEM.
        #[arg(long, value_name = "FILE")]
        ca_file: Option<PathBuf>,
        /// Name that its certificate must bear.
        #[arg(long, value_name = "NAME", default_value = "localhost", requires = "ca_file")]
        server_name: String,
    },
    /// Give workloads back that ZeroScalers hold, where no autoscaler runs any more: replicas, Services, finalizers.
    Release {
        /// ZeroScalers of the namespace; none: all of it.
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// The namespace; default: the kubeconfig's, for names.
        #[arg(short, long, required_unless_present_any = ["names", "all"])]
        namespace: Option<String>,
        /// All namespaces.
        #[arg(long, conflicts_with_all = ["names", "namespace"])]
        all: bool,
    },
}

impl Arguments {
    /// Those of the process. A plugin of kubectl has nothing to run by itself.
    fn read() -> Self {
        let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
        let name = called.file_name().and_then(|name| name.to_str()).unwrap_or_default().replace('_', "-");
        let mut command = Self::command();
        if let Some(plugin) = name.strip_prefix("kubectl-") {
            let shown = format!("kubectl {plugin}");
            command = command.bin_name(shown).subcommand_required(true).arg_required_else_help(true);
        }
        Self::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }
}

fn main() -> anyhow::Result<()> {
    heap::block_on(process())
}

async fn process() -> anyhow::Result<()> {
    let Arguments { kubeconfig, hpa, kube_api_qps, kube_api_burst, command } = Arguments::read();
    match command {
        Some(Command::Why { revision, admin, ca_file, server_name }) => {
            let until = CancellationToken::new();
            let trust = match ca_file {
                Some(file) => Some(Trust::follow(file, &server_name, files::LOOK, until.clone()).await?),
                None => None,
            };
            print!("{}", explain::why(admin, trust.as_ref(), &revision).await?);
            until.cancel();
            return Ok(());
        }
        Some(Command::Release { names, namespace, all }) => {
            let config = api_server::config(kubeconfig.as_deref(), &KubeConfigOptions::default()).await?;
            let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
            let scope = match (all, names.is_empty()) {
                (true, _) => Scope::All,
                (false, true) => Scope::Namespace(namespace),
                (false, false) => Scope::Named(namespace, names),
            };
            return release(&api_server::client(config, "release")?, &scope, |step| println!("{step}")).await;
        }
        None => {}
    }
    let logs = init_logs(Format::Json, "info");
    let shutdown = signal_token().context("signal handlers cannot be installed")?;
    let flag = |name: &str| hpa.clone().filter(|_| name == "ZEROSCALE_HPA");
    let mut options = Options::from_env(|name| flag(name).or_else(|| environment::process(name)))?;
    options.process.logs = Some(logs);
    options.api_rate = api_rate::with(options.api_rate, kube_api_qps, kube_api_burst);
    let config = api_server::config(kubeconfig.as_deref(), &KubeConfigOptions::default()).await?;
    let client = api_server::client(config, "autoscaler")?;
    let resolver = resolve::from_env(environment::process, client.clone(), &options.cluster_domain)?;
    tracing::info!(?options, "starting");
    autoscaler::run(options, client, resolver, shutdown).await
}
