//! Tests of admission and of giving way: over sockets, with a paused clock.

use super::*;
use crate::client::Inbound;
use crate::client::peer::Trust;
use crate::memory::Kind;
use crate::server::{ErrorResponder, Server};
use crate::tcp::loopback;
use activator_core::ledger::STALE;
use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::{Ipv4Addr, SocketAddr};
use std::task::Waker;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::DropGuard;

const BOUNDS: ClientBounds = ClientBounds { connections: 100, descriptors: u64::MAX, idle: None };

/// Responds with 503 to every error.
#[derive(Clone)]
pub(crate) struct Busy;

impl ErrorResponder<ProxyError> for Busy {
    fn respond(&self, error: &ProxyError, _: bool, _: Version) -> Option<Response<Full<Bytes>>> {
        let mut response = Response::new(Full::from(error.to_string()));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        Some(response)
    }
}

/// Starts a server that responds with hello, after `slow` if the path ends in `/slow`, and after a second if it ends in
/// `/second`. Paths begin with the number of a workload; `/probe` belongs to none. It ends when the guard is dropped.
async fn serve(bounds: ClientBounds, slow: Duration) -> (ClientConnections, SocketAddr, DropGuard) {
    let until = CancellationToken::new();
    let chain = tower::service_fn(move |inbound: Inbound| async move {
        let path = inbound.request.uri().path();
        if path != "/probe" {
            let workload = path.split('/').nth(1).and_then(|number| number.parse().ok());
            inbound.peer.count_to_workload(workload.unwrap_or(100))?;
        }
        if path.ends_with("/slow") {
            tokio::time::sleep(slow).await;
        }
        if path.ends_with("/second") {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok::<_, ProxyError>(Response::new(Full::<Bytes>::from("hello")))
    });
    let connections = ClientConnections::start(bounds, Memory::new(None), until.clone());
    let server = Server::new(Busy, Arc::new(|_| Trust::default()), Duration::ZERO, connections.clone(), None, None);
    let (listener, address) = loopback::listen().await;
    server.listen(listener, None, chain);
    (connections, address, until.drop_guard())
}

async fn ask(address: SocketAddr, path: &str) -> TcpStream {
    ask_from([127, 0, 0, 1], address, path).await
}

async fn ask_from(from: [u8; 4], address: SocketAddr, path: &str) -> TcpStream {
    let mut client = connect_from(from, address).await;
    client.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.expect("open");
    client
}

async fn connect_from(from: [u8; 4], address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((Ipv4Addr::from(from), 0).into()).expect("an address of this machine");
    socket.connect(address).await.expect("connected")
}

/// Connects over HTTP/2, and returns the task of the connection too.
async fn http2(address: SocketAddr) -> (SendRequest<Empty<Bytes>>, JoinHandle<hyper::Result<()>>) {
    let stream = TokioIo::new(TcpStream::connect(address).await.expect("connected"));
    let connected = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await;
    let (sender, connection) = connected.expect("nothing is sent yet");
    (sender, tokio::spawn(connection))
}

/// Reads a response. Returns false if the connection ends instead.
async fn is_answered(client: &mut TcpStream) -> bool {
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        if client.read_buf(&mut answer).await.unwrap_or(0) == 0 {
            return false;
        }
    }
    true
}

/// Returns everything received until the connection ends.
async fn text_to_end(mut client: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer).await; // A reset counts as an end too.
    String::from_utf8_lossy(&answer).into_owned()
}

async fn until_open(connections: &ClientConnections, number: usize) {
    while connections.open() != number {
        tokio::task::yield_now().await;
    }
}

async fn until_running(connections: &ClientConnections, number: usize) {
    let running = || connections.admitted().each().filter(|one| one.idle_since().is_none()).count();
    while running() != number {
        tokio::task::yield_now().await;
    }
}

