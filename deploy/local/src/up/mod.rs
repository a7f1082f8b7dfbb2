//! `local up`: the whole system on one machine.

mod accounts;
mod cluster;
mod default_scalers;
mod embedded;
mod event;
mod faults;
pub mod manifests;
mod options;
mod plane;
mod pod;
pub mod ranges;
pub mod system;

pub use cluster::{Cluster, PlaneId};
pub use event::{Event, Phases};
pub use options::{ApiArgs, UpOptions};
pub use plane::is_ready;

use crate::retry;
use activator::ColdStart;
use anyhow::Context;
use common::RevisionKey;
use common_api::ZeroScaler;
use common_api::zeroscaler::PortProtocol;
use common_api::zeroscaler::conditions::READY;
use common_controller::Kind;
use common_runtime::descriptor;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Service;
use kube::api::ListParams;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Minimum duration of a fault that keeps the cluster from being ready. Shorter faults are ignored, since objects that
/// a workload refers to may be applied after it.
const FAULT_LASTS: Duration = Duration::from_secs(2);
/// Maximum wait for a workload that is neither served nor has a fault.
const SERVED_WITHIN: Duration = Duration::from_secs(15);

/// Runs a cluster until `shutdown` and prints its events on standard output. Fails if the cluster cannot be started.
pub async fn run(options: UpOptions, shutdown: CancellationToken) -> anyhow::Result<()> {
    let opens_dashboard = options.open;
    let Some(cluster) = shutdown.run_until_cancelled(Cluster::start(options)).await else { return Ok(()) };
    let cluster = cluster?;
    let mut events = cluster.events();
    let mut faults = pin!(faults::lines(&cluster.client()));
    let settled = retry::until_answered("the check of the workloads", || Workloads::settled(cluster.client()));
    let Some(workloads) = shutdown.run_until_cancelled(settled).await else { return Ok(()) };
    let mut workloads = workloads?;
    let addresses = format!(
        "ingress=http://{} api={} kubeconfig={}",
        cluster.ingress,
        cluster.api.trim_end_matches('/'),
        cluster.kubeconfig.display()
    );
    print_line(format_args!("{} {addresses}", if workloads.unserved.is_empty() { "ready" } else { "not ready" }));
    let dashboard = format!("http://{}", cluster.dashboard);
    print_line(format_args!("  dashboard {dashboard}"));
    if opens_dashboard {
        open(&dashboard);
    }
    for served in &workloads.served {
        print_line(format_args!("  try:  {}", served.hint(cluster.ingress)));
    }
    for (key, reason) in &workloads.unserved {
        print_line(format_args!("  not served:  {key}  {reason}"));
    }
    let kubeconfig = cluster.kubeconfig.display();
    print_line(format_args!("  see:  kubectl --kubeconfig {kubeconfig} get zeroscalers,deployments,pods -A"));
    let mut wakes = Wakes::default();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            event = events.recv() => match event {
                Ok(Event::ColdStart { cold, scaled }) if wakes.is_printed(&cold, scaled) => {}
                Ok(event) => print_line(format_args!("{}  {event}", clock())),
                Err(RecvError::Lagged(lost)) => print_line(format_args!("{}  ({lost} events are not shown, because they came too fast)", clock())),
                Err(RecvError::Closed) => break,
            },
            Some(line) = faults.next() => match line {
                faults::Line::Fault { object, cause } => {
                    print_line(format_args!("{}  fault       {object}  {cause}", clock()));
                }
                faults::Line::Recovered(key) => {
                    print_line(format_args!("{}  recovered   {key}", clock()));
                    if workloads.unserved.remove(&key).is_some() && workloads.unserved.is_empty() {
                        print_line(format_args!("ready {addresses}"));
                    }
                }
            },
        }
    }
    print_line(format_args!("{}  shutting down", clock()));
    cluster.shutdown().await;
    Ok(())
}

/// Runs an API server and its controllers until `shutdown`. Fails if the server cannot be started.
pub async fn run_api(args: ApiArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let ranges = ranges::Ranges::take(std::process::id(), None, args.service_cidr)?;
    let options = UpOptions { api: args.api, kubeconfig: Some(args.kubeconfig), ..UpOptions::default() };
    let (server, config, kubeconfig) = embedded::start(&options, &ranges, &std::env::temp_dir(), None).await?;
    print_line(format_args!("ready api={} kubeconfig={}", server.url(), kubeconfig.display()));
    let client = common_runtime::api_server::client(config, "local")?;
    let horizontal = crate::controllers::run_horizontal(client.clone(), args.hpa_sync_period, shutdown.clone());
    tokio::join!(crate::controllers::run(client, shutdown), horizontal);
    server.shutdown().await;
    Ok(())
}

