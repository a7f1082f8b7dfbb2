//! One autoscaler with the workloads of a whole cluster, most asleep and some busy: how soon it is ready, the cost of
//! the workloads, how soon one of them wakes, and the effects of lost watches, of a killed autoscaler, and of an
//! activator that ends and returns.
//!
//! The control plane ([`ControlPlane`]) is embedded or real. Objects are created as users create them, pods are
//! reported as running, and activators ([`activators`]) send stats and respond to queries, but do not serve requests:
//! other rows measure that. The same is measured first with [`FEW`] sleeping workloads and a fifth of that busy, on the
//! same API server.
//!
//! | row | from | to |
//! |---|---|---|
//! | start | the process starts; a request waits, busy workloads have load | its workload is woken |
//! | patch | a first stat is sent | the watch of Deployments reports replicas |
//! | resync | every watch ends with 410 | a workload that was created meanwhile is routed to activators |
//! | takeover | one of two autoscalers that share the workloads is killed | the last of [`WAITING`] sleepers is woken |
//! | slices | an activator terminates, then returns | the last write to a slice |
//!
//! The autoscaler writes at its default rate. Only the first fill is not rate-limited, and only on the embedded API
//! server: a real one shares its processors with everything else here, and would not respond to renewals of leases in
//! time.

mod activators;
mod cluster_watch;
mod faults;

use super::fleet_rows::cpu_per_revision;
use super::wake::{PAUSE, SLEEPERS};
use crate::fleet::{self, ActivatorState, Autoscaler, ControlPlane};
use crate::idle::SETTLE;
use crate::report::{Figures, MEDIAN, Measurement, P99, Row};
use crate::settings::{Settings, quantile};
use crate::stalls::StallDetector;
use activators::{Activators, Listeners};
use anyhow::ensure;
use cluster_watch::{ClusterState, ClusterWatch};
use futures::FutureExt;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Number of starts, whose median counts. A request waits for a different sleeping workload at each.
const STARTS: u32 = 3;

/// Number of sleeping and of busy workloads in the comparison.
const FEW: u32 = SLEEPERS as u32 + STARTS;
const FEW_BUSY: u32 = FEW / 5;

const ASLEEP: &str = "asleep";
const BUSY: &str = "busy";
/// Deployment that no autoscaler knows. The time of its patch is the API server's own share.
const BARE: &str = "bare";

/// Number of activators: one more than the slices of a sleeping workload contain.
const ACTIVATORS: u32 = 4;
/// Number of the first activator's address. The addresses before it belong to autoscalers.
const FIRST_ACTIVATOR: u32 = 2;

/// Number of sleeping workloads, from all buckets, with a waiting request when an autoscaler is killed.
const WAITING: u32 = 24;

