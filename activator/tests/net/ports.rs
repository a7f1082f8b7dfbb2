//! Ports of workloads: every connection to such a port belongs to its workload, regardless of its content.

use crate::rig::{
    Answer, Pod, Rig, ask, backend, full, http1_client, http2_client, key, listen, own_address, patient, read_to_end,
    until, until_async, write,
};
use activator::discovery::{Event, Listing, Port, Spec};
use activator_core::breaker::Capacity;
use bytes::Bytes;
use common::RevisionKey;
use common::bound_ports::{BoundPorts, QUESTION};
use common::ports::ledger::OPEN_FOR;
use common::ports::{Block, Entry, Ledger, NumberState, PortId};
use common_api::zeroscaler::PortProtocol;
use common_runtime::clock::Clock;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// First port number; no other process has this address.
pub(crate) const FIRST: u16 = 20_000;

async fn rig() -> (Rig, IpAddr) {
    let ip = own_address().ip();
    (Rig::start_with(|options| options.http1 = SocketAddr::new(ip, 0)).await, ip)
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

/// Creates a revision whose uid begins with `u-` and whose Service has these ports.
async fn workload(rig: &Rig, name: &str, ports: &[PortId]) {
    rig.tell(Event::Revision(Arc::new(spec(name, ports)))).await;
}

fn spec(name: &str, ports: &[PortId]) -> Spec {
    let ports = ports.iter().map(|id| port(id, PortProtocol::Auto)).collect();
    Spec { uid: format!("u-{name}").into(), ports, ..Spec::standalone("ns", name, backend(name)) }
}

/// Sends the ledger: number, workload, its port, state.
pub(crate) async fn ledger(rig: &Rig, lines: &[(u16, &str, PortId, NumberState)]) {
    tell_ledger(rig, lines).await;
    rig.settled().await;
}

async fn tell_ledger(rig: &Rig, lines: &[(u16, &str, PortId, NumberState)]) {
    let entry = |(number, name, port, state): &(u16, &str, PortId, NumberState)| {
        let (key, uid) = (RevisionKey::new("ns", *name), format!("u-{name}").into());
        (*number, Entry { state: *state, key, uid, port: port.clone() })
    };
    let entries: Ledger = lines.iter().map(entry).collect();
    rig.tell(Event::Numbers { block: Block::containing(FIRST), entries }).await;
}

async fn bound(rig: &Rig, question: &str) -> BoundPorts {
    let answer = rig.send(Request::get("/whatever").header("host", "none").header(QUESTION, question)).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    serde_json::from_str(&answer.body).expect("readable")
}

/// Goal: no request head on a workload's port reaches another workload or the activator itself.
#[tokio::test]
async fn whatever_is_said_on_a_workloads_port_it_means_that_workload() {
    let (rig, ip) = rig().await;
    for name in ["a", "b"] {
        workload(&rig, name, &[id("http", 80)]).await;
    }
    ledger(
        &rig,
        &[(FIRST, "a", id("http", 80), NumberState::Held), (FIRST + 1, "b", id("http", 80), NumberState::Held)],
    )
    .await;
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
        let mut stream = patient(TcpStream::connect(address)).await.expect("bound");
        write(&mut stream, &format!("{head}Connection: close\r\n\r\n")).await;
        let answer = read_to_end(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.") && answer.contains("http/1.1 GET /x"), "{head:?}: {answer}");
    }
    let other = ask(SocketAddr::new(ip, FIRST + 1), Request::get("/").header("host", "a.ns")).await;
    assert_eq!((other.body.as_str(), a.requests()), ("b", heads.len()));
}

/// Goal: a guarded workload is served on its own port. Shared ports refuse it with the reason and the remedy. A number that
/// was taken away is closed at once.
#[tokio::test]
async fn a_guarded_workload_is_served_on_its_own_ports_alone() {
    let (rig, ip) = rig().await;
    rig.tell(Event::Revision(Arc::new(Spec { guarded: true, ..spec("app", &[id("http", 80)]) }))).await;
    ledger(&rig, &[(FIRST, "app", id("http", 80), NumberState::Held)]).await;
    let pod = Pod::saying("app").await;
    rig.pods(&[pod.address]).await;
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
async fn a_request_without_a_host_is_sent_the_name_of_the_service() {
    let (mut rig, ip) = rig().await;
    workload(&rig, "app", &[id("http", 80)]).await;
    ledger(&rig, &[(FIRST, "app", id("http", 80), NumberState::Held)]).await;
    let pod = Pod::echoing().await;
    let heads =
        ["OPTIONS / HTTP/1.0\r\n", "GET / HTTP/1.0\r\nHost:\r\n", "GET / HTTP/1.1\r\nHost: \r\nConnection: close\r\n"];
    for (at, head) in heads.into_iter().enumerate() {
        let mut stream = patient(TcpStream::connect(SocketAddr::new(ip, FIRST))).await.expect("bound");
        write(&mut stream, &format!("{head}\r\n")).await;
        if at == 0 {
            rig.until(|load| load.queued == 1).await;
            assert_eq!(rig.next_stat().await.name, "app", "it wakes");
            rig.pods(&[pod.address]).await;
        }
        let answer = read_to_end(&mut stream).await;
        assert!(answer.contains("\nhost: app.ns.svc\n"), "{head:?}: {answer}");
    }
    let mut without = patient(TcpStream::connect(SocketAddr::new(ip, FIRST))).await.expect("bound");
    write(&mut without, "GET / HTTP/1.1\r\nConnection: close\r\n\r\n").await;
    assert!(read_to_end(&mut without).await.starts_with("HTTP/1.1 400 "), "HTTP/1.1 requires the field");
}

/// Creates a workload `app` with two ports, FIRST and the next, and a pod for it: at `web`, and at `admin` for the
/// second port.
async fn two_ports(rig: &Rig, web: SocketAddr, admin: u16) {
    let ids = [id("web", 80), id("admin", 9000)];
    workload(rig, "app", &ids).await;
    let [first, second] = ids;
    ledger(rig, &[(FIRST, "app", first, NumberState::Held), (FIRST + 1, "app", second, NumberState::Held)]).await;
    let ports = [("web".to_owned(), web.port()), ("admin".to_owned(), admin)].into();
    let listing = Listing { not_ready: [web.into()].into(), ports: [(web.ip(), ports)].into(), ..Listing::default() };
    rig.tell(Event::Pods { key: key("app"), listing }).await;
}

/// Goal: a request to a port that some pods lack goes to a pod that has it, for instance during a rollout.
#[tokio::test]
async fn a_port_that_some_pods_lack_is_found_at_the_others() {
    let (rig, ip) = rig().await;
    let at = [own_address(), own_address()];
    let on = async |at: SocketAddr, text: &'static str| {
        let listener = tokio::net::TcpListener::bind(at).await.expect("nobody else's");
        Pod::on(listener, move |_| async move { Response::new(full(text)) })
    };
    let (former, newer) = (on(at[0], "former").await, on(at[1], "newer").await);
    let admin = on(SocketAddr::new(at[1].ip(), at[1].port() + 1), "admin").await;
    two_ports(&rig, newer.address, admin.address.port()).await;
    let web = ("web".to_owned(), at[0].port());
    let both = [web.clone(), ("admin".to_owned(), admin.address.port())].into();
    let ports = [(at[0].ip(), [web].into()), (at[1].ip(), both)].into();
    let listing = Listing { not_ready: [at[0].into(), at[1].into()].into(), ports, ..Listing::default() };
    rig.tell(Event::Pods { key: key("app"), listing }).await;
    let ask_at = |number| ask(SocketAddr::new(ip, number), Request::get("/").header("host", "h"));
    until_async(async || {
        ask_at(FIRST).await;
        former.requests() > 0 && newer.requests() > 0
    })
    .await;
    for _ in 0..20 {
        let answer = ask_at(FIRST + 1).await;
        assert_eq!(answer.body, "admin", "{answer:?}");
    }
}

/// Goal: a request to a port on which a pod does not listen yet waits until it does, and the pod stays in use.
#[tokio::test]
async fn a_port_that_listens_later_than_its_pod_is_waited_for() {
    let (rig, ip) = rig().await;
    let at = own_address();
    let later = SocketAddr::new(at.ip(), at.port() + 1);
    let on = async |at: SocketAddr, text: &'static str| {
        let listener = tokio::net::TcpListener::bind(at).await.expect("nobody else's");
        Pod::on(listener, move |_| async move { Response::new(full(text)) })
    };
    let _first = on(at, "web").await;
    two_ports(&rig, at, later.port()).await;
    let ask_at = |number| ask(SocketAddr::new(ip, number), Request::get("/").header("host", "h"));
    assert_eq!(ask_at(FIRST).await.body, "web");
    let asking = tokio::spawn(ask_at(FIRST + 1));
    rig.until(|load| load.in_flight == 1).await;
    for _ in 0..50 {
        assert_eq!(ask_at(FIRST).await.body, "web");
    }
    assert!(!asking.is_finished(), "{:?}", asking.await);
    let _second = on(later, "admin").await;
    assert_eq!(patient(asking).await.expect("no panic").body, "admin");
}

