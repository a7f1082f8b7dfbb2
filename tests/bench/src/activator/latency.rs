//! Latency that a proxy adds to the 99th percentile on a half loaded machine: the same steady rate for all targets,
//! half of HAProxy's maximum on these cores.

use super::interleaved::ratio;
use crate::load::wrk;
use crate::process::Process;
use crate::proxy::Target;
use crate::report::{Figures, Measurement, Row};
use crate::settings::Settings;
use common::backend::Protocol;
use futures::FutureExt;
use std::time::Duration;

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[Row::at_most("p99-half-load", "p99 added at half load ÷ HAProxy's", "", 1.5, 1.1)],
    run: |settings| run(settings).boxed_local(),
};

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let (_backend, backend) = Process::server(&["http1-backend"])?;
    let targets = [
        Target::direct(backend),
        Target::haproxy(Protocol::Http1, backend).await?,
        Target::activator(settings, Protocol::Http1, backend).await?,
        Target::bare(Protocol::Http1, backend).await?,
    ];
    let host = Target::host();
    let full = wrk(targets[1].address, &host, 64, settings.span).await?;
    let rate = full.count / full.took.as_secs_f64() / 2.0;
    let mut p99: Vec<Vec<f64>> = vec![Vec::new(); targets.len()];
    for _ in 0..settings.repetitions {
        for (target, p99) in targets.iter().zip(&mut p99) {
            p99.push(steady(target, &host, rate, settings.span).await?);
        }
    }
    let added = |target: usize| -> Vec<f64> { p99[target].iter().zip(&p99[0]).map(|(p, direct)| p - direct).collect() };
    let mut figures = Figures::default();
    figures.row("p99-half-load", ratio(&added(2), &added(1)));
    for (target, p99) in targets.iter().zip(p99) {
        figures.add_context(format!("{}: p99 in ms at {rate:.0} requests/s", target.name), p99);
    }
    Ok(figures)
}

/// Measures the 99th percentile in milliseconds, in a separate process.
async fn steady(target: &Target, host: &str, rate: f64, span: Duration) -> anyhow::Result<f64> {
    let (address, rate) = (target.address.to_string(), rate.to_string());
    let seconds = span.as_secs_f64().to_string();
    let args = [address, host.to_owned(), rate, seconds];
    // The process prints its only line at its end.
    let done = tokio::task::spawn_blocking(move || {
        Process::role(&["steady", &args[0], &args[1], &args[2], &args[3]]).map(|(_, line)| line)
    });
    Ok(done.await??.parse::<f64>()? / 1e3)
}