/// Maximum processor time per second of an idle autoscaler, whatever the number of its objects.
const IDLE_CPU_MAX: Duration = Duration::from_millis(100);
/// Additional maximum per busy workload: the bound of its row.
const BUSY_CPU_MAX: Duration = Duration::from_micros(60);
/// Maximum time to wait for an idle autoscaler.
const IDLE_WITHIN: Duration = Duration::from_secs(300);

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[
        Row::at_most(
            "many-start",
            "start → workloads with waiting requests are started: 10 000 at zero and 2 000 busy ÷ 123 and 24",
            "",
            30.0,
            15.0,
        ),
        Row::at_most("many-memory", "memory per additional workload, one in six busy", "KiB", 18.0, 12.0),
        Row::at_most("many-cpu", "CPU per busy workload and second", "µs", 60.0, 33.0),
        Row::at_most(
            "many-patch",
            "first stat → new replicas at a watcher, p99, all workloads are evaluated",
            "ms",
            20.0,
            5.0,
        )
        .judged_by(P99),
        Row::at_most("many-resync", "all watches end with 410 → objects created meanwhile are served", "s", 15.0, 5.0),
        Row::at_most("many-resync-cpu", "CPU of the same per workload", "ms", 2.0, 1.0),
        Row::at_most(
            "many-takeover",
            "one of two autoscalers killed, leases of 15 s → the last of its workloads is started",
            "s",
            20.0,
            17.0,
        ),
        Row::at_most("many-slices", "an activator ends and returns: writes per workload that it serves", "", 3.0, 2.0),
        Row::at_most(
            "many-slices-time",
            "time of the same ÷ time of as many writes at the permitted rate",
            "",
            1.5,
            1.1,
        ),
    ],
    run: |settings| run(settings).boxed_local(),
};

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let (asleep, busy) = (u32::try_from(settings.revisions)?, u32::try_from(settings.busy)?);
    ensure!(asleep >= 2 * FEW && busy > FEW_BUSY, "at least {} asleep and {} busy are needed", 2 * FEW, FEW_BUSY + 1);
    let mut bench = Bench::start(settings, asleep + busy).await?;
    let (few, autoscaler) = bench.measure(settings, 0..FEW, 0..FEW_BUSY).await?;
    autoscaler.process.end()?;
    let (many, autoscaler) = bench.measure(settings, FEW..asleep, FEW_BUSY..busy).await?;
    let mut figures = Figures::default();
    let median = |measured: &Measured| quantile(&measured.starts, MEDIAN);
    figures.row("many-start", vec![median(&many) / median(&few)]);
    let more = f64::from(asleep + busy - FEW - FEW_BUSY);
    figures.row("many-memory", vec![(many.resident as f64 - few.resident as f64) / 1024.0 / more]);
    figures.row("many-cpu", many.cpu.clone());
    figures.row("many-patch", many.patches.clone());
    for (workloads, measured) in [(FEW + FEW_BUSY, few), (asleep + busy, many)] {
        for (what, samples) in measured.context {
            figures.add_context(format!("{workloads} workloads: {what}"), samples);
        }
    }
    // The woken workloads go to sleep again. That cost is not part of the following figures.
    bench.cluster.until("woken workloads to sleep", |state| (state.ready_pods(ASLEEP) == 0).then_some(())).await?;
    // The figures so far took minutes, so they are kept even if the rest fails.
    if let Err(error) = bench.faults(autoscaler, asleep, asleep + busy, &mut figures).await {
        eprintln!("{error:#}");
    }
    Ok(figures)
}

/// Waits until an autoscaler's processor time shows that it is idle except for `busy` workloads. Writes may have ended
/// while it still processes objects. The wait is limited; after it, the measurement proceeds anyway.
async fn until_idle(autoscaler: &Autoscaler, busy: u32) -> anyhow::Result<()> {
    let (limit, begin) = (IDLE_CPU_MAX + BUSY_CPU_MAX * busy, Instant::now());
    loop {
        let (before, since) = (autoscaler.process.cpu()?, Instant::now());
        sleep(SETTLE).await;
        let per_second = autoscaler.process.cpu()?.saturating_sub(before).div_f64(since.elapsed().as_secs_f64());
        if per_second <= limit {
            return Ok(());
        }
        if begin.elapsed() > IDLE_WITHIN {
            eprintln!("an autoscaler still uses {per_second:?} of a processor per second");
            return Ok(());
        }
    }
}

/// Figures with all workloads that exist at the time.
struct Measured {
    /// Seconds from a start to the wake of a workload with a waiting request.
    starts: Vec<f64>,
    resident: u64,
    /// Microseconds of CPU per busy workload and second.
    cpu: Vec<f64>,
    /// Milliseconds from a first stat to the replicas.
    patches: Vec<f64>,
    context: Vec<(&'static str, Vec<f64>)>,
}

struct Bench {
    control_plane: ControlPlane,
    cluster: Arc<ClusterWatch>,
    activators: Activators,
}

impl Bench {
    async fn start(settings: &Settings, workloads: u32) -> anyhow::Result<Self> {
        let control_plane = ControlPlane::start(settings, workloads as usize).await?;
        let listeners = Arc::new(Listeners::default());
        let cluster = ClusterWatch::start(&control_plane.client, listeners.clone());
        let mut activators = Activators::new(cluster.clone(), listeners);
        for number in 0..ACTIVATORS {
            activators.start(control_plane.plane_address(FIRST_ACTIVATOR + number)).await?;
        }
        let bench = Self { control_plane, cluster, activators };
        bench.control_plane.publish(&bench.activator_states(Some(ActivatorState::Ready))).await?;
        bench.control_plane.create_deployment(BARE).await?;
        Ok(bench)
    }

