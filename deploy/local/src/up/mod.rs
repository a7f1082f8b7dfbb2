//! `local up`: the whole system on one machine.

mod accounts;
mod cluster;
mod embedded;
mod event;
mod folder;
mod implied;
mod logs;
pub mod manifests;
mod options;
mod plane;
mod planes;
mod pod;
mod pod_status;
pub mod ranges;
pub mod system;
mod unrun;

pub use cluster::{Cluster, PlaneId};
pub use event::{Event, Phases};
pub(crate) use folder::remove_all as remove_folders;
pub use options::{ApiArgs, UpOptions};
pub use plane::is_ready;

use crate::ingress;
use anyhow::Context;
use common_api::ZeroScaler;
use common_controller::Kind;
use common_runtime::descriptor;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::Api;
use kube::api::ListParams;
use kube::runtime::wait::await_condition;
use std::fmt;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// How long hints wait for what they speak of.
const SERVED_WITHIN: Duration = Duration::from_secs(2);

/// Runs a cluster until `shutdown`, telling on standard output what happens.
///
/// # Errors
/// The cluster cannot be started.
pub async fn run(options: UpOptions, shutdown: CancellationToken) -> anyhow::Result<()> {
    let opens = options.open;
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
    let dashboard = format!("http://{}", cluster.dashboard);
    print_line(format_args!("  dashboard {dashboard}"));
    if opens {
        open(&dashboard);
    }
    suggest(&cluster).await.context("the cluster's ZeroScalers cannot be listed")?;
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
    let embedded = embedded::Embedded::start(&options, &ranges, &std::env::temp_dir(), None).await?;
    print_line(format_args!("ready api={} kubeconfig={}", embedded.server.url(), embedded.kubeconfig.display()));
    let client = common_runtime::api_server::client(embedded.config, "local")?;
    let horizontal = crate::controllers::horizontal::run(client.clone(), args.hpa_sync_period, shutdown.clone());
    tokio::try_join!(crate::controllers::run(client, shutdown), horizontal)?;
    embedded.server.shutdown().await;
    Ok(())
}

/// Prints what a newcomer can try next: the URL of each ZeroScaler's Service, once that is served.
async fn suggest(cluster: &Cluster) -> kube::Result<()> {
    // Not for long: whatever keeps one from being served says so in its status.
    let deadline = Instant::now() + SERVED_WITHIN;
    labelled_have_theirs::<Deployment>(cluster, deadline).await?;
    labelled_have_theirs::<StatefulSet>(cluster, deadline).await?;
    for scaler in Api::<ZeroScaler>::all(cluster.client()).list(&ListParams::default()).await? {
        let (key, service) = (scaler.key(), scaler.spec.service_name());
        let scalers: Api<ZeroScaler> = Api::namespaced(cluster.client(), key.namespace());
        let is_ready = |scaler: Option<&ZeroScaler>| scaler.is_none_or(ZeroScaler::is_ready);
        let _ = timeout_at(deadline, await_condition(scalers, key.name(), is_ready)).await;
        match ingress::url_of(cluster.ingress, key.namespace(), service) {
            Some(url) => print_line(format_args!("  try:  {url}")),
            None => {
                let (host, ingress) = (format!("{service}.{}", key.namespace()), cluster.ingress);
                print_line(format_args!("  try:  curl -H 'Host: {host}' http://{ingress}/"));
            }
        }
    }
    print_line(format_args!(
        "  see:  kubectl --kubeconfig {} get zeroscalers,deployments,pods -A",
        cluster.kubeconfig.display()
    ));
    Ok(())
}

/// Opens an address in the browser that the user has chosen (`BROWSER`), or the desktop. Nobody waits for it.
fn open(address: &str) {
    let browser = std::env::var_os("BROWSER").filter(|browser| !browser.is_empty());
    let program = browser.unwrap_or_else(|| "xdg-open".into());
    let mut command = tokio::process::Command::new(&program);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between `fork` and `execve` only async-signal-safe functions may run, and no memory may be allocated. This one
    // says that it does no more than a system call.
    unsafe { command.pre_exec(descriptor::give_limit_back) };
    match command.spawn() {
        Ok(mut child) => drop(tokio::spawn(async move { child.wait().await })),
        Err(error) => print_line(format_args!("  {address} cannot be opened by {}: {error}", program.display())),
    }
}

/// Waits until each workload that asks for a ZeroScaler by its label has one, or until `deadline`.
async fn labelled_have_theirs<K: Kind>(cluster: &Cluster, deadline: Instant) -> kube::Result<()> {
    let enabled = ListParams::default().labels("zeroscale.dev/enabled=true");
    for workload in Api::<K>::all(cluster.client()).list(&enabled).await? {
        let namespace = workload.meta().namespace.as_deref().unwrap_or("default");
        let scalers: Api<ZeroScaler> = Api::namespaced(cluster.client(), namespace);
        let name = workload.meta().name.as_deref().unwrap_or_default();
        let made = await_condition(scalers, name, |scaler: Option<&ZeroScaler>| scaler.is_some());
        let _ = timeout_at(deadline, made).await;
    }
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
