//! Minimal cluster of an activator: an API server with Services and EndpointSlices, and a stat server.
//!
//! Both live in this process and are idle while load runs.

use crate::client::Connection;
use crate::process::Process;
use crate::settings::Settings;
use anyhow::{Context, ensure};
use common::backend::{Backend, Protocol};
use common::names;
use common_api::ZeroScaler;
use futures::StreamExt;
use kube::Api;
use kube::api::{Patch, PatchParams};
use local::api::ApiServer;
use serde_json::json;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::time::Instant;

/// Maximum time to wait for a state that is usually reached within moments.
const STATE_TIMEOUT: Duration = Duration::from_secs(20);

/// Upstream's port for metrics.
pub(crate) const METRICS_PORT: u16 = 9090;

/// Time without a response after which a request counts as held. It exceeds `HALF_CLOSE_MAX` in `activator-net`, so
/// that a close after it counts as a disconnect of the client.
const SILENCE: Duration = Duration::from_millis(700);

/// Maximum number of held requests of one revision.
const HELD_MAX: u32 = 20_000;

/// An activator and its cluster.
pub(crate) struct TestActivator {
    pub(crate) http1: SocketAddr,
    pub(crate) h2c: SocketAddr,
    pub(crate) process: Process,
    client: kube::Client,
    /// Uids of the ZeroScalers.
    scalers: Mutex<HashMap<String, String>>,
    stats: broadcast::Sender<ReceivedStat>,
    _server: ApiServer,
    _files: tempfile::TempDir,
}

/// Name of a revision in a received stat, and the time of arrival.
pub(crate) type ReceivedStat = (String, Instant);

/// Maximum number of stats that wait for a receiver.
const STATS_WAITING: usize = 4096;

impl TestActivator {
    /// Namespace of all objects.
    pub(crate) const NAMESPACE: &str = NAMESPACE;

    /// Starts the cluster and the activator, and waits until the activator serves.
    pub(crate) async fn start(settings: &Settings) -> anyhow::Result<Self> {
        let (activator, _) = Self::start_after(settings, async |_| Ok(())).await?;
        Ok(activator)
    }

