//! Warm HTTP/2 requests and unary gRPC calls: CPU time relative to peers that also use HTTP/2 on both sides.

use super::interleaved::{self, ratio, series_named};
use crate::load::h2load;
use crate::process::Process;
use crate::proxy::Target;
use crate::report::{Figures, Measurement, Row};
use crate::settings::Settings;
use common::backend::Protocol;
use futures::FutureExt;
use std::path::Path;

/// Number of connections, and of concurrent requests on each.
const CLIENTS: (usize, usize) = (8, 8);

/// Message of 36 bytes, with gRPC's prefix.
const MESSAGE: &[u8] = b"\0\0\0\0\x240123456789abcdefghijklmnopqrstuvwxyz";

pub(super) const H2C: Measurement = Measurement {
    rows: &[Row::at_most("h2c-cpu", "CPU per h2c request ÷ HAProxy's, h2c on both sides", "", 1.5, 1.1)],
    run: |settings| run(settings, "h2c-cpu", None).boxed_local(),
};

pub(super) const GRPC: Measurement = Measurement {
    rows: &[Row::at_most("grpc-cpu", "CPU per unary gRPC call ÷ HAProxy's", "", 1.5, 1.1)],
    run: |settings| {
        async {
            let folder = tempfile::tempdir()?;
            let message = folder.path().join("message");
            std::fs::write(&message, MESSAGE)?;
            run(settings, "grpc-cpu", Some(&message)).await
        }
        .boxed_local()
    },
};

async fn run(settings: &Settings, row: &'static str, body: Option<&Path>) -> anyhow::Result<Figures> {
    let (_backend, backend) = Process::server(&["http2-backend"])?;
    let targets = [
        Target::haproxy(Protocol::H2c, backend).await?,
        Target::activator(settings, Protocol::H2c, backend).await?,
        Target::bare(Protocol::H2c, backend).await?,
        Target::direct(backend),
    ];
    let host = Target::host();
    let load = async |target: &Target| h2load(target.address, &host, CLIENTS, settings.span, body).await;
    let all = interleaved::run(settings, &targets, load).await?;
    let mut figures = Figures::default();
    figures.row(row, ratio(&series_named(&all, "activator")?.cpu, &series_named(&all, "haproxy")?.cpu));
    interleaved::add_context(&mut figures, &all, "request");
    Ok(figures)
}
