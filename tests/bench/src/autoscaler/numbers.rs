//! Thousands of sleeping workloads with a port of their own, in a complete setup: the time from the start until each
//! has its number and writes have ended, the cost for the autoscaler, the cost of its next start, and whether one of
//! many workloads wakes as soon as one of [`FEW`].
//!
//! The activator is the real one. It binds all numbers, and the autoscaler queries it for each.

use super::wake::{PATCH_TIMEOUT, PAUSE, SLEEPERS, start_activator};
use crate::client::Connection;
use crate::fleet::{self, Autoscaler, Fleet, RevisionKind};
use crate::idle::SETTLE;
use crate::report::{Figures, MEDIAN, Measurement, Row};
use crate::settings::{Settings, quantile};
use anyhow::Context;
use common::RevisionKey;
use common_runtime::environment::Mode;
use futures::FutureExt;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Number of workloads in the comparison: the number of those that are woken.
const FEW: usize = SLEEPERS;

const PREFIX: &str = "asleep";

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[
        Row::at_most("numbers-time", "start → each of 10 000 workloads at zero has its port number", "s", 60.0, 20.0),
        Row::at_most("numbers-cpu", "CPU of the autoscaler per workload, until the last write", "ms", 5.0, 2.0),
        Row::at_most("numbers-restart", "restart with all port numbers assigned → last write", "s", 30.0, 10.0),
        Row::at_most("numbers-restart-cpu", "CPU of the autoscaler per workload, until then", "ms", 1.0, 0.5),
        Row::at_most(
            "numbers-wake",
            "request written to a workload's port → patch at the API server: of 10 000 workloads ÷ of 120, medians",
            "",
            1.2,
            1.0,
        ),
    ],
    run: |settings| run(settings).boxed_local(),
};

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let few = measure(settings, FEW).await?;
    let many = measure(settings, settings.revisions).await?;
    let each = |cpu: Duration| vec![cpu.as_secs_f64() * 1e3 / settings.revisions as f64];
    let mut figures = Figures::default();
    figures.row("numbers-time", vec![many.numbered.as_secs_f64()]);
    figures.row("numbers-cpu", each(many.cpu));
    figures.row("numbers-restart", vec![many.restart.as_secs_f64()]);
    figures.row("numbers-restart-cpu", each(many.restart_cpu));
    figures.row("numbers-wake", vec![quantile(&many.wakes, MEDIAN) / quantile(&few.wakes, MEDIAN)]);
    for (workloads, measured) in [(FEW, few), (settings.revisions, many)] {
        figures.add_context(
            format!("s until the last write with {workloads} workloads"),
            vec![measured.settled.as_secs_f64()],
        );
        figures.add_context(
            format!("writes with {workloads} workloads, and after a restart"),
            measured.writes.map(|n| n as f64).into(),
        );
        figures.add_context(
            format!("µs of CPU at rest per workload and second with {workloads} workloads"),
            vec![measured.rest],
        );
        figures.add_context(format!("ms to the patch with {workloads} workloads"), measured.wakes);
    }
    Ok(figures)
}

struct Measured {
    /// Time from the autoscaler's start until all workloads have a number, and until the last write.
    numbered: Duration,
    settled: Duration,
    /// CPU time of the autoscaler until the last write.
    cpu: Duration,
    /// Time until the last write, and CPU time, of an autoscaler that starts when all numbers exist.
    restart: Duration,
    restart_cpu: Duration,
    /// Number of writes of both starts.
    writes: [u64; 2],
    /// Microseconds of CPU per workload and second at rest.
    rest: f64,
    /// Milliseconds from a request to the patch.
    wakes: Vec<f64>,
}

async fn measure(settings: &Settings, workloads: usize) -> anyhow::Result<Measured> {
    let mut fleet = Fleet::start(settings, Mode::Standalone).await?;
    fleet.fill(PREFIX, RevisionKind::Asleep, workloads).await?;
    fleet.publish_activator(settings.second_ip()).await?;
    let before = fleet.writes().await?;
    let begin = Instant::now();
    let autoscaler = fleet.start_autoscaler().await?;
    let (_activator, http1) = start_activator(settings, &fleet, autoscaler.stats).await?;
    let numbers = fleet.until_numbered(workloads).await?;
    let numbered = begin.elapsed();
    let (settled, cpu, written) = until_settled(&mut fleet, &autoscaler, begin).await?;
    autoscaler.process.end()?;

    let begin = Instant::now();
    let autoscaler = fleet.start_autoscaler().await?;
    let (restart, restart_cpu, rewritten) = until_settled(&mut fleet, &autoscaler, begin).await?;
    let (used, resting) = (autoscaler.process.cpu()?, Instant::now());
    tokio::time::sleep(SETTLE).await;
    let rest = autoscaler.process.cpu()?.saturating_sub(used).as_secs_f64() / resting.elapsed().as_secs_f64();

    let wakes = wakes(&mut fleet, http1, &numbers, workloads).await?;
    Ok(Measured {
        numbered,
        settled,
        cpu,
        restart,
        restart_cpu,
        writes: [written - before, rewritten - written],
        rest: rest * 1e6 / workloads as f64,
        wakes,
    })
}

/// Waits until writes have ended. Returns the time from `begin` to the last write, the CPU time of the autoscaler so
/// far, and the number of all writes so far.
async fn until_settled(
    fleet: &mut Fleet,
    autoscaler: &Autoscaler,
    begin: Instant,
) -> anyhow::Result<(Duration, Duration, u64)> {
    let (last, writes) = fleet.until_quiet().await?;
    Ok((last.saturating_duration_since(begin), autoscaler.process.cpu()?, writes))
}

/// Returns the milliseconds from a request at a workload's port to the patch, for [`SLEEPERS`] workloads spread over
/// all.
async fn wakes(
    fleet: &mut Fleet,
    http1: SocketAddr,
    numbers: &HashMap<RevisionKey, u16>,
    workloads: usize,
) -> anyhow::Result<Vec<f64>> {
    let mut delays = Vec::with_capacity(SLEEPERS);
    for n in (0..SLEEPERS).map(|n| n * workloads / SLEEPERS) {
        let name = fleet::name(PREFIX, u32::try_from(n)?);
        let number =
            numbers.get(&RevisionKey::new(fleet::NAMESPACE, &name)).with_context(|| format!("no number of {name}"))?;
        let mut client = Connection::open(SocketAddr::new(http1.ip(), *number)).await?;
        let begin = fleet::now_nanos();
        client.send("hello").await?;
        delays.push((fleet.until_patched(&name, PATCH_TIMEOUT).await? - begin) as f64 / 1e6);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(delays)
}