/// Goal: a port that a policy blocks does not take the pod out of use. Method: the kernel drops all packets to its
/// listener, including handshakes.
#[tokio::test]
async fn a_port_that_is_barred_takes_the_pod_from_nobody() {
    let (rig, ip) = rig().await;
    let first = Pod::saying("web").await;
    let barred = std::net::TcpListener::bind((first.address.ip(), 0)).expect("a free port");
    socket2::SockRef::from(&barred).attach_filter(&[socket2::SockFilter::new(0x06, 0, 0, 0)]).expect("permitted");
    two_ports(&rig, first.address, barred.local_addr().expect("bound").port()).await;
    let ask_at = |number| ask(SocketAddr::new(ip, number), Request::get("/").header("host", "h"));
    assert_eq!(ask_at(FIRST).await.body, "web");
    let has_room = || rig.activator.load(&key("app")).is_some_and(|load| load.capacity != Capacity::CLOSED);
    let (asking, begun) = (tokio::spawn(ask_at(FIRST + 1)), Instant::now());
    rig.until(|load| load.in_flight == 1).await;
    // Long enough for two connects without a response.
    while begun.elapsed() < Duration::from_secs(4) {
        assert_eq!(ask_at(FIRST).await.body, "web");
        assert!(has_room(), "the pod is out");
    }
    assert!(!asking.is_finished(), "{:?}", asking.await);
    asking.abort();
}