    /// Returns all activators, the last one with state `last`, or without the last one.
    fn activator_states(&self, last: Option<ActivatorState>) -> Vec<(IpAddr, ActivatorState)> {
        let others = (0..ACTIVATORS - 1).map(|number| self.control_plane.plane_address(FIRST_ACTIVATOR + number));
        others.map(|address| (address, ActivatorState::Ready)).chain(last.map(|state| (self.last(), state))).collect()
    }

    /// Returns the address of the last activator.
    fn last(&self) -> IpAddr {
        self.control_plane.plane_address(FIRST_ACTIVATOR + ACTIVATORS - 1)
    }

    /// Starts an autoscaler that writes at its default rate, and directs all stats to it.
    async fn start_autoscaler(&self, number: u32) -> anyhow::Result<Autoscaler> {
        let autoscaler = self.control_plane.start_autoscaler(number, true).await?;
        self.activators.report_to(autoscaler.stats);
        Ok(autoscaler)
    }

    /// Creates these workloads, which are the next ones, and measures with all workloads that exist.
    async fn measure(
        &self,
        settings: &Settings,
        asleep: Range<u32>,
        busy: Range<u32>,
    ) -> anyhow::Result<(Measured, Autoscaler)> {
        let (all, start) = (asleep.end + busy.end, Instant::now());
        let progress = |what: &str| eprintln!("{all} workloads: {what} after {:.0?}", start.elapsed());
        self.control_plane.fill(ASLEEP, asleep.clone()).await?;
        self.control_plane.fill(BUSY, busy.clone()).await?;
        progress("created");
        // The work of Kubernetes' controllers for new objects, including the bare one, is not part of the following
        // figures.
        let all_observed = |state: &ClusterState| (state.observed_deployments() > all as usize).then_some(());
        self.cluster.until("controllers to observe all", all_observed).await?;
        progress("observed by controllers");
        let begin = Instant::now();
        let filling = self.control_plane.start_autoscaler(0, self.control_plane.is_real()).await?;
        self.activators.report_to(filling.stats);
        self.cluster
            .until("all to be routed", |state| (state.routed_workloads() >= all as usize).then_some(()))
            .await?;
        let filled = (self.cluster.until_quiet(begin).await? - begin).as_secs_f64();
        progress("routed to activators");
        let all_served = |state: &ClusterState| (state.served.len() >= all as usize).then_some(());
        self.cluster.until("all to be reported as served", all_served).await?;
        filling.process.end()?;
        progress("reported as served");

        let mut autoscaler = self.start_autoscaler(0).await?;
        self.control_plane.until_leading(0).await?;
        until_idle(&autoscaler, 0).await?;
        let written = autoscaler.writes().await?;
        let rest = cpu_per_revision(settings, &autoscaler, all as usize).await?;
        let begin = Instant::now();
        self.activators.set_busy(busy.end);
        let have_pods = |state: &ClusterState| (state.ready_pods(BUSY) >= busy.end as usize).then_some(());
        self.cluster.until("all busy workloads to have a pod", have_pods).await?;
        let woken = begin.elapsed().as_secs_f64();
        progress("busy ones have pods");
        self.cluster.until_quiet(begin).await?;
        until_idle(&autoscaler, busy.end).await?;
        let (resident, pods) = (autoscaler.process.resident()?, self.cluster.state().ready_pods(BUSY));
        let cpu = cpu_per_revision(settings, &autoscaler, busy.end as usize).await?;
        let (patches, bare) = self.patches(asleep.start..asleep.end - STARTS).await?;
        progress("some sleeping ones woken");

        let (mut starts, mut ready) = (Vec::new(), Vec::new());
        for name in (1..=STARTS).map(|n| fleet::name(ASLEEP, asleep.end - n)) {
            autoscaler.process.end()?;
            self.activators.add_request(&name)?;
            let begin = Instant::now();
            autoscaler = self.start_autoscaler(0).await?;
            ready.push(begin.elapsed().as_secs_f64());
            let woken =
                self.cluster.until(&name, |state| state.woken_at(&name).filter(|woken| *woken >= begin)).await?;
            self.activators.end_requests();
            starts.push((woken - begin).as_secs_f64());
        }
        self.cluster.until_quiet(Instant::now()).await?;
        progress("some restarts");
        let context = vec![
            ("s until a new autoscaler has reconciled all new workloads", vec![filled]),
            ("s from start until workloads with waiting requests are started", starts.clone()),
            ("s from start to ready", ready),
            ("writes after a start without changes", vec![written]),
            ("MiB of resident memory", vec![resident as f64 / 1024.0 / 1024.0]),
            ("µs of CPU per workload and second before the new ones are busy", rest),
            ("µs of CPU per busy workload and second", cpu.clone()),
            ("s until all busy workloads have a pod", vec![woken]),
            ("pods of the busy workloads, which need one each", vec![pods as f64]),
            ("ms from stat to replicas", patches.clone()),
            ("ms from a patch to replicas without an autoscaler, measured alternately", bare),
        ];
        Ok((Measured { starts, resident, cpu, patches, context }, autoscaler))
    }

