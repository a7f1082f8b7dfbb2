//! Ports of workloads: connections that are passed on as bytes, from the sleeping workload to the last byte.

use crate::ports::{app_with, id, port};
use crate::rig::{
    PATIENCE, Pod, Rig, connect, connect_and_write, key, listen, patient, read_to_end, read_until, reset, until, write,
};
use crate::silence::silence;
use activator::discovery::Port;
use activator_core::breaker::Capacity;
use common::backend::{Backend, Probe, ProbeKind};
use common::stat::Observations;
use common_api::zeroscaler::PortProtocol;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn tcp() -> Port {
    port(&id("tcp", 5432), PortProtocol::Tcp)
}

fn auto() -> Port {
    Port { protocol: PortProtocol::Auto, ..tcp() }
}

async fn app<const N: usize>(ports: [Port; N], change: impl FnOnce(&mut Backend)) -> (Rig, [SocketAddr; N]) {
    app_with(|_| {}, ports, change).await
}

/// Connects, writes `text` and reads until `end`.
async fn exchange(address: SocketAddr, text: &str, end: &str) -> (TcpStream, String) {
    let mut client = connect_and_write(address, text).await;
    let answer = read_until(&mut client, end).await;
    (client, answer)
}

/// Starts a pod without HTTP that sends `greeting` to each client, and responds to each piece with its name and the
/// piece. Its requests are clients: connections that end without a byte are probes.
async fn program(name: &'static str, greeting: &'static str) -> Pod {
    program_on(listen().await, name, greeting)
}

fn program_on(listener: TcpListener, name: &'static str, greeting: &'static str) -> Pod {
    Pod::raw(listener, move |mut stream, clients| async move {
        let mut piece = vec![0; 4096];
        stream.write_all(greeting.as_bytes()).await?;
        let mut is_client = false;
        loop {
            let read = stream.read(&mut piece).await?;
            if read == 0 {
                return std::io::Result::Ok(());
            }
            clients.fetch_add(usize::from(!is_client), Ordering::SeqCst);
            is_client = true;
            stream.write_all(name.as_bytes()).await?;
            stream.write_all(&piece[..read]).await?;
        }
    })
}

async fn assert_reset(client: &mut TcpStream) {
    let read = patient(client.read(&mut [0; 16])).await;
    assert_eq!(read.expect_err("no orderly close").kind(), ErrorKind::ConnectionReset);
}

/// Goal: the first bytes of a client wake a workload. One request in progress is reported, and the bytes reach the pod
/// once it is ready. This holds for automatic ports and for TCP ports.
#[tokio::test]
async fn a_client_that_speaks_first_wakes_its_workload() {
    for port in [tcp(), auto()] {
        let (mut rig, [address]) = app([port], |_| {}).await;
        let mut client = connect(address).await;
        // PostgreSQL's SSLRequest.
        client.write_all(b"\x00\x00\x00\x08\x04\xd2\x16\x2f").await.expect("open");
        let message = rig.next_stat().await;
        assert_eq!((message.namespace.as_str(), message.name.as_str()), ("ns", "app"));
        let stat = message.stat.expect("a stat");
        assert_eq!((stat.average_concurrent_requests, stat.request_count), (1.0, 1.0));
        rig.until(|load| load.queued == 1).await;
        let pod = program("N", "").await;
        rig.pods(&[pod.address]).await;
        let mut answer = [0; 9];
        patient(client.read_exact(&mut answer)).await.expect("open");
        assert_eq!(&answer, b"N\x00\x00\x00\x08\x04\xd2\x16\x2f");
        let cold = patient(rig.cold_starts.recv()).await.expect("reported");
        assert_eq!(cold.key, key("app"));
        client.shutdown().await.expect("open");
        assert_eq!(read_to_end(&mut client).await, "");
        rig.until(|load| load.in_flight == 0 && load.queued == 0).await;
    }
}

/// Goal: a silent client wakes the workload once it has waited long enough. Ten that disconnect earlier do not.
#[tokio::test]
async fn a_client_that_waits_for_a_greeting_wakes_its_workload() {
    let slow = Port { id: id("slow", 3306), wake_after: Some(PATIENCE), ..tcp() };
    let (mut rig, [quick, slow]) = app([tcp(), slow], |_| {}).await;
    for _ in 0..10 {
        drop(connect(slow).await);
    }
    let mut client = connect(quick).await;
    rig.until(|load| load.queued == 1).await;
    // The signal, and the rest of the second in which it was sent.
    let mut counts = Vec::new();
    while counts.len() < 2 {
        counts.extend(patient(rig.stats.recv()).await.expect("the link stays up").stat.map(|stat| stat.request_count));
    }
    assert_eq!(counts, [1.0, 0.0], "only one client counts");
    let pod = program("", "5.7.44-log\n").await;
    rig.pods(&[pod.address]).await;
    assert_eq!(read_until(&mut client, "\n").await, "5.7.44-log\n");
}

