//! Pods in this process that count their concurrent requests.
//!
//! Each request takes the configured time, whatever the machine does. A request whose client has disconnected has
//! ended. The sender of the next request may know that before the pod does, since a thread that reads sockets may be
//! late. So a request that was cancelled at most [`NOTICED_WITHIN`] after another request's arrival is not concurrent
//! with it.
//!
//! The pods respond to an activator's probes like a queue-proxy, and do not count them.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Longest time until a pod notices that its client has disconnected.
const NOTICED_WITHIN: Duration = Duration::from_millis(100);

/// Some pods. Dropping them closes all their connections.
pub struct CountingPods {
    pods: Vec<Pod>,
    _serving: JoinSet<()>,
}

#[derive(Clone)]
struct Pod {
    address: SocketAddr,
    work: Duration,
    activity: Arc<Mutex<PodActivity>>,
}

#[derive(Default)]
struct PodActivity {
    arrived: u64,
    done: u64,
    running: BTreeSet<u64>,
    /// Time of each arrival during other requests, with all requests that ran then, including the new one.
    concurrent: Vec<(Instant, BTreeSet<u64>)>,
    /// Time at which each cancelled request ended.
    cancelled: BTreeMap<u64, Instant>,
}

impl CountingPods {
    /// Starts one pod at each address; each request takes `work`.
    pub async fn start(addresses: &[SocketAddr], work: Duration) -> anyhow::Result<Self> {
        let (mut pods, mut serving) = (Vec::new(), JoinSet::new());
        for address in addresses {
            let pod = Pod { address: *address, work, activity: Arc::default() };
            serving.spawn(serve(TcpListener::bind(address).await?, pod.clone()));
            pods.push(pod);
        }
        Ok(Self { pods, _serving: serving })
    }

    /// Returns the pods' addresses.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.pods.iter().map(|pod| pod.address).collect()
    }

    /// Returns the number of requests that each pod has responded to.
    pub fn served(&self) -> Vec<u64> {
        self.pods.iter().map(|pod| pod.activity().done).collect()
    }

    /// Returns the maximum concurrency of any pod.
    pub fn most(&self) -> usize {
        self.pods.iter().map(|pod| pod.activity().most()).max().unwrap_or(0)
    }
}

impl Pod {
    fn activity(&self) -> MutexGuard<'_, PodActivity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let agent = request.headers().get("user-agent").and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        if agent.starts_with("Knative-Activator-Probe") {
            return Response::new(Full::from("queue"));
        }
        let mut counted = Counted::begin(self);
        tokio::time::sleep(self.work).await;
        counted.is_done = true;
        Response::new(Full::from("done"))
    }
}

impl PodActivity {
    fn most(&self) -> usize {
        let stayed = |at: Instant, n: &u64| self.cancelled.get(n).is_none_or(|end| *end > at + NOTICED_WITHIN);
        let counts = self.concurrent.iter().map(|(at, all)| all.iter().filter(|n| stayed(*at, n)).count());
        counts.max().unwrap_or(0).max(usize::from(self.arrived > 0))
    }
}

/// Running request, until it is dropped.
struct Counted<'a> {
    pod: &'a Pod,
    number: u64,
    is_done: bool,
}

impl<'a> Counted<'a> {
    fn begin(pod: &'a Pod) -> Self {
        let mut activity = pod.activity();
        activity.arrived += 1;
        let number = activity.arrived;
        activity.running.insert(number);
        if activity.running.len() > 1 {
            let all = activity.running.clone();
            activity.concurrent.push((Instant::now(), all));
        }
        Self { pod, number, is_done: false }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut activity = self.pod.activity();
        activity.running.remove(&self.number);
        if self.is_done {
            activity.done += 1;
        } else {
            activity.cancelled.insert(self.number, Instant::now());
        }
    }
}

async fn serve(listener: TcpListener, pod: Pod) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(connection(stream, pod.clone()));
    }
}

async fn connection(stream: TcpStream, pod: Pod) {
    let _ = stream.set_nodelay(true); // Fails if it is already closed.
    let service = hyper::service::service_fn(move |request| {
        let pod = pod.clone();
        async move { Ok::<_, Infallible>(pod.answer(request).await) }
    });
    // The client may disconnect at any time.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// Raises a count until it is dropped.
pub struct CountGuard<'a>(&'a AtomicUsize);

impl<'a> CountGuard<'a> {
    /// Raises the count.
    pub fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: concurrent requests are counted, except those that were cancelled when another one arrived.
    #[tokio::test]
    async fn a_request_cancelled_as_another_arrives_is_not_concurrent_with_it() {
        let pod = Pod { address: ([127, 0, 0, 1], 1).into(), work: NOTICED_WITHIN, activity: Arc::default() };
        let begin = || Counted::begin(&pod);
        let (first, second) = (begin(), begin());
        assert_eq!(pod.activity().most(), 2);
        drop(first);
        assert_eq!(pod.activity().most(), 1, "it was cancelled");
        let mut third = begin();
        third.is_done = true;
        drop((second, third));
        assert_eq!(pod.activity().most(), 1);
        assert_eq!(pod.activity().done, 1);
        let (mut first, second) = (begin(), begin());
        first.is_done = true;
        drop((first, second));
        assert_eq!(pod.activity().most(), 1, "one of both was cancelled");
        let mut both = [begin(), begin()];
        both.iter_mut().for_each(|one| one.is_done = true);
        drop(both);
        assert_eq!(pod.activity().most(), 2);
    }
}
