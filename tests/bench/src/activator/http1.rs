//! Warm HTTP/1.1 requests: CPU time and throughput, with 64 connections and a body of 36 bytes.
//!
//! Client, proxy and backend share all cores, so requests/s also show how much a proxy slows its neighbors.

use super::interleaved::{self, ratio, series_named};
use crate::load::wrk;
use crate::process::Process;
use crate::proxy::Target;
use crate::report::{Figures, Measurement, Row};
use crate::settings::Settings;
use common::backend::Protocol;
use futures::FutureExt;

const CONNECTIONS: usize = 64;

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[
        Row::at_most("http1-cpu-haproxy", "CPU per HTTP/1.1 request ÷ HAProxy's", "", 1.3, 1.0),
        Row::at_most("http1-cpu-bare", "the same ÷ a bare hyper proxy's", "", 1.3, 1.1),
        Row::at_least("http1-rate", "requests/s ÷ HAProxy's, all on the same cores", "", 0.82, 0.95),
    ],
    run: |settings| run(settings).boxed_local(),
};

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let (_backend, backend) = Process::server(&["http1-backend"])?;
    let targets = [
        Target::haproxy(Protocol::Http1, backend).await?,
        Target::activator(settings, Protocol::Http1, backend).await?,
        Target::bare(Protocol::Http1, backend).await?,
        Target::nginx(backend).await?,
        Target::direct(backend),
    ];
    let host = Target::host();
    let load = async |target: &Target| wrk(target.address, &host, CONNECTIONS, settings.span).await;
    let all = interleaved::run(settings, &targets, load).await?;
    let (ours, haproxy, bare) =
        (series_named(&all, "activator")?, series_named(&all, "haproxy")?, series_named(&all, "bare hyper")?);
    let mut figures = Figures::default();
    figures.row("http1-cpu-haproxy", ratio(&ours.cpu, &haproxy.cpu));
    figures.row("http1-cpu-bare", ratio(&ours.cpu, &bare.cpu));
    figures.row("http1-rate", ratio(&ours.rate, &haproxy.rate));
    interleaved::add_context(&mut figures, &all, "request");
    Ok(figures)
}
