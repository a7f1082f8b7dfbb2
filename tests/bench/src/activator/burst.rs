//! 5 000 concurrent requests to a revision without a hard limit and an idle backend: the time from the first byte of
//! the first response to the first byte of the last one.
//!
//! One row measures held requests on open connections, which are released together. Another measures requests to
//! running pods, each on a new connection. The latter are also sent directly to the backend, which shows the share of
//! client and kernel, and through HAProxy.

use super::interleaved::ratio;
use crate::client;
use crate::cluster::{self, TestActivator};
use crate::process::Process;
use crate::proxy::Target;
use crate::report::{Figures, Measurement, Row};
use crate::settings::Settings;
use common::backend::Protocol;
use futures::FutureExt;
use tokio::time::Instant;

const REQUESTS: usize = 5000;

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[
        Row::at_most("release-5000", "5 000 held requests: first response → last response", "s", 0.4, 0.2),
        Row::at_most("fresh-5000", "5 000 requests on new connections: first response → last response", "s", 0.4, 0.2),
        Row::at_most("fresh-5000-haproxy", "the same ÷ HAProxy's", "", 1.3, 1.0),
    ],
    run: |settings| run(settings).boxed_local(),
};

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let (_backend, address) = Process::server(&["http1-backend"])?;
    let activator = TestActivator::start(settings).await?;
    let peers = [Target::direct(address), Target::haproxy(Protocol::Http1, address).await?];
    let (mut spans, mut fresh) = (Vec::new(), Vec::new());
    let mut peer_spans: [Vec<f64>; 2] = Default::default();
    for n in 0..settings.repetitions {
        let name = format!("burst-{n}");
        activator.create_revision(&name, Protocol::Http1).await?;
        activator.until_known(&name).await?;
        let mut connections = client::open(activator.http1, REQUESTS).await?;
        client::send(&mut connections, &cluster::host(&name)).await?;
        activator.until_held(&name, REQUESTS).await?;
        let reading = tokio::spawn(client::answers(connections));
        activator.set_pods(&name, Protocol::Http1, &[address]).await?;
        let (connections, answered) = reading.await??;
        spans.extend(span(&answered));
        drop(connections);
        activator.until_no_clients().await?; // Otherwise the next burst includes the cost of closing these connections.
        fresh.extend(span(&client::burst(activator.http1, &cluster::host(&name), REQUESTS).await?));
        activator.until_no_clients().await?;
        for (peer, spans) in peers.iter().zip(&mut peer_spans) {
            spans.extend(span(&client::burst(peer.address, &cluster::host(&name), REQUESTS).await?));
        }
    }
    let mut figures = Figures::default();
    figures.row("release-5000", spans);
    figures.add_context("activator: s for 5 000 requests on new connections", fresh.clone());
    figures.row("fresh-5000-haproxy", ratio(&fresh, &peer_spans[1]));
    figures.row("fresh-5000", fresh);
    for (peer, spans) in peers.iter().zip(peer_spans) {
        figures.add_context(format!("{}: s for 5 000 requests on new connections", peer.name), spans);
    }
    Ok(figures)
}

/// Returns the seconds from the first response to the last.
fn span(answered: &[Instant]) -> Option<f64> {
    let (first, last) = (answered.iter().min()?, answered.iter().max()?);
    Some((*last - *first).as_secs_f64())
}
