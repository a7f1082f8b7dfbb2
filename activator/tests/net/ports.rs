//! Ports of workloads: every connection to such a port belongs to its workload, regardless of its content.

use crate::rig::{
    FullResponse, Pod, Rig, ask, backend, bind, connect_and_write, http1_client, http2_client, key, own_address,
    patient, read_to_end, until, until_async,
};
use crate::silence::silence;
use activator::Options;
use activator::discovery::{Event, Listing, Port, Spec};
use activator_core::breaker::Capacity;
use bytes::Bytes;
use common::RevisionKey;
use common::backend::Backend;
use common::bound_ports::{BoundPorts, QUESTION};
use common::ports::ledger::OPEN_FOR;
use common::ports::{Block, Entry, Ledger, NumberState, PortId};
use common_api::zeroscaler::PortProtocol;
use common_runtime::clock::Clock;
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// First port number of a workload. Each test has an address of its own.
pub(crate) const FIRST: u16 = 20_000;

async fn start_rig() -> (Rig, IpAddr) {
    let ip = own_address().ip();
    (Rig::start_with(|options| options.http1 = SocketAddr::new(ip, 0)).await, ip)
}

/// Starts an activator with changed options that knows `ns/app` with these ports, modified by `change`. Also returns
/// their addresses.
pub(crate) async fn app_with<const N: usize>(
    options: impl FnOnce(&mut Options),
    ports: [Port; N],
    change: impl FnOnce(&mut Backend),
) -> (Rig, [SocketAddr; N]) {
    let ip = own_address().ip();
    let rig = Rig::start_with(|all| {
        all.http1 = SocketAddr::new(ip, 0);
        options(all);
    })
    .await;
    let numbers: [u16; N] = std::array::from_fn(|n| FIRST + n as u16);
    let lines: Vec<_> = numbers.iter().zip(&ports).map(|(n, port)| held_number(*n, "app", port.id.clone())).collect();
    let mut spec = Spec { ports: ports.into(), ..spec("app", &[]) };
    change(&mut spec.backend);
    rig.emit(Event::Revision(Arc::new(spec))).await;
    ledger(&rig, &lines).await;
    (rig, numbers.map(|number| SocketAddr::new(ip, number)))
}

/// Does the same with one port and nothing changed.
async fn app_with_port() -> (Rig, SocketAddr) {
    let (rig, [address]) = app_with(|_| {}, [port(&id("http", 80), PortProtocol::Auto)], |_| {}).await;
    (rig, address)
}

/// Returns the state of a number that was released so many seconds ago.
fn released(ago: u64) -> NumberState {
    NumberState::Released(Clock::system().now() - Duration::from_secs(ago))
}

pub(crate) fn id(name: &str, port: u16) -> PortId {
    PortId { name: name.to_owned(), port }
}

/// Returns a port with nothing but a protocol.
pub(crate) fn port(id: &PortId, protocol: PortProtocol) -> Port {
    Port { id: id.clone(), protocol, wake_after: None, pod_port: None, spoken: None }
}

async fn workload(rig: &Rig, name: &str, ports: &[PortId]) {
    rig.emit(Event::Revision(Arc::new(spec(name, ports)))).await;
}

/// Returns `ns/NAME` with a uid that begins with `u-`, and with ports of any protocol.
pub(crate) fn spec(name: &str, ports: &[PortId]) -> Spec {
    let ports = ports.iter().map(|id| port(id, PortProtocol::Auto)).collect();
    Spec { uid: format!("u-{name}").into(), ports, ..Spec::standalone("ns", name, backend(name)) }
}

/// Returns an entry of the ledger: a number that a workload holds for this port.
pub(crate) fn held_number(number: u16, name: &str, port: PortId) -> (u16, &str, PortId, NumberState) {
    (number, name, port, NumberState::Held)
}

/// Sends the ledger: number, workload, its port, state.
pub(crate) async fn ledger(rig: &Rig, lines: &[(u16, &str, PortId, NumberState)]) {
    emit_ledger(rig, lines).await;
    rig.settled().await;
}

