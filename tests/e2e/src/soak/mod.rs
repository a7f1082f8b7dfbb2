//! Soak test: runs everything at once for an hour and checks that no resource grows.
//!
//! A cluster of processes ([`crate::parts`]) serves clients of every kind ([`traffic`]) while pods are killed and
//! objects edited ([`trouble`]), and workloads scale to zero and back. After a part of the time, and again at the end,
//! all clients pause until all workloads are at zero. The activator and the autoscaler must not use more resources in
//! the second pause than in the first ([`usage`]).
//!
//! A stream, an upload or a WebSocket may break only if its pod ends ([`Ends`]). A GET must not break, since it is sent
//! again to another pod.

mod client_counts;
mod traffic;
mod trouble;
pub mod usage;

use crate::load::Load;
use crate::parts::Parts;
use crate::process::Process;
use crate::space::{ASLEEP, SOON, Space};
use crate::workload::Workload;
use anyhow::Context;
use client_counts::{Count, Ends, Tally};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout};
use traffic::Clients;
use usage::Usage;

/// Number of workloads that scale to zero whenever they can.
const SLEEPERS: usize = 4;
/// Time between two measurements at rest.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// Port of `/revisions`.
const ADMIN_PORT: u16 = 9090;
/// Kinds of clients whose exchanges must all be complete: a request to a killed pod is sent to another pod.
const NEVER_BROKEN: [&str; 4] = ["kept alive", "one by one", "HTTP/2", "wake"];
/// Maximum share of exchanges of other kinds that may break with their pods.
const BROKEN_MAX: f64 = 0.5;

/// Durations of the phases.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Total time under load.
    pub duration: Duration,
    /// Time until the first rest.
    pub first_rest_after: Duration,
    /// Time at rest, once all workloads are at zero; the least usage in this time counts.
    pub rest: Duration,
}

impl Plan {
    /// Plans a run of this length, with the first rest after five minutes, or after a quarter if that is sooner.
    pub fn minutes(minutes: f64) -> Self {
        let duration = Duration::from_secs_f64(minutes * 60.0);
        Self {
            duration,
            first_rest_after: Duration::from_secs(300).min(duration / 4),
            rest: Duration::from_secs(60).min(duration / 4),
        }
    }
}

/// Results of a run.
#[derive(Debug)]
pub struct Figures {
    /// Name of each process, and its usage at rest, early and at the end.
    usage: [(&'static str, [Usage; 2]); 2],
    tally: Arc<Tally>,
    early: Vec<(&'static str, Count)>,
}

impl Figures {
    /// Returns all violations of the expectations.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (name, [early, end]) in self.usage {
            faults.extend(end.grown_since(early).into_iter().map(|grown| format!("{name}: {grown}")));
        }
        let counts = self.tally.counts();
        for (kind, count) in &counts {
            let before = self.early.iter().find(|(early, _)| early == kind).map_or(0, |(_, count)| count.ok);
            if count.ok <= before {
                faults.push(format!("{kind}: {before} complete until the first rest, none after it"));
            }
            let broken = count.failed as f64 / (count.ok + count.failed).max(1) as f64;
            if (NEVER_BROKEN.contains(kind) && count.failed > 0) || broken > BROKEN_MAX {
                faults.push(format!("{kind}: {} whole, broken: {:?}", count.ok, count.errors));
            }
            if !count.unexplained.is_empty() {
                faults.push(format!("{kind}: broken although no pod ended: {:?}", count.unexplained));
            }
        }
        for kind in NEVER_BROKEN.iter().filter(|kind| !counts.contains_key(*kind)) {
            faults.push(format!("{kind}: none"));
        }
        faults
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, [early, end]) in self.usage {
            writeln!(f, "{name:>10} at rest, early: {early}\n{name:>10} at rest,   end: {end}")?;
        }
        for (kind, count) in self.tally.counts() {
            writeln!(f, "{kind:>17}: {} whole, {} broken {:?}", count.ok, count.failed, count.errors)?;
        }
        Ok(())
    }
}

