//! 5 000 held requests on open connections to a revision without a hard limit, which are released together to an idle
//! backend: the time from the first byte of the first response to the first byte of the last one.

use crate::client;
use crate::cluster::{self, TestActivator};
use crate::process::Process;
use crate::report::{Figures, Measurement, Row};
use crate::settings::Settings;
use anyhow::Context;
use common::backend::Protocol;
use futures::FutureExt;

const REQUESTS: usize = 5000;

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[Row::at_most("release-5000", "5 000 held requests: first response → last response", "s", 0.4, 0.2)],
    run: |settings| run(settings).boxed_local(),
};

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let (_backend, address) = Process::server(&["http1-backend"])?;
    let activator = TestActivator::start(settings).await?;
    let mut spans = Vec::new();
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
        let (first, last) = answered.iter().min().zip(answered.iter().max()).context("no response")?;
        spans.push((*last - *first).as_secs_f64());
        drop(connections);
        activator.until_no_clients().await?; // Otherwise the next burst includes the cost of closing these connections.
    }
    let mut figures = Figures::default();
    figures.row("release-5000", spans);
    Ok(figures)
}