/// Goal: if a Service renames a further port, the port is served all the while, in any order of ledger, object and
/// slices.
#[tokio::test]
async fn a_further_port_that_is_renamed_is_served_all_the_while() {
    let (rig, ip) = rig().await;
    let (first, second) = (Pod::saying("web").await, Pod::saying("admin").await);
    let tell = async |part: usize, name: &str| {
        let (web, admin) = (id("web", 80), id(name, 9000));
        match part {
            0 => workload(&rig, "app", &[web, admin]).await,
            1 => {
                ledger(&rig, &[(FIRST, "app", web, NumberState::Held), (FIRST + 1, "app", admin, NumberState::Held)])
                    .await
            }
            _ => {
                let ports = [("web".to_owned(), first.address.port()), (name.to_owned(), second.address.port())].into();
                let not_ready = [first.address.into()].into();
                let listing = Listing { not_ready, ports: [(first.address.ip(), ports)].into(), ..Listing::default() };
                rig.tell(Event::Pods { key: key("app"), listing }).await;
            }
        }
        rig.settled().await;
    };
    let is_served = async |when: &str| {
        for (number, text) in [(FIRST, "web"), (FIRST + 1, "admin")] {
            let answer = ask(SocketAddr::new(ip, number), Request::get("/").header("host", "h")).await;
            assert_eq!(answer.body, text, "{when}: {answer:?}");
        }
    };
    for part in 0..3 {
        tell(part, "admin").await;
    }
    is_served("as it was").await;
    for (n, order) in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].into_iter().enumerate() {
        for part in order {
            tell(part, &format!("admin-{n}")).await;
            is_served(&format!("{order:?}, {part} is told")).await;
        }
    }
}

