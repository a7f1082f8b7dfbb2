//! The activator binary. Environment variables configure it, Knative's and ours. SIGTERM ends it. It has no flags.

use activator::{Options, WorkerRuntimes};
use anyhow::Context;
use clap::Parser;
use common_runtime::{api_server, descriptor, environment, resolve, shutdown, telemetry};
use kube::config::KubeConfigOptions;
use std::sync::Arc;

/// Returns the pages of free memory from a background thread, and touches no unused pages: the empty buffers of a held
/// request only cost address space.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Holds requests for sleeping workloads, wakes the workloads, and forwards traffic to their pods.
///
/// Settings are environment variables: deploy/kubernetes/README.md lists them.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {}

fn main() -> anyhow::Result<()> {
    let Arguments {} = Arguments::parse();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    descriptor::raise_limit();
    let cores = std::thread::available_parallelism()?;
    let workers = WorkerRuntimes::for_cores(cores).context("the threads for connections cannot be started")?;
    runtime.enable_all().build()?.block_on(serve(workers))
}

async fn serve(workers: Arc<WorkerRuntimes>) -> anyhow::Result<()> {
    let logs = telemetry::init_logs(telemetry::Format::Json, "info");
    let mut options = Options::from_env(&environment::process)?;
    options.process.logs = Some(logs);
    options.workers = Some(workers);
    let shutdown = shutdown::signal_token(|| ()).context("signal handlers cannot be installed")?;
    let client = api_server::client(api_server::config(None, &KubeConfigOptions::default()).await?, "activator")?;
    let resolver = resolve::from_env(environment::process, client.clone(), &options.cluster_domain)?;
    activator::run(options, client, resolver, shutdown).await
}