/// Runs everything.
pub async fn run(plan: Plan) -> anyhow::Result<Figures> {
    let parts = Parts::start().await?;
    let autoscaler = parts.run(parts.autoscaler).await?;
    let activator = parts.run(parts.activator).await?;
    let soak = Soak {
        space: Arc::new(Space::create_in(parts.client.clone()).await?),
        tally: Arc::default(),
        ends: Arc::default(),
        parts: &parts,
        processes: [("activator", &activator), ("autoscaler", &autoscaler)],
    };
    soak.deploy().await?;
    soak.under_load(plan.first_rest_after, 0).await;
    let early = soak.at_rest(plan.rest).await?;
    let counted = soak.tally.counts().into_iter().collect();
    let remaining = plan.duration.saturating_sub(plan.first_rest_after);
    soak.under_load(remaining, 1000).await;
    let end = soak.at_rest(plan.rest).await?;
    let usage = [0, 1].map(|n| (soak.processes[n].0, [early[n], end[n]]));
    let figures = Figures { usage, tally: soak.tally.clone(), early: counted };
    soak.space.delete().await?;
    drop(soak);
    parts.end(activator, autoscaler).await?;
    Ok(figures)
}

struct Soak<'a> {
    space: Arc<Space>,
    tally: Arc<Tally>,
    ends: Arc<Ends>,
    parts: &'a Parts,
    processes: [(&'static str, &'a Process); 2],
}

impl Soak<'_> {
    fn workloads() -> Vec<Workload> {
        let mut all: Vec<_> = (0..SLEEPERS).map(|n| Workload::new(&format!("sleeper-{n}"))).collect();
        let target = "scale.load.concurrency";
        all.push(Workload::new("web").env("HELLO_LATENCY_MS", 20).set(target, 3));
        all.push(Workload { protocol: "h2c", ..Workload::new("calls").set(target, 4) });
        all.push(Workload::new("talk").env("E2E_STREAMS", 1).set(target, 4));
        all.push(Workload::new("slow").env("HELLO_LATENCY_MS", 150).set("concurrency", 1).set("scale.max", 1));
        all
    }

    async fn deploy(&self) -> anyhow::Result<()> {
        for workload in Self::workloads() {
            self.space.deploy(&workload).await?;
        }
        Ok(())
    }

    /// Runs all clients, with disruptions from number `first` on.
    async fn under_load(&self, duration: Duration, first: u64) {
        let mut clients = JoinSet::new();
        let new = || Clients {
            activator: self.parts.activator.address,
            namespace: self.space.namespace.clone(),
            tally: self.tally.clone(),
            ends: self.ends.clone(),
        };
        for n in 0..SLEEPERS {
            clients.spawn(new().wakes(self.space.clone(), format!("sleeper-{n}")));
        }
        for _ in 0..4 {
            clients.spawn(new().kept_alive("web"));
            clients.spawn(new().streams("calls"));
            clients.spawn(new().websockets("talk"));
            clients.spawn(new().give_up("slow"));
        }
        for _ in 0..2 {
            clients.spawn(new().one_by_one("web"));
            clients.spawn(new().over_http2("web"));
            clients.spawn(new().uploads("talk"));
        }
        clients.spawn(self.ends.clone().watch(self.space.api()));
        let disruptions = async {
            let mut ticks = interval(trouble::PAUSE);
            for number in first.. {
                ticks.tick().await;
                let made = trouble::make(&self.space, &["web", "calls", "talk", "slow"], number).await;
                self.tally.add("trouble", made);
            }
        };
        let _ = timeout(duration, disruptions).await; // They do not end by themselves.
        clients.shutdown().await;
    }

    /// Returns the current usage of each process.
    fn usage(&self) -> anyhow::Result<[Usage; 2]> {
        let of = |(name, process): (&str, &Process)| {
            Usage::of_process(process.id().with_context(|| format!("the {name} has ended"))?)
        };
        Ok([of(self.processes[0])?, of(self.processes[1])?])
    }

    /// Returns the least usage of each process during a rest.
    async fn at_rest(&self, duration: Duration) -> anyhow::Result<[Usage; 2]> {
        for workload in Self::workloads() {
            self.space.until_asleep(&workload.name).await?;
        }
        let admin = std::net::SocketAddr::new(self.parts.activator.address.ip(), ADMIN_PORT);
        let revisions = Load::new(admin, "admin");
        self.space
            .until(SOON + ASLEEP, "an activator that holds nothing", async || {
                let page: serde_json::Value = serde_json::from_slice(&revisions.get("/revisions").await?.body)?;
                let idle = |revision: &serde_json::Value| revision["inFlight"] == 0 && revision["held"] == 0;
                Ok(page.as_array().context("a list of revisions")?.iter().all(idle))
            })
            .await?;
        let end = Instant::now() + duration;
        let mut least: Option<[Usage; 2]> = None;
        while least.is_none() || Instant::now() < end {
            let now = self.usage()?;
            least = Some(least.map_or(now, |least| [least[0].least(now[0]), least[1].least(now[1])]));
            sleep(SAMPLE_INTERVAL).await;
        }
        least.context("no measurement")
    }
}
