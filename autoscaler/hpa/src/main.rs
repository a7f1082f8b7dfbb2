//! `autoscaler-hpa`: HorizontalPodAutoscalers, for Knative's class HPA or instead of Kubernetes' own controller.
//!
//! Without flags and with Knative's environment, the binary does the work of upstream's binary of this name
//! (`--hpa=delegate`).
//!
//! Not here: upstream's flags for API rate limits (this process does not limit its writes), and its klog flags
//! (`config-logging` or `RUST_LOG` replace them).

use anyhow::{Context, bail};
use clap::Parser;
use common_runtime::api_server;
use common_runtime::environment::{self, Mode};
use common_runtime::shutdown::signal_token;
use common_runtime::telemetry::{Format, init_logs};
use hpa::options::{ControllerOptions, HpaMode};
use hpa::run::{HpaOptions, run};
use kube::config::KubeConfigOptions;
use std::path::PathBuf;

/// Evaluates HorizontalPodAutoscalers, or creates them for PodAutoscalers of class HPA.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Path of a kubeconfig; default: `KUBECONFIG`, else the pod's own service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Address of the API server, instead of the kubeconfig's.
    #[arg(long)]
    server: Option<http::Uri>,
    /// Name of a cluster in the kubeconfig.
    #[arg(long)]
    cluster: Option<String>,
    /// Lead without a lease; only for a single process.
    #[arg(long)]
    disable_ha: bool,
    /// Mode; default: delegate.
    #[arg(long, value_enum)]
    hpa: Option<HpaMode>,
    #[command(flatten)]
    controller: ControllerOptions,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { kubeconfig, server, cluster, disable_ha, hpa, controller } = Arguments::parse();
    let logs = init_logs(Format::Json, "info");
    let shutdown = signal_token(|| ()).context("signal handlers cannot be installed")?;
    let mode = mode(environment::process("ZEROSCALE_MODE").unwrap_or_default().parse()?, hpa)?;
    let mut options = HpaOptions::from_env(mode, environment::process)?;
    options.process.logs = Some(logs);
    options.alone = disable_ha;
    options.controller = controller;
    let selected = KubeConfigOptions { cluster, ..KubeConfigOptions::default() };
    let mut config = api_server::config(kubeconfig.as_deref(), &selected).await?;
    if let Some(server) = server {
        config.cluster_url = server;
    }
    tracing::info!(?mode, namespace = options.system_namespace, identity = options.identity, "starting");
    run(options, api_server::client(config, "autoscaler-hpa")?, shutdown).await
}

/// Returns the mode. In standalone `autoscaler` itself evaluates metrics, and no component reads PodAutoscalers, so
/// there is nothing to delegate.
fn mode(install: Mode, hpa: Option<HpaMode>) -> anyhow::Result<HpaMode> {
    match (install, hpa) {
        (Mode::Knative, hpa) => Ok(hpa.unwrap_or(HpaMode::Delegate)),
        (Mode::Standalone, Some(HpaMode::Native)) => Ok(HpaMode::Native),
        (Mode::Standalone, _) => bail!(
            "ZEROSCALE_MODE=standalone: the autoscaler itself evaluates the metrics of ZeroScalers; \
             autoscaler-hpa supports only --hpa=native beside it"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_match_upstream_and_delegate_is_the_default() {
        let arguments = Arguments::try_parse_from(["x", "--disable-ha", "--server=http://127.0.0.1:1", "--cluster=c"]);
        let arguments = arguments.expect("valid");
        assert!(arguments.disable_ha && arguments.hpa.is_none());
        assert!(Arguments::try_parse_from(["x", "--hpa=engine"]).is_err());
        assert_eq!(mode(Mode::Knative, None).expect("a mode"), HpaMode::Delegate);
        assert_eq!(mode(Mode::Standalone, Some(HpaMode::Native)).expect("a mode"), HpaMode::Native);
        assert!(mode(Mode::Standalone, None).is_err() && mode(Mode::Standalone, Some(HpaMode::Delegate)).is_err());
    }
}