/// Goal: a Service that is no longer served still leads here until its clients are routed elsewhere. Its port keeps its
/// target, also for a request that is held during the edit, and on a later connection.
#[tokio::test]
async fn a_port_that_is_given_up_leads_on() {
    let (rig, ip) = rig().await;
    let (first, second) = (Pod::saying("web").await, Pod::saying("admin").await);
    let [web, admin] = [id("web", 80), id("admin", 9000)];
    let tell = async |ports: &[(&PortId, SocketAddr)]| {
        let at_pod =
            |(id, at): &(&PortId, SocketAddr)| Port { pod_port: Some(at.port()), ..port(id, PortProtocol::Auto) };
        let ports = ports.iter().map(at_pod).collect();
        let spec = Spec { uid: "u-app".into(), ports, ..Spec::standalone("ns", "app", backend("app")) };
        rig.tell(Event::Revision(Arc::new(spec))).await;
        rig.settled().await;
    };
    tell(&[(&web, first.address), (&admin, second.address)]).await;
    ledger(
        &rig,
        &[(FIRST, "app", web.clone(), NumberState::Held), (FIRST + 1, "app", admin.clone(), NumberState::Held)],
    )
    .await;
    let get = || Request::get("/").header("host", "h");
    let held = tokio::spawn(ask(SocketAddr::new(ip, FIRST + 1), get()));
    rig.until(|load| load.queued == 1).await;
    tell(&[(&web, first.address)]).await;
    ledger(&rig, &[(FIRST, "app", web, NumberState::Held), (FIRST + 1, "app", admin, released(0))]).await;
    rig.pods(&[first.address]).await;
    assert_eq!(held.await.expect("no panic").body, "admin");
    for (number, text) in [(FIRST, "web"), (FIRST + 1, "admin")] {
        assert_eq!(ask(SocketAddr::new(ip, number), get()).await.body, text);
    }
}

/// Goal: a connection without HTTP also reaches the port of that name at the pod. On a TCP port, HTTP is passed on
/// unchanged.
#[tokio::test]
async fn a_connection_is_led_to_its_port_of_the_pod() {
    let (rig, ip) = rig().await;
    let (web, database) = (id("web", 80), id("database", 5432));
    let ports = vec![port(&web, PortProtocol::Auto), port(&database, PortProtocol::Tcp)];
    let spec = Spec { uid: "u-app".into(), ports: ports.into(), ..Spec::standalone("ns", "app", backend("app")) };
    rig.tell(Event::Revision(Arc::new(spec))).await;
    ledger(&rig, &[(FIRST, "app", web, NumberState::Held), (FIRST + 1, "app", database, NumberState::Held)]).await;
    let (first, second) = (listen().await, listen().await);
    let [first_at, second_at] = [&first, &second].map(|pod| pod.local_addr().expect("bound"));
    let ports = [("web".to_owned(), first_at.port()), ("database".to_owned(), second_at.port())].into();
    let not_ready = [first_at.into()].into();
    let listing = Listing { not_ready, ports: [(first_at.ip(), ports)].into(), ..Listing::default() };
    rig.tell(Event::Pods { key: key("app"), listing }).await;
    for (number, pod, sent) in [(FIRST, first, "PING\r\n"), (FIRST + 1, second, "GET / HTTP/1.1\r\n\r\n")] {
        let mut client = patient(TcpStream::connect((ip, number))).await.expect("bound");
        write(&mut client, sent).await;
        // Connections that end without a byte are probes.
        let mut read = vec![0; sent.len()];
        while patient(patient(pod.accept()).await.expect("a connection").0.read_exact(&mut read)).await.is_err() {}
        assert_eq!(read, sent.as_bytes());
    }
}

