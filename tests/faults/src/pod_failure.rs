//! One of three pods fails under load: what requests come to.
//!
//! 100 requests a second, GET and POST in turn, each 50 ms of work, evenly spaced; a stream of parts on every pod. Then
//! one pod fails, and the load goes on. With more work than the warm-up lasts, no connection is idle when that happens,
//! all that was sent is acknowledged, and every request after it needs a connection of its own.
//!
//! How long a request took is counted from when it was sent or the pod failed, whichever is later, less the work of an
//! answer. Upstream, in the same arrangement, at worst: 14.6 s with a pod that was
//! unreachable, 29 s with a black hole.

use crate::load::{Clients, Sample};
use crate::netns::{self, Fault, Namespace};
use crate::pod::PodServer;
use crate::rig::Rig;
use crate::stalls::Stalls;
use anyhow::Context;
use common::backend::Protocol;
use http::Method;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

const SPACING: Duration = Duration::from_millis(10);

/// Time under load before the failure.
const WARM_UP: Duration = Duration::from_secs(1);

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What happens to the pod.
    pub fault: Fault,
    /// What pods speak.
    pub protocol: Protocol,
    /// What each request asks for.
    pub work: Duration,
    /// How long the load goes on after it.
    pub after: Duration,
}

/// What it came to.
#[derive(Debug)]
pub struct Figures {
    plan: Plan,
    /// GETs sent.
    pub gets: usize,
    /// And not answered 200.
    pub gets_failed: usize,
    /// The slowest.
    pub get_worst: Duration,
    /// POSTs sent.
    pub posts: usize,
    /// And not answered 200.
    pub posts_failed: usize,
    /// The slowest, failed ones included.
    pub post_worst: Duration,
    /// Of the failed, how long after the failure the last was sent.
    pub last_failed_sent: Duration,
    /// POSTs that ran on the pod when it failed.
    pub posts_in_flight: usize,
    /// Failed requests whose answer did not say that the activator gave it, or that got none.
    pub unnamed: usize,
    /// Streams from the other pods that were complete.
    pub streams_whole: usize,
    /// Of so many.
    pub streams: usize,
    /// How long after the failure the stream from the failed pod was broken off.
    pub stream_broken: Option<Duration>,
    /// How late the machine let the load be at worst, which tells how busy it was with other things.
    pub late: Duration,
    /// How long threads had to wait after the failure that had something to do.
    pub stalled: Duration,
}

/// Runs `plan` in a network of its own, on threads of its own.
///
/// # Errors
/// Namespaces are not permitted, or something does not start.
pub fn run(plan: Plan) -> anyhow::Result<Figures> {
    // The calling thread's namespace is left alone.
    let thread = std::thread::spawn(move || {
        netns::enter_new()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(under_load(plan))
    });
    thread.join().ok().context("the run panicked")?
}