async fn emit_ledger(rig: &Rig, lines: &[(u16, &str, PortId, NumberState)]) {
    let entry = |(number, name, port, state): &(u16, &str, PortId, NumberState)| {
        let (key, uid) = (RevisionKey::new("ns", *name), format!("u-{name}").into());
        (*number, Entry { state: *state, key, uid, port: port.clone() })
    };
    let entries: Ledger = lines.iter().map(entry).collect();
    rig.emit(Event::Numbers { block: Block::containing(FIRST), entries }).await;
}

/// Sets the pods of `ns/app`, each with its named ports.
async fn named_ports(rig: &Rig, pods: &[(SocketAddr, &[(&str, u16)])]) {
    let named = |ports: &[(&str, u16)]| ports.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect();
    let not_ready = pods.iter().map(|(pod, _)| (*pod).into()).collect();
    let ports = pods.iter().map(|(pod, ports)| (pod.ip(), named(ports))).collect();
    rig.emit(Event::Pods { key: key("app"), listing: Listing { not_ready, ports, ..Listing::default() } }).await;
}

async fn get_at(ip: IpAddr, number: u16) -> FullResponse {
    ask(SocketAddr::new(ip, number), Request::get("/").header("host", "h")).await
}

async fn get_http1(client: &mut http1::SendRequest<Empty<Bytes>>, host: &str) -> FullResponse {
    patient(client.ready()).await.expect("open");
    FullResponse::receive(client.send_request(request(host))).await
}

async fn get_http2(client: &mut http2::SendRequest<Empty<Bytes>>, host: &str) -> FullResponse {
    FullResponse::receive(client.send_request(request(host))).await
}

fn request(host: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://{host}/")).header("host", host).body(Empty::new()).expect("a request")
}

