//! Relayed requests: if another activator holds the workload, requests are relayed there, without a visible difference.

use crate::fair::{activator, holder_first, list};
use crate::ports::{FIRST, id, ledger, port};
use crate::rig::{
    Answer, Pod, Rig, ask, backend, describe, echo_tunnel, full, http1_client, http2_client, key, patient, read_until,
    until, write,
};
use activator::discovery::{Event, Port, Spec};
use activator_core::breaker::Capacity;
use bytes::Bytes;
use common::backend::{Backend, Protocol};
use common::ports::NumberState;
use common_api::zeroscaler::PortProtocol;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use socket2::SockRef;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Two activators that share limits, the holder of `ns/app` first.
struct Pair {
    rigs: [Rig; 2],
    at: [SocketAddr; 2],
}

impl Pair {
    async fn start(change: impl Fn(&mut Backend)) -> Self {
        Self::start_with(|backend| {
            change(backend);
            Vec::new()
        })
        .await
    }

    async fn start_with(change: impl Fn(&mut Backend) -> Vec<Port>) -> Self {
        let at = holder_first();
        let rigs = [activator(at[0]).await, activator(at[1]).await];
        for rig in &rigs {
            list(rig, &at).await;
            let mut backend = Backend { container_concurrency: 1, ..backend("app") };
            let ports = change(&mut backend).into();
            let spec = Spec { uid: "u-app".into(), ports, ..Spec::standalone("ns", "app", backend) };
            rig.tell(Event::Revision(Arc::new(spec))).await;
        }
        until(|| rigs.iter().all(|rig| rig.activator.shares_pods())).await;
        Self { rigs, at }
    }

    async fn pods(&self, addresses: &[SocketAddr]) {
        for rig in &self.rigs {
            rig.ready_pods(addresses).await;
        }
    }

    /// Waits until the first one holds the pods.
    async fn held(&self) {
        self.rigs[0].until(|load| load.capacity != Capacity::CLOSED).await;
        let other = self.rigs[1].activator.load(&key("app")).expect("known");
        assert_eq!(other.capacity, Capacity::CLOSED, "one of them holds it");
    }

    /// Returns the workload's load at each activator.
    fn in_all(&self) -> [u32; 2] {
        [0, 1].map(|n| self.rigs[n].activator.load(&key("app")).map_or(0, |load| load.in_flight + load.queued))
    }
}

/// Returns the event of a revision `ns/app` with a hard limit of one.
fn revision() -> Event {
    let backend = Backend { container_concurrency: 1, ..backend("app") };
    Event::Revision(Arc::new(Spec::standalone("ns", "app", backend)))
}

async fn post(at: SocketAddr, body: impl Into<Bytes>) -> Answer {
    let request = Request::post("/post").header("host", "app.ns").body(Full::new(body.into())).expect("a request");
    let mut client = http1_client(at).await;
    Answer::read(patient(client.send_request(request)).await.expect("an answer")).await
}

/// Goal: pod and client see the same through either activator: headers, uploads, errors. A mark sent by a client is
/// ignored and removed. Only the holder counts load.
#[tokio::test]
async fn a_relayed_request_is_its_clients_own() {
    let mut pair = Pair::start(|backend| backend.max_held = 1).await;
    let pod = Pod::start(|request: Request<Incoming>| async move {
        let description = describe(&request);
        let body = request.into_body().collect().await.map_or_else(|_| Bytes::new(), |body| body.to_bytes());
        Response::new(full(format!("{description} {body:?}")))
    })
    .await;
    pair.pods(&[pod.address]).await;
    pair.held().await;
    let forged = "0123 127.0.0.9:1 000 0 ns/other";
    let mut observed = Vec::new();
    for at in pair.at {
        let mut answers = Vec::new();
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let body = if method == Method::POST { "hello" } else { "" };
            let request = Request::builder()
                .method(method)
                .uri("/path?query")
                .header("host", "app.ns")
                .header("x-forwarded-for", "203.0.113.9")
                .header("zeroscale-relayed", forged)
                .header("te", "trailers")
                .header("connection", "x-dropped")
                .header("x-dropped", "1")
                .body(Full::new(Bytes::from(body)))
                .expect("a request");
            let response = patient(http1_client(at).await.send_request(request)).await.expect("an answer");
            let mut answer = Answer::read(response).await;
            answer.headers.remove("date");
            assert_eq!(answer.status, StatusCode::OK);
            assert!(!answer.body.contains("zeroscale") && !answer.body.contains("expect"), "{}", answer.body);
            answers.push((answer.headers, answer.body));
        }
        observed.push(answers);
    }
    assert_eq!(observed[0], observed[1]);
    let others = &mut pair.rigs[1].stats;
    let of_app = |name: &str| name == "app";
    while let Ok(stat) = others.try_recv() {
        assert!(!of_app(&stat.name), "the holder alone reports it: {stat:?}");
    }
}