/// Last printed wake of each workload: the time of its scale-up, and the time of its first response.
#[derive(Default)]
struct Wakes(HashMap<RevisionKey, (Option<Instant>, Instant)>);

impl Wakes {
    /// Reports whether another request of the same wake was printed. If not, records this one.
    fn is_printed(&mut self, cold: &ColdStart, scaled: Option<Instant>) -> bool {
        let last = self.0.get(&cold.key);
        let is_printed = last.is_some_and(|(at, answered)| *at == scaled && cold.received <= *answered);
        if !is_printed {
            self.0.insert(cold.key.clone(), (scaled, cold.first_byte));
        }
        is_printed
    }
}

/// Workloads at the start of the cluster.
struct Workloads {
    served: Vec<Served>,
    /// Workloads that are not served, each with the reason.
    unserved: BTreeMap<RevisionKey, String>,
}

/// A workload that is served.
struct Served {
    namespace: String,
    service: String,
    /// Address of its Service, if its first port is TCP.
    tcp: Option<SocketAddr>,
}

impl Workloads {
    /// Waits until each ZeroScaler, including those created for labelled workloads, is served or has a fault.
    async fn settled(client: Client) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let (soon, deadline) = (begun + FAULT_LASTS, begun + SERVED_WITHIN);
        wait_for_labelled::<Deployment>(&client, soon).await.context("Deployments cannot be listed")?;
        wait_for_labelled::<StatefulSet>(&client, soon).await.context("StatefulSets cannot be listed")?;
        let mut all = Self { served: Vec::new(), unserved: BTreeMap::new() };
        let scalers = Api::<ZeroScaler>::all(client.clone()).list(&ListParams::default()).await;
        for scaler in scalers.context("the cluster's ZeroScalers cannot be listed")? {
            let key = scaler.key();
            let scalers: Api<ZeroScaler> = Api::namespaced(client.clone(), key.namespace());
            let is_ready = |scaler: Option<&ZeroScaler>| scaler.is_none_or(ZeroScaler::is_ready);
            let is_settled = |scaler: Option<&ZeroScaler>| {
                scaler.is_none_or(|scaler| scaler.is_ready() || faults::fault_of(scaler).is_some())
            };
            if timeout_at(soon, await_condition(scalers.clone(), key.name(), is_ready)).await.is_err() {
                let _ = timeout_at(deadline, await_condition(scalers.clone(), key.name(), is_settled)).await;
            }
            match scalers.get_opt(key.name()).await? {
                None => {}
                Some(scaler) if scaler.is_ready() => {
                    all.served.push(Served::from_scaler(&scaler, &client).await?);
                }
                Some(scaler) => {
                    let ready = scaler.condition(READY).map(|ready| format!("{}: {}", ready.reason, ready.message));
                    all.unserved.insert(key, ready.unwrap_or_else(|| "no autoscaler has processed it yet".to_owned()));
                }
            }
        }
        Ok(all)
    }
}

impl Served {
    async fn from_scaler(scaler: &ZeroScaler, client: &Client) -> anyhow::Result<Self> {
        let status = scaler.status.clone().unwrap_or_default();
        let namespace = scaler.key().namespace().to_owned();
        let service = status.service.unwrap_or_else(|| scaler.spec.service_name().to_owned());
        let mut tcp = None;
        if let Some(first) = status.ports.first().filter(|first| first.protocol == PortProtocol::Tcp) {
            let found = Api::<Service>::namespaced(client.clone(), &namespace).get_opt(&service).await?;
            let address = found.and_then(|found| found.spec?.cluster_ip?.parse().ok());
            tcp = address.map(|address| SocketAddr::new(address, first.port));
        }
        Ok(Self { namespace, service, tcp })
    }

    /// Returns a URL or command that calls the workload.
    fn hint(&self, ingress: SocketAddr) -> String {
        let Self { namespace, service, tcp } = self;
        match (tcp, url_of(ingress, namespace, service)) {
            (Some(at), _) => format!("nc {} {}", at.ip(), at.port()),
            (None, Some(url)) => url,
            (None, None) => format!("curl -H 'Host: {service}.{namespace}' http://{ingress}/"),
        }
    }
}

