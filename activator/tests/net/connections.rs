//! Ports of workloads: connections that are passed on as bytes, from the sleeping workload to the last byte.

use crate::ports::{FIRST, id, ledger, port};
use crate::rig::{
    PATIENCE, Pod, Rig, backend, key, listen, own_address, patient, read_to_end, read_until, until, write,
};
use activator::discovery::{Event, Port, Spec};
use activator_core::breaker::Capacity;
use common::backend::{Backend, Probe, ProbeKind};
use common::ports::NumberState;
use common::stat::Observations;
use common_api::zeroscaler::PortProtocol;
use socket2::SockRef;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Returns a port for TCP.
fn tcp() -> Port {
    port(&id("tcp", 5432), PortProtocol::Tcp)
}

/// Returns a port for any protocol.
fn auto() -> Port {
    Port { protocol: PortProtocol::Auto, ..tcp() }
}

/// Starts an activator that knows `ns/app`, modified by `change`. Also returns the addresses of its ports.
async fn app<const N: usize>(ports: [Port; N], change: impl FnOnce(&mut Backend)) -> (Rig, [SocketAddr; N]) {
    let ip = own_address().ip();
    let rig = Rig::start_with(|options| options.http1 = SocketAddr::new(ip, 0)).await;
    let numbers: [u16; N] = std::array::from_fn(|n| FIRST + n as u16);
    let lines: Vec<_> =
        numbers.iter().zip(&ports).map(|(n, port)| (*n, "app", port.id.clone(), NumberState::Held)).collect();
    let mut backend = backend("app");
    change(&mut backend);
    let spec = Spec { uid: "u-app".into(), ports: ports.to_vec().into(), ..Spec::standalone("ns", "app", backend) };
    rig.tell(Event::Revision(Arc::new(spec))).await;
    ledger(&rig, &lines).await;
    (rig, numbers.map(|number| SocketAddr::new(ip, number)))
}

async fn connect(address: SocketAddr) -> TcpStream {
    patient(TcpStream::connect(address)).await.expect("connected")
}

/// Pod without HTTP. Connections that end without a byte are probes.
struct Program {
    address: SocketAddr,
    /// Number of clients that it serves now; `served` counts those of the past.
    serving: Arc<AtomicUsize>,
    served: Arc<AtomicUsize>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Program {
    /// Starts a program that sends `greeting` to each client, and responds to each piece with its name and the piece.
    async fn start(name: &'static str, greeting: &'static str) -> Self {
        Self::on(listen().await, name, greeting)
    }

    fn on(listener: TcpListener, name: &'static str, greeting: &'static str) -> Self {
        let address = listener.local_addr().expect("bound");
        let (serving, served) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counts = (serving.clone(), served.clone());
        let accepting = tokio::spawn(async move {
            let mut clients = tokio::task::JoinSet::new(); // Dropped with the pod: connections break.
            while let Ok((mut stream, _)) = listener.accept().await {
                let (serving, served) = counts.clone();
                clients.spawn(async move {
                    let mut piece = vec![0; 4096];
                    stream.write_all(greeting.as_bytes()).await?;
                    let mut is_client = false;
                    loop {
                        let read = stream.read(&mut piece).await?;
                        if !is_client && read > 0 {
                            is_client = true;
                            served.fetch_add(1, Ordering::SeqCst);
                            serving.fetch_add(1, Ordering::SeqCst);
                        }
                        if read == 0 {
                            serving.fetch_sub(usize::from(is_client), Ordering::SeqCst);
                            return std::io::Result::Ok(());
                        }
                        stream.write_all(name.as_bytes()).await?;
                        stream.write_all(&piece[..read]).await?;
                    }
                });
            }
        });
        Self { address, serving, served, accepting }
    }

    fn serving(&self) -> usize {
        self.serving.load(Ordering::SeqCst)
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }
}

async fn is_reset(client: &mut TcpStream) {
    let read = patient(client.read(&mut [0; 16])).await;
    assert_eq!(read.expect_err("not in order").kind(), ErrorKind::ConnectionReset);
}

/// Goal: the first bytes of a protocol in which the client speaks first wake a workload. One request in progress is
/// reported, and the bytes reach the pod once it is ready. This holds for automatic ports and for TCP ports.
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
        let pod = Program::start("N", "").await;
        rig.pods(&[pod.address]).await;
        let mut answer = [0; 9];
        patient(client.read_exact(&mut answer)).await.expect("open");
        assert_eq!(&answer, b"N\x00\x00\x00\x08\x04\xd2\x16\x2f");
        let cold = patient(rig.cold_starts.recv()).await.expect("told");
        assert_eq!(cold.key, key("app"));
        client.shutdown().await.expect("open");
        assert_eq!(read_to_end(&mut client).await, "");
        rig.until(|load| load.in_flight == 0 && load.queued == 0).await;
    }
}