/// Accepts connections until one brings this many bytes. Those that end without a byte are probes.
async fn first_bytes(pod: &TcpListener, length: usize) -> String {
    let mut bytes = vec![0; length];
    while patient(patient(pod.accept()).await.expect("a connection").0.read_exact(&mut bytes)).await.is_err() {}
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Asks which ports the activator has bound.
async fn bound(rig: &Rig, question: &str) -> BoundPorts {
    let answer = rig.send(Request::get("/whatever").header("host", "none").header(QUESTION, question)).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    serde_json::from_str(&answer.body).expect("readable")
}

/// Goal: no request reaches another workload or the activator itself, whatever its head contains.
#[tokio::test]
async fn requests_on_a_workloads_port_reach_only_that_workload() {
    let (rig, ip) = start_rig().await;
    for name in ["a", "b"] {
        workload(&rig, name, &[id("http", 80)]).await;
    }
    ledger(&rig, &[held_number(FIRST, "a", id("http", 80)), held_number(FIRST + 1, "b", id("http", 80))]).await;
    let (a, b) = (Pod::echoing().await, Pod::saying("b").await);
    rig.pods_of("a", &[a.address]).await;
    rig.pods_of("b", &[b.address]).await;
    let address = SocketAddr::new(ip, FIRST);
    let heads = [
        "GET /x HTTP/1.1\r\nHost: unknown.example\r\n",
        "GET /x HTTP/1.1\r\nHost: b.ns\r\n",
        "GET /x HTTP/1.1\r\nHost: 10.0.0.1:8080\r\n",
        "GET /x HTTP/1.0\r\n",
        "GET http://b.ns/x HTTP/1.1\r\nHost: b.ns\r\n",
        "GET /x HTTP/1.1\r\nHost: h\r\nKnative-Serving-Revision: b\r\nKnative-Serving-Namespace: ns\r\n",
        "GET /x HTTP/1.1\r\nHost: h\r\nUser-Agent: kube-probe/1.34\r\n",
        "GET /x HTTP/1.1\r\nHost: h\r\nK-Network-Probe: probe\r\nK-Network-Hash: h\r\n",
        "GET /x HTTP/1.1\r\nHost: h\r\nZeroscale-Ports: all\r\n",
    ];
    for head in heads {
        let request = format!("{head}Connection: close\r\n\r\n");
        let answer = read_to_end(&mut connect_and_write(address, &request).await).await;
        assert!(answer.starts_with("HTTP/1.") && answer.contains("http/1.1 GET /x"), "{head:?}: {answer}");
    }
    let other = ask(SocketAddr::new(ip, FIRST + 1), Request::get("/").header("host", "a.ns")).await;
    assert_eq!((other.body.as_str(), a.requests()), ("b", heads.len()));
}

/// Goal: shared ports refuse the workload with the reason and the remedy. A number that is closed in the ledger is
/// closed at once.
#[tokio::test]
async fn a_guarded_workload_is_served_only_on_its_own_port() {
    let (rig, ip) = start_rig().await;
    rig.emit(Event::Revision(Arc::new(Spec { guarded: true, ..spec("app", &[id("http", 80)]) }))).await;
    ledger(&rig, &[held_number(FIRST, "app", id("http", 80))]).await;
    let pod = rig.only_pod(Pod::saying("app").await).await;
    let own = SocketAddr::new(ip, FIRST);
    assert_eq!(ask(own, Request::get("/").header("host", "app.ns")).await.body, "app");
    let refused = rig.send(Request::get("/").header("host", "app.ns")).await;
    assert_eq!((refused.status, refused.header("x-zeroscale-reason")), (StatusCode::FORBIDDEN, "guarded"));
    assert!(refused.body.contains("call its Service"), "{}", refused.body);
    assert_eq!(pod.requests(), 1);
    ledger(&rig, &[(FIRST, "app", id("http", 80), NumberState::Closed(Clock::system().now()))]).await;
    assert!(patient(TcpStream::connect(own)).await.is_err());
}

/// Goal: a request without a host wakes the workload of its port, and reaches the pod with the Service's name, whether
/// it was held or not.
#[tokio::test]
async fn a_request_without_a_host_gets_the_name_of_the_service() {
    let (mut rig, address) = app_with_port().await;
    let pod = Pod::echoing().await;
    let heads =
        ["OPTIONS / HTTP/1.0\r\n", "GET / HTTP/1.0\r\nHost:\r\n", "GET / HTTP/1.1\r\nHost: \r\nConnection: close\r\n"];
    for (at, head) in heads.into_iter().enumerate() {
        let mut stream = connect_and_write(address, &format!("{head}\r\n")).await;
        if at == 0 {
            rig.until(|load| load.queued == 1).await;
            assert_eq!(rig.next_stat().await.name, "app", "it wakes");
            rig.pods(&[pod.address]).await;
        }
        let answer = read_to_end(&mut stream).await;
        assert!(answer.contains("\nhost: app.ns.svc\n"), "{head:?}: {answer}");
    }
    let mut without = connect_and_write(address, "GET / HTTP/1.1\r\nConnection: close\r\n\r\n").await;
    assert!(read_to_end(&mut without).await.starts_with("HTTP/1.1 400 "), "HTTP/1.1 requires the field");
}

/// Creates a workload `app` with two ports, FIRST and the next, and a pod: at `web`, and at `admin` for the second
/// port.
async fn two_ports(rig: &Rig, web: SocketAddr, admin: u16) {
    let ids = [id("web", 80), id("admin", 9000)];
    workload(rig, "app", &ids).await;
    let [first, second] = ids;
    ledger(rig, &[held_number(FIRST, "app", first), held_number(FIRST + 1, "app", second)]).await;
    named_ports(rig, &[(web, &[("web", web.port()), ("admin", admin)])]).await;
}

/// Goal: a pod that lacks the port, for instance during a rollout, gets no request for it.
#[tokio::test]
async fn requests_go_to_a_pod_that_has_the_port() {
    let (rig, ip) = start_rig().await;
    let (former, newer) = (Pod::saying_at(own_address(), "former").await, Pod::saying_at(own_address(), "newer").await);
    let (former_at, newer_at) = (former.address, newer.address);
    let admin = Pod::saying_at(SocketAddr::new(newer_at.ip(), newer_at.port() + 1), "admin").await;
    two_ports(&rig, newer_at, admin.address.port()).await;
    let (web, admin) = (("web", newer_at.port()), ("admin", admin.address.port()));
    named_ports(&rig, &[(former_at, &[web]), (newer_at, &[web, admin])]).await;
    until_async(async || {
        get_at(ip, FIRST).await;
        former.requests() > 0 && newer.requests() > 0
    })
    .await;
    for _ in 0..20 {
        let answer = get_at(ip, FIRST + 1).await;
        assert_eq!(answer.body, "admin", "{answer:?}");
    }
}

/// Goal: the pod stays in use meanwhile.
#[tokio::test]
async fn a_request_waits_for_a_port_that_listens_later_than_its_pod() {
    let (rig, ip) = start_rig().await;
    let at = own_address();
    let later = SocketAddr::new(at.ip(), at.port() + 1);
    let _first = Pod::saying_at(at, "web").await;
    two_ports(&rig, at, later.port()).await;
    assert_eq!(get_at(ip, FIRST).await.body, "web");
    let asking = tokio::spawn(get_at(ip, FIRST + 1));
    rig.until(|load| load.in_flight == 1).await;
    for _ in 0..50 {
        assert_eq!(get_at(ip, FIRST).await.body, "web");
    }
    assert!(!asking.is_finished(), "{:?}", asking.await);
    let _second = Pod::saying_at(later, "admin").await;
    assert_eq!(patient(asking).await.expect("no panic").body, "admin");
}

/// Goal: if a policy blocks a port of a pod, requests to its other port are served. Method: the kernel drops all
/// packets to the port's listener, including handshakes.
#[tokio::test]
async fn a_blocked_port_does_not_take_the_pod_out_of_use() {
    let (rig, ip) = start_rig().await;
    let first = Pod::saying("web").await;
    let (blocked, blocked_at) = bind().await;
    silence(&blocked);
    two_ports(&rig, first.address, blocked_at.port()).await;
    assert_eq!(get_at(ip, FIRST).await.body, "web");
    let is_in_use = || rig.activator.load(&key("app")).is_some_and(|load| load.capacity != Capacity::CLOSED);
    let (asking, begun) = (tokio::spawn(get_at(ip, FIRST + 1)), Instant::now());
    rig.until(|load| load.in_flight == 1).await;
    // Long enough for two connection attempts without a response.
    while begun.elapsed() < Duration::from_secs(4) {
        assert_eq!(get_at(ip, FIRST).await.body, "web");
        assert!(is_in_use(), "the pod is out of use");
    }
    assert!(!asking.is_finished(), "{:?}", asking.await);
    asking.abort();
}

/// Goal: the port is served in any order of changes to ledger, object and slices.
#[tokio::test]
async fn a_further_port_is_served_while_its_service_renames_it() {
    let (rig, ip) = start_rig().await;
    let (first, second) = (Pod::saying("web").await, Pod::saying("admin").await);
    let update = async |part: usize, name: &str| {
        let (web, admin) = (id("web", 80), id(name, 9000));
        let ports = [("web", first.address.port()), (name, second.address.port())];
        match part {
            0 => workload(&rig, "app", &[web, admin]).await,
            1 => ledger(&rig, &[held_number(FIRST, "app", web), held_number(FIRST + 1, "app", admin)]).await,
            _ => named_ports(&rig, &[(first.address, &ports)]).await,
        }
        rig.settled().await;
    };
    let is_served = async |when: &str| {
        for (number, text) in [(FIRST, "web"), (FIRST + 1, "admin")] {
            let answer = get_at(ip, number).await;
            assert_eq!(answer.body, text, "{when}: {answer:?}");
        }
    };
    for part in 0..3 {
        update(part, "admin").await;
    }
    is_served("before").await;
    for (n, order) in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].into_iter().enumerate() {
        for part in order {
            update(part, &format!("admin-{n}")).await;
            is_served(&format!("{order:?}, after {part}")).await;
        }
    }
}

