//! Silent connections to the autoscaler's stat port. The run checks whether probes of the same port succeed meanwhile,
//! and how much is logged.

use super::plane::{self, Cluster};
use super::probes::{self, Times};
use super::{Kind, all, start_clients};
use common::names;
use futures::future::FutureExt;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::task::JoinSet;

/// The autoscaler's own address.
const IP: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 77, 0, 2));

/// Result of a run.
#[derive(Debug)]
pub struct StatPortFigures {
    /// Number of clients.
    clients: usize,
    /// Liveness probes of the autoscaler.
    pub live: Times,
    /// Readiness probes of the autoscaler.
    pub ready: Times,
    /// Current resident memory in bytes, before the flood and at its end.
    resident: [u64; 2],
    descriptors: usize,
    /// Lines in the log since the start of the flood.
    pub log: Vec<String>,
}

/// Keeps `clients` silent connections to the stat port for `lasts`. Without `program`, cargo builds the autoscaler in
/// this program's profile.
pub fn run(clients: usize, lasts: Duration, program: Option<PathBuf>) -> anyhow::Result<StatPortFigures> {
    let program = program.map_or_else(|| plane::program("autoscaler"), Ok)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let cluster = Cluster::start("127.78.1.0/24").await?;
        let log = tempfile::NamedTempFile::new()?;
        let process = cluster.spawn(&program, ("autoscaler-0", IP), &[], Stdio::from(log.reopen()?))?;
        let address = SocketAddr::new(IP, names::STAT_PORT);
        let question = probes::probe("/ready");
        let is_ready = || probes::once(address, &question).map(|time| time.is_some()).boxed();
        plane::until("the autoscaler to be ready", is_ready).await?;
        let (before, lines) = (process.resident()?, std::fs::read_to_string(log.path())?.lines().count());
        let mut tasks = JoinSet::new();
        let mut live = probes::repeat(&mut tasks, address, probes::probe("/"));
        let mut ready = probes::repeat(&mut tasks, address, probes::probe("/ready"));
        start_clients(&mut tasks, Kind::Silent, clients, address, lasts).await;
        let (resident, descriptors) = ([before, process.resident()?], process.descriptors()?);
        tasks.shutdown().await;
        let log = std::fs::read_to_string(log.path())?.lines().skip(lines).map(str::to_owned).collect();
        Ok(StatPortFigures { clients, live: all(&mut live), ready: all(&mut ready), resident, descriptors, log })
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
            "stat port  {} clients; resident {before} MiB before, {late} at the end; {} descriptors",
            self.clients, self.descriptors
        )?;
        writeln!(f, "{:<10} liveness probes: {}", "", self.live)?;
        writeln!(f, "{:<10} readiness probes: {}", "", self.ready)?;
        for line in &self.log {
            writeln!(f, "{:<10} logged {line}", "")?;
        }
        write!(f, "{:<10} {}", "", if self.is_good() { "within the bounds" } else { "BEYOND THE BOUNDS" })
    }
}