/// Goal: a pod that refuses a connection is taken out of use, and no client is affected, because nothing was sent.
#[tokio::test]
async fn a_connection_that_is_refused_goes_to_the_next_pod() {
    let (rig, [address]) = app([tcp()], |_| {}).await;
    let (leaving, staying) = (program("leaving", "").await, program("staying", "").await);
    rig.pods(&[leaving.address, staying.address]).await;
    // Until both have passed their probes and are used.
    patient(async {
        while leaving.requests() == 0 || staying.requests() == 0 {
            exchange(address, "?", "?").await;
        }
    })
    .await;
    leaving.kill().await;
    for _ in 0..4 {
        assert_eq!(exchange(address, "?", "?").await.1, "staying?");
    }
}

/// Goal: a hard limit is a limit of connections per pod, and a waiting client is served when a connection ends.
#[tokio::test]
async fn a_hard_limit_limits_connections_per_pod() {
    let (rig, [address]) = app([tcp()], |backend| backend.container_concurrency = 1).await;
    let pods = [program("1", "").await, program("2", "").await];
    rig.pods(&pods.each_ref().map(|pod| pod.address)).await;
    let mut served = Vec::new();
    for _ in 0..2 {
        served.push(exchange(address, "a", "a").await);
    }
    let mut waiting = connect_and_write(address, "b").await;
    rig.until(|load| load.in_flight == 2 && load.queued == 1).await;
    let (leaving, from_its_pod) = served.pop().expect("two");
    assert_ne!(served[0].1, from_its_pod, "one on each pod");
    drop(leaving);
    assert_eq!(read_until(&mut waiting, "b").await, from_its_pod.replace('a', "b"), "on the free pod");
    drop((served, waiting));
    rig.until(|load| load.in_flight == 0).await;
}

/// Goal: beyond `maxHeld`, and after the timeout, a held connection is reset. If its client disconnects, its slot and
/// memory are freed. A connection that has a pod outlives the timeout.
#[tokio::test]
async fn a_connection_is_bounded_while_it_is_held() {
    let (rig, [address]) = app([tcp()], |backend| (backend.max_held, backend.wake_timeout_ms) = (1, 2_000)).await;
    let start = tokio::time::Instant::now();
    let mut first = connect_and_write(address, "1").await;
    rig.until(|load| load.queued == 1).await;
    until(|| rig.activator.held().0 == 1).await;
    let mut second = connect_and_write(address, "2").await;
    assert_reset(&mut second).await;
    assert_reset(&mut first).await;
    assert!(start.elapsed() >= Duration::from_secs(2));
    rig.until(|load| load.queued == 0).await;

    let client = connect_and_write(address, "query").await;
    rig.until(|load| load.queued == 1).await;
    reset(client);
    rig.until(|load| load.queued == 0 && load.in_flight == 0).await;
    until(|| rig.activator.held() == (0, 0)).await;

    let _pod = rig.only_pod(program("", "").await).await;
    rig.until_open().await;
    let (mut client, _) = exchange(address, "a", "a").await;
    tokio::time::sleep(Duration::from_millis(2_500)).await; // Longer than the timeout.
    write(&mut client, "b").await;
    read_until(&mut client, "b").await;
}

/// Goal: a port with another pod port is connected to that port. While the pod does not listen there, the client waits
/// and the pod stays in use.
#[tokio::test]
async fn a_connection_waits_until_its_pod_port_listens() {
    let own = program("", "").await;
    let late = listen().await.local_addr().expect("bound"); // Free again.
    let elsewhere = Port { id: id("late", 80), pod_port: Some(late.port()), ..tcp() };
    let probe = Probe { port: Some(own.address.port()), ..ProbeKind::Tcp.into() };
    let (rig, [first, second]) = app([tcp(), elsewhere], |backend| backend.probe = probe).await;
    rig.pods(&[own.address]).await;
    rig.until_open().await;
    let mut client = connect_and_write(second, "query").await;
    rig.until(|load| load.in_flight == 1).await;
    let _sibling = exchange(first, "a", "a").await;
    let _late = program_on(TcpListener::bind(late).await.expect("still free"), "late ", "");
    assert_eq!(read_until(&mut client, "query").await, "late query");
}

