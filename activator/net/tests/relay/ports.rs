//! Workloads' ports on real sockets, bound and closed while connections come and go.

use crate::rig::{PATIENCE, Silent, ToPod, free, here, patient, server, until};
use activator_net::{CarriedProtocol, Inbound, PortListeners, ProxyError, Server};
use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use rustix::time::{ClockId, clock_gettime};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A server that responds with the identity of the port.
struct Rig {
    ports: PortListeners,
    server: Server<Silent>,
    _until: DropGuard,
}

fn rig(address: IpAddr, connections: usize) -> Rig {
    let until = CancellationToken::new();
    let server = server(connections, &until);
    let ports = PortListeners::new(address, None);
    let chain = tower::service_fn(|inbound: Inbound| async move {
        let port = inbound.peer.port::<&str>().copied().unwrap_or("shared");
        Ok::<_, ProxyError>(Response::new(Full::<Bytes>::from(port)))
    });
    server.listen_ports(&ports, chain, |_| 1, |_| CarriedProtocol::<ToPod>::Http);
    Rig { ports, server, _until: until.drop_guard() }
}

async fn connect(ip: IpAddr, number: u16) -> TcpStream {
    patient(TcpStream::connect(SocketAddr::new(ip, number))).await.expect("connected")
}

/// Sends a request, and returns the body of the response.
async fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: whatever\r\n\r\n").await.expect("open");
    let mut answer = Vec::new();
    patient(async {
        loop {
            let text = String::from_utf8_lossy(&answer).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let head = head.to_ascii_lowercase();
                let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
                if length.and_then(|length| length.parse::<usize>().ok()) == Some(body.len()) {
                    return body.to_owned();
                }
            }
            assert_ne!(stream.read_buf(&mut answer).await.expect("open"), 0, "closed after {text:?}");
        }
    })
    .await
}

fn error(ports: &PortListeners, number: u16) -> Option<Option<String>> {
    ports.one(number, |_, error| error.map(ToString::to_string))
}

#[tokio::test]
async fn a_connection_keeps_the_identity_that_its_port_had_at_the_accept() {
    let rig = rig(here(), 100);
    let (a, b) = (free(), free());
    rig.ports.bind(a, Arc::new("a"));
    rig.ports.bind(b, Arc::new("b"));
    let mut old = connect(here(), a).await;
    assert_eq!((ask(&mut old).await, ask(&mut connect(here(), b).await).await), ("a".into(), "b".into()));
    rig.ports.bind(a, Arc::new("c"));
    assert_eq!((ask(&mut connect(here(), a).await).await, ask(&mut old).await), ("c".into(), "a".into()));
}

/// Goal: on a port whose clients must reconnect, each response is its connection's last, also on new connections, and
/// idle connections end too. Connections to another port continue.
#[tokio::test]
async fn connections_to_a_port_end_if_its_clients_must_reconnect() {
    let rig = rig(here(), 100);
    let (a, b) = (free(), free());
    rig.ports.bind(a, Arc::new("a"));
    rig.ports.bind(b, Arc::new("b"));
    let (mut asks, mut idles) = (connect(here(), a).await, connect(here(), a).await);
    let mut other = connect(here(), b).await;
    for (stream, expected) in [(&mut asks, "a"), (&mut idles, "a"), (&mut other, "b")] {
        assert_eq!(ask(stream).await, expected);
    }
    rig.ports.make_clients_reconnect(|port| port.downcast_ref::<&str>() == Some(&"a"));
    let mut later = connect(here(), a).await;
    for stream in [&mut asks, &mut later] {
        assert_eq!(ask(stream).await, "a");
    }
    for stream in [&mut asks, &mut later, &mut idles] {
        assert_eq!(patient(stream.read(&mut [0; 1])).await.expect("an end, no reset"), 0);
    }
    assert_eq!(ask(&mut other).await, "b");
}

/// Goal: connections made before a number is closed are served, accepted or not. Then the number is free, also for its
/// former owner.
#[tokio::test]
async fn a_closed_number_serves_only_earlier_connections() {
    let rig = rig(here(), 100);
    let number = free();
    rig.ports.bind(number, Arc::new("a"));
    let mut under_way = connect(here(), number).await;
    assert_eq!(ask(&mut under_way).await, "a");
    // No other task runs between this and the end of the connect, so the connection waits in the kernel's queue.
    let queued = std::net::TcpStream::connect((here(), number)).expect("the kernel takes it");
    rig.ports.unbind(number);
    assert_eq!(error(&rig.ports, number), None);
    rig.ports.bind(number, Arc::new("b"));
    assert!(matches!(error(&rig.ports, number), Some(Some(_))), "not before the former one is closed");
    until(|| error(&rig.ports, number) == Some(None)).await;
    queued.set_nonblocking(true).expect("open");
    let mut queued = TcpStream::from_std(queued).expect("open");
    assert_eq!(ask(&mut queued).await, "a");
    assert_eq!((ask(&mut under_way).await, ask(&mut connect(here(), number).await).await), ("a".into(), "b".into()));
    rig.ports.unbind(number);
    until(|| StdListener::bind((here(), number)).is_ok()).await;
}

