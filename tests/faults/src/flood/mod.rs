//! Clients and pods that make the activator hold as much as they can. The run checks whether its memory stays within
//! the limit, and whether other workloads are affected.
//!
//! The activator is a separate process with the memory limit of the manifests. Nothing enforces the limit; the run
//! reads the resident memory. During the flood, a workload with a pod receives requests at a steady rate. Each of their
//! times counts from the moment when the request was due. Socket buffers belong to the kernel and are not counted.

mod frames;
mod hostile;
mod kinds;
mod plane;
mod probes;
mod readers;
mod stat_port;

use crate::pod::PodServer;
use anyhow::Context;
use common::backend::Protocol;
use e2e::soak::usage::{Usage, status_number};
use hostile::HostilePods;
pub use kinds::Kind;
use plane::{PAGED_TOO, Plane, WARM, Workload};
pub use probes::Times;
pub use stat_port::{StatPortFigures, run as run_stat_port};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Memory limit of the manifests (`deploy/kubernetes`).
pub const LIMIT: u64 = 600 << 20;

/// Maximum time of the fastest 99 % of warm requests.
pub const WARM_P99: Duration = Duration::from_millis(50);

/// Number of connections with warm requests, and the time between two requests of one connection.
const WARM_CLIENTS: u32 = 8;
const WARM_SPACING: Duration = Duration::from_millis(40);

/// Duration of a flood.
const LASTS: Duration = Duration::from_secs(60);

/// Time until all clients of a flood have started.
const RAMP: Duration = Duration::from_secs(10);

/// Timeout of a warm request. After it, the request counts as lost.
const LOST: Duration = Duration::from_secs(10);

/// Result of a run.
#[derive(Debug)]
pub struct Figures {
    kind: Kind,
    /// Resident memory of the activator in bytes: before the flood, its peak, and at the end of the flood.
    pub resident: [u64; 3],
    /// Number of open descriptors at the end of the flood.
    pub descriptors: u64,
    /// Warm requests. One without a response has failed.
    pub warm: Times,
    /// Probes of the activator.
    pub probes: Times,
    /// Event streams of another workload's waiting page.
    pub pages: Times,
    /// Number of requests held at the end.
    pub held: u64,
    refused: Vec<String>,
}

/// Runs a flood.
pub fn run(kind: Kind) -> anyhow::Result<Figures> {
    e2e::process::build(&["activator"])?;
    let program = e2e::process::program("activator")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let pod = PodServer::start(IpAddr::from(Ipv4Addr::LOCALHOST))?;
        // These pods are separate, so that they take no time from the pod of the warm workload.
        let (bodies, hostile) = (PodServer::start(IpAddr::from(Ipv4Addr::LOCALHOST))?, HostilePods::start()?);
        let mut workloads = vec![
            Workload { name: "warm", protocol: Protocol::Http1, pod: Some(pod.address), has_page: false },
            Workload { name: "asleep", protocol: Protocol::Http1, pod: None, has_page: false },
            Workload { name: "paged", protocol: Protocol::Http1, pod: None, has_page: true },
            Workload { name: "paged-too", protocol: Protocol::Http1, pod: None, has_page: true },
            Workload { name: "bodies", protocol: Protocol::Http1, pod: Some(bodies.address), has_page: false },
            Workload { name: "bodies-http2", protocol: Protocol::H2c, pod: Some(bodies.address), has_page: false },
        ];
        workloads.extend(hostile.addresses.iter().map(|(way, address)| Workload {
            name: way.name(),
            protocol: Protocol::H2c,
            pod: Some(*address),
            has_page: false,
        }));
        let plane = Plane::start(&program, LIMIT, &workloads).await?;
        let id = plane.process.id().context("the activator has ended")?;
        let before = Usage::of_process(id)?.resident_kib << 10;
        let mut clients = JoinSet::new();
        let (taken, mut times) = unbounded_channel();
        for n in 0..WARM_CLIENTS {
            let offset = WARM_SPACING * n / WARM_CLIENTS;
            clients.spawn(warm(plane.address, offset, n.is_multiple_of(2), taken.clone()));
        }
        let mut probes = probes::repeat(&mut clients, plane.address, probes::network_probe());
        let mut pages = probes::repeat(&mut clients, plane.address, probes::page_events(PAGED_TOO));
        start_clients(&mut clients, kind, kind.clients(), plane.address).await;
        let (peak, late) = (status_number(id, "VmHWM:")? << 10, Usage::of_process(id)?);
        // The kernel may have no memory left for sockets. Then only the figures above are known.
        let (refused, queued) = metrics(&plane).await.unwrap_or_default();
        let held = queued.iter().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
        clients.shutdown().await;
        let (warm, probes, pages) = (all(&mut times), all(&mut probes), all(&mut pages));
        let (resident, descriptors) = ([before, peak, late.resident_kib << 10], late.descriptors);
        Ok(Figures { kind, resident, descriptors, warm, probes, pages, held, refused })
    })
}