/// Goal: a connection before the object describes its ports also reaches a pod, regardless of its protocol.
#[tokio::test]
async fn a_connection_before_its_port_is_described_is_held() {
    let (rig, ip) = rig().await;
    let database = id("database", 5432);
    workload(&rig, "app", &[]).await;
    ledger(&rig, &[(FIRST, "app", database.clone(), NumberState::Held)]).await;
    let mut client = patient(TcpStream::connect((ip, FIRST))).await.expect("bound");
    write(&mut client, "PING\r\n").await;
    rig.until(|load| load.queued == 1).await;
    workload(&rig, "app", &[database]).await;
    let pod = listen().await;
    rig.pods(&[pod.local_addr().expect("bound")]).await;
    let mut read = [0; 6];
    // Connections that end without a byte are probes.
    while patient(patient(pod.accept()).await.expect("a connection").0.read_exact(&mut read)).await.is_err() {}
    assert_eq!(&read, b"PING\r\n");
}

/// Goal: a port that its Service renumbers or renames is served all the while, on existing and new connections, in any
/// order of ledger and object; and it keeps its protocol.
#[tokio::test]
async fn a_port_that_is_called_otherwise_is_served_all_the_while() {
    let (rig, ip) = rig().await;
    let tell = async |web: &PortId, database: &PortId| {
        for (name, id, protocol) in [("app", web, PortProtocol::Auto), ("db", database, PortProtocol::Tcp)] {
            let port = port(id, protocol);
            let backend = backend(name);
            let spec =
                Spec { uid: format!("u-{name}").into(), ports: [port].into(), ..Spec::standalone("ns", name, backend) };
            rig.tell(Event::Revision(Arc::new(spec))).await;
        }
        rig.settled().await;
    };
    let write_down = async |web: &PortId, database: &PortId| {
        let lines =
            [(FIRST, "app", web.clone(), NumberState::Held), (FIRST + 1, "db", database.clone(), NumberState::Held)];
        ledger(&rig, &lines).await;
    };
    let (pod, database) = (Pod::saying("served").await, listen().await);
    rig.pods(&[pod.address]).await;
    rig.pods_of("db", &[database.local_addr().expect("bound")]).await;
    let names = [(id("http", 80), id("db", 5432)), (id("http", 81), id("db", 5433)), (id("web", 81), id("sql", 5433))];
    tell(&names[0].0, &names[0].1).await;
    write_down(&names[0].0, &names[0].1).await;
    let address = SocketAddr::new(ip, FIRST);
    let mut persistent = http1_client(address).await;
    let mut is_served = async |when: &str| {
        let request = || Request::get("/").header("host", "h").body(Empty::<Bytes>::new()).expect("a request");
        let old = Answer::read(patient(persistent.send_request(request())).await.expect(when)).await;
        let new = ask(address, Request::get("/").header("host", "h")).await;
        assert_eq!((old.body.as_str(), new.body.as_str()), ("served", "served"), "{when}: {old:?} {new:?}");
        patient(persistent.ready()).await.expect(when);
        let mut client = patient(TcpStream::connect((ip, FIRST + 1))).await.expect("bound");
        write(&mut client, "PING\r\n").await;
        let mut read = [0; 6];
        // Connections that end without a byte are probes.
        while patient(patient(database.accept()).await.expect(when).0.read_exact(&mut read)).await.is_err() {}
        assert_eq!(&read, b"PING\r\n", "{when}");
    };
    is_served("as it was").await;
    for (n, (web, database)) in names.iter().enumerate().skip(1) {
        write_down(web, database).await;
        is_served(&format!("edit {n} is in the ledger")).await;
        tell(web, database).await;
        is_served(&format!("edit {n} is everywhere")).await;
    }
    tell(&names[1].0, &names[1].1).await;
    is_served("the object is told first").await;
}

