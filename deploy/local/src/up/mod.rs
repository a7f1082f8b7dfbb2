//! `local up`: the whole system on one machine.

mod accounts;
mod cluster;
mod embedded;
mod event;
mod folder;
mod logs;
pub mod manifests;
mod options;
mod plane;
mod planes;
mod ranges;
pub mod system;

pub use cluster::{Cluster, PlaneId};
pub use event::{Event, Phases};
pub use options::{ApiArgs, UpOptions};
pub use plane::is_ready;

use anyhow::Context;
use std::fmt;
use std::io::Write;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

/// Runs a cluster until `shutdown`, telling on standard output what happens.
///
/// # Errors
/// The cluster cannot be started.
pub async fn run(options: UpOptions, shutdown: CancellationToken) -> anyhow::Result<()> {
    let cluster = tokio::select! {
        cluster = Cluster::start(options) => cluster?,
        () = shutdown.cancelled() => return Ok(()),
    };
    let mut events = cluster.events();
    print_line(format_args!(
        "ready ingress=http://{} api={} kubeconfig={}",
        cluster.ingress,
        cluster.api.trim_end_matches('/'),
        cluster.kubeconfig.display()
    ));
    suggest(&cluster).await.context("the cluster's PodAutoscalers cannot be listed")?;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            event = events.recv() => match event {
                Ok(event) => print_line(format_args!("{}  {event}", clock())),
                Err(RecvError::Lagged(lost)) => print_line(format_args!("{}  ({lost} events were too fast to tell)", clock())),
                Err(RecvError::Closed) => break,
            },
        }
    }
    print_line(format_args!("{}  ending", clock()));
    cluster.shutdown().await;
    Ok(())
}

/// Runs an API server and its controllers until `shutdown`.
///
/// # Errors
/// The server cannot be started.
pub async fn run_api(args: ApiArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let ranges = ranges::Ranges::take(std::process::id(), None, args.service_cidr)?;
    let options = UpOptions { api: args.api, kubeconfig: Some(args.kubeconfig), ..UpOptions::default() };
    let embedded = embedded::Embedded::start(&options, &ranges, &std::env::temp_dir()).await?;
    print_line(format_args!("ready api={} kubeconfig={}", embedded.server.url(), embedded.kubeconfig.display()));
    let client = common_runtime::api_server::client(embedded.config)?;
    let horizontal = crate::controllers::horizontal::run(client.clone(), args.hpa_sync_period, shutdown.clone());
    tokio::try_join!(crate::controllers::run(client, shutdown), horizontal)?;
    embedded.server.shutdown().await;
    Ok(())
}

/// Prints what a newcomer can try next.
async fn suggest(cluster: &Cluster) -> kube::Result<()> {
    let all: kube::Api<common_api::PodAutoscaler> = kube::Api::all(cluster.client());
    for autoscaler in all.list(&kube::api::ListParams::default()).await? {
        let namespace = autoscaler.metadata.namespace.as_deref().unwrap_or("default");
        let name = autoscaler.metadata.name.as_deref().unwrap_or_default();
        print_line(format_args!("  try:  curl -H 'Host: {name}.{namespace}' http://{}/", cluster.ingress));
    }
    print_line(format_args!(
        "  see:  kubectl --kubeconfig {} get podautoscalers,deployments,pods -A",
        cluster.kubeconfig.display()
    ));
    Ok(())
}

/// Prints a line at once. A reader who has gone is no reason to end the cluster, which is not only there to be told of.
fn print_line(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Time of day, to the millisecond.
fn clock() -> String {
    jiff::Zoned::now().strftime("%H:%M:%S%.3f").to_string()
}
