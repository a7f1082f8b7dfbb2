//! Reserved connections: while clients have all others, requests for the activator itself get responses.

use crate::rig::{self, GET, Rig, patient, read_to_end};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Default timeout of a probe (the kubelet's).
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

const KUBELET: &str = "GET / HTTP/1.1\r\nhost: x\r\nuser-agent: kube-probe/1.34\r\n\r\n";
const AUTOSCALER: &str = "GET /healthz HTTP/1.1\r\nhost: app.ns\r\nk-network-probe: activator\r\n\r\n";

/// Starts an activator for `connections` connections, each with a held request.
async fn full(connections: usize) -> (Rig, Vec<TcpStream>) {
    let rig = Rig::with_options(|options| options.clients.bounds.connections = connections, |_| {}).await;
    let mut held = Vec::new();
    for _ in 0..connections {
        held.push(rig.send_raw(GET).await);
    }
    let all = u32::try_from(connections).expect("a few");
    rig.until(|load| load.queued == all).await;
    (rig, held)
}

/// Sends a request and returns everything until the connection is closed.
async fn answer(rig: &Rig, request: &str) -> String {
    read_to_end(&mut rig.send_raw(request).await).await
}

/// Goal: if clients have all connections, probes of every kind get responses, over both protocols, and an ordinary
/// request gets an error with the reason. As soon as a connection is free, requests are served.
#[tokio::test]
async fn without_free_connections_only_probes_are_served() {
    let (rig, held) = full(4).await;
    for _ in 0..200 {
        for (probe, end) in [(KUBELET, "\r\n\r\n"), (AUTOSCALER, "\r\n\r\nactivator")] {
            let answer = answer(&rig, probe).await;
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(end), "{answer}");
        }
    }
    let mut probe = rig::http2_client(rig.address).await;
    let request = http::Request::get("http://app.ns/healthz").header("k-network-probe", "activator");
    let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).expect("a request");
    let answered = patient(probe.send_request(request)).await.expect("an answer");
    assert_eq!(rig::FullResponse::read(answered).await.body, "activator");
    rig::until(|| probe.is_closed()).await;

    let refused = answer(&rig, GET).await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("\r\nx-zeroscale-reason: max-connections\r\n"), "{refused}");
    assert!(refused.contains("4 connections"), "the bound is named: {refused}");
    rig.until(|load| load.queued == 4).await;
    drop(held);
    let _pod = rig.only_pod(rig::Pod::saying("hello").await).await;
    rig.until(|load| load.queued == 0).await;
    let last = GET.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    rig::until_async(async || answer(&rig, &last).await.ends_with("hello")).await;
}

/// Goal: peers that exhaust the reserved connections as well do not affect probes from other addresses. Method: two
/// peers open connections as fast as they can, and send nothing; meanwhile an autoscaler probes. A single failed probe
/// is tolerated on a busy machine, as in our own manifests.
#[tokio::test]
async fn a_flood_of_the_reserve_stops_no_probe() {
    let (rig, _held) = full(4).await;
    let (mut floods, opened) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for peer in [2, 3] {
        floods.spawn(flood(Ipv4Addr::new(127, 0, 0, peer), rig.address, opened.clone()));
    }
    rig::until(|| opened.load(Ordering::Relaxed) > 1000).await;
    let (mut in_a_row, mut times) = (0, Vec::new());
    for _ in 0..50 {
        let start = Instant::now();
        let answer = answer(&rig, AUTOSCALER).await;
        times.push(start.elapsed());
        in_a_row = if answer.starts_with("HTTP/1.1 200 ") { 0 } else { in_a_row + 1 };
        assert!(in_a_row < 2, "{answer}");
    }
    // A few probes may be late because the machine stalls.
    times.sort();
    assert!(times[times.len() / 2] < PROBE_TIMEOUT, "{times:?}");
    floods.shutdown().await;
}

/// Opens connections from `from` endlessly, and keeps the last few hundred.
async fn flood(from: Ipv4Addr, to: SocketAddr, opened: Arc<AtomicUsize>) {
    let mut silent = VecDeque::new();
    loop {
        let socket = TcpSocket::new_v4().expect("a socket");
        let is_bound = socket.bind(SocketAddr::new(from.into(), 0)).is_ok();
        if is_bound && let Ok(stream) = socket.connect(to).await {
            silent.push_back(stream);
            opened.fetch_add(1, Ordering::Relaxed);
        }
        if silent.len() > 400 {
            silent.pop_front();
        }
        tokio::task::yield_now().await;
    }
}
