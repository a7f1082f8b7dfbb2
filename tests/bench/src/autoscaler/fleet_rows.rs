//! Cost of a revision for an autoscaler with thousands of them, and its effect on the timing of the others.
//!
//! - *Scraped*, drop-in: each revision has one pod, which is scraped once per second over a kept-alive connection, and
//!   a decision every two seconds. Also the time that a sleeping revision waits for its patch meanwhile (as in
//!   [`super::wake`]).
//! - *Asleep*, drop-in, and in standalone, where the autoscaler also maintains Services and EndpointSlices: no pod is
//!   scraped.
//!
//! Memory is the process's resident memory beyond that of an autoscaler without revisions, divided by their number,
//! after everything has been reconciled. CPU is that of the process alone; API server and pods are separate processes.

use super::wake::{SLEEPERS, wakes};
use crate::fleet::{Autoscaler, Fleet, RevisionKind};
use crate::idle::SETTLE;
use crate::report::{Figures, Measurement, P99, Row};
use crate::settings::Settings;
use anyhow::ensure;
use common_runtime::environment::Mode;
use futures::FutureExt;
use tokio::time::Instant;

/// Number of [`Settings::span`]s in one reading of the CPU, which thus covers whole ticks of two seconds.
const SPANS: u32 = 2;

const fn kib(name: &'static str, what: &'static str, must: f64, aim: f64) -> Row {
    Row::at_most(name, what, "KiB", must, aim)
}

pub(super) const SCRAPED: Measurement = Measurement {
    rows: &[
        kib("scraped-memory", "memory per revision whose pod is scraped once per second", 32.0, 12.0),
        Row::at_most("scraped-cpu", "CPU per such revision and second", "µs", 60.0, 33.0),
        Row::at_most(
            "wake-ticking",
            "first stat written → patch at the API server, p99; all other revisions are evaluated and scraped",
            "ms",
            20.0,
            5.0,
        )
        .judged_by(P99),
    ],
    run: |settings| scraped(settings).boxed_local(),
};

pub(super) const ASLEEP: Measurement = Measurement {
    rows: &[kib("asleep-memory", "memory per revision at zero, drop-in", 16.0, 8.0)],
    run: |settings| asleep(settings, Mode::Knative, "asleep-memory").boxed_local(),
};

pub(super) const STANDALONE: Measurement = Measurement {
    rows: &[kib("standalone-memory", "memory per workload at zero, standalone", 16.0, 8.0)],
    run: |settings| asleep(settings, Mode::Standalone, "standalone-memory").boxed_local(),
};

async fn scraped(settings: &Settings) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    let mut fleet = Fleet::start(settings, Mode::Knative).await?;
    let empty = resident_when_empty(&fleet).await?;
    fleet.fill("revision", RevisionKind::Scraped, settings.revisions).await?;
    fleet.fill("sleeper", RevisionKind::Asleep, SLEEPERS).await?;
    let autoscaler = fleet.start_autoscaler().await?;
    fleet.until_reconciled(2 * settings.revisions).await?;
    fleet.until_scraped().await?;
    tokio::time::sleep(SETTLE).await;

    let resident = autoscaler.process.resident()?;
    let before = fleet.scrapes().await?;
    let begin = Instant::now();
    let cpu = cpu_per_revision(settings, &autoscaler, settings.revisions).await?;
    let scrapes = (fleet.scrapes().await? - before) as f64 / begin.elapsed().as_secs_f64();
    ensure!(scrapes > 0.9 * settings.revisions as f64, "only {scrapes:.0} pods were scraped per second");
    let woken = wakes(&mut fleet, &autoscaler, "sleeper").await?;
    figures.row("scraped-memory", vec![kib_per_revision(resident, empty, settings.revisions)]);
    figures.row("scraped-cpu", cpu);
    figures.row("wake-ticking", woken);
    figures.add_context("MiB of resident memory without revisions", vec![empty as f64 / 1024.0 / 1024.0]);
    figures.add_context("pods scraped per second", vec![scrapes]);
    Ok(figures)
}

async fn asleep(settings: &Settings, mode: Mode, row: &'static str) -> anyhow::Result<Figures> {
    let mut fleet = Fleet::start(settings, mode).await?;
    let empty = resident_when_empty(&fleet).await?;
    let autoscaler = fleet.start_filled("asleep", RevisionKind::Asleep, settings.revisions).await?;
    tokio::time::sleep(SETTLE).await;
    let resident = autoscaler.process.resident()?;
    let cpu = cpu_per_revision(settings, &autoscaler, settings.revisions).await?;
    let mut figures = Figures::default();
    figures.row(row, vec![kib_per_revision(resident, empty, settings.revisions)]);
    figures.add_context("µs of CPU per revision and second", cpu);
    figures.add_context("MiB of resident memory without revisions", vec![empty as f64 / 1024.0 / 1024.0]);
    Ok(figures)
}

/// Returns the resident bytes of an autoscaler without revisions. It shuts down gracefully, so that its leases are
/// free.
async fn resident_when_empty(fleet: &Fleet) -> anyhow::Result<u64> {
    let autoscaler = fleet.start_autoscaler().await?;
    tokio::time::sleep(SETTLE).await;
    let resident = autoscaler.process.resident()?;
    autoscaler.process.end()?;
    Ok(resident)
}

/// Returns the KiB per revision.
fn kib_per_revision(resident: u64, empty: u64, revisions: usize) -> f64 {
    (resident as f64 - empty as f64) / 1024.0 / revisions as f64
}

/// Returns the microseconds of CPU per revision and second, by reading.
pub(super) async fn cpu_per_revision(
    settings: &Settings,
    autoscaler: &Autoscaler,
    revisions: usize,
) -> anyhow::Result<Vec<f64>> {
    let mut readings = Vec::with_capacity(settings.repetitions);
    for _ in 0..settings.repetitions {
        let (before, begin) = (autoscaler.process.cpu()?, Instant::now());
        tokio::time::sleep(settings.span * SPANS).await;
        let used = autoscaler.process.cpu()?.saturating_sub(before);
        readings.push(used.as_secs_f64() * 1e6 / begin.elapsed().as_secs_f64() / revisions as f64);
    }
    Ok(readings)
}
