//! Several activators with the same pods: each pod has one limit for all activators, and requests are served while
//! activators come and go.

use crate::rig::{Pod, Rig, ask, backend, full, key, own_address, until};
use activator::discovery::{Activators, Event, Spec};
use activator_core::holders::shards::holders;
use common::backend::Backend;
use http::{Request, Response};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Pod that counts its concurrent requests.
pub(crate) struct Counting {
    pub(crate) pod: Pod,
    peak: Arc<AtomicUsize>,
}

/// Duration of a request.
const WORK: Duration = Duration::from_millis(50);

impl Counting {
    pub(crate) async fn start() -> Self {
        let (running, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counts = (running, peak.clone());
        let pod = Pod::start(move |_| {
            let (running, peak) = counts.clone();
            async move {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                peak.fetch_max(now, Ordering::SeqCst);
                // Dropped if the client disconnects.
                let _counted = Counted(running);
                sleep(WORK).await;
                Response::new(full("done"))
            }
        })
        .await;
        Self { pod, peak }
    }

    pub(crate) async fn start_many(count: usize) -> Vec<Self> {
        futures::future::join_all((0..count).map(|_| Self::start())).await
    }
}

/// Checks that each pod had a request, and never two at once.
pub(crate) fn assert_limit_of_one(pods: &[Counting]) {
    assert!(pods.iter().all(|counting| counting.peak.load(Ordering::SeqCst) == 1), "no pod runs two at once");
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Starts one of several activators, with its own address.
pub(crate) async fn activator(at: SocketAddr) -> Rig {
    Rig::start_with(|options| {
        options.pod_ip = at.ip();
        options.http1 = at;
        // Long enough for the others to take over.
        options.linger = Duration::from_secs(2);
    })
    .await
}

/// Sends the list of activators, all of them ready.
pub(crate) async fn list(rig: &Rig, all: &[SocketAddr]) {
    siblings(rig, all.iter().map(|at| (*at, true)).collect()).await;
}

/// Sends the list of activators, and whether each is ready, as from EndpointSlices.
async fn siblings(rig: &Rig, all: Vec<(SocketAddr, bool)>) {
    rig.emit(Event::Siblings(Activators { all, includes_terminating: true })).await;
}

async fn serve(rig: &Rig, limit: u32, pods: &[Counting]) {
    let backend = Backend { container_concurrency: limit, ..backend("app") };
    rig.emit(Event::Revision(Arc::new(Spec::standalone("ns", "app", backend)))).await;
    rig.ready_pods(&pods.iter().map(|counting| counting.pod.address).collect::<Vec<_>>()).await;
}

/// Sends requests to one activator at regular intervals, each on its own connection. All must succeed.
async fn load(at: SocketAddr, every: Duration, count: u32) {
    let start = Instant::now();
    let requests = (0..count).map(|n| async move {
        tokio::time::sleep_until(start + every * n).await;
        let answer = ask(at, Request::get("/").header("host", "app.ns")).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    });
    futures::future::join_all(requests).await;
}

/// Returns two addresses; the activator at the first one holds `ns/app`.
pub(crate) fn holder_first() -> [SocketAddr; 2] {
    let mut all = [own_address(), own_address()];
    let peers = all.map(|at| at.ip());
    if holders(key("app").as_str(), &peers, 1)[0] != peers[0] {
        all.reverse();
    }
    all
}

/// Goal: if the holder of the pods is killed under load, only its own requests may fail, no pod exceeds its limit, and
/// the other activator soon has all pods. Method: a load at the other activator, whose requests are relayed,
/// and enough requests at the holder to keep its pods busy until long after the takeover.
#[tokio::test]
async fn only_requests_at_a_killed_holder_fail() {
    let [a, b] = holder_first();
    let (first, second) = (activator(a).await, activator(b).await);
    let pods = Counting::start_many(4).await;
    for rig in [&first, &second] {
        // Revisions may be listed before activators.
        serve(rig, 1, &pods).await;
        list(rig, &[a, b]).await;
    }
    until(|| first.activator.shares_pods() && second.activator.shares_pods()).await;
    load(a, Duration::from_millis(1), 1).await;
    load(b, Duration::from_millis(1), 1).await;
    let every = Duration::from_millis(20);
    let at_holder: Vec<_> = (0..200).map(|_| tokio::spawn(load(a, every, 1))).collect();
    let ending = async {
        first.until(|load| load.queued > 100).await;
        drop(first);
        sleep(Duration::from_millis(300)).await;
        list(&second, &[b]).await;
    };
    tokio::join!(load(b, every, 200), ending);
    until(|| !second.activator.shares_pods()).await;
    load(b, every, 20).await;
    at_holder.iter().for_each(tokio::task::JoinHandle::abort);
    assert_limit_of_one(&pods);
}

/// Goal: an activator that was alone continues when a second one starts, and again when that one shuts down. Every
/// request succeeds, and no pod ever exceeds its limit.
#[tokio::test]
async fn a_second_activator_starts_and_stops_under_load() {
    let (a, b) = (own_address(), own_address());
    let first = activator(a).await;
    let pods = Counting::start_many(3).await;
    list(&first, &[a]).await;
    serve(&first, 1, &pods).await;
    load(a, Duration::from_millis(1), 1).await;
    assert!(!first.activator.shares_pods(), "it is alone");
    let coming = async {
        // A Service lists it before it is ready.
        siblings(&first, vec![(a, true), (b, false)]).await;
        let second = activator(b).await;
        siblings(&second, vec![(a, true), (b, false)]).await;
        serve(&second, 1, &pods).await;
        until(|| first.activator.shares_pods() && second.activator.shares_pods()).await;
        list(&first, &[a, b]).await;
        list(&second, &[a, b]).await;
        load(b, Duration::from_millis(50), 40).await;
        let unlisted = async {
            sleep(Duration::from_millis(100)).await;
            list(&first, &[a]).await;
        };
        tokio::join!(second.activator.stop(), unlisted);
        until(|| !first.activator.shares_pods()).await;
    };
    tokio::join!(load(a, Duration::from_millis(40), 150), coming);
    assert_limit_of_one(&pods);
}
