//! Time from a stat, or from a request to a real activator, to the patch of the replicas by an idle autoscaler.
//!
//! Each sleeping revision is woken once. `wake-idle` begins when an activator's first stat is written to the WebSocket,
//! and ends when the API server has read the head of the patch. `wake-request` begins when a client writes its request
//! to an activator, so it includes the way to the activator and the whole path through both planes.

use crate::client::Connection;
use crate::cluster;
use crate::fleet::{self, Autoscaler, Fleet, NAMESPACE, RevisionKind};
use crate::process::Process;
use crate::report::{Figures, Measurement, P99, Row};
use crate::settings::Settings;
use anyhow::Context;
use common::names;
use common::stat::Stat;
use common_runtime::environment::Mode;
use futures::{FutureExt, SinkExt, StreamExt};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// Number of revisions that are woken: at least as many as a 99th percentile needs.
pub(super) const SLEEPERS: usize = 120;

/// Maximum time to wait for a patch.
const PATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two wakes, so that the remaining writes of one do not overlap with the next. It is a prime number, so
/// that it is not in phase with a timer.
pub(super) const PAUSE: Duration = Duration::from_millis(97);

const fn row(name: &'static str, what: &'static str) -> Row {
    Row::at_most(name, what, "ms", 5.0, 2.0).judged_by(P99)
}

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[
        row("wake-idle", "first stat written → patch at the API server, p99; idle"),
        row("wake-request", "request written to the activator → patch at the API server, p99; idle, standalone"),
    ],
    run: |settings| run(settings).boxed_local(),
};

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    let mut fleet = Fleet::start(settings, Mode::Knative).await?;
    let autoscaler = fleet.start_filled("sleeper", RevisionKind::Asleep, SLEEPERS).await?;
    figures.row("wake-idle", wakes(&mut fleet, &autoscaler, "sleeper").await?);
    drop((autoscaler, fleet));
    figures.row("wake-request", request_wakes(settings).await?);
    Ok(figures)
}

/// Returns the milliseconds from stat to patch, for each sleeping revision whose name begins with `prefix`.
pub(super) async fn wakes(fleet: &mut Fleet, autoscaler: &Autoscaler, prefix: &str) -> anyhow::Result<Vec<f64>> {
    let mut socket = stat_socket(autoscaler.stats).await?;
    let mut delays = Vec::with_capacity(SLEEPERS);
    for n in 0..SLEEPERS {
        let name = fleet::name(prefix, u32::try_from(n)?);
        let stat = Stat {
            pod_name: "activator-0".to_owned(),
            average_concurrent_requests: 1.0,
            request_count: 1.0,
            ..Stat::default()
        };
        let frame = e2e::bare::frame(NAMESPACE, &name, Some(stat));
        let begin = fleet::monotonic_nanos();
        socket.send(Message::Binary(frame)).await?;
        let patched = fleet.until_patched(&name, PATCH_TIMEOUT).await?;
        delays.push((patched - begin) as f64 / 1e6);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(delays)
}

pub(super) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Opens a stat connection like an activator's.
pub(super) async fn stat_socket(address: SocketAddr) -> anyhow::Result<Socket> {
    let (socket, _) = connect_async(format!("ws://{address}")).await?;
    if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
        stream.set_nodelay(true)?;
    }
    Ok(socket)
}

/// Returns the milliseconds from request to patch, with an activator that receives the requests.
async fn request_wakes(settings: &Settings) -> anyhow::Result<Vec<f64>> {
    let mut fleet = Fleet::start(settings, Mode::Standalone).await?;
    fleet.fill("sleeper", RevisionKind::Asleep, SLEEPERS).await?;
    let autoscaler = fleet.start_autoscaler().await?;
    let (_activator, http1) = start_activator(settings, &fleet, autoscaler.stats).await?;
    fleet.until_reconciled(2 * SLEEPERS).await?;
    let mut delays = Vec::with_capacity(SLEEPERS);
    for n in 0..SLEEPERS {
        let name = fleet::name("sleeper", u32::try_from(n)?);
        let mut client = Connection::open(http1).await?;
        let begin = fleet::monotonic_nanos();
        client.send(&format!("{name}.{NAMESPACE}")).await?;
        let patched = fleet.until_patched(&name, PATCH_TIMEOUT).await.context("with an activator")?;
        delays.push((patched - begin) as f64 / 1e6);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(delays)
}

/// Starts an activator next to the autoscaler, and waits until it serves.
async fn start_activator(
    settings: &Settings,
    fleet: &Fleet,
    stats: SocketAddr,
) -> anyhow::Result<(Process, SocketAddr)> {
    let more = [("ZEROSCALE_MODE", "standalone".to_owned()), ("ZEROSCALE_STAT_URL", format!("ws://{stats}"))];
    let pod = ("activator-0", settings.second_ip());
    let process = Process::plane("activator", fleet.kubeconfig(), pod, "error", more)?;
    let http1 = SocketAddr::new(settings.second_ip(), names::ACTIVATOR_HTTP1_PORT);
    cluster::until("the activator to serve", async || local::up::is_ready(http1).await == Some(true)).await?;
    Ok((process, http1))
}

/// Sends `frames`, and waits until they have been read: the pong follows everything that was sent before the ping.
pub(super) async fn send_all(socket: &mut Socket, frames: impl Iterator<Item = bytes::Bytes>) -> anyhow::Result<()> {
    for frame in frames {
        socket.feed(Message::Binary(frame)).await?;
    }
    socket.send(Message::Ping(bytes::Bytes::new())).await?;
    while !matches!(socket.next().await.context("closed")??, Message::Pong(_)) {}
    Ok(())
}
