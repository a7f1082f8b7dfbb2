//! The activator as a process of its own: Knative's environment variables in, SIGTERM out.

mod allocator;
mod trim;

use activator::Options;
use anyhow::Context;
use common_runtime::{api_server, environment, resolve, shutdown, telemetry};
use kube::config::KubeConfigOptions;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator::new();

fn main() -> anyhow::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().on_thread_park(trim::when_idle).build()?.block_on(serve())
}

async fn serve() -> anyhow::Result<()> {
    tokio::spawn(trim::run(&ALLOCATOR));
    let logs = telemetry::init_logs(telemetry::Format::Json, "info");
    let mut options = Options::from_env(&environment::process)?;
    options.process.logs = Some(logs);
    let shutdown = shutdown::signal_token().context("signal handlers cannot be installed")?;
    let client = api_server::client(api_server::config(None, &KubeConfigOptions::default()).await?)?;
    let resolver = resolve::from_env(environment::process, client.clone(), &options.cluster_domain)?;
    activator::run(options, client, resolver, shutdown).await
}