/// Goal: requests wait only at the holder, in one queue. The bound of the queue holds for all activators together, with
/// the same error response. A client disconnect takes effect there, too.
#[tokio::test]
async fn there_is_one_line() {
    let pair = Pair::start(|backend| backend.max_held = 2).await;
    let mut clients: Vec<TcpStream> = Vec::new();
    for (n, at) in [(1, pair.at[1]), (2, pair.at[0])] {
        let mut client = patient(TcpStream::connect(at)).await.expect("connected");
        write(&mut client, "POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 3\r\n\r\nabc").await;
        clients.push(client);
        until(|| pair.in_all() == [n, 0]).await;
    }
    let [refused, relayed] = [post(pair.at[0], "x").await, post(pair.at[1], "x").await];
    assert_eq!((refused.status, relayed.status), (StatusCode::SERVICE_UNAVAILABLE, StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(refused.body, relayed.body);
    assert_eq!(relayed.header("x-zeroscale-reason"), "max-held");
    // A reset, because an orderly end at once might be a half-close.
    SockRef::from(&clients[0]).set_linger(Some(Duration::ZERO)).expect("open");
    drop(clients.remove(0));
    until(|| pair.in_all() == [1, 0]).await;
    let pod = Pod::measuring().await;
    pair.pods(&[pod.address]).await;
    let answer = read_until(&mut clients[0], "\r\n\r\n3").await;
    assert!(answer.contains("200 OK"), "{answer}");
    until(|| pair.in_all() == [0, 0]).await;
}

/// Goal: HTTP/2 is relayed as HTTP/2, with bodies and trailers in both directions; the holder selects the pod's
/// protocol.
#[tokio::test]
async fn http2_is_relayed() {
    for protocol in [Protocol::H2c, Protocol::Http1] {
        let pair = Pair::start(|backend| backend.protocol = protocol).await;
        let pod = Pod::start(move |request: Request<Incoming>| async move {
            let version = format!("{:?} ", request.version());
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            let trailers =
                HeaderMap::from_iter([("grpc-status".parse().expect("a name"), "0".parse().expect("a value"))]);
            let frames = [Frame::data(Bytes::from(version)), Frame::data(body), Frame::trailers(trailers)];
            let body = StreamBody::new(futures::stream::iter(frames.map(Ok)));
            let mut response = Response::new(body.boxed_unsync());
            response.headers_mut().insert("trailer", "grpc-status".parse().expect("a value"));
            // Sent by a pod, so it has no meaning.
            response.headers_mut().insert("zeroscale-turned-away", "1".parse().expect("a value"));
            response
        })
        .await;
        pair.pods(&[pod.address]).await;
        pair.held().await;
        let request = Request::post("http://app.ns/test")
            .header("te", "trailers")
            .body(Full::new(Bytes::from("hello")))
            .expect("a request");
        let mut client = http2_client(pair.at[1]).await;
        let answer = Answer::read(patient(client.send_request(request)).await.expect("an answer")).await;
        let version = if protocol == Protocol::H2c { "HTTP/2.0" } else { "HTTP/1.1" };
        assert_eq!((answer.status, answer.body), (StatusCode::OK, format!("{version} hello")));
        assert!(!answer.headers.contains_key("zeroscale-turned-away"), "{:?}", answer.headers);
        assert_eq!(answer.trailers.expect("trailers")["grpc-status"], "0");
    }
}

/// Goal: an upgrade becomes a tunnel through both activators and holds its slot at the holder.
#[tokio::test]
async fn an_upgrade_is_relayed() {
    let pair = Pair::start(|_| {}).await;
    let pod = Pod::start(|request: Request<Incoming>| async move { echo_tunnel(request, "websocket") }).await;
    pair.pods(&[pod.address]).await;
    pair.held().await;
    let mut client = patient(TcpStream::connect(pair.at[1])).await.expect("connected");
    write(&mut client, "GET / HTTP/1.1\r\nhost: app.ns\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\nearly")
        .await;
    let answer = read_until(&mut client, "early").await;
    assert!(answer.starts_with("HTTP/1.1 101") && answer.contains("upgrade: websocket\r\n"), "{answer}");
    assert_eq!(pair.in_all(), [1, 0]);
    drop(client);
    until(|| pair.in_all() == [0, 0]).await;
}

/// Goal: a connection without HTTP is relayed to the same port, uses the pod's only slot there, and waits for it.
#[tokio::test]
async fn a_connection_of_bytes_is_relayed() {
    let id = id("tcp", 5432);
    let port = port(&id, PortProtocol::Tcp);
    let pair = Pair::start_with(|_| vec![port.clone()]).await;
    for rig in &pair.rigs {
        ledger(rig, &[(FIRST, "app", id.clone(), NumberState::Held)]).await;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let pod = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = client.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    pair.pods(&[pod]).await;
    pair.held().await;
    let mut clients = Vec::new();
    for (n, at) in [(1, pair.at[1]), (2, pair.at[1]), (3, pair.at[0])] {
        let at = SocketAddr::new(at.ip(), FIRST);
        let mut client = patient(TcpStream::connect(at)).await.expect("connected");
        write(&mut client, "hello").await;
        until(|| pair.in_all() == [n, 0]).await;
        clients.push(client);
    }
    for mut client in clients {
        assert_eq!(read_until(&mut client, "hello").await, "hello");
    }
    until(|| pair.in_all() == [0, 0]).await;
}

/// Goal: if a holder is killed, uploads that wait there are not lost: nothing of them was sent, and the next holder
/// gets each completely. Requests that are safe to repeat are not lost either. Method: none of them has a pod before
/// the holder is gone.
#[tokio::test]
async fn what_waits_at_a_holder_that_is_killed_goes_on() {
    let pair = Pair::start(|_| {}).await;
    let Pair { rigs: [first, second], at: [_, b] } = pair;
    let body = "x".repeat(300_000);
    let posts: Vec<_> = (0..5).map(|_| tokio::spawn(post(b, body.clone()))).collect();
    let get = tokio::spawn(ask(b, Request::get("/").header("host", "app.ns")));
    first.until(|load| load.queued == 6).await;
    drop(first);
    list(&second, &[b]).await;
    let pod = Pod::measuring().await;
    second.ready_pods(&[pod.address]).await;
    for post in posts {
        let answer = patient(post).await.expect("no panic");
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "300000"));
    }
    assert_eq!(patient(get).await.expect("no panic").status, StatusCode::OK);
    assert_eq!(pod.requests(), 6);
}

/// Goal: an upload whose client waits for a 100 goes to no second pod, because the first one has its head and may act
/// on it.
#[tokio::test]
async fn a_pod_that_has_an_uploads_head_has_it_alone() {
    let pair = Pair::start(|_| {}).await;
    let pod = Pod::start(|request: Request<Incoming>| async move {
        let _unread = request;
        std::future::pending().await
    })
    .await;
    pair.pods(&[pod.address]).await;
    pair.held().await;
    let Pair { rigs: [first, second], at: [_, b] } = pair;
    let mut client = patient(TcpStream::connect(b)).await.expect("connected");
    write(&mut client, "POST / HTTP/1.1\r\nhost: app.ns\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n").await;
    until(|| pod.requests() == 1).await;
    drop(first);
    list(&second, &[b]).await;
    read_until(&mut client, "502 Bad Gateway").await;
    assert_eq!(pod.requests(), 1);
}

/// Goal: requests are not lost either if the holder stalls while its kernel acknowledges everything: once it is dead,
/// they continue.
#[tokio::test]
async fn what_waits_at_a_holder_that_stands_still_goes_on() {
    let [a, b] = holder_first();
    let (frozen, freezes) = tokio::sync::oneshot::channel();
    let (thaw, thaws) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let first = activator(a).await;
            list(&first, &[a, b]).await;
            first.tell(revision()).await;
            first.until(|load| load.queued == 1).await;
            frozen.send(()).expect("heard");
            let _ = thaws.recv(); // Nothing else runs on this thread meanwhile.
        });
    });
    let second = activator(b).await;
    list(&second, &[a, b]).await;
    second.tell(revision()).await;
    until(|| second.activator.shares_pods()).await;
    let post = tokio::spawn(post(b, "x".repeat(100_000)));
    patient(freezes).await.expect("it waits there");
    list(&second, &[b]).await;
    let pod = Pod::measuring().await;
    second.ready_pods(&[pod.address]).await;
    let answer = patient(post).await.expect("no panic");
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "100000"));
    drop(thaw);
    thread.join().expect("no panic");
}

