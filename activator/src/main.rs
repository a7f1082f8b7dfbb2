//! The activator as a process of its own: Knative's environment variables in, SIGTERM out.

mod allocator;

use activator::{Lanes, Options};
use anyhow::Context;
use common_runtime::{api_server, environment, resolve, shutdown, telemetry, trim};
use kube::config::KubeConfigOptions;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator::new();

fn main() -> anyhow::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let cores = std::thread::available_parallelism()?;
    let tidied = |lane: &mut tokio::runtime::Builder| {
        lane.on_thread_park(trim::tidy_when_idle);
    };
    let lanes = Lanes::for_cores(cores, tidied).context("no threads for connections")?;
    runtime.enable_all().on_thread_park(trim::tidy_when_idle).build()?.block_on(serve(lanes))
}

async fn serve(lanes: Lanes) -> anyhow::Result<()> {
    let lanes_too = lanes.clone();
    tokio::spawn(trim::run(move || {
        ALLOCATOR.cool_unneeded();
        lanes_too.wake();
    }));
    let logs = telemetry::init_logs(telemetry::Format::Json, "info");
    let mut options = Options::from_env(&environment::process)?;
    options.process.logs = Some(logs);
    options.lanes = Some(lanes);
    let shutdown = shutdown::signal_token().context("signal handlers cannot be installed")?;
    let client = api_server::client(api_server::config(None, &KubeConfigOptions::default()).await?)?;
    let resolver = resolve::from_env(environment::process, client.clone(), &options.cluster_domain)?;
    activator::run(options, client, resolver, shutdown).await
}
