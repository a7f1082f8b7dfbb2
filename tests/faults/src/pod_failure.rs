//! Effects on requests if one of three pods fails under load.
//!
//! The load is 100 requests per second, evenly spaced, GET and POST in turn, each with 50 ms of work, and a stream of
//! parts on every pod. Then one pod fails while the load continues. If each request works longer than the warm-up
//! lasts, no connection is idle at the failure, all sent bytes are acknowledged, and every later request needs a new
//! connection.
//!
//! A request's time starts when the request was sent or the pod failed, whichever is later, and excludes the work of a
//! response. Worst times of upstream in the same arrangement: 14.6 s with an unreachable pod, 29 s with a black hole.

use crate::pod::PodServer;
use crate::rig::{Rig, Sample, send};
use anyhow::Context;
use common::backend::Protocol;
use e2e::Load;
use e2e::netns::{self, Namespace, ip};
use e2e::stalls::Stalls;
use http::Method;
use std::fmt;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Interval between two requests.
const SPACING: Duration = Duration::from_millis(10);

/// Duration of the load before the failure.
const WARM_UP: Duration = Duration::from_secs(1);

/// Fault of a pod or of its cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The activator's end is deleted, and the route with it: connects fail at once.
    LinkGone,
    /// The pod's end is down: packets leave the activator and reach no pod.
    Unreachable,
    /// The pod's machine receives packets and drops them.
    BlackHole,
    /// The program is killed: its connections are reset, its port is closed.
    Reset,
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Fault of the pod.
    pub fault: Fault,
    /// Protocol of the pods.
    pub protocol: Protocol,
    /// Work of each request.
    pub work: Duration,
    /// Duration of the load after the failure.
    pub after: Duration,
}

/// Result of a run.
#[derive(Debug)]
pub struct Figures {
    plan: Plan,
    /// Number of GETs sent.
    pub gets: usize,
    /// Number of GETs without a 200 response.
    pub gets_failed: usize,
    /// Time of the slowest GET.
    pub get_worst: Duration,
    /// Number of POSTs sent.
    pub posts: usize,
    /// Number of POSTs without a 200 response.
    pub posts_failed: usize,
    /// Time of the slowest POST, failed ones included.
    pub post_worst: Duration,
    /// Time from the failure until the last failed request was sent.
    pub last_failed_sent: Duration,
    /// Number of POSTs that ran on the pod when it failed.
    pub posts_in_flight: usize,
    /// Number of failed requests whose response is missing or does not name the activator as its origin.
    pub unnamed: usize,
    /// Number of complete streams from the other pods.
    pub streams_whole: usize,
    /// Number of streams from the other pods.
    pub streams: usize,
    /// Time from the failure until the stream from the failed pod was broken off.
    pub stream_broken: Option<Duration>,
    /// Maximum delay of the load by the machine. It shows how busy the machine was with other work.
    pub late: Duration,
    /// Time that runnable threads had to wait after the failure.
    pub stalled: Duration,
}

/// Runs `plan` in its own network and on its own threads.
pub fn run(plan: Plan) -> anyhow::Result<Figures> {
    netns::run_in_new(move || under_load(plan))
}

async fn under_load(plan: Plan) -> anyhow::Result<Figures> {
    let mut pods = Vec::new();
    for number in 1..=3 {
        let namespace = Namespace::start()?;
        let address = netns::cable(number, &namespace)?;
        let pod = namespace.within(move || PodServer::start(address))?;
        pods.push((namespace, pod));
    }
    let rig = Rig::start(|backend| backend.protocol = plan.protocol).await?;
    let clients = Load::new(rig.activator.http1, "app.ns");

    // Each pod gets a stream while it is the only pod. Each stream outlasts the run.
    let parts = (WARM_UP + plan.after + 2 * plan.work).as_millis() / 100 + 30;
    let mut streams = Vec::new();
    for (_, pod) in &pods {
        rig.serve(&[pod.address]).await?;
        let before = pod.requests();
        let clients = clients.clone();
        streams.push(tokio::spawn(async move { send(&clients, Method::GET, &format!("drip={parts}")).await }));
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
    fail(plan.fault, 1, namespace)?;
    if plan.fault == Fault::Reset {
        failing.kill();
    }
    // On a busy machine it takes a while until the fault exists. Requests continue after it.
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

/// Breaks a cable. [`Fault::Reset`] leaves it intact.
fn fail(fault: Fault, number: u8, namespace: &Namespace) -> anyhow::Result<()> {
    match fault {
        Fault::LinkGone => ip(&format!("link del pod{number}")),
        Fault::Unreachable => namespace.within(|| ip("link set eth0 down")),
        // There is no route back: incoming packets have an unreachable source, so they are dropped before TCP sees
        // them.
        Fault::BlackHole => namespace.within(move || ip(&format!("route add blackhole 10.77.{number}.1/32"))),
        Fault::Reset => Ok(()),
    }
}

/// Sends requests until `ended` is true. Also returns the maximum delay of a request.
async fn load(clients: Load, work: Duration, ended: watch::Receiver<bool>) -> (Vec<Sample>, Duration) {
    let query = format!("work={}", work.as_millis());
    let mut running = JoinSet::new();
    let mut ticks = tokio::time::interval(SPACING);
    let mut late = Duration::ZERO;
    for method in [Method::GET, Method::POST].into_iter().cycle() {
        late = late.max(ticks.tick().await.elapsed());
        if *ended.borrow() {
            break;
        }
        let (clients, query) = (clients.clone(), query.clone());
        running.spawn(async move { send(&clients, method, &query).await });
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