/// Goal: clients of a port that is no longer served still reach the activator until they are routed elsewhere. The port
/// keeps its target for a request that is held during the edit, and for later connections.
#[tokio::test]
async fn a_released_port_keeps_its_target() {
    let (rig, ip) = start_rig().await;
    let (first, second) = (Pod::saying("web").await, Pod::saying("admin").await);
    let [web, admin] = [id("web", 80), id("admin", 9000)];
    let update = async |ports: &[(&PortId, SocketAddr)]| {
        let at_pod =
            |(id, at): &(&PortId, SocketAddr)| Port { pod_port: Some(at.port()), ..port(id, PortProtocol::Auto) };
        let ports = ports.iter().map(at_pod).collect();
        let spec = Spec { ports, ..spec("app", &[]) };
        rig.emit(Event::Revision(Arc::new(spec))).await;
        rig.settled().await;
    };
    update(&[(&web, first.address), (&admin, second.address)]).await;
    ledger(&rig, &[held_number(FIRST, "app", web.clone()), held_number(FIRST + 1, "app", admin.clone())]).await;
    let held = tokio::spawn(get_at(ip, FIRST + 1));
    rig.until(|load| load.queued == 1).await;
    update(&[(&web, first.address)]).await;
    ledger(&rig, &[held_number(FIRST, "app", web), (FIRST + 1, "app", admin, released(0))]).await;
    rig.pods(&[first.address]).await;
    assert_eq!(held.await.expect("no panic").body, "admin");
    for (number, text) in [(FIRST, "web"), (FIRST + 1, "admin")] {
        assert_eq!(get_at(ip, number).await.body, text);
    }
}