/// Returns the URL of a Service for programs on this machine. `None` if `localhost` does not resolve to the ingress
/// address.
fn url_of(ingress: SocketAddr, namespace: &str, service: &str) -> Option<String> {
    let ip = ingress.ip();
    let is_local = ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST || ip.is_unspecified();
    let port = Some(ingress.port()).filter(|port| *port != 80).map(|port| format!(":{port}")).unwrap_or_default();
    is_local.then(|| format!("http://{service}.{namespace}.localhost{port}/"))
}

/// Opens an address in the user's browser (`BROWSER`) or with the desktop's default. Does not wait for it.
fn open(address: &str) {
    let browser = std::env::var_os("BROWSER").filter(|browser| !browser.is_empty());
    let program = browser.unwrap_or_else(|| "xdg-open".into());
    let mut command = tokio::process::Command::new(&program);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between `fork` and `execve` only async-signal-safe functions may run, and no memory may be allocated.
    // This function documents that it only makes a system call.
    unsafe { command.pre_exec(descriptor::restore_limit) };
    match command.spawn() {
        Ok(mut child) => drop(tokio::spawn(async move { child.wait().await })),
        Err(error) => print_line(format_args!("  {address} cannot be opened with {}: {error}", program.display())),
    }
}

/// Waits until each labelled workload has its ZeroScaler, or until `deadline`.
async fn wait_for_labelled<K: Kind>(client: &Client, deadline: Instant) -> kube::Result<()> {
    let enabled = ListParams::default().labels("zeroscale.dev/enabled=true");
    for workload in Api::<K>::all(client.clone()).list(&enabled).await? {
        let namespace = workload.meta().namespace.as_deref().unwrap_or("default");
        let scalers: Api<ZeroScaler> = Api::namespaced(client.clone(), namespace);
        let name = workload.meta().name.as_deref().unwrap_or_default();
        let made = await_condition(scalers, name, |scaler: Option<&ZeroScaler>| scaler.is_some());
        let _ = timeout_at(deadline, made).await;
    }
    Ok(())
}

/// Prints a line at once. Write errors are ignored: the cluster must keep running if its output is not read.
fn print_line(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Returns the time of day, to the millisecond.
fn clock() -> String {
    jiff::Zoned::now().strftime("%H:%M:%S%.3f").to_string()
}

/// Folders of all clusters, for an immediate exit, which drops nothing.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Creates the folder of a cluster, not readable by other users. Dropping the value removes the folder, which has only
/// logs and a kubeconfig of the ended cluster.
fn make_folder() -> anyhow::Result<TempDir> {
    let prefix = format!("zeroscale-{}-", std::process::id());
    let folder = tempfile::Builder::new().prefix(&prefix).tempdir();
    let folder = folder.with_context(|| format!("cannot create a folder in {}", std::env::temp_dir().display()))?;
    FOLDERS.lock().push(folder.path().to_owned());
    Ok(folder)
}

/// Removes the folders of all clusters in this process, which is about to exit.
pub(crate) fn remove_folders() {
    for folder in FOLDERS.lock().iter() {
        let _ = std::fs::remove_dir_all(folder); // It may have been removed already.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the hint is a URL if `localhost` resolves to the ingress, and matches the protocol of the workload.
    #[test]
    fn the_hint_matches_ingress_and_protocol() {
        let curl = |address: &str| format!("curl -H 'Host: a.ns' http://{address}/");
        let rows = [
            ("127.0.0.1:8080", None, "http://a.ns.localhost:8080/".to_owned()),
            ("0.0.0.0:80", None, "http://a.ns.localhost/".to_owned()),
            ("[::1]:8080", None, "http://a.ns.localhost:8080/".to_owned()),
            ("127.0.0.2:8080", None, curl("127.0.0.2:8080")),
            ("192.0.2.1:80", None, curl("192.0.2.1:80")),
            ("127.0.0.1:8080", Some("127.1.128.3:5432"), "nc 127.1.128.3 5432".to_owned()),
        ];
        for (ingress, tcp, expected) in rows {
            let at = |text: &str| -> SocketAddr { text.parse().expect("an address") };
            let served = Served { namespace: "ns".into(), service: "a".into(), tcp: tcp.map(at) };
            assert_eq!(served.hint(at(ingress)), expected);
        }
    }
}