/// Starts this number of clients of a flood within [`RAMP`]. Returns [`LASTS`] after the first one has started.
async fn start_clients(tasks: &mut JoinSet<()>, kind: Kind, number: usize, to: SocketAddr) {
    let start = Instant::now();
    for n in 0..number {
        tasks.spawn(kind.client(n, to));
        tokio::time::sleep_until(start + RAMP * n as u32 / number as u32).await;
    }
    tokio::time::sleep(LASTS.saturating_sub(start.elapsed())).await;
}

/// Takes all reported times.
fn all(times: &mut UnboundedReceiver<Option<Duration>>) -> Times {
    std::iter::from_fn(|| times.try_recv().ok()).collect()
}

/// Reads the activator's metrics of refused requests and of held requests.
async fn metrics(plane: &Plane) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let read = async {
        let refused = plane.metrics("zeroscale_refused_total").await?;
        Ok((refused, plane.metrics("kn_revision_request_queued{").await?))
    };
    tokio::time::timeout(LOST, read).await?
}

/// Sends requests at a steady rate, on one connection or, with `reconnects`, each on its own. Reports the time of each
/// request, or `None` if it got no response.
async fn warm(activator: SocketAddr, offset: Duration, reconnects: bool, taken: UnboundedSender<Option<Duration>>) {
    let request = format!("GET / HTTP/1.1\r\nhost: {WARM}\r\n\r\n");
    let mut due = Instant::now() + offset;
    loop {
        let Ok(mut stream) = TcpStream::connect(activator).await else { continue };
        let _ = stream.set_nodelay(true);
        loop {
            tokio::time::sleep_until(due).await;
            let exchange = async {
                stream.write_all(request.as_bytes()).await.ok()?;
                let mut answer = Vec::new();
                while !answer.ends_with(b"done") {
                    (stream.read_buf(&mut answer).await.ok()? > 0).then_some(())?;
                }
                Some(due.elapsed())
            };
            let took = tokio::time::timeout(LOST, exchange).await.ok().flatten();
            if taken.send(took).is_err() {
                return;
            }
            due += WARM_SPACING;
            if took.is_none() || reconnects {
                break;
            }
        }
    }
}

impl Figures {
    /// Reports whether memory, warm requests and probes are within their bounds.
    pub fn is_good(&self) -> bool {
        let failed = self.warm.failed + self.probes.failed + self.pages.failed;
        self.resident[1] < LIMIT && self.warm.quantile(990) < WARM_P99 && failed == 0
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, peak, late] = self.resident.map(|bytes| bytes / (1 << 20));
        let kind = format!("{:?}", self.kind).to_lowercase();
        writeln!(
            f,
            "{kind:<10} resident {before} MiB before, {peak} at most, {late} at the end, of {}; {} descriptors",
            LIMIT >> 20,
            self.descriptors
        )?;
        writeln!(f, "{:<10} warm requests: {}", "", self.warm)?;
        writeln!(f, "{:<10} probes: {}", "", self.probes)?;
        writeln!(f, "{:<10} page streams of another workload: {}", "", self.pages)?;
        let each = (self.resident[2].saturating_sub(self.resident[0])).checked_div(self.held * 1024);
        writeln!(
            f,
            "{:<10} {} requests held at the end, {} KiB of resident memory each",
            "",
            self.held,
            each.unwrap_or(0)
        )?;
        for line in &self.refused {
            writeln!(f, "{:<10} refused {line}", "")?;
        }
        write!(f, "{:<10} {}", "", if self.is_good() { "within the bounds" } else { "BEYOND THE BOUNDS" })
    }
}
