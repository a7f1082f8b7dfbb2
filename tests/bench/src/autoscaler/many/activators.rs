//! Simulated activators: they answer queries about bound port numbers and send stats, but bind only the port for these
//! queries. Thus thirty thousand workloads are possible even if a process may not have a descriptor for each.
//!
//! An activator reports the numbers of the ledger as bound once they are written. After its start, it reports the
//! existing ones one after the other within [`BINDING`]. Once per second it sends an attestation, and the load of the
//! busy workloads that are routed to it and of those with waiting requests.

use super::super::wake::stat_socket;
use super::BUSY;
use super::cluster_watch::ClusterWatch;
use crate::fleet::namespace_of;
use anyhow::Context;
use bytes::Bytes;
use common::bound_ports::{BoundPort, BoundPorts, QUESTION, Question};
use common::names;
use common::stat::{Stat, WireStatMessage, WireStatMessages};
use futures::{SinkExt, StreamExt};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tokio_tungstenite::tungstenite::Message;

/// Time from an activator's start until it reports the last number as bound.
const BINDING: Duration = Duration::from_secs(1);

/// Interval between two frames of an activator.
const SECOND: Duration = Duration::from_secs(1);

/// Time between two attempts to connect.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Maximum number of first signals that wait to be sent.
const SIGNALS: usize = 256;

/// Requests in flight that an activator reports for a workload. The sum over all activators requires one pod.
const LOAD: f64 = 1.0;

/// Listening activators, with their start times.
#[derive(Default)]
pub(super) struct Listeners {
    since: Mutex<BTreeMap<IpAddr, Instant>>,
}

impl Listeners {
    /// Returns true if the activator at `address` reports a number of the ledger as bound.
    pub(super) fn is_bound(&self, address: IpAddr, number: u16, now: Instant) -> bool {
        let since = self.since.lock().expect("no panic").get(&address).copied();
        since.is_some_and(|since| now.saturating_duration_since(since) >= binding_delay(number))
    }
}

/// Returns the time from an activator's start until a number counts as bound. Consecutive numbers are scattered.
fn binding_delay(number: u16) -> Duration {
    BINDING * u32::from(number.wrapping_mul(40_503)) / 0x1_0000
}

pub(super) struct Activators {
    shared: Arc<SharedActivators>,
    running: BTreeMap<IpAddr, JoinSet<()>>,
    /// Number of activators ever started.
    started: u32,
}

struct SharedActivators {
    cluster: Arc<ClusterWatch>,
    listeners: Arc<Listeners>,
    /// Autoscaler to which stats are sent.
    stats: watch::Sender<Option<SocketAddr>>,
    /// Signals that a workload has its first waiting request at an activator.
    signals: broadcast::Sender<(IpAddr, String)>,
    /// All workloads with waiting requests, and their activators.
    requests: Mutex<BTreeSet<(IpAddr, String)>>,
    /// Number below which busy workloads have load.
    busy_below: watch::Sender<u32>,
}

impl Activators {
    pub(super) fn new(cluster: Arc<ClusterWatch>, listeners: Arc<Listeners>) -> Self {
        let shared = SharedActivators {
            cluster,
            listeners,
            stats: watch::Sender::new(None),
            signals: broadcast::Sender::new(SIGNALS),
            requests: Mutex::default(),
            busy_below: watch::Sender::new(0),
        };
        Self { shared: Arc::new(shared), running: BTreeMap::new(), started: 0 }
    }

    /// Starts an activator.
    pub(super) async fn start(&mut self, address: IpAddr) -> anyhow::Result<()> {
        let at = SocketAddr::new(address, names::ACTIVATOR_HTTP1_PORT);
        let listener = TcpListener::bind(at).await.with_context(|| at.to_string())?;
        let (name, instance) = (format!("activator-{}", self.started), format!("bench-{}", self.started));
        self.started += 1;
        self.shared.listeners.since.lock().expect("no panic").insert(address, Instant::now());
        let mut tasks = JoinSet::new();
        tasks.spawn(answer(listener, address, name, instance, self.shared.clone()));
        tasks.spawn(report(address, self.shared.clone()));
        self.running.insert(address, tasks);
        Ok(())
    }

    /// Ends an activator with all of its connections.
    pub(super) fn end(&mut self, address: IpAddr) {
        self.running.remove(&address);
        self.shared.listeners.since.lock().expect("no panic").remove(&address);
    }

    /// Makes all activators send their stats to `autoscaler` from now on.
    pub(super) fn report_to(&self, autoscaler: SocketAddr) {
        self.shared.stats.send_replace(Some(autoscaler));
    }

    /// Gives load to the busy workloads with a number below `below` from now on.
    pub(super) fn set_busy(&self, below: u32) {
        self.shared.busy_below.send_replace(below);
    }

    /// Simulates a request that waits for a sleeping workload, at an activator to which the workload is routed. Returns
    /// the time of the signal.
    pub(super) fn add_request(&self, workload: &str) -> anyhow::Result<Instant> {
        let routes = self.shared.cluster.state().activators_of(workload);
        let at = routes.into_iter().next().with_context(|| format!("{workload} is routed to no activator"))?;
        self.shared.requests.lock().expect("no panic").insert((at, workload.to_owned()));
        let begin = Instant::now();
        // An activator without a link reports the request once it is connected.
        let _ = self.shared.signals.send((at, workload.to_owned()));
        Ok(begin)
    }