/// Goal: connections are shut down gracefully if there was no request for long. A connection with a slower response
/// stays. Method: a paused clock.
#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends_and_a_slow_exchange_does_not() {
    const SLOW: Duration = Duration::from_secs(100);
    let bounds = ClientBounds { idle: Some(Duration::from_secs(10)), ..BOUNDS };
    let (connections, address, _open) = serve(bounds, SLOW).await;
    let start = Instant::now();
    let mut slow = ask(address, "/slow").await;
    let mut idle = ask(address, "/").await;
    assert!(is_answered(&mut idle).await);
    let (mut sender, connection) = http2(address).await;
    let request = Request::get("http://a/").body(Empty::<Bytes>::new()).expect("a request");
    let answer = sender.send_request(request).await.expect("an answer");
    assert_eq!(answer.into_body().collect().await.expect("whole").to_bytes(), "hello");

    assert!(!is_answered(&mut idle).await);
    connection.await.expect("no panic").expect("GOAWAY is no error");
    assert!((9..=14).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert!(is_answered(&mut slow).await);
    assert!(start.elapsed() >= SLOW);
    assert_eq!((connections.ended_idle(), connections.ended_for_room(), connections.refused()), (2, 0, 0));
}

/// Goal: the memory uses the connections' clock: a connection that was idle for long gives way.
#[test]
fn memory_uses_the_clock_of_the_connections() {
    let memory = Memory::new(Some(1000));
    let connections = ClientConnections::without_limits(memory.clone());
    let client = Ipv4Addr::LOCALHOST.into();
    let idle = connections.enter(client, 2, None, false).expect("room");
    let mut charge = idle.charge(Kind::Input);
    charge.set(100).expect("room");
    let _held = memory.share(1).hold(client, 900).expect("room");
    assert!(memory.share(1).hold(client, 100).is_err(), "its own workload has most");
    (0..STALE).for_each(|_| connections.tick());
    assert!(memory.share(1).hold(client, 100).is_ok());
}

/// Goal: an idle connection whose place is needed is shut down gracefully, unless many others are giving way. It is cut
/// if it becomes busy.
#[test]
fn idle_connections_that_give_way_end_gracefully() {
    for (newcomers, gently, at_once) in [(1, 1, 0), (8, 8, 0), (9, 8, 1)] {
        let connections = ClientConnections::new(ClientBounds { connections: 16, ..BOUNDS }, Memory::new(None));
        let enter =
            |workload| Arc::new(connections.enter(Ipv4Addr::LOCALHOST.into(), workload, None, false).expect("room"));
        let permits: Vec<Arc<ConnectionPermit>> = (0..16).map(|_| enter(1)).collect();
        for permit in &permits {
            assert!(permit.begin_exchange());
            permit.end_exchange();
        }
        let ending = || {
            let phases = permits.iter().map(|permit| permit.phase_receiver().phase(Waker::noop()));
            let (finish, cut) =
                phases.filter(|phase| *phase > Phase::Open).partition::<Vec<_>, _>(|phase| *phase < Phase::Cut);
            (finish.len(), cut.len())
        };
        let _others: Vec<_> = (0..newcomers).map(|n| enter(2 + n)).collect();
        assert_eq!(ending(), (gently, at_once));
        permits.iter().for_each(|permit| assert!(permit.begin_exchange()));
        (0..ROOM_GRACE).for_each(|_| connections.tick());
        assert_eq!(ending(), (0, gently + at_once));
    }
}

/// Goal: however small the limit is, a newcomer with a small share is admitted while the connections that earlier ones
/// have replaced are still ending.
#[test]
fn a_small_limit_admits_newcomers_with_a_small_share() {
    let connections = ClientConnections::new(ClientBounds { connections: 2, ..BOUNDS }, Memory::new(None));
    let enter = |workload| connections.enter(Ipv4Addr::LOCALHOST.into(), workload, None, false);
    let mut held: Vec<_> = (0..2).map(|_| enter(1).expect("room")).collect();
    for round in 0..8 {
        assert!(enter(2).is_some(), "round {round}");
        held.push(enter(1).expect("the newcomer has left"));
    }
}