async fn under_load(plan: Plan) -> anyhow::Result<Figures> {
    let mut pods = Vec::new();
    for number in 1..=3 {
        let namespace = Namespace::start()?;
        let ip = netns::cable(number, &namespace)?;
        let pod = namespace.within(move || PodServer::start(ip))?;
        pods.push((namespace, pod));
    }
    let rig = Rig::start(|backend| backend.protocol = plan.protocol).await?;
    let clients = Clients::of(rig.activator.http1);

    // A stream on each pod while it is the only one; each outlasts the run.
    let parts = (WARM_UP + plan.after + 2 * plan.work).as_millis() / 100 + 30;
    let mut streams = Vec::new();
    for (_, pod) in &pods {
        rig.serve(&[pod.address]).await?;
        let before = pod.requests();
        let clients = clients.clone();
        streams.push(tokio::spawn(async move { clients.send(Method::GET, &format!("drip={parts}")).await }));
        let begun = async {
            while pod.requests() == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(crate::rig::PATIENCE, begun).await.context("a stream never began")?;
    }
    rig.serve(&pods.iter().map(|(_, pod)| pod.address).collect::<Vec<_>>()).await?;

    let (ending, ended) = watch::channel(false);
    let load = tokio::spawn(load(clients, plan.work, ended));
    tokio::time::sleep(WARM_UP).await;
    let (namespace, failing) = &pods[0];
    let posts_in_flight = failing.posts_running();
    let stalls = Stalls::new();
    let failed_at = Instant::now();
    netns::fail(plan.fault, 1, namespace)?;
    if plan.fault == Fault::Reset {
        failing.kill();
    }
    // On a busy machine it takes a while until the fault is there; requests go on after it.
    let failing_took = failed_at.elapsed();
    tokio::time::sleep(plan.after).await;
    ending.send_replace(true);
    let (samples, late) = load.await?;

    let mut streamed = Vec::new();
    for stream in streams {
        streamed.push(stream.await?);
    }
    let broken = &streamed[0];
    let of = |method: Method| samples.iter().filter(move |sample| sample.method == method);
    let failed = |method: Method| of(method).filter(|sample| !sample.is_good());
    let took = |sample: &Sample| {
        let since = sample.sent.max(failed_at);
        let work = if sample.is_good() { plan.work } else { Duration::ZERO };
        (sample.sent + sample.took).saturating_duration_since(since).saturating_sub(work)
    };
    let worst = |method: Method| of(method).map(took).max().unwrap_or_default();
    let all_failed = || samples.iter().filter(|sample| !sample.is_good());
    Ok(Figures {
        plan,
        gets: of(Method::GET).count(),
        gets_failed: failed(Method::GET).count(),
        get_worst: worst(Method::GET),
        posts: of(Method::POST).count(),
        posts_failed: failed(Method::POST).count(),
        post_worst: worst(Method::POST),
        last_failed_sent: all_failed()
            .map(|sample| sample.sent.saturating_duration_since(failed_at))
            .max()
            .unwrap_or_default(),
        posts_in_flight,
        unnamed: all_failed().filter(|sample| !sample.named).count(),
        streams_whole: streamed[1..].iter().filter(|stream| stream.is_good()).count(),
        streams: streamed.len() - 1,
        stream_broken: (!broken.is_good()).then(|| (broken.sent + broken.took).saturating_duration_since(failed_at)),
        late,
        stalled: stalls.total() + failing_took,
    })
}

/// Sends requests until it is told to end. Also tells how late it was at worst with one.
async fn load(clients: Clients, work: Duration, ended: watch::Receiver<bool>) -> (Vec<Sample>, Duration) {
    let (clients, query) = (Arc::new(clients), format!("work={}", work.as_millis()));
    let mut running = JoinSet::new();
    let mut ticks = tokio::time::interval(SPACING);
    let mut late = Duration::ZERO;
    for method in [Method::GET, Method::POST].into_iter().cycle() {
        late = late.max(ticks.tick().await.elapsed());
        if *ended.borrow() {
            break;
        }
        let (clients, query) = (clients.clone(), query.clone());
        running.spawn(async move { clients.send(method, &query).await });
    }
    (running.join_all().await, late)
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |length: Duration| length.as_secs_f64() * 1e3;
        write!(
            f,
            "{:<11} {:<5} {:>4} ms of work: GET {} failed of {}, worst {:.0} ms; POST {} failed of {} ({} ran there), worst {:.0} ms, \
             the last sent {:.0} ms after; streams elsewhere {} of {} whole; the one there ended {}; requests were at most {:.0} ms late, \
             threads stalled {:.0} ms",
            format!("{:?}", self.plan.fault),
            format!("{:?}", self.plan.protocol),
            self.plan.work.as_millis(),
            self.gets_failed,
            self.gets,
            ms(self.get_worst),
            self.posts_failed,
            self.posts,
            self.posts_in_flight,
            ms(self.post_worst),
            ms(self.last_failed_sent),
            self.streams_whole,
            self.streams,
            self.stream_broken.map_or("whole".to_owned(), |after| format!("after {:.0} ms", ms(after))),
            ms(self.late),
            ms(self.stalled),
        )
    }
}