fn request(host: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://{host}/")).header("host", host).body(Empty::new()).expect("a request")
}

/// Goal: a client connected to a port that is no longer served gets one error response, and the connection ends, so
/// that a client with a persistent connection reconnects to the new owner of the port; in both protocols.
#[tokio::test]
async fn a_connection_to_a_port_that_is_not_served_ends_with_the_answer() {
    let (rig, ip) = rig().await;
    let pod = Pod::saying("served").await;
    workload(&rig, "app", &[id("http", 80)]).await;
    ledger(&rig, &[(FIRST, "app", id("http", 80), NumberState::Held)]).await;
    rig.pods(&[pod.address]).await;
    let address = SocketAddr::new(ip, FIRST);
    let (mut http1, mut http2) = (http1_client(address).await, http2_client(address).await);
    for _ in 0..2 {
        let answer = Answer::read(patient(http1.send_request(request("h"))).await.expect("open")).await;
        assert_eq!((answer.body.as_str(), answer.header("connection")), ("served", ""));
        let answer = Answer::read(patient(http2.send_request(request("h"))).await.expect("open")).await;
        assert_eq!(answer.body, "served");
        patient(http1.ready()).await.expect("open");
    }
    rig.tell(Event::Deleted(key("app"))).await;
    rig.settled().await;
    let old = Answer::read(patient(http1.send_request(request("h"))).await.expect("open")).await;
    assert_eq!((old.header("x-zeroscale-reason"), old.header("connection")), ("not-served", "close"));
    let old = Answer::read(patient(http2.send_request(request("h"))).await.expect("open")).await;
    assert_eq!((old.header("x-zeroscale-reason"), old.header("connection")), ("not-served", ""));
    until(|| http1.is_closed() && http2.is_closed()).await;

    workload(&rig, "app", &[id("http", 80)]).await;
    rig.settled().await;
    let (mut http1, mut http2) = (http1_client(address).await, http2_client(address).await);
    assert_eq!(Answer::read(patient(http1.send_request(request("h"))).await.expect("open")).await.body, "served");
    assert_eq!(Answer::read(patient(http2.send_request(request("h"))).await.expect("open")).await.body, "served");
}

/// Goal: the connection also ends if its request is held when its workload is deleted. On a shared port it stays open,
/// because the next request may be for another workload.
#[tokio::test]
async fn a_connection_whose_workload_is_deleted_ends_on_a_port_of_its_own_alone() {
    let (rig, ip) = rig().await;
    workload(&rig, "app", &[id("http", 80)]).await;
    ledger(&rig, &[(FIRST, "app", id("http", 80), NumberState::Held)]).await;
    let address = SocketAddr::new(ip, FIRST);
    let mut http1 = [http1_client(address).await, http1_client(rig.address).await];
    let mut http2 = [http2_client(address).await, http2_client(rig.address).await];
    let held1 = http1.each_mut().map(|client| tokio::spawn(client.send_request(request("app.ns"))));
    let held2 = http2.each_mut().map(|client| tokio::spawn(client.send_request(request("app.ns"))));
    rig.until(|load| load.queued == 4).await;
    rig.tell(Event::Deleted(key("app"))).await;
    let mut closes = Vec::new();
    for held in held1.into_iter().chain(held2) {
        let answer = Answer::read(patient(held).await.expect("no panic").expect("an answer")).await;
        assert_eq!(answer.header("x-zeroscale-reason"), "deleted");
        closes.push(answer.header("connection").to_owned());
    }
    assert_eq!(closes, ["close", "", "", ""]);
    until(|| http1[0].is_closed() && http2[0].is_closed()).await;
    for answer in [http1[1].send_request(request("app.ns")).await, http2[1].send_request(request("app.ns")).await] {
        assert_eq!(answer.expect("open").status(), StatusCode::NOT_FOUND);
    }
}