    /// Ends all waiting requests.
    pub(super) fn end_requests(&self) {
        self.shared.requests.lock().expect("no panic").clear();
    }
}

/// Responds to probes and port queries forever.
async fn answer(listener: TcpListener, address: IpAddr, name: String, instance: String, shared: Arc<SharedActivators>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let (name, instance, shared) = (name.clone(), instance.clone(), shared.clone());
                let answer = service_fn(move |request: Request<Incoming>| {
                    let body = shared.response(address, &name, &instance, &request);
                    async move { Ok::<_, Infallible>(Response::new(Full::new(body))) }
                });
                let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
                connections.spawn(async move { drop(connection.await) });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

impl SharedActivators {
    /// Returns the response to a port query, or an empty one to other requests.
    fn response(&self, address: IpAddr, pod: &str, instance: &str, request: &Request<Incoming>) -> Bytes {
        let question = request.headers().get(QUESTION).and_then(|value| Question::parse(value.to_str().ok()?).ok());
        let Some(question) = question else { return Bytes::new() };
        let now = Instant::now();
        let state = self.cluster.state();
        let requested: Vec<(u16, &Arc<str>)> = match question {
            Question::All => state.numbers().collect(),
            Question::Numbers(numbers) => {
                numbers.into_iter().filter_map(|number| Some((number, state.owner(number)?))).collect()
            }
        };
        let bound = requested.into_iter().filter(|(number, _)| self.listeners.is_bound(address, *number, now));
        let row = |(number, uid): (u16, &Arc<str>)| BoundPort {
            number,
            uid: uid.to_string(),
            closing: false,
            in_use: false,
            error: None,
        };
        let ports = BoundPorts { instance: instance.to_owned(), pod: pod.to_owned(), ports: bound.map(row).collect() };
        serde_json::to_vec(&ports).unwrap_or_default().into()
    }

    /// Returns the frame that the activator at `address` sends once per second.
    fn frame(&self, address: IpAddr) -> Bytes {
        let below = *self.busy_below.borrow();
        let is_busy = |workload: &str| {
            let number = workload.strip_prefix(BUSY).and_then(|rest| rest.strip_prefix('-')?.parse::<u32>().ok());
            number.is_some_and(|number| number < below)
        };
        let mut messages = vec![common::wire::attestation(e2e::bare::SYSTEM, &address.to_string())];
        // The entries are created after the lock on the state is released.
        let busy: Vec<String> =
            self.cluster.state().workloads_of(address).filter(|name| is_busy(name)).map(str::to_owned).collect();
        messages.extend(busy.iter().map(|name| entry(address, name)));
        let requests = self.requests.lock().expect("no panic");
        messages.extend(requests.iter().filter(|(at, _)| *at == address).map(|(_, name)| entry(address, name)));
        common::wire::encode(&WireStatMessages { messages }).into()
    }
}

fn entry(address: IpAddr, workload: &str) -> WireStatMessage {
    let stat = Stat {
        pod_name: address.to_string(),
        average_concurrent_requests: LOAD,
        request_count: LOAD,
        ..Stat::default()
    };
    let (namespace, name) = (namespace_of(workload), workload.to_owned());
    WireStatMessage { namespace, name, stat: Some(stat), ..WireStatMessage::default() }
}

/// Sends stats forever, to the current autoscaler.
async fn report(address: IpAddr, shared: Arc<SharedActivators>) {
    let mut stats = shared.stats.subscribe();
    loop {
        let to = *stats.borrow_and_update();
        tokio::select! {
            _ = stats.changed() => {}
            // If the autoscaler is gone or not there yet, the link is retried.
            _ = link(address, to, &shared) => sleep(RETRY_AFTER).await,
        }
    }
}

/// Returns the offset within a second at which an activator sends its frames. It differs between activators, as for
/// processes that started at different times.
fn phase(address: IpAddr) -> Duration {
    let last = match address {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(ip) => ip.octets()[15],
    };
    SECOND / 4 * u32::from(last % 4)
}

/// Sends stats until the connection ends.
async fn link(address: IpAddr, to: Option<SocketAddr>, shared: &SharedActivators) -> anyhow::Result<()> {
    let mut signals = shared.signals.subscribe();
    let mut socket = stat_socket(to.context("no autoscaler yet")?).await?;
    socket.send(Message::Binary(shared.frame(address))).await?;
    let mut seconds = interval_at(Instant::now() + SECOND + phase(address), SECOND);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            signal = signals.recv() => {
                if let Ok((at, workload)) = signal && at == address {
                    let messages = vec![entry(address, &workload)];
                    socket.send(Message::Binary(common::wire::encode(&WireStatMessages { messages }).into())).await?;
                }
            }
            _ = seconds.tick() => socket.send(Message::Binary(shared.frame(address))).await?,
            message = socket.next() => drop(message.context("closed")??),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an activator has bound nothing before its start, half of the numbers after half of `BINDING`, then all.
    #[test]
    fn numbers_are_bound_one_after_another() {
        let (listeners, address, start) = (Listeners::default(), IpAddr::from([127, 0, 0, 9]), Instant::now());
        assert!(!listeners.is_bound(address, 20_000, start + BINDING));
        listeners.since.lock().expect("no panic").insert(address, start);
        let bound =
            |after: Duration| (20_000..30_000).filter(|n| listeners.is_bound(address, *n, start + after)).count();
        let half = bound(BINDING / 2);
        assert!((4_900..5_100).contains(&half), "{half}");
        assert_eq!(bound(BINDING), 10_000);
    }
}