/// Goal: the name of the port selects the port of the pod without HTTP, too. On a TCP port, HTTP is passed on
/// unchanged.
#[tokio::test]
async fn a_connection_reaches_the_port_of_that_name_at_the_pod() {
    let ports = [port(&id("web", 80), PortProtocol::Auto), port(&id("database", 5432), PortProtocol::Tcp)];
    let (rig, [web, database]) = app_with(|_| {}, ports, |_| {}).await;
    let ((first, first_at), (second, second_at)) = (bind().await, bind().await);
    named_ports(&rig, &[(first_at, &[("web", first_at.port()), ("database", second_at.port())])]).await;
    for (address, pod, sent) in [(web, first, "PING\r\n"), (database, second, "GET / HTTP/1.1\r\n\r\n")] {
        let _client = connect_and_write(address, sent).await;
        assert_eq!(first_bytes(&pod, sent.len()).await, sent);
    }
}

/// Goal: the connection reaches a pod once the object describes the port, regardless of its protocol.
#[tokio::test]
async fn a_connection_before_its_port_is_described_is_held() {
    let (rig, ip) = start_rig().await;
    let database = id("database", 5432);
    workload(&rig, "app", &[]).await;
    ledger(&rig, &[held_number(FIRST, "app", database.clone())]).await;
    let _client = connect_and_write(SocketAddr::new(ip, FIRST), "PING\r\n").await;
    rig.until(|load| load.queued == 1).await;
    workload(&rig, "app", &[database]).await;
    let (pod, pod_at) = bind().await;
    rig.pods(&[pod_at]).await;
    assert_eq!(first_bytes(&pod, 6).await, "PING\r\n");
}