/// Goal: a number in use is reported, and bound as soon as it is free. Other numbers are bound meanwhile.
#[tokio::test]
async fn a_number_in_use_is_reported_and_retried() {
    let rig = rig(here(), 100);
    let number = free();
    let other = TcpListener::bind((here(), number)).await.expect("a free port");
    rig.ports.bind(number, Arc::new("a"));
    rig.ports.bind(0, Arc::new("none"));
    let beside = free();
    rig.ports.bind(beside, Arc::new("beside"));
    let message = error(&rig.ports, number).flatten().expect("an error");
    assert!(message.contains("in use"), "{message}");
    assert!(matches!(error(&rig.ports, 0), Some(Some(_))));
    assert_eq!(ask(&mut connect(here(), beside).await).await, "beside");
    let before = rig.ports.version();
    drop(other);
    until(|| error(&rig.ports, number) == Some(None)).await;
    assert!(rig.ports.version() > before);
    assert_eq!(ask(&mut connect(here(), number).await).await, "a");
    let mut listed = Vec::new();
    rig.ports.each(|number, _, error| listed.push((number, error.is_some())));
    let mut expected = vec![(0, true), (number, false), (beside, false)];
    expected.sort();
    assert_eq!(listed, expected);
}

#[tokio::test]
async fn a_number_is_bound_for_both_address_families() {
    let rig = rig(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 100);
    let number = free();
    rig.ports.bind(number, Arc::new("a"));
    assert_eq!(error(&rig.ports, number), Some(None));
    assert_eq!(ask(&mut connect(here(), number).await).await, "a");
    // Without IPv6, only IPv4 is tested.
    if StdListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        assert_eq!(ask(&mut connect(Ipv6Addr::LOCALHOST.into(), number).await).await, "a");
    }
}

/// Goal: an idle connection gives way when there is no room. A drain closes the numbers, and running exchanges are
/// completed. No number is bound afterwards, because its clients would never be accepted.
#[tokio::test]
async fn limits_and_drain_of_a_server_apply_to_its_ports() {
    let rig = rig(here(), 1);
    let number = free();
    rig.ports.bind(number, Arc::new("a"));
    let mut first = connect(here(), number).await;
    assert_eq!(ask(&mut first).await, "a");
    let mut second = connect(here(), number).await;
    assert_eq!(ask(&mut second).await, "a");
    assert_eq!(patient(first.read(&mut [0; 1])).await.unwrap_or(0), 0, "it was idle, and gave way");
    assert_eq!(rig.server.connections.ended_for_room(), 1);
    drop((first, second));
    until(|| rig.server.connections.open() == 0).await;

    let mut last = connect(here(), number).await;
    assert_eq!(ask(&mut last).await, "a");
    assert_eq!(patient(rig.server.drain(PATIENCE)).await, 0);
    assert_eq!(error(&rig.ports, number), None);
    let is_refused = async |number: u16| TcpStream::connect((here(), number)).await.is_err();
    assert!(is_refused(number).await, "the number is closed");
    let later = free();
    rig.ports.bind(later, Arc::new("b"));
    assert!(is_refused(later).await);
}

/// Goal: binding a number takes less than a millisecond of CPU time, and each number has its own identity.
#[tokio::test]
async fn binding_a_number_takes_less_than_a_millisecond() {
    const NUMBERS: usize = 400;
    let rig = rig(here(), 1000);
    let numbers: Vec<u16> = (0..NUMBERS).map(|_| free()).collect();
    let texts: Vec<&'static str> = numbers.iter().map(|number| &*number.to_string().leak()).collect();
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("a time");
    let before = used();
    for (number, text) in numbers.iter().zip(&texts) {
        rig.ports.bind(*number, Arc::new(*text));
    }
    let each = (used() - before) / NUMBERS as u32;
    assert!(each < Duration::from_millis(1), "{each:?}");
    for number in &numbers {
        assert_eq!(ask(&mut connect(here(), *number).await).await, number.to_string());
    }
}
