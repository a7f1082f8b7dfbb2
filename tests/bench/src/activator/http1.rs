//! Warm HTTP/1.1 requests: CPU time and throughput, with 64 connections and a body of 36 bytes.
//!
//! Client, proxy and backend share all cores, so requests/s also show how much a proxy slows its neighbors.

use super::interleaved::{self, ratio, series_named};
use crate::load::wrk;
use crate::process::Process;
use crate::proxy::Target;
use crate::report::{Figures, Good, MEDIAN, Measurement, Row};
use crate::settings::Settings;
use common::backend::Protocol;
use futures::FutureExt;

const CONNECTIONS: usize = 64;

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[
        Row {
            name: "http1-cpu-haproxy",
            what: "CPU per HTTP/1.1 request ÷ HAProxy's",
            unit: "",
            good: Good::Small,
            judged: MEDIAN,
            must: 1.3,
            aim: 1.0,
        },
        Row {
            name: "http1-cpu-bare",
            what: "the same ÷ a bare hyper proxy's",
            unit: "",
            good: Good::Small,
            judged: MEDIAN,
            must: 1.3,
            aim: 1.1,
        },
        Row {
            name: "http1-rate",
            what: "requests/s ÷ HAProxy's, all on the same cores",
            unit: "",
            good: Good::Large,
            judged: MEDIAN,
            must: 0.82,
            aim: 0.95,
        },
    ],
    run: |settings| run(settings).boxed_local(),
};

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let (_backend, address) = Process::role(&["http1-backend"])?;
    let backend = address.parse()?;
    let targets = [
        Target::haproxy(Protocol::Http1, backend).await?,
        Target::activator(settings, Protocol::Http1, backend).await?,
        Target::bare(Protocol::Http1, backend).await?,
        Target::nginx(backend).await?,
        Target::direct(backend),
    ];
    let host = Target::host();
    let load = async |target: &Target| wrk::run(target.address, &host, CONNECTIONS, settings.span).await;
    let all = interleaved::run(settings, &targets, load).await?;
    let (ours, haproxy, bare) =
        (series_named(&all, "activator")?, series_named(&all, "haproxy")?, series_named(&all, "bare hyper")?);
    let mut figures = Figures::default();
    figures.row("http1-cpu-haproxy", ratio(&ours.cpu, &haproxy.cpu));
    figures.row("http1-cpu-bare", ratio(&ours.cpu, &bare.cpu));
    figures.row("http1-rate", ratio(&ours.rate, &haproxy.rate));
    interleaved::beside(&mut figures, &all, "request");
    Ok(figures)
}
