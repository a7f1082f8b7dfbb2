//! 500 activators that reconnect at once after a restart of the autoscaler: from the first connection to the last
//! activator's first pong, which shows that its stats are read.

use super::wake::{Socket, stat_socket};
use crate::fleet::Fleet;
use crate::report::{Figures, Measurement, Row};
use crate::settings::Settings;
use anyhow::Context;
use bytes::Bytes;
use common_runtime::environment::Mode;
use futures::future::try_join_all;
use futures::{FutureExt, SinkExt, StreamExt};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;

const ACTIVATORS: usize = 500;

/// Time between two attempts to connect.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Maximum time until all activators have got a pong.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[Row::at_most(
        "links-500",
        "500 activators reconnect at once after a restart: first connection → report of the last one",
        "s",
        0.4,
        0.2,
    )],
    run: |settings| run(settings).boxed_local(),
};

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let fleet = Fleet::start(settings, Mode::Standalone).await?;
    let mut autoscaler = fleet.start_autoscaler().await?;
    let mut spans = Vec::new();
    for _ in 0..settings.repetitions {
        let address = autoscaler.stats;
        drop(autoscaler);
        // The links try to connect from now on, while the autoscaler starts.
        let links = try_join_all((0..ACTIVATORS).map(|_| link(address)));
        let (links, restarted) = tokio::join!(timeout(ANSWERED_WITHIN, links), fleet.start_autoscaler());
        autoscaler = restarted?;
        let links = links.context("some activators got no pong")??;
        let first = links.iter().map(|link| link.connected).min().context("links")?;
        let last = links.iter().map(|link| link.answered).max().context("links")?;
        spans.push((last - first).as_secs_f64());
    }
    let mut figures = Figures::default();
    figures.row("links-500", spans);
    Ok(figures)
}

/// An activator's link. It stays open until all links exist.
struct Link {
    connected: Instant,
    answered: Instant,
    _socket: Socket,
}

async fn link(address: SocketAddr) -> anyhow::Result<Link> {
    let mut socket = loop {
        match stat_socket(address).await {
            Ok(socket) => break socket,
            Err(_) => tokio::time::sleep(RETRY_AFTER).await,
        }
    };
    let connected = Instant::now();
    socket.send(Message::Ping(Bytes::new())).await?;
    while !matches!(socket.next().await.context("closed")??, Message::Pong(_)) {}
    Ok(Link { connected, answered: Instant::now(), _socket: socket })
}