/// Goal: requests that wait at a lone activator move to a new one that holds the workload, over both protocols, and
/// with their bodies. When that one shuts down, they move back.
#[tokio::test]
async fn what_waits_follows_its_holder() {
    let [b, a] = holder_first();
    let first = activator(a).await;
    list(&first, &[a]).await;
    first.tell(revision()).await;
    let posts: Vec<_> = (0..5).map(|_| tokio::spawn(post(a, "x".repeat(100_000)))).collect();
    // Within the window that a holder grants, and beyond.
    let over_http2 = [64 * 1024, 200_000].map(|length| {
        tokio::spawn(async move {
            let body = Full::new(Bytes::from("x".repeat(length)));
            let request = Request::post("http://app.ns/").body(body).expect("a request");
            let mut client = http2_client(a).await;
            (length, Answer::read(patient(client.send_request(request)).await.expect("an answer")).await)
        })
    });
    first.until(|load| load.queued == 7).await;
    let second = activator(b).await;
    second.tell(revision()).await;
    for rig in [&first, &second] {
        list(rig, &[a, b]).await;
    }
    second.until(|load| load.queued == 7).await;
    first.until(|load| load.queued == 0).await;
    for rig in [&first, &second] {
        list(rig, &[a]).await;
    }
    first.until(|load| load.queued == 7).await;
    let pod = Pod::measuring().await;
    for rig in [&first, &second] {
        rig.ready_pods(&[pod.address]).await;
    }
    for post in posts {
        assert_eq!(patient(post).await.expect("no panic").body, "100000");
    }
    for post in over_http2 {
        let (length, answer) = patient(post).await.expect("no panic");
        assert_eq!(answer.body, length.to_string());
    }
    assert_eq!(pod.requests(), 7, "each once");
}