/// Goal: existing and new connections are served, in any order of changes to ledger and object. The port keeps its
/// protocol.
#[tokio::test]
async fn a_port_is_served_while_its_service_renames_or_renumbers_it() {
    let (rig, ip) = start_rig().await;
    let update_objects = async |web: &PortId, database: &PortId| {
        for (name, id, protocol) in [("app", web, PortProtocol::Auto), ("db", database, PortProtocol::Tcp)] {
            let spec = Spec { ports: [port(id, protocol)].into(), ..spec(name, &[]) };
            rig.emit(Event::Revision(Arc::new(spec))).await;
        }
        rig.settled().await;
    };
    let update_ledger = async |web: &PortId, database: &PortId| {
        ledger(&rig, &[held_number(FIRST, "app", web.clone()), held_number(FIRST + 1, "db", database.clone())]).await;
    };
    let (pod, (database, database_at)) = (Pod::saying("served").await, bind().await);
    rig.pods(&[pod.address]).await;
    rig.pods_of("db", &[database_at]).await;
    let names = [(id("http", 80), id("db", 5432)), (id("http", 81), id("db", 5433)), (id("web", 81), id("sql", 5433))];
    update_objects(&names[0].0, &names[0].1).await;
    update_ledger(&names[0].0, &names[0].1).await;
    let mut persistent = http1_client(SocketAddr::new(ip, FIRST)).await;
    let mut is_served = async |when: &str| {
        let (old, new) = (get_http1(&mut persistent, "h").await, get_at(ip, FIRST).await);
        assert_eq!((old.body.as_str(), new.body.as_str()), ("served", "served"), "{when}: {old:?} {new:?}");
        let _client = connect_and_write(SocketAddr::new(ip, FIRST + 1), "PING\r\n").await;
        assert_eq!(first_bytes(&database, 6).await, "PING\r\n", "{when}");
    };
    is_served("before").await;
    for (n, (web, database)) in names.iter().enumerate().skip(1) {
        update_ledger(web, database).await;
        is_served(&format!("edit {n}, only in the ledger")).await;
        update_objects(web, database).await;
        is_served(&format!("edit {n}, everywhere")).await;
    }
    update_objects(&names[1].0, &names[1].1).await;
    is_served("only in the objects").await;
    patient(persistent.ready()).await.expect("still open");
}

/// Goal: in both protocols, a connection to the port of a deleted workload ends with its next response, even that of a
/// request that is held at the deletion, and its client reaches the new owner of the port. A connection to a shared port
/// stays open, because the next request may be for another workload.
#[tokio::test]
async fn deletion_of_a_workload_ends_connections_only_on_its_own_port() {
    let (rig, address) = app_with_port().await;
    let pod = rig.only_pod(Pod::saying("served").await).await;
    let (mut old1, mut old2) = (http1_client(address).await, http2_client(address).await);
    for _ in 0..2 {
        let answer = get_http1(&mut old1, "h").await;
        assert_eq!((answer.body.as_str(), answer.header("connection")), ("served", ""));
        assert_eq!(get_http2(&mut old2, "h").await.body, "served");
    }
    rig.pods(&[]).await;
    rig.until(|load| load.capacity == Capacity::CLOSED).await;
    let mut http1 = [http1_client(address).await, http1_client(rig.address).await];
    let mut http2 = [http2_client(address).await, http2_client(rig.address).await];
    let held1 = http1.each_mut().map(|client| tokio::spawn(client.send_request(request("app.ns"))));
    let held2 = http2.each_mut().map(|client| tokio::spawn(client.send_request(request("app.ns"))));
    rig.until(|load| load.queued == 4).await;
    rig.emit(Event::Deleted(key("app"))).await;
    let mut closes = Vec::new();
    for held in held1.into_iter().chain(held2) {
        let answer = FullResponse::read(patient(held).await.expect("no panic").expect("an answer")).await;
        assert_eq!(answer.header("x-zeroscale-reason"), "deleted");
        closes.push(answer.header("connection").to_owned());
    }
    assert_eq!(closes, ["close", "", "", ""]);
    let old = get_http1(&mut old1, "h").await;
    assert_eq!((old.header("x-zeroscale-reason"), old.header("connection")), ("not-served", "close"));
    let old = get_http2(&mut old2, "h").await;
    assert_eq!((old.header("x-zeroscale-reason"), old.header("connection")), ("not-served", ""));
    until(|| http1[0].is_closed() && http2[0].is_closed() && old1.is_closed() && old2.is_closed()).await;
    for answer in [http1[1].send_request(request("app.ns")).await, http2[1].send_request(request("app.ns")).await] {
        assert_eq!(answer.expect("open").status(), StatusCode::NOT_FOUND);
    }

    workload(&rig, "app", &[id("http", 80)]).await;
    rig.pods(&[pod.address]).await;
    rig.settled().await;
    assert_eq!(get_http1(&mut http1_client(address).await, "h").await.body, "served");
    assert_eq!(get_http2(&mut http2_client(address).await, "h").await.body, "served");
}