/// Goal: if the process has no descriptors left, a busy connection is cut at once, also a shared one. Other failures to
/// accept affect no connection.
#[test]
fn a_shortage_of_descriptors_cuts_busy_connections() {
    let connections = ClientConnections::new(BOUNDS, Memory::new(None));
    let busy = Arc::new(connections.enter(Ipv4Addr::LOCALHOST.into(), 0, None, false).expect("room"));
    assert!(busy.begin_exchange() && busy.begin_exchange());
    connections.accept_failed(&Errno::PERM.into());
    assert_eq!(busy.phase_receiver().phase(Waker::noop()), Phase::Open);
    connections.accept_failed(&Errno::MFILE.into());
    assert_eq!(busy.phase_receiver().phase(Waker::noop()), Phase::Cut);
}

/// Goal: if one workload or one client has all connections, busy or silent, another workload gets up to half of them,
/// and no more are closed.
#[tokio::test(start_paused = true)]
async fn the_largest_holder_gives_way_to_others() {
    for (held, name) in [(Some("/1/slow"), "requests"), (None, "silence")] {
        let bounds = ClientBounds { connections: 12, ..BOUNDS };
        let (connections, address, _open) = serve(bounds, Duration::from_secs(30)).await;
        let mut attack = Vec::new();
        for _ in 0..12 {
            attack.push(match held {
                Some(path) => ask_from([127, 0, 0, 2], address, path).await,
                None => connect_from([127, 0, 0, 2], address).await,
            });
        }
        until_open(&connections, 12).await;
        if held.is_some() {
            until_running(&connections, 12).await;
        }
        let mut others = Vec::new();
        for _ in 0..6 {
            others.push(ask(address, "/2/slow").await);
        }
        for other in &mut others {
            assert!(is_answered(other).await, "{name}");
        }
        assert_eq!((connections.refused(), connections.ended_for_room()), (0, 6), "{name}");
    }
}