    /// Returns the milliseconds from a first stat to the replicas, for [`SLEEPERS`] workloads spread over the range,
    /// and from our own patch to the replicas of [`BARE`], measured in turn. A figure during a stall of the machine is
    /// discarded. Each wake is complete before the next one begins.
    async fn patches(&self, asleep: Range<u32>) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
        let stalls = StallDetector::new();
        let (mut delays, mut bare) = (Vec::with_capacity(SLEEPERS), Vec::with_capacity(SLEEPERS));
        let mut discarded = 0;
        let count = SLEEPERS as u32;
        for n in 0..count {
            let name = fleet::name(ASLEEP, asleep.start + n * (asleep.end - asleep.start) / count);
            let begin = self.activators.add_request(&name)?;
            let woken =
                self.cluster.until(&name, |state| state.woken_at(&name).filter(|woken| *woken >= begin)).await?;
            self.activators.end_requests();
            self.cluster.until(&name, |state| (state.ready_pods(&name) > 0).then_some(())).await?;
            let (patched, reported) = self.wake_bare().await?;
            for (from, to, delays) in [(begin, woken, &mut delays), (patched, reported, &mut bare)] {
                if stalls.stalled_between(from, to).await {
                    discarded += 1;
                } else {
                    delays.push((to - from).as_secs_f64() * 1e3);
                }
            }
            sleep(PAUSE).await;
        }
        if discarded > 0 {
            eprintln!("{discarded} of {} wakes were discarded because the machine stalled", 2 * count);
        }
        Ok((delays, bare))
    }

    /// Gives [`BARE`] a pod, and removes it again. Returns the time of the patch, and the time at which the watch
    /// reported it.
    async fn wake_bare(&self) -> anyhow::Result<(Instant, Instant)> {
        let patched = Instant::now();
        self.control_plane.scale(BARE, 1).await?;
        let reported = self.cluster.until(BARE, |state| state.woken_at(BARE).filter(|at| *at >= patched)).await?;
        self.cluster.until(BARE, |state| (state.ready_pods(BARE) > 0).then_some(())).await?;
        self.control_plane.scale(BARE, 0).await?;
        self.cluster.until(BARE, |state| (state.ready_pods(BARE) == 0).then_some(())).await?;
        Ok((patched, reported))
    }
}