/// Goal: a pod with a port that a policy blocks stays in use, however long the port is tried. The client is reset in
/// the end. Method: the kernel drops all packets to the port's listener, including handshakes. The probe has another
/// port, which would see one more probe if the pod had been taken out of use.
#[tokio::test]
async fn a_blocked_pod_port_does_not_take_the_pod_out_of_use() {
    let own = program("", "").await;
    let blocked = std::net::TcpListener::bind((own.address.ip(), 0)).expect("a free port");
    silence(&blocked);
    let probed = listen().await;
    let probe = Probe { port: Some(probed.local_addr().expect("bound").port()), ..ProbeKind::Tcp.into() };
    let probes = Arc::new(AtomicUsize::new(0));
    let counted = probes.clone();
    tokio::spawn(async move {
        while probed.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let pod_port = Some(blocked.local_addr().expect("bound").port());
    let elsewhere = Port { id: id("blocked", 80), pod_port, ..tcp() };
    let (rig, [first, second]) = app([tcp(), elsewhere], |backend| backend.probe = probe).await;
    rig.pods(&[own.address]).await;
    rig.until_open().await;
    until(|| probes.load(Ordering::SeqCst) > 0).await;
    let before = probes.load(Ordering::SeqCst);
    // Success at the pod's own port does not affect the blocked port, nor failure there the own port.
    let _earlier = exchange(first, "a", "a").await;
    let begun = tokio::time::Instant::now();
    let mut client = connect_and_write(second, "query").await;
    assert_reset(&mut client).await;
    assert!(begun.elapsed() >= Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(probes.load(Ordering::SeqCst), before, "the pod was taken out of use");
    exchange(first, "a", "a").await;
}

#[tokio::test]
async fn a_probe_connection_does_not_block_a_pod_that_serves_one_client() {
    let (rig, [address]) = app([tcp()], |_| {}).await;
    let listener = listen().await;
    rig.pods(&[listener.local_addr().expect("bound")]).await;
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut piece = [0; 64];
            while let Ok(read @ 1..) = stream.read(&mut piece).await {
                stream.write_all(&piece[..read]).await.expect("open");
            }
        }
    });
    assert_eq!(exchange(address, "query", "query").await.1, "query");
    serving.abort();
}

/// Returns a port whose protocol is unknown, and not suggested by its number.
fn unknown() -> Port {
    Port { id: id("", 7000), ..auto() }
}

/// Waits until the activator reports a matching observation of `ns/app`.
async fn reported(rig: &mut Rig, wanted: impl Fn(&Observations) -> bool) {
    loop {
        let message = patient(rig.stats.recv()).await.expect("the link stays up");
        if message.observations.is_some_and(|observations| wanted(&observations)) {
            return;
        }
    }
}

/// Goal: if the protocol is unknown, a silent client does not wake the workload, and this is reported. Beside a pod
/// that speaks first it gets the greeting. From then on silent clients wake the workload.
#[tokio::test]
async fn a_port_whose_pod_speaks_first_is_learned() {
    let (mut rig, [address]) = app([unknown()], |_| {}).await;
    let mut silent = connect(address).await;
    let waits = tokio::time::timeout(Duration::from_millis(500), silent.read(&mut [0; 1])).await;
    assert!(waits.is_err() && rig.activator.load(&key("app")).is_none_or(|load| load.queued == 0));
    drop(silent);
    reported(&mut rig, |observed| observed.silent == [7000]).await;
    let pod = program("", "greeting").await;
    rig.pods(&[pod.address]).await;
    rig.until_open().await;
    let mut first = connect(address).await;
    read_until(&mut first, "greeting").await;
    reported(&mut rig, |observed| observed.pod_speaks_first == [7000]).await;
    drop(first);
    rig.pods(&[]).await;
    rig.until(|load| load.capacity == Capacity::CLOSED).await;
    let mut held = connect(address).await;
    rig.until(|load| load.queued == 1).await;
    rig.pods(&[pod.address]).await;
    read_until(&mut held, "greeting").await;
}

/// Goal: idle connections, which browsers open ahead of use, cost a pod one connection together. They can carry HTTP
/// later.
#[tokio::test]
async fn idle_connections_cost_one_pod_connection_and_can_carry_http() {
    let pod = Pod::saying("hello").await;
    let connections = || pod.connections.load(Ordering::SeqCst);
    let (rig, [address]) = app([unknown()], |_| {}).await;
    rig.pods(&[pod.address]).await;
    rig.until_open().await;
    let before = connections();
    let mut idle = Vec::new();
    for _ in 0..2 {
        for _ in 0..3 {
            idle.push(connect(address).await);
        }
        until(|| connections() == before + 1).await;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert_eq!(connections(), before + 1, "tried once");
    }
    for mut client in idle {
        write(&mut client, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        read_until(&mut client, "hello").await;
    }
}
