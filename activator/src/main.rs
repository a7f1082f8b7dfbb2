//! The activator as a process of its own: Knative's environment variables in, SIGTERM out. It has no flags of its own.

mod allocator;

use activator::{Options, WorkerRuntimes};
use activator_net::trim;
use anyhow::Context;
use clap::Parser;
use common_runtime::{api_server, descriptor, environment, resolve, shutdown, telemetry};
use kube::config::KubeConfigOptions;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator::new();

/// Holds requests of workloads that sleep, wakes them, and carries what comes to their pods.
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
    let tidied = |worker: &mut tokio::runtime::Builder| {
        worker.on_thread_park(trim::tidy_when_idle);
    };
    let workers = WorkerRuntimes::for_cores(cores, tidied).context("no threads for connections")?;
    runtime.enable_all().on_thread_park(trim::tidy_when_idle).build()?.block_on(serve(workers))
}

async fn serve(workers: WorkerRuntimes) -> anyhow::Result<()> {
    let woken = workers.clone();
    tokio::spawn(trim::run(move || woken.wake()));
    let logs = telemetry::init_logs(telemetry::Format::Json, "info");
    let mut options = Options::from_env(&environment::process)?;
    options.process.logs = Some(logs);
    options.workers = Some(workers);
    let shutdown = shutdown::signal_token().context("signal handlers cannot be installed")?;
    let client = api_server::client(api_server::config(None, &KubeConfigOptions::default()).await?, "activator")?;
    let resolver = resolve::from_env(environment::process, client.clone(), &options.cluster_domain)?;
    activator::run(options, client, resolver, shutdown).await
}