    /// Starts like `Self::start`, after `create` has created objects. Also returns how long the activator took.
    pub(crate) async fn start_after(
        settings: &Settings,
        create: impl AsyncFnOnce(&kube::Client) -> anyhow::Result<()>,
    ) -> anyhow::Result<(Self, Duration)> {
        let IpAddr::V4(ip) = settings.ip() else { anyhow::bail!("the activator needs an IPv4 address") };
        let [_, second, third, _] = ip.octets();
        let (server, client) = e2e::bare::start(&format!("127.{}.{third}.0/24", second + 64)).await?;
        e2e::bare::create_namespace(&client, NAMESPACE).await?;
        e2e::bare::define_resources(&client).await?;
        create(&client).await?;
        let files = tempfile::tempdir()?;
        let kubeconfig = files.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig())?;
        let stats = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let stat_url = format!("ws://{}", stats.local_addr()?);
        let received = broadcast::Sender::new(STATS_WAITING);
        tokio::spawn(receive_stats(stats, received.clone()));
        let more = [("ZEROSCALE_MODE", "standalone".to_owned()), ("ZEROSCALE_STAT_URL", stat_url)];
        let (kubeconfig, pod) = (kubeconfig.display().to_string(), ("activator-0", settings.ip()));
        let started = Instant::now();
        let process = Process::plane("activator", kubeconfig, pod, "warn", more)?;
        let http1 = settings.address(names::ACTIVATOR_HTTP1_PORT);
        let h2c = settings.address(names::ACTIVATOR_H2C_PORT);
        let activator = Self {
            http1,
            h2c,
            process,
            client,
            scalers: Mutex::default(),
            stats: received,
            _server: server,
            _files: files,
        };
        until("the activator to serve", async || {
            status(http1, "nobody.example.com").await.is_ok_and(|status| status == 404)
        })
        .await?;
        Ok((activator, started.elapsed()))
    }

    /// Creates a revision without pods. Its host is [`host`].
    pub(crate) async fn create_revision(&self, name: &str, protocol: Protocol) -> anyhow::Result<()> {
        let backend = Backend { protocol, max_held: HELD_MAX, ..Backend::plain(name) };
        let port_protocol = if protocol == Protocol::H2c { "h2c" } else { "http1" };
        let port = json!({"name": protocol.port_name(), "port": 80, "protocol": port_protocol});
        let status = json!({"status": {"service": name, "backend": backend, "ports": [port]}});
        let scaler = e2e::bare::zeroscaler(name, json!({"target": {"name": name}}));
        let uid = e2e::bare::create(&self.client, Some(NAMESPACE), scaler).await?.metadata.uid;
        let api: Api<ZeroScaler> = Api::namespaced(self.client.clone(), NAMESPACE);
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        let uid = uid.context("a ZeroScaler has a uid")?;
        self.register_scaler(name, uid);
        Ok(())
    }

    /// Records the uid of a ZeroScaler, which becomes the owner of the slices of its pods.
    pub(crate) fn register_scaler(&self, name: &str, uid: String) {
        self.scalers.lock().expect("no panic").insert(name.to_owned(), uid);
    }

    /// Returns a receiver of the stats that arrive at the stat server from now on.
    pub(crate) fn subscribe_stats(&self) -> broadcast::Receiver<ReceivedStat> {
        self.stats.subscribe()
    }

    /// Replaces the revision's pods by `addresses`, which share a port.
    pub(crate) async fn set_pods(
        &self,
        name: &str,
        protocol: Protocol,
        addresses: &[SocketAddr],
    ) -> anyhow::Result<()> {
        let uid = self.scalers.lock().expect("no panic").get(name).cloned();
        e2e::bare::apply(&self.client, NAMESPACE, e2e::bare::pod_slice(name, uid, protocol.port_name(), addresses))
            .await
    }

    /// Creates a revision with one pod, and waits until it responds over HTTP/1.1.
    pub(crate) async fn warm(&self, name: &str, protocol: Protocol, pod: SocketAddr) -> anyhow::Result<()> {
        self.create_revision(name, protocol).await?;
        self.set_pods(name, protocol, &[pod]).await?;
        let host = host(name);
        until("the revision to answer", async || status(self.http1, &host).await.is_ok_and(|s| s == 200)).await
    }

    /// Waits until the activator holds requests for the revision, which has no pods. Leaves none held.
    pub(crate) async fn until_known(&self, name: &str) -> anyhow::Result<()> {
        let held = async || {
            let mut connection = Connection::open(self.http1).await?;
            connection.send(&host(name)).await?;
            anyhow::Ok(connection.is_silent(SILENCE).await)
        };
        until("the revision to be known", async || held().await.unwrap_or(false)).await?;
        self.until_held(name, 0).await
    }

    /// Removes the revision's pods, and waits until the activator holds requests again.
    pub(crate) async fn put_to_sleep(&self, name: &str, protocol: Protocol) -> anyhow::Result<()> {
        self.set_pods(name, protocol, &[]).await?;
        self.until_known(name).await
    }

    /// Waits until `n` requests of the revision are held.
    pub(crate) async fn until_held(&self, name: &str, n: usize) -> anyhow::Result<()> {
        let series =
            format!("kn_revision_request_queued{{k8s_namespace_name=\"{NAMESPACE}\",kn_revision_name=\"{name}\"}} ");
        until("requests to be held", async || self.gauge(&series).await.is_ok_and(|held| held == n)).await
    }

    /// Waits until the activator has closed all connections of clients.
    pub(crate) async fn until_no_clients(&self) -> anyhow::Result<()> {
        let open = "zeroscale_client_connections ";
        until("connections to be closed", async || self.gauge(open).await.is_ok_and(|open| open == 0)).await
    }

    /// Reads a series of the activator's metrics. `series` contains the labels and the space after them.
    async fn gauge(&self, series: &str) -> anyhow::Result<usize> {
        let admin = SocketAddr::new(self.http1.ip(), METRICS_PORT);
        let metrics = get(admin, "metrics", "/metrics").await?;
        let value = metrics.lines().find_map(|line| line.strip_prefix(series)).context("no such series")?;
        Ok(value.trim().parse()?)
    }
}

const NAMESPACE: &str = "bench";

/// Returns the host of a revision.
pub(crate) fn host(name: &str) -> String {
    format!("{name}.{NAMESPACE}")
}

/// Sends a `GET` request. Returns the whole response, head and body.
pub(crate) async fn get(address: SocketAddr, host: &str, path: &str) -> anyhow::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    e2e::load::raw_exchange(address, &request).await
}

/// Returns the status of the response to `GET /`.
async fn status(address: SocketAddr, host: &str) -> anyhow::Result<u16> {
    let answer = get(address, host, "/").await?;
    let code = answer.split(' ').nth(1).context("no status line")?;
    Ok(code.parse()?)
}

/// Polls until `reached` returns true. Fails after [`STATE_TIMEOUT`].
pub(crate) async fn until(what: &str, reached: impl AsyncFn() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + STATE_TIMEOUT;
    while !reached().await {
        ensure!(Instant::now() < deadline, "waited {STATE_TIMEOUT:?} for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Serves as a stat server, which publishes each received stat to `received`.
async fn receive_stats(listener: TcpListener, received: broadcast::Sender<ReceivedStat>) {
    while let Ok((stream, _)) = listener.accept().await {
        let received = received.clone();
        tokio::spawn(async move {
            let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
            while let Some(Ok(message)) = socket.next().await {
                let now = Instant::now();
                let Ok(frame) = common::wire::decode(&message.into_data()) else { continue };
                for message in frame.messages.into_iter().filter(|message| message.stat.is_some()) {
                    let _ = received.send((message.name, now)); // There may be no receiver.
                }
            }
        });
    }
}