/// Goal: while a workload returns to direct routing, its clients are served, and each connection to its port ends, in
/// both protocols: with its next response, even that of a request held before, or without one if it is idle.
/// Connections to other ports stay.
#[tokio::test]
async fn connections_to_what_is_being_given_back_end_and_cost_no_request() {
    let (rig, ip) = rig().await;
    let lines = [(FIRST, "app"), (FIRST + 1, "cold"), (FIRST + 2, "other")];
    for (_, name) in lines {
        workload(&rig, name, &[id("http", 80)]).await;
    }
    ledger(&rig, &lines.map(|(number, name)| (number, name, id("http", 80), NumberState::Held))).await;
    let pod = Pod::saying("served").await;
    rig.pods(&[pod.address]).await;
    rig.pods_of("other", &[pod.address]).await;
    let [app, cold, other] = lines.map(|(number, _)| SocketAddr::new(ip, number));
    let (mut cold1, mut cold2) = (http1_client(cold).await, http2_client(cold).await);
    let held = [tokio::spawn(cold1.send_request(request("h"))), tokio::spawn(cold2.send_request(request("h")))];
    until(|| rig.activator.load(&key("cold")).is_some_and(|load| load.queued == 2)).await;
    let (mut http1, mut http2) = (http1_client(app).await, http2_client(app).await);
    let (mut idle1, mut idle2) = (http1_client(app).await, http2_client(app).await);
    let mut others = [http1_client(other).await, http1_client(rig.address).await];
    for client in [&mut http1, &mut idle1].into_iter().chain(&mut others) {
        let answer = Answer::read(patient(client.send_request(request("app.ns"))).await.expect("open")).await;
        assert_eq!((answer.body.as_str(), answer.header("connection")), ("served", ""));
        patient(client.ready()).await.expect("open");
    }
    for client in [&mut http2, &mut idle2] {
        let answer = Answer::read(patient(client.send_request(request("h"))).await.expect("open")).await;
        assert_eq!(answer.body, "served");
    }
    // Just now, so that none is idle too long on a slow machine.
    Answer::read(patient(http1.send_request(request("h"))).await.expect("open")).await;
    Answer::read(patient(http2.send_request(request("h"))).await.expect("open")).await;
    patient(http1.ready()).await.expect("open");

    for name in ["app", "cold"] {
        let given_back = Spec { given_back: true, ..spec(name, &[id("http", 80)]) };
        rig.tell(Event::Revision(Arc::new(given_back))).await;
    }
    rig.settled().await;
    let mut answers = vec![patient(http1.send_request(request("h"))).await.expect("open")];
    answers.push(patient(http2.send_request(request("h"))).await.expect("open"));
    rig.pods_of("cold", &[pod.address]).await;
    for held in held {
        answers.push(patient(held).await.expect("no panic").expect("an answer"));
    }
    let mut endings = Vec::new();
    for answer in answers {
        let answer = Answer::read(answer).await;
        endings.push((answer.header("connection").to_owned(), answer.body));
    }
    let expected = ["close", "", "close", ""].map(|connection| (connection.to_owned(), "served".to_owned()));
    assert_eq!(endings, expected);
    until(|| cold1.is_closed() && cold2.is_closed() && http1.is_closed() && http2.is_closed()).await;
    let later = ask(app, Request::get("/").header("host", "h")).await;
    assert_eq!((later.body.as_str(), later.header("connection")), ("served", "close"));
    until(|| idle1.is_closed() && idle2.is_closed()).await;
    for client in &mut others {
        let answer = Answer::read(patient(client.send_request(request("app.ns"))).await.expect("open")).await;
        assert_eq!((answer.body.as_str(), answer.header("connection")), ("served", ""));
    }
}

