//! Clients that time out: 200 requests per second to one pod that takes two requests at a time. Each client times out
//! after a second.
//!
//! Under this load, upstream's activator grew without bound (upstream issue 13583). The pod works 100 ms on a request,
//! so it serves 20 requests per second, and nine in ten requests are canceled while they wait. A third of the requests
//! have a body, which is not read while the request waits. Each client opens and closes its own connection.

use crate::pod::PodServer;
use crate::rig::{Rig, key};
use anyhow::Context;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Interval between two requests.
const SPACING: Duration = Duration::from_millis(5);

/// Timeout of a client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval between two measurements of the process.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of requests that wait if every client times out punctually: the requests of one second, and a reserve
/// for a busy machine.
pub const WAITING_MAX: u32 = 600;

/// Resource usage of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Resident memory in KiB.
    pub resident_kib: u64,
    /// Number of open descriptors.
    pub descriptors: usize,
    /// Number of live tasks of the runtime.
    pub tasks: usize,
}

/// Result of a run.
#[derive(Debug)]
pub struct Figures {
    /// Duration of the load.
    pub lasted: Duration,
    /// Number of requests sent.
    pub sent: usize,
    /// Number of requests answered before their client timed out.
    pub answered: usize,
    /// Number of requests that reached the pod.
    pub reached: usize,
    /// Maximum number of waiting requests, of all measurements.
    pub queued_max: u32,
    /// Maximum number of running requests, of all measurements. The pod takes two.
    pub in_flight_max: u32,
    /// Usage before the load.
    pub before: Usage,
    /// Usage after a tenth of the load.
    pub early: Usage,
    /// Usage at the end of the load.
    pub late: Usage,
    /// Usage after the load, when no request waits.
    pub after: Usage,
    /// Number of held requests after the load, and their bytes.
    pub held_after: (u64, u64),
}

/// Runs the load for `lasts`, in the calling thread's runtime.
pub async fn run(lasts: Duration) -> anyhow::Result<Figures> {
    let pod = PodServer::start(IpAddr::from(Ipv4Addr::LOCALHOST))?;
    let rig = Rig::start(|backend| backend.container_concurrency = 2).await?;
    rig.serve(&[pod.address]).await?;
    let before = usage()?;
    let (mut early, mut queued_max, mut in_flight_max) = (None, 0, 0);
    let (mut sent, mut answered) = (0, 0);
    let mut clients = JoinSet::new();
    let (mut requests, mut samples) = (tokio::time::interval(SPACING), tokio::time::interval(SAMPLE_INTERVAL));
    let start = Instant::now();
    while start.elapsed() < lasts {
        tokio::select! {
            _ = requests.tick() => {
                clients.spawn(client(rig.activator.http1, sent));
                sent += 1;
            }
            Some(done) = clients.join_next() => answered += usize::from(done?),
            _ = samples.tick() => {
                let load = rig.activator.load(&key()).context("the revision is known")?;
                (queued_max, in_flight_max) = (queued_max.max(load.queued), in_flight_max.max(load.in_flight));
                if early.is_none() && start.elapsed() >= lasts / 10 {
                    early = Some(usage()?);
                }
            }
        }
    }
    let late = usage()?;
    let lasted = start.elapsed();
    answered += clients.join_all().await.into_iter().map(usize::from).sum::<usize>();
    rig.until("nothing waits or runs", |load| (load.queued, load.in_flight) == (0, 0)).await?;
    let held_after = rig.activator.held();
    until_tasks_end(before.tasks).await;
    let after = usage()?;
    let early = early.unwrap_or(late);
    let reached = pod.requests();
    Ok(Figures { lasted, sent, answered, reached, queued_max, in_flight_max, before, early, late, after, held_after })
}

/// Waits up to 10 s until there are at most `tasks` live tasks.
async fn until_tasks_end(tasks: usize) {
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let fewer = async {
        while alive() > tasks {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(10), fewer).await;
}

/// Sends a request and waits for its response, up to a second. Reports whether the response arrived.
async fn client(activator: SocketAddr, number: usize) -> bool {
    let request: &[u8] = match number % 3 {
        0 => b"POST /?work=100 HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 5\r\n\r\nhello",
        _ => b"GET /?work=100 HTTP/1.1\r\nhost: app.ns\r\n\r\n",
    };
    let exchange = async {
        let mut stream = TcpStream::connect(activator).await.ok()?;
        stream.write_all(request).await.ok()?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"done") {
            if stream.read_buf(&mut answer).await.ok()? == 0 {
                return None;
            }
        }
        Some(())
    };
    tokio::time::timeout(CLIENT_TIMEOUT, exchange).await.ok().flatten().is_some()
}

fn usage() -> anyhow::Result<Usage> {
    let statm = std::fs::read_to_string("/proc/self/statm").context("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).context("resident pages")?;
    Ok(Usage {
        resident_kib: pages * (rustix::param::page_size() as u64) / 1024,
        descriptors: std::fs::read_dir("/proc/self/fd").context("/proc/self/fd")?.count(),
        tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks(),
    })
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB, {} descriptors, {} tasks", self.resident_kib, self.descriptors, self.tasks)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, answered, reached, queued_max, in_flight_max, .. } = self;
        let seconds = self.lasted.as_secs_f64();
        writeln!(f, "{sent} sent in {seconds:.0} s, {answered} answered in time, {reached} reached the pod")?;
        writeln!(f, "at most {queued_max} waited and {in_flight_max} ran; afterwards held: {:?}", self.held_after)?;
        for (when, usage) in [
            ("before", self.before),
            ("after a tenth", self.early),
            ("at the end", self.late),
            ("afterwards", self.after),
        ] {
            writeln!(f, "{when:>13}: {usage}")?;
        }
        Ok(())
    }
}