/// Goal: a client that waits for the server's greeting wakes the workload once it has waited long enough; ten clients
/// that disconnect earlier do not.
#[tokio::test]
async fn a_client_that_waits_for_a_greeting_wakes_its_workload() {
    let patience = Port { id: id("slow", 3306), wake_after: Some(PATIENCE), ..tcp() };
    let (mut rig, [quick, slow]) = app([tcp(), patience], |_| {}).await;
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
    assert_eq!(counts, [1.0, 0.0], "others counted too");
    let pod = Program::start("", "5.7.44-log\n").await;
    rig.pods(&[pod.address]).await;
    assert_eq!(read_until(&mut client, "\n").await, "5.7.44-log\n");
}

/// Goal: bytes that a lenient server could take for HTTP, but we do not, are refused, and none of them reaches a pod.
#[tokio::test]
async fn a_port_that_carries_anything_passes_on_no_odd_http() {
    let (rig, [address]) = app([auto()], |_| {}).await;
    let pod = Program::start("", "").await;
    rig.pods(&[pod.address]).await;
    let lines: [&[u8]; 11] = [
        b"GET\x0b/\x0bHTTP/1.1",
        b"GET\x0c/\x0cHTTP/1.1",
        b"GET\r/\rHTTP/1.1",
        b"GET\x1c/\x1fHTTP/1.1",
        b"GET\x85/\x85HTTP/1.1",
        b"GET\xa0/\xa0HTTP/1.1",
        b"GET\xc2\xa0/\xc2\x85HTTP/1.1",
        b" GET / HTTP/1.1",
        b"GET /\xa0HTTP/1.1",
        b"GET /?\x01 HTTP/1.1",
        b"GET /",
    ];
    for line in lines {
        let mut client = connect(address).await;
        let fields: &[u8] = b"\r\nhost: a\r\nx-forwarded-for: 10.0.0.1\r\n\r\n";
        patient(client.write_all(&[line, fields].concat())).await.expect("open");
        let answer = read_to_end(&mut client).await;
        assert_eq!(answer.get(8..13), Some(" 400 "), "{}: {answer}", line.escape_ascii());
    }
    assert_eq!(pod.served(), 0);
}

/// Goal: a pod that refuses a connection is taken out of use without any effect on clients, because nothing was sent.
#[tokio::test]
async fn a_connection_that_is_refused_goes_to_the_next_pod() {
    let (rig, [address]) = app([tcp()], |_| {}).await;
    let (leaving, staying) = (Program::start("leaving", "").await, Program::start("staying", "").await);
    rig.pods(&[leaving.address, staying.address]).await;
    // Until both have passed their probes and are used.
    patient(async {
        while leaving.served() == 0 || staying.served() == 0 {
            let mut client = connect(address).await;
            write(&mut client, "?").await;
            read_until(&mut client, "?").await;
        }
    })
    .await;
    leaving.accepting.abort();
    let _ = leaving.accepting.await;
    for _ in 0..4 {
        let mut client = connect(address).await;
        write(&mut client, "?").await;
        assert_eq!(read_until(&mut client, "?").await, "staying?");
    }
}

