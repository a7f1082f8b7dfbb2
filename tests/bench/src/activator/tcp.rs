//! Relayed TCP connections: bulk streams, small exchanges, and new connections.
//!
//! Client, proxy and backend share all cores.

use super::interleaved::{self, Series, ratio, series_named};
use crate::load::tcp::{self, Unit};
use crate::process::Process;
use crate::proxy::Target;
use crate::report::{Figures, Measurement, Row};
use crate::settings::Settings;
use futures::FutureExt;

/// Number of connections of each load.
const STREAMS: usize = 4;
const EXCHANGES: usize = 64;
const CONNECTS: usize = 16;

/// Bytes of a small exchange, such as a query or a row.
const SMALL: usize = 100;

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[
        Row::at_least(
            "tcp-rate",
            "bytes/s of four streams ÷ HAProxy's in mode tcp, all on the same cores",
            "",
            0.9,
            1.0,
        ),
        Row::at_most("tcp-cpu", "CPU per byte ÷ HAProxy's", "", 1.2, 1.0),
        Row::at_most(
            "tcp-exchange-cpu",
            "CPU per exchange of 100 bytes in each direction, on 64 connections ÷ HAProxy's",
            "",
            1.2,
            1.0,
        ),
        Row::at_least("tcp-connects", "connections/s with one byte in each direction ÷ HAProxy's", "", 0.8, 1.0),
    ],
    run: |settings| run(settings).boxed_local(),
};

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let (_backend, backend) = Process::server(&["tcp-backend"])?;
    let targets = [Target::haproxy_tcp(backend).await?, Target::activator_tcp(backend).await?, Target::direct(backend)];
    let load = async |unit, connections| {
        let load = async |target: &Target| tcp::run(target.address, unit, connections, settings.span).await;
        interleaved::run(settings, &targets, load).await
    };
    let streams = load(Unit::Mebibyte, STREAMS).await?;
    let exchanges = load(Unit::Exchange(SMALL), EXCHANGES).await?;
    let connects = load(Unit::Connection, CONNECTS).await?;
    let mut figures = Figures::default();
    let compared = |all: &[Series]| {
        let (ours, haproxy) = (series_named(all, "activator")?, series_named(all, "haproxy")?);
        anyhow::Ok((ratio(&ours.rate, &haproxy.rate), ratio(&ours.cpu, &haproxy.cpu)))
    };
    let (rate, cpu) = compared(&streams)?;
    figures.row("tcp-rate", rate);
    figures.row("tcp-cpu", cpu);
    figures.row("tcp-exchange-cpu", compared(&exchanges)?.1);
    figures.row("tcp-connects", compared(&connects)?.0);
    for (all, unit) in [(&streams, "MiB"), (&exchanges, "exchange"), (&connects, "connection")] {
        interleaved::add_context(&mut figures, all, unit);
    }
    Ok(figures)
}
