//! The `autoscaler` process and its subcommands. `autoscaler why` prints the reasons of a scale, from the admin port of
//! a running autoscaler. The chart's hooks run `autoscaler end` and `autoscaler verify`.
//!
//! Settings come from Knative's environment variables and our own ([`autoscaler::Options::from_env`]); flags override
//! them.
//!
//! Not here: upstream's klog flags (`config-logging`, or `RUST_LOG`).

use anyhow::Context;
use autoscaler::{Options, api_rate, explain, install};
use clap::{Args, Parser, Subcommand};
use common_runtime::shutdown::signal_token;
use common_runtime::telemetry::{Format, init_logs};
use common_runtime::tls::{Trust, files};
use common_runtime::{api_server, environment, resolve};
use kube::Client;
use kube::config::KubeConfigOptions;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// Decides how many pods each revision should have.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Path of a kubeconfig; default: `KUBECONFIG`, else the pod's own service account.
    #[arg(long, global = true)]
    kubeconfig: Option<PathBuf>,
    /// Evaluator of the metrics that ZeroScalers request: `engine` (this process; default in standalone) or `off`.
    /// Default: `ZEROSCALE_HPA`.
    #[arg(long, value_name = "EVALUATOR")]
    hpa: Option<String>,
    /// Writes to the API server per second; 0: the rate of upstream's equivalent processes (`KUBE_API_QPS`).
    #[arg(long, value_parser = api_rate::parse_qps)]
    kube_api_qps: Option<f64>,
    /// Burst of writes to the API server; 0: the burst of upstream's equivalent processes (`KUBE_API_BURST`).
    #[arg(long)]
    kube_api_burst: Option<u32>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print why a workload has its current scale.
    Why {
        /// NAMESPACE/NAME of its ZeroScaler (in a Knative install: PodAutoscaler), or of its HorizontalPodAutoscaler.
        revision: String,
        /// Admin address of the autoscaler (or autoscaler-hpa) that owns the workload.
        #[arg(long, default_value = "127.0.0.1:9090")]
        admin: SocketAddr,
        /// PEM file of the authorities that must have signed the admin port's certificate. If set, the connection uses
        /// TLS.
        #[arg(long, value_name = "FILE")]
        ca_file: Option<PathBuf>,
        /// Name that the admin port's certificate must bear.
        #[arg(long, value_name = "NAME", default_value = "localhost", requires = "ca_file")]
        server_name: String,
    },
    /// Scale the autoscalers of the pod's namespace to zero and restore all workloads, before an uninstall.
    End(Install),
    /// Report whether the install of the pod's namespace works.
    Verify(Install),
}

#[derive(Debug, Args)]
struct Install {
    /// Namespaces that the install covers, separated by commas; default: all.
    #[arg(long, env = "ZEROSCALE_NAMESPACES", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// Namespace of the install.
    #[arg(long, env = "SYSTEM_NAMESPACE")]
    system: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { kubeconfig, hpa, kube_api_qps, kube_api_burst, command } = Arguments::parse();
    if let Some(command) = command {
        return carry_out(command, kubeconfig.as_deref()).await;
    }
    let logs = init_logs(Format::Json, "info");
    let shutdown = signal_token(|| ()).context("signal handlers cannot be installed")?;
    let flag = |name: &str| hpa.clone().filter(|_| name == "ZEROSCALE_HPA");
    let mut options = Options::from_env(|name| flag(name).or_else(|| environment::process(name)))?;
    options.process.logs = Some(logs);
    options.api_rate = api_rate::with(options.api_rate, kube_api_qps, kube_api_burst);
    let client = connect(kubeconfig.as_deref()).await?;
    let resolver = resolve::from_env(environment::process, client.clone(), &options.cluster_domain)?;
    tracing::info!(?options, "starting");
    autoscaler::run(options, client, resolver, shutdown).await
}

async fn carry_out(command: Command, kubeconfig: Option<&Path>) -> anyhow::Result<()> {
    match command {
        Command::Why { revision, admin, ca_file, server_name } => {
            let until = CancellationToken::new();
            let trust = match ca_file {
                Some(file) => Some(Trust::follow(file, &server_name, files::CHECK_INTERVAL, until.clone()).await?),
                None => None,
            };
            print!("{}", explain::why(admin, trust.as_ref(), &revision).await?);
            until.cancel();
            Ok(())
        }
        Command::End(Install { namespaces, system }) => {
            install::end(&connect(kubeconfig).await?, &system, &namespaces, |step| println!("{step}")).await
        }
        Command::Verify(Install { namespaces, system }) => {
            install::verify(&connect(kubeconfig).await?, &system, &namespaces).await
        }
    }
}

async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let config = api_server::config(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(api_server::client(config, "autoscaler")?)
}