/// Goal: a hard limit is a limit of connections per pod, and a waiting client is served when a connection ends.
#[tokio::test]
async fn a_hard_limit_is_one_of_connections() {
    let (rig, [address]) = app([tcp()], |backend| backend.container_concurrency = 1).await;
    let pods = [Program::start("", "").await, Program::start("", "").await];
    rig.pods(&pods.each_ref().map(|pod| pod.address)).await;
    let mut served = Vec::new();
    for _ in 0..2 {
        let mut client = connect(address).await;
        write(&mut client, "a").await;
        read_until(&mut client, "a").await;
        served.push(client);
    }
    let mut waiting = connect(address).await;
    write(&mut waiting, "b").await;
    rig.until(|load| load.in_flight == 2 && load.queued == 1).await;
    assert_eq!(pods.each_ref().map(Program::serving), [1, 1]);
    drop(served.pop());
    read_until(&mut waiting, "b").await;
    until(|| pods.iter().map(Program::serving).sum::<usize>() == 2).await;
    assert_eq!(pods.each_ref().map(Program::serving), [1, 1]);
    drop((served, waiting));
    rig.until(|load| load.in_flight == 0).await;
}

/// Goal: a held connection whose client disconnects frees its slot and its memory.
#[tokio::test]
async fn a_held_client_that_leaves_gives_everything_back() {
    let (rig, [address]) = app([tcp()], |_| {}).await;
    let mut client = connect(address).await;
    write(&mut client, "query").await;
    rig.until(|load| load.queued == 1).await;
    until(|| rig.activator.held().0 == 1).await;
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("open");
    drop(client);
    rig.until(|load| load.queued == 0 && load.in_flight == 0).await;
    until(|| rig.activator.held() == (0, 0)).await;
}

/// Goal: beyond `maxHeld`, and after the timeout, a connection is reset.
#[tokio::test]
async fn a_connection_beyond_a_bound_is_reset() {
    let (rig, [address]) = app([tcp()], |backend| {
        backend.max_held = 1;
        backend.wake_timeout_ms = 1_000;
    })
    .await;
    let (mut first, start) = (connect(address).await, tokio::time::Instant::now());
    write(&mut first, "1").await;
    rig.until(|load| load.queued == 1).await;
    let mut second = connect(address).await;
    write(&mut second, "2").await;
    is_reset(&mut second).await;
    is_reset(&mut first).await;
    assert!(start.elapsed() >= Duration::from_secs(1));
    rig.until(|load| load.queued == 0).await;
}

/// Goal: the timeout limits only the wait: a connection that is passed on continues.
#[tokio::test]
async fn a_relayed_connection_outlives_the_timeout() {
    let (rig, [address]) = app([tcp()], |backend| backend.wake_timeout_ms = 2_000).await;
    let pod = Program::start("", "").await;
    rig.pods(&[pod.address]).await;
    rig.until_open().await;
    let mut client = connect(address).await;
    write(&mut client, "a").await;
    read_until(&mut client, "a").await;
    tokio::time::sleep(Duration::from_millis(2_500)).await; // Longer than the timeout.
    write(&mut client, "b").await;
    read_until(&mut client, "b").await;
}

/// Goal: a port with another pod port is connected to that port. If the pod does not listen there yet, the client waits
/// while the pod stays in use.
#[tokio::test]
async fn another_port_of_the_pod_is_waited_for() {
    let judged = Program::start("", "").await;
    let other = listen().await;
    let late = other.local_addr().expect("bound");
    drop(other);
    let elsewhere = Port { id: id("late", 80), pod_port: Some(late.port()), ..tcp() };
    let probe = Probe { port: Some(judged.address.port()), ..ProbeKind::Tcp.into() };
    let (rig, [first, second]) = app([tcp(), elsewhere], |backend| backend.probe = probe).await;
    rig.pods(&[judged.address]).await;
    rig.until_open().await;
    let mut client = connect(second).await;
    write(&mut client, "query").await;
    rig.until(|load| load.in_flight == 1).await;
    let mut sibling = connect(first).await;
    write(&mut sibling, "a").await;
    read_until(&mut sibling, "a").await;
    let _late = Program::on(TcpListener::bind(late).await.expect("still free"), "late ", "");
    assert_eq!(read_until(&mut client, "query").await, "late query");
}

