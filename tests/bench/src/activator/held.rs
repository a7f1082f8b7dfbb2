//! Memory cost of a held request: the activator's resident memory, divided by the number of requests that it holds.
//!
//! 1. Connections are opened, and each sends its first request to a revision without pods: *fresh*.
//! 2. The revision gets a pod, all requests are answered, the pod disappears, and each connection sends a second
//!    request: *again*.
//! 3. The pod returns, all requests are answered, and the connections close. 30 s later, the remaining part of the peak
//!    is *left*.
//!
//! Socket buffers belong to the kernel and are not counted, neither here nor for the peers.

use crate::client;
use crate::cluster::{self, TestActivator};
use crate::process::Process;
use crate::report::{Figures, Measurement, Row};
use crate::settings::Settings;
use common::backend::Protocol;
use futures::FutureExt;
use std::time::Duration;

/// Time from the release until the remaining memory is measured.
const AFTER_RELEASE: Duration = Duration::from_secs(30);

/// Time for buffers to reach their final size.
const SETTLE: Duration = Duration::from_millis(500);

const fn kib(name: &'static str, what: &'static str, must: f64, aim: f64) -> Row {
    Row::at_most(name, what, "KiB", must, aim)
}

const fn left(name: &'static str, what: &'static str) -> Row {
    Row::at_most(name, what, "%", 15.0, 5.0)
}

pub(super) const FEW: Measurement = Measurement {
    rows: &[
        kib("held-1000-fresh", "memory per held request, 1 000 on new connections", 12.0, 6.0),
        kib("held-1000-again", "the same after an earlier response", 24.0, 12.0),
        left("held-1000-left", "share of that still in use 30 s after the release"),
    ],
    run: |settings| run(settings, 1000, ["held-1000-fresh", "held-1000-again", "held-1000-left"]).boxed_local(),
};

pub(super) const MANY: Measurement = Measurement {
    rows: &[
        kib("held-8000-fresh", "memory per held request, 8 000 on new connections", 12.0, 6.0),
        kib("held-8000-again", "the same after an earlier response", 24.0, 12.0),
        left("held-8000-left", "share of that still in use 30 s after the release"),
    ],
    run: |settings| run(settings, 8000, ["held-8000-fresh", "held-8000-again", "held-8000-left"]).boxed_local(),
};

async fn run(settings: &Settings, n: usize, [fresh, again, left]: [&'static str; 3]) -> anyhow::Result<Figures> {
    let (_backend, backend) = Process::server(&["http1-backend"])?;
    let activator = TestActivator::start(settings).await?;
    let host = cluster::host(REVISION);
    activator.warm(REVISION, Protocol::Http1, backend).await?;
    activator.put_to_sleep(REVISION, Protocol::Http1).await?;
    tokio::time::sleep(SETTLE).await;
    let base = activator.process.resident()?;
    let beyond = || anyhow::Ok((activator.process.resident()? as f64 - base as f64) / 1024.0);

    let mut connections = client::open(activator.http1, n).await?;
    client::send(&mut connections, &host).await?;
    activator.until_held(REVISION, n).await?;
    tokio::time::sleep(SETTLE).await;
    let first = beyond()?;

    activator.set_pods(REVISION, Protocol::Http1, &[backend]).await?;
    (connections, _) = client::answers(connections).await?;
    activator.put_to_sleep(REVISION, Protocol::Http1).await?;
    client::send(&mut connections, &host).await?;
    activator.until_held(REVISION, n).await?;
    tokio::time::sleep(SETTLE).await;
    let second = beyond()?;

    activator.set_pods(REVISION, Protocol::Http1, &[backend]).await?;
    (connections, _) = client::answers(connections).await?;
    drop(connections);
    tokio::time::sleep(AFTER_RELEASE).await;
    let rest = beyond()?;

    let mut figures = Figures::default();
    figures.row(fresh, vec![first / n as f64]);
    figures.row(again, vec![second / n as f64]);
    figures.row(left, vec![100.0 * rest / first.max(second)]);
    figures.add_context("activator: MiB before", vec![base as f64 / 1024.0 / 1024.0]);
    Ok(figures)
}

const REVISION: &str = "held";