/// Goal: while a workload returns to direct routing, its clients are served, and each connection to its port ends, in
/// both protocols: with its next response, even that of a request that was already held, or without one if it is idle.
/// A connection to a shared port stays.
#[tokio::test]
async fn connections_to_a_workload_that_returns_to_direct_routing_end_without_a_lost_request() {
    let (rig, address) = app_with_port().await;
    let pod = rig.only_pod(Pod::saying("served").await).await;
    let (mut idle1, mut idle2) = (http1_client(address).await, http2_client(address).await);
    let mut shared = http1_client(rig.address).await;
    for client in [&mut idle1, &mut shared] {
        let answer = get_http1(client, "app.ns").await;
        assert_eq!((answer.body.as_str(), answer.header("connection")), ("served", ""));
    }
    assert_eq!(get_http2(&mut idle2, "h").await.body, "served");
    rig.pods(&[]).await;
    rig.until(|load| load.capacity == Capacity::CLOSED).await;
    let (mut held1, mut held2) = (http1_client(address).await, http2_client(address).await);
    let held = [tokio::spawn(held1.send_request(request("h"))), tokio::spawn(held2.send_request(request("h")))];
    rig.until(|load| load.queued == 2).await;

    let released = Spec { is_being_released: true, ..spec("app", &[id("http", 80)]) };
    rig.emit(Event::Revision(Arc::new(released))).await;
    rig.settled().await;
    rig.pods(&[pod.address]).await;
    for (held, connection) in held.into_iter().zip(["close", ""]) {
        let answer = FullResponse::read(patient(held).await.expect("no panic").expect("an answer")).await;
        assert_eq!((answer.body.as_str(), answer.header("connection")), ("served", connection));
    }
    let later = ask(address, Request::get("/").header("host", "h")).await;
    assert_eq!((later.body.as_str(), later.header("connection")), ("served", "close"));
    until(|| held1.is_closed() && held2.is_closed() && idle1.is_closed() && idle2.is_closed()).await;
    let answer = get_http1(&mut shared, "app.ns").await;
    assert_eq!((answer.body.as_str(), answer.header("connection")), ("served", ""));
}

