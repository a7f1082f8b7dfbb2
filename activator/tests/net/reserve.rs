//! Reserved connections: while clients have all their connections, requests for the activator itself get responses.

use crate::rig::{self, Rig, patient, read_to_end, write};
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
const REQUEST: &str = "GET / HTTP/1.1\r\nhost: app.ns\r\n\r\n";

/// Starts an activator for `connections` connections, each with a held request.
async fn full(connections: usize) -> (Rig, Vec<TcpStream>) {
    let rig = Rig::start_with(|options| options.clients.bounds.connections = connections).await;
    rig.revision(|_| {}).await;
    let mut held = Vec::new();
    for _ in 0..connections {
        let mut client = rig.raw().await;
        write(&mut client, REQUEST).await;
        held.push(client);
    }
    let all = u32::try_from(connections).expect("a few");
    rig.until(|load| load.queued == all).await;
    (rig, held)
}

/// Sends a request and returns everything until the connection is closed.
async fn answer(rig: &Rig, request: &str) -> String {
    let mut client = rig.raw().await;
    write(&mut client, request).await;
    read_to_end(&mut client).await
}

/// Goal: if all connections are taken, probes of every kind get responses, over both protocols, and an ordinary request
/// gets an error with the reason; as soon as there is room, it is served.
#[tokio::test]
async fn without_room_probes_are_answered_and_requests_are_not() {
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
    assert_eq!(rig::Answer::read(answered).await.body, "activator");
    rig::until(|| probe.is_closed()).await;

    let refused = answer(&rig, REQUEST).await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("\r\nx-zeroscale-reason: max-connections\r\n"), "{refused}");
    assert!(refused.contains("4 connections"), "it names the bound: {refused}");
    rig.until(|load| load.queued == 4).await;
    drop(held);
    let pod = rig::Pod::saying("hello").await;
    rig.pods(&[pod.address]).await;
    rig.until(|load| load.queued == 0).await;
    let last = REQUEST.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    rig::until_async(async || answer(&rig, &last).await.ends_with("hello")).await;
}

/// Goal: a peer that exhausts the reserve as well does not affect probes from other addresses. Method: two peers open
/// connections as fast as they can, and send nothing; meanwhile an autoscaler probes. A single failed probe is
/// tolerated on a busy machine, as in our own manifests.
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
    // One probe may be late because the machine stalls, and so may the next.
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