/// Goal: without room, a probe is answered, but no request of the largest workload; once per connection, and no
/// connection stays for long.
#[tokio::test(start_paused = true)]
async fn only_probes_are_answered_without_room() {
    let bounds = ClientBounds { connections: 1, ..BOUNDS };
    let (connections, address, _open) = serve(bounds, Duration::from_secs(3600)).await;
    let _client = ask(address, "/1/slow").await;
    until_running(&connections, 1).await;
    let probe = "GET /probe HTTP/1.1\r\nhost: a\r\n\r\n";
    let other = "GET /1 HTTP/1.1\r\nhost: a\r\n\r\n";
    let send = async |bytes: &str| {
        let mut client = TcpStream::connect(address).await.expect("connected");
        client.write_all(bytes.as_bytes()).await.expect("open");
        client
    };
    for (sent, answers, refused) in [
        (probe.to_owned(), "200", 0),
        (probe.repeat(2), "200", 0),
        (format!("{probe}{other}"), "200", 0),
        (other.to_owned(), "503", 1),
        (format!("{other}{probe}"), "503", 1),
    ] {
        let before = connections.refused();
        let answer = text_to_end(send(&sent).await).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {answers} ")), "{sent}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{sent}: {answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{sent}: {answer}");
        assert_eq!(connections.refused() - before, refused, "{sent}");
    }
    for silent in ["", "GET / HTTP/1.1\r\nhost: a\r\nprobe:", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let start = Instant::now();
        text_to_end(send(silent).await).await;
        assert!(start.elapsed() <= Duration::from_secs(STAY.into()), "{silent:?}: {:?}", start.elapsed());
    }
    assert_eq!(connections.open(), 1, "those in the reserve are not counted");
}

/// Goal: an HTTP/2 connection that gives way because of one workload's slow requests finishes a request of another
/// workload.
#[tokio::test(start_paused = true)]
async fn a_shared_connection_that_gives_way_finishes_other_requests() {
    let bounds = ClientBounds { connections: 12, ..BOUNDS };
    let (connections, address, _open) = serve(bounds, Duration::from_secs(30)).await;
    let (sender, _) = http2(address).await;
    let ask_over = |path: &str| {
        let request = Request::get(format!("http://a{path}")).body(Empty::<Bytes>::new()).expect("a request");
        tokio::spawn(sender.clone().send_request(request))
    };
    let slow: Vec<_> = (0..8).map(|_| ask_over("/1/slow")).collect();
    let other = ask_over("/2/second");
    let running = || connections.admitted().each().map(|one| one.running.load(Ordering::Relaxed)).sum::<u32>();
    while running() < 9 {
        tokio::task::yield_now().await;
    }
    let mut newcomers = Vec::new();
    for n in 1..=8 {
        newcomers.push(ask_from([127, 0, 0, 2], address, &format!("/{}/slow", 2 + n)).await);
        until_open(&connections, 1 + n).await;
    }
    assert_eq!(connections.ended_for_room(), 1);
    let begun = Instant::now();
    assert_eq!(other.await.expect("no panic").expect("answered").status(), StatusCode::OK);
    for slow in slow {
        slow.await.expect("no panic").expect_err("cut");
    }
    assert!(begun.elapsed() <= Duration::from_secs(u64::from(ROOM_GRACE) + 1), "{:?}", begun.elapsed());
    for newcomer in &mut newcomers {
        assert!(is_answered(newcomer).await);
    }
}

/// Goal: a probe is answered although clients at as many addresses as there are places hold the whole reserve, each
/// with one connection without a request, and connect again as soon as one of them gives way.
#[tokio::test]
async fn a_reserve_filled_from_many_addresses_has_room_for_probes() {
    let bounds = ClientBounds { connections: 1, ..BOUNDS };
    let (connections, address, _open) = serve(bounds, Duration::from_secs(3600)).await;
    let _client = ask(address, "/1/slow").await;
    until_running(&connections, 1).await;
    let mut addresses = (2..=250).flat_map(|high| (1..=250).map(move |low| [127, 1, high, low]));
    for begun in ["", "GET / HTTP/1.1\r\nhost: a\r\nprobe:", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut attack = Vec::new();
        for _ in 0..RESERVED {
            while connections.reserve().held() < RESERVED {
                let from = addresses.next().expect("another address");
                let mut client = connect_from(from, address).await;
                client.write_all(begun.as_bytes()).await.expect("open");
                attack.push(client);
                tokio::task::yield_now().await;
            }
            let answer = text_to_end(ask_from([127, 0, 0, 2], address, "/probe").await).await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{begun:?}: {answer}");
        }
    }
}

/// Goal: each concurrent request beyond the first of an HTTP/2 connection counts as a connection to a pod, so that a
/// client with few connections has no larger share.
#[tokio::test(start_paused = true)]
async fn concurrent_http2_requests_count_as_connections() {
    const SLOW: Duration = Duration::from_secs(30);
    let bounds = ClientBounds { connections: 20, ..BOUNDS };
    let (connections, address, _open) = serve(bounds, SLOW).await;
    let (sender, _) = http2(address).await;
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..60 {
        let request = Request::get("http://a/1/slow").body(Empty::<Bytes>::new()).expect("a request");
        let answer = sender.clone().send_request(request);
        requests.spawn(async move { answer.await.map(|answer| answer.status()) });
    }
    let answers: Vec<_> = requests.join_all().await.into_iter().map(|answer| answer.expect("answered")).collect();
    let served = answers.iter().filter(|status| **status == StatusCode::OK).count();
    assert!((30..=40).contains(&served), "{served} at once");
    assert_eq!(answers.len(), 60);
    while connections.admitted().held() > COST {
        tokio::task::yield_now().await;
    }
}