/// Goal: responses to probes and the list of bound ports prove a number for one object and one process, while the
/// object has the number.
#[tokio::test]
async fn a_number_is_proven_only_for_the_object_that_has_it() {
    let (rig, ip) = start_rig().await;
    let taken = TcpListener::bind((ip, FIRST + 3)).await.expect("free");
    workload(&rig, "a", &[id("http", 80)]).await;
    let http = || id("http", 80);
    let lines = |first| {
        let rest = [(FIRST + 1, "unknown"), (FIRST + 2, "a"), (FIRST + 3, "a")];
        let states = [NumberState::Held, released(0), NumberState::Held];
        let rest = rest.into_iter().zip(states).map(|((number, name), state)| (number, name, http(), state));
        [(FIRST, "a", http(), first)].into_iter().chain(rest).collect::<Vec<_>>()
    };
    ledger(&rig, &lines(NumberState::Held)).await;
    let all = bound(&rig, "all").await;
    assert_eq!((all.pod.as_str(), all.ports.len()), ("activator-0", 4));
    let errors: Vec<_> = all.ports.iter().map(|port| port.error.clone().unwrap_or_default()).collect();
    assert!(errors[0].is_empty() && errors[2].is_empty(), "{errors:?}");
    assert!(errors[1].contains("not known") && errors[3].contains("in use"), "{errors:?}");
    assert!(all.has(FIRST, "u-a") && !all.has(FIRST, "u-b") && !all.has(FIRST + 2, "u-a") && all.ports[2].closing);
    let named = bound(&rig, "20001,20009").await;
    assert_eq!((named.ports.as_slice(), &named.instance), (&all.ports[1..2], &all.instance));

    let probe = |number| {
        let request = Request::get("/").header("host", "h").header("k-network-probe", "activator");
        ask(SocketAddr::new(ip, number), request)
    };
    let proof = probe(FIRST).await;
    assert_eq!((proof.status, proof.body.as_str()), (StatusCode::OK, "activator"));
    assert_eq!(probe(FIRST + 2).await.status, StatusCode::OK);
    let unknown = probe(FIRST + 1).await;
    assert_eq!(unknown.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!([&unknown, &proof].map(|answer| answer.header("connection")), ["close", ""]);
    assert_eq!(get_at(ip, FIRST + 1).await.header("x-zeroscale-reason"), "not-served");
    let refused = rig.send(Request::get("/").header("host", "none").header(QUESTION, "some")).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);

    // A number is released and then closed, a workload becomes known, an address becomes free: each changes the list of
    // all numbers.
    emit_ledger(&rig, &lines(released(0))).await;
    until_async(async || bound(&rig, "20000").await.ports[0].closing).await;
    assert!(bound(&rig, "all").await.ports[0].closing);
    workload(&rig, "unknown", &[id("http", 80)]).await;
    drop(taken);
    ledger(&rig, &lines(released(OPEN_FOR.as_secs()))).await;
    until_async(async || bound(&rig, "all").await.has(FIRST + 3, "u-a")).await;
    let all = bound(&rig, "all").await;
    assert!(all.has(FIRST + 1, "u-unknown") && all.ports.iter().all(|port| port.number != FIRST));
    assert!(TcpStream::connect((ip, FIRST)).await.is_err(), "it is closed");
    rig.emit(Event::Deleted(key("a"))).await;
    rig.settled().await;
    assert!(!bound(&rig, "all").await.has(FIRST + 3, "u-a"));
}

/// Goal: while clients have all connections, probes of a workload's port get responses, and requests for bound ports on
/// a shared port, too. Other requests on the workload's port are refused, including those that would be probes on a
/// shared port, and so is everything on a TCP port.
#[tokio::test]
async fn without_free_connections_a_port_serves_only_its_probes() {
    let ports = [port(&id("http", 80), PortProtocol::Auto), port(&id("tcp", 90), PortProtocol::Tcp)];
    let (rig, [auto, tcp]) = app_with(|options| options.clients.bounds.connections = 2, ports, |_| {}).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(connect_and_write(auto, "GET / HTTP/1.1\r\nhost: h\r\n\r\n").await);
    }
    rig.until(|load| load.queued == 2).await;
    let answer_at = async |address: SocketAddr, head: &str| {
        let request = format!("GET / HTTP/1.1\r\nhost: h\r\n{head}\r\n");
        read_to_end(&mut connect_and_write(address, &request).await).await
    };
    let proof = "k-network-probe: activator\r\n";
    let answer = answer_at(auto, proof).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("activator"), "{answer}");
    assert_eq!(bound(&rig, "all").await.ports.len(), 2);
    for traffic in ["", "user-agent: kube-probe/1.34\r\n", "zeroscale-ports: all\r\n"] {
        let answer = answer_at(auto, traffic).await;
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("max-connections"), "{traffic:?}: {answer}");
    }
    assert_eq!(answer_at(tcp, proof).await, "");
    rig.until(|load| load.queued == 2).await;
    drop(held);
}
