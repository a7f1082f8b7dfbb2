//! Silent connections to the autoscaler's stat port. The run checks whether probes of the same port succeed meanwhile,
//! and how much is logged.

use super::plane::Cluster;
use super::probes::{self, Times};
use super::{Kind, all, start_clients};
use anyhow::Context;
use common::names;
use e2e::soak::usage::Usage;
use e2e::space::until;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Stdio;
use tokio::task::JoinSet;

/// The autoscaler's own address.
const IP: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 77, 0, 2));

/// Number of connections.
const CLIENTS: usize = 4096;

/// Result of a run.
#[derive(Debug)]
pub struct StatPortFigures {
    /// Liveness probes of the autoscaler.
    pub live: Times,
    /// Readiness probes of the autoscaler.
    pub ready: Times,
    /// Current resident memory in bytes, before the flood and at its end.
    resident: [u64; 2],
    descriptors: u64,
    /// Lines in the log since the start of the flood.
    pub log: Vec<String>,
}

/// Keeps silent connections to the stat port for a while.
pub fn run() -> anyhow::Result<StatPortFigures> {
    e2e::process::build(&["autoscaler"])?;
    let program = e2e::process::program("autoscaler")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let cluster = Cluster::start("127.78.1.0/24").await?;
        let log = tempfile::NamedTempFile::new()?;
        let process = cluster.spawn(&program, ("autoscaler-0", IP), &[], Stdio::from(log.reopen()?))?;
        let address = SocketAddr::new(IP, names::STAT_PORT);
        let question = probes::probe("/ready");
        until("the autoscaler to be ready", async || probes::once(address, &question).await.is_some()).await?;
        let usage = || Usage::of_process(process.id().context("the autoscaler has ended")?);
        let (before, lines) = (usage()?.resident_kib << 10, std::fs::read_to_string(log.path())?.lines().count());
        let mut tasks = JoinSet::new();
        let mut live = probes::repeat(&mut tasks, address, probes::probe("/"));
        let mut ready = probes::repeat(&mut tasks, address, probes::probe("/ready"));
        start_clients(&mut tasks, Kind::Silent, CLIENTS, address).await;
        let late = usage()?;
        let (resident, descriptors) = ([before, late.resident_kib << 10], late.descriptors);
        tasks.shutdown().await;
        let log = std::fs::read_to_string(log.path())?.lines().skip(lines).map(str::to_owned).collect();
        Ok(StatPortFigures { live: all(&mut live), ready: all(&mut ready), resident, descriptors, log })
    })
}

impl StatPortFigures {
    /// Reports whether all probes succeeded, and at most one line per minute and cause was logged.
    pub fn is_good(&self) -> bool {
        self.live.failed + self.ready.failed == 0 && self.log.len() <= 4
    }
}

impl fmt::Display for StatPortFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, late] = self.resident.map(|bytes| bytes >> 20);
        writeln!(
            f,
            "stat port  {CLIENTS} clients; resident {before} MiB before, {late} at the end; {} descriptors",
            self.descriptors
        )?;
        writeln!(f, "{:<10} liveness probes: {}", "", self.live)?;
        writeln!(f, "{:<10} readiness probes: {}", "", self.ready)?;
        for line in &self.log {
            writeln!(f, "{:<10} logged {line}", "")?;
        }
        write!(f, "{:<10} {}", "", if self.is_good() { "within the bounds" } else { "BEYOND THE BOUNDS" })
    }
}