/// Goal: a number is proven for one object only, from one process, and only while the object has it.
#[tokio::test]
async fn a_number_is_proven_for_the_object_that_has_it_and_for_no_other() {
    let (rig, ip) = rig().await;
    let taken = tokio::net::TcpListener::bind((ip, FIRST + 3)).await.expect("free");
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

    let get = || Request::get("/").header("host", "h");
    let probe = |number| ask(SocketAddr::new(ip, number), get().header("k-network-probe", "activator"));
    let proof = probe(FIRST).await;
    assert_eq!((proof.status, proof.body.as_str()), (StatusCode::OK, "activator"));
    assert_eq!(probe(FIRST + 2).await.status, StatusCode::OK);
    let unknown = probe(FIRST + 1).await;
    assert_eq!(unknown.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!([&unknown, &proof].map(|answer| answer.header("connection")), ["close", ""]);
    assert_eq!(ask(SocketAddr::new(ip, FIRST + 1), get()).await.header("x-zeroscale-reason"), "not-served");
    let refused = rig.send(Request::get("/").header("host", "none").header(QUESTION, "some")).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);

    // Released, closed, known, free: each changes the response with all numbers.
    tell_ledger(&rig, &lines(released(0))).await;
    until_async(async || bound(&rig, "20000").await.ports[0].closing).await;
    assert!(bound(&rig, "all").await.ports[0].closing);
    workload(&rig, "unknown", &[id("http", 80)]).await;
    drop(taken);
    ledger(&rig, &lines(released(OPEN_FOR.as_secs()))).await;
    until_async(async || bound(&rig, "all").await.has(FIRST + 3, "u-a")).await;
    let all = bound(&rig, "all").await;
    assert!(all.has(FIRST + 1, "u-unknown") && all.ports.iter().all(|port| port.number != FIRST));
    assert!(TcpStream::connect((ip, FIRST)).await.is_err(), "it is closed");
    rig.tell(Event::Deleted(key("a"))).await;
    rig.settled().await;
    assert!(!bound(&rig, "all").await.has(FIRST + 3, "u-a"));
}

/// Goal: while clients have all connections, a probe of a port gets its response on the port, and so does the request
/// for bound ports on a shared port. Other traffic on a workload's port is turned away, including requests that would
/// be probes on a shared port, and so is everything on a TCP port.
#[tokio::test]
async fn without_room_a_port_still_says_whose_it_is() {
    let ip = own_address().ip();
    let rig = Rig::start_with(|options| {
        options.http1 = SocketAddr::new(ip, 0);
        options.clients.bounds.connections = 2;
    })
    .await;
    let (auto, tcp) = (id("http", 80), id("tcp", 90));
    let ports = vec![port(&auto, PortProtocol::Auto), port(&tcp, PortProtocol::Tcp)];
    let spec = Spec { uid: "u-app".into(), ports: ports.into(), ..Spec::standalone("ns", "app", backend("app")) };
    rig.tell(Event::Revision(Arc::new(spec))).await;
    ledger(&rig, &[(FIRST, "app", auto, NumberState::Held), (FIRST + 1, "app", tcp, NumberState::Held)]).await;
    let address = SocketAddr::new(ip, FIRST);
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = patient(TcpStream::connect(address)).await.expect("bound");
        write(&mut client, "GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        held.push(client);
    }
    rig.until(|load| load.queued == 2).await;
    let answer_at = async |number: u16, head: &str| {
        let mut client = patient(TcpStream::connect(SocketAddr::new(ip, number))).await.expect("bound");
        write(&mut client, &format!("GET / HTTP/1.1\r\nhost: h\r\n{head}\r\n")).await;
        read_to_end(&mut client).await
    };
    let proof = "k-network-probe: activator\r\n";
    let answer = answer_at(FIRST, proof).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("activator"), "{answer}");
    assert_eq!(bound(&rig, "all").await.ports.len(), 2);
    for traffic in ["", "user-agent: kube-probe/1.34\r\n", "zeroscale-ports: all\r\n"] {
        let answer = answer_at(FIRST, traffic).await;
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("max-connections"), "{traffic:?}: {answer}");
    }
    assert_eq!(answer_at(FIRST + 1, proof).await, "");
    rig.until(|load| load.queued == 2).await;
    drop(held);
}
