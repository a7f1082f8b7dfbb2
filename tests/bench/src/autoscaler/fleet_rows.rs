//! Cost of a revision for an autoscaler with thousands of them, and their effect on each other.
//!
//! - *Scraped*, drop-in: each revision has one pod, which is scraped once per second over a kept-alive connection, and
//!   a decision every two seconds. Also the lateness of those ticks, and the time that a sleeping revision waits for
//!   its patch meanwhile (as in [`super::wake`]).
//! - *Asleep*, drop-in, and in standalone, where the autoscaler also maintains Services and EndpointSlices: no pod is
//!   scraped.
//!
//! Memory is the process's resident memory beyond that of an autoscaler without revisions, divided by their number,
//! after everything has been reconciled. CPU is that of the process alone; API server and pods are separate processes.

use super::wake::{SLEEPERS, wakes};
use crate::fleet::{Autoscaler, Fleet, RevisionKind, Rules};
use crate::idle::SETTLE;
use crate::report::{Figures, Measurement, P99, Row};
use crate::settings::Settings;
use anyhow::ensure;
use futures::FutureExt;
use std::time::Duration;
use tokio::time::Instant;

/// Spans of load in one reading of the CPU: several ticks.
const SPANS: u32 = 2;

const fn kib(name: &'static str, what: &'static str, must: f64, aim: f64) -> Row {
    Row::small(name, what, "KiB", must, aim)
}

pub(super) const SCRAPED: Measurement = Measurement {
    rows: &[
        kib("scraped-memory", "memory per revision whose pod is scraped once per second", 32.0, 12.0),
        Row::small("scraped-cpu", "CPU per such revision and second", "µs", 60.0, 33.0),
        Row::small("tick-lateness", "group of revisions due → last of them decided, p99 at most", "ms", 20.0, 5.0),
        Row::small(
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
    run: |settings| asleep(settings, Rules::Knative, "asleep-memory").boxed_local(),
};

pub(super) const STANDALONE: Measurement = Measurement {
    rows: &[kib("standalone-memory", "memory per workload at zero, standalone", 16.0, 8.0)],
    run: |settings| asleep(settings, Rules::Standalone, "standalone-memory").boxed_local(),
};

async fn scraped(settings: &Settings) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    let mut fleet = Fleet::start(settings, Rules::Knative).await?;
    let empty = empty(&fleet).await?;
    fleet.fill("revision", RevisionKind::Scraped, settings.revisions).await?;
    fleet.fill("sleeper", RevisionKind::Asleep, SLEEPERS).await?;
    let autoscaler = fleet.autoscaler().await?;
    fleet.until_reconciled(2 * settings.revisions).await?;
    fleet.until_scraped().await?;
    tokio::time::sleep(SETTLE).await;

    // Measured before the first scrape of the autoscaler's metrics, because their text takes memory, too.
    let resident = autoscaler.process.resident()?;
    let early = autoscaler.lateness().await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = fleet.scrapes().await?;
    let begin = Instant::now();
    let cpu = cpu(settings, &autoscaler, settings.revisions).await?;
    let scrapes = (fleet.scrapes().await? - before) as f64 / begin.elapsed().as_secs_f64();
    ensure!(scrapes > 0.9 * settings.revisions as f64, "only {scrapes:.0} pods were asked each second");
    let woken = wakes(&mut fleet, &autoscaler, "sleeper").await?;
    let late = quantile_since(&early, &autoscaler.lateness().await?, 0.99);

    figures.row("scraped-memory", vec![for_each(resident, empty, settings.revisions)]);
    figures.row("scraped-cpu", cpu);
    figures.row("tick-lateness", vec![late * 1e3]);
    figures.row("wake-ticking", woken);
    figures.beside("MiB of resident memory without revisions", vec![empty as f64 / 1024.0 / 1024.0]);
    figures.beside("pods scraped per second", vec![scrapes]);
    Ok(figures)
}

async fn asleep(settings: &Settings, rules: Rules, row: &'static str) -> anyhow::Result<Figures> {
    let mut fleet = Fleet::start(settings, rules).await?;
    let empty = empty(&fleet).await?;
    fleet.fill("asleep", RevisionKind::Asleep, settings.revisions).await?;
    let autoscaler = fleet.autoscaler().await?;
    fleet.until_reconciled(2 * settings.revisions).await?;
    tokio::time::sleep(SETTLE).await;
    let resident = autoscaler.process.resident()?;
    let early = autoscaler.lateness().await?;
    let cpu = cpu(settings, &autoscaler, settings.revisions).await?;
    let late = quantile_since(&early, &autoscaler.lateness().await?, 0.99);
    let mut figures = Figures::default();
    figures.row(row, vec![for_each(resident, empty, settings.revisions)]);
    figures.beside("µs of CPU per revision and second", cpu);
    figures.beside("ms that a decision is late, p99 at most", vec![late * 1e3]);
    figures.beside("MiB of resident memory without revisions", vec![empty as f64 / 1024.0 / 1024.0]);
    Ok(figures)
}

/// Returns the resident bytes of an autoscaler without revisions. It shuts down gracefully, so that its leases are
/// free.
async fn empty(fleet: &Fleet) -> anyhow::Result<u64> {
    let autoscaler = fleet.autoscaler().await?;
    tokio::time::sleep(SETTLE).await;
    let resident = autoscaler.process.resident()?;
    autoscaler.process.end()?;
    Ok(resident)
}

/// Returns the KiB per revision.
fn for_each(resident: u64, empty: u64, revisions: usize) -> f64 {
    (resident as f64 - empty as f64) / 1024.0 / revisions as f64
}

/// Returns the microseconds of CPU per revision and second, by reading.
pub(super) async fn cpu(settings: &Settings, autoscaler: &Autoscaler, revisions: usize) -> anyhow::Result<Vec<f64>> {
    let mut readings = Vec::with_capacity(settings.repetitions);
    for _ in 0..settings.repetitions {
        let (before, begin) = (autoscaler.process.cpu()?, Instant::now());
        tokio::time::sleep(settings.span * SPANS).await;
        let used = autoscaler.process.cpu()?.saturating_sub(before);
        readings.push(used.as_secs_f64() * 1e6 / begin.elapsed().as_secs_f64() / revisions as f64);
    }
    Ok(readings)
}

/// Returns the bound of the bucket that contains a quantile of the values between two readings.
fn quantile_since(before: &[(f64, f64)], after: &[(f64, f64)], part: f64) -> f64 {
    let between: Vec<_> = after.iter().zip(before).map(|((bound, now), (_, then))| (*bound, now - then)).collect();
    let all = between.last().map_or(0.0, |(_, count)| *count);
    between.iter().find(|(_, count)| *count >= part * all).map_or(f64::NAN, |(bound, _)| *bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_of_buckets_is_a_bound() {
        let before = [(0.001, 5.0), (0.002, 5.0), (0.005, 5.0), (f64::INFINITY, 9.0)];
        let after = [(0.001, 55.0), (0.002, 104.0), (0.005, 104.0), (f64::INFINITY, 109.0)];
        let quantiles = [0.5, 0.51, 0.99, 1.0].map(|part| quantile_since(&before, &after, part));
        assert_eq!(quantiles, [0.001, 0.002, 0.002, f64::INFINITY]);
        assert_eq!(for_each(3 * 1024, 1024, 2), 1.0);
    }
}
