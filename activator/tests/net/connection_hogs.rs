//! Clients that take all connections, at the port of one workload or at the shared port: others are still served.

use crate::ports::{FIRST, held_number, id, ledger, port, spec};
use crate::rig::{self, Pod, Rig, key, own_address, patient, read_to_end, write};
use activator::discovery::{Event, Spec};
use common_api::zeroscaler::PortProtocol;
use http::Request;
use http_body_util::Empty;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

/// Maximum number of connections.
const ROOM: usize = 60;

/// Bound for the 99th percentile of the other clients' latency, on a machine that runs other tests as well. `faults
/// flood` has the real bound.
const P99_MAX: Duration = Duration::from_secs(1);

/// First bytes and destination of an attacker's connections.
struct Attack {
    name: &'static str,
    /// Port of the workload; `None` for the shared one.
    port: Option<u16>,
    sends: &'static str,
}

const TCP: u16 = FIRST;
const AUTO: u16 = FIRST + 1;
const OTHER: u16 = FIRST + 2;

const ATTACKS: [Attack; 6] = [
    Attack { name: "idle connections to its own tcp port", port: Some(TCP), sends: "" },
    Attack { name: "connections with a byte to its own tcp port", port: Some(TCP), sends: "x" },
    Attack { name: "slow heads on its own port", port: Some(AUTO), sends: "GET / HTTP/1.1\r\nhost: a" },
    Attack { name: "requests that are held", port: Some(AUTO), sends: "GET / HTTP/1.1\r\nhost: a\r\n\r\n" },
    Attack { name: "silence on the shared port", port: None, sends: "" },
    Attack { name: "requests that are held, on the shared port", port: None, sends: rig::GET },
];

/// Starts an activator with room for few connections; `ns/app` sleeps, `ns/other` has a pod.
async fn start_rig() -> (Rig, IpAddr, Pod) {
    let ip = own_address().ip();
    let rig = Rig::start_with(|options| {
        options.http1 = SocketAddr::new(ip, 0);
        options.clients.bounds.connections = ROOM;
    })
    .await;
    let (tcp, auto, http) = (id("tcp", 1), id("auto", 2), id("http", 80));
    for (name, ports) in [
        ("app", vec![port(&tcp, PortProtocol::Tcp), port(&auto, PortProtocol::Auto)]),
        ("other", vec![port(&http, PortProtocol::Auto)]),
    ] {
        rig.emit(Event::Revision(Arc::new(Spec { ports: ports.into(), ..spec(name, &[]) }))).await;
    }
    let lines = [(TCP, "app", tcp), (AUTO, "app", auto), (OTHER, "other", http)];
    ledger(&rig, &lines.map(|(number, name, id)| held_number(number, name, id))).await;
    let pod = Pod::saying("hello").await;
    rig.pods_of("other", &[pod.address]).await;
    rig::until(|| rig.activator.load(&key("other")).is_some_and(|load| load.capacity.permits() > 0)).await;
    (rig, ip, pod)
}

async fn connect_from(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}

/// Sends requests to `ns/other`, each on its own connection, alternating between the shared port and its own. Returns
/// their durations.
async fn others(rig: &Rig, ip: IpAddr, from: Ipv4Addr, number: usize) -> Vec<Duration> {
    let request = "GET / HTTP/1.1\r\nhost: other.ns\r\nconnection: close\r\n\r\n";
    let mut times = Vec::new();
    for n in 0..number {
        let to = if n % 2 == 0 { rig.address } else { SocketAddr::new(ip, OTHER) };
        let begun = Instant::now();
        let mut client = patient(connect_from(from, to)).await.expect("connected");
        write(&mut client, request).await;
        let answer = read_to_end(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hello"), "{answer}");
        times.push(begun.elapsed());
    }
    times
}

/// Goal: while one client opens up to twice as many connections as there may be, and uses them in any way, requests to
/// another workload and probes all get timely responses. This holds even if both come from one address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_workloads_are_served_while_one_client_takes_all_connections() {
    for from in [Ipv4Addr::new(127, 0, 0, 7), Ipv4Addr::new(127, 0, 0, 9)] {
        for attack in &ATTACKS {
            let (rig, ip, _pod) = start_rig().await;
            let to = attack.port.map_or(rig.address, |port| SocketAddr::new(ip, port));
            let mut taken = Vec::new();
            let mut open = async |number: usize| {
                for _ in 0..number {
                    // It may be closed at once.
                    let Ok(mut client) = patient(connect_from(Ipv4Addr::new(127, 0, 0, 9), to)).await else { continue };
                    let _ = tokio::io::AsyncWriteExt::write_all(&mut client, attack.sends.as_bytes()).await;
                    taken.push(client);
                }
            };
            let mut times = Vec::new();
            for _ in 0..4 {
                open(ROOM / 2).await;
                times.extend(others(&rig, ip, from, 25).await);
                let probe = "GET / HTTP/1.1\r\nhost: x\r\nuser-agent: kube-probe/1.34\r\nconnection: close\r\n\r\n";
                let answer = read_to_end(&mut rig.send_raw(probe).await).await;
                assert!(answer.starts_with("HTTP/1.1 200 "), "{}: {answer}", attack.name);
            }
            times.sort_unstable();
            let p99 = times[times.len() * 99 / 100 - 1];
            assert!(p99 < P99_MAX, "{}: {times:?}", attack.name);
        }
    }
}

/// Goal: if clients have all connections, probes of every kind get responses, over both protocols, and an ordinary
/// request gets an error with the reason. As soon as a connection is free, requests are served.
#[tokio::test]
async fn without_free_connections_only_probes_are_served() {
    const KUBELET: &str = "GET / HTTP/1.1\r\nhost: x\r\nuser-agent: kube-probe/1.34\r\n\r\n";
    const AUTOSCALER: &str = "GET /healthz HTTP/1.1\r\nhost: app.ns\r\nk-network-probe: activator\r\n\r\n";
    let rig = Rig::with_options(|options| options.clients.bounds.connections = 4, |_| {}).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(rig.send_raw(rig::GET).await);
    }
    rig.until(|load| load.queued == 4).await;
    let ask = async |request: &str| read_to_end(&mut rig.send_raw(request).await).await;
    for _ in 0..200 {
        for (probe, end) in [(KUBELET, "\r\n\r\n"), (AUTOSCALER, "\r\n\r\nactivator")] {
            let answer = ask(probe).await;
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(end), "{answer}");
        }
    }
    let mut probe = rig::http2_client(rig.address).await;
    let request = Request::get("http://app.ns/healthz").header("k-network-probe", "activator");
    let request = request.body(Empty::<bytes::Bytes>::new()).expect("a request");
    assert_eq!(rig::FullResponse::receive(probe.send_request(request)).await.body, "activator");
    rig::until(|| probe.is_closed()).await;

    let refused = ask(rig::GET).await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("\r\nx-zeroscale-reason: max-connections\r\n"), "{refused}");
    assert!(refused.contains("4 connections"), "the bound is named: {refused}");
    rig.until(|load| load.queued == 4).await;
    drop(held);
    let _pod = rig.only_pod(Pod::saying("hello").await).await;
    rig.until(|load| load.queued == 0).await;
    let last = rig::GET.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    rig::until_async(async || ask(&last).await.ends_with("hello")).await;
}