/// Goal: a port that a policy blocks takes no pod out of use, however long it is tried, and its client gets an error in
/// the end. Method: the kernel drops all packets to its listener, including handshakes. The probe has a port of its
/// own, which would see another probe if the pod had been taken out of use.
#[tokio::test]
async fn another_port_of_the_pod_that_is_barred_takes_the_pod_from_nobody() {
    let judged = Program::start("", "").await;
    let barred = std::net::TcpListener::bind((judged.address.ip(), 0)).expect("a free port");
    SockRef::from(&barred).attach_filter(&[socket2::SockFilter::new(0x06, 0, 0, 0)]).expect("permitted");
    let probed = listen().await;
    let probe = Probe { port: Some(probed.local_addr().expect("bound").port()), ..ProbeKind::Tcp.into() };
    let probes = Arc::new(AtomicUsize::new(0));
    let counted = probes.clone();
    tokio::spawn(async move {
        while probed.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let pod_port = Some(barred.local_addr().expect("bound").port());
    let elsewhere = Port { id: id("barred", 80), pod_port, ..tcp() };
    let (rig, [first, second]) = app([tcp(), elsewhere], |backend| backend.probe = probe).await;
    rig.pods(&[judged.address]).await;
    rig.until_open().await;
    until(|| probes.load(Ordering::SeqCst) > 0).await;
    let before = probes.load(Ordering::SeqCst);
    // Knowledge about the pod's own port does not affect the blocked port, nor the other way round.
    let mut earlier = connect(first).await;
    write(&mut earlier, "a").await;
    read_until(&mut earlier, "a").await;
    let (mut client, begun) = (connect(second).await, tokio::time::Instant::now());
    write(&mut client, "query").await;
    is_reset(&mut client).await;
    assert!(begun.elapsed() >= Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(probes.load(Ordering::SeqCst), before, "the pod was taken out");
    let mut sibling = connect(first).await;
    write(&mut sibling, "a").await;
    read_until(&mut sibling, "a").await;
}

/// Goal: a pod that serves one client at a time is not blocked by the connection of its probe.
#[tokio::test]
async fn a_probes_connection_is_in_nobodys_way() {
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
    let mut client = connect(address).await;
    write(&mut client, "query").await;
    assert_eq!(read_until(&mut client, "query").await, "query");
    serving.abort();
}

/// Returns a port of which nothing is known, not even from its number.
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

/// Goal: if the protocol is unknown, a silent client does not wake the workload, and this is reported. The first client
/// beside a pod that speaks first gets the greeting. From then on silent clients wake the workload.
#[tokio::test]
async fn a_pod_that_speaks_first_is_learned() {
    let (mut rig, [address]) = app([unknown()], |_| {}).await;
    let mut silent = connect(address).await;
    let waits = tokio::time::timeout(Duration::from_millis(500), silent.read(&mut [0; 1])).await;
    assert!(waits.is_err() && rig.activator.load(&key("app")).is_none_or(|load| load.queued == 0));
    drop(silent);
    reported(&mut rig, |observed| observed.silent == [7000]).await;
    let pod = Program::start("", "greeting").await;
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

/// Goal: connections that a browser opens ahead of use cost a pod one connection, and carry HTTP when they are used.
#[tokio::test]
async fn an_idle_connection_stays_http() {
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
        assert_eq!(connections(), before + 1, "asked once");
    }
    for mut client in idle {
        write(&mut client, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        read_until(&mut client, "hello").await;
    }
}
