//! Requests at an activator that does not hold the workload: they are relayed to the holder, without a visible
//! difference.

use crate::fair::{activator, holder_first, list};
use crate::ports::{FIRST, held_number, id, ledger, port};
use crate::rig::{
    Pod, Rig, UPGRADE, ask, ask_http2, ask_with, backend, connect_and_write, describe, echo_tunnel, full, key, listen,
    patient, post, read_until, reset, until,
};
use activator::discovery::{Event, Port, Spec};
use activator_core::breaker::Capacity;
use bytes::Bytes;
use common::backend::{Backend, Protocol};
use common_api::zeroscaler::PortProtocol;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use std::net::SocketAddr;
use std::sync::Arc;

/// Two activators that share limits, the holder of `ns/app` first.
struct Pair {
    rigs: [Rig; 2],
    at: [SocketAddr; 2],
}

impl Pair {
    async fn start(ports: &[Port], change: impl Fn(&mut Backend)) -> Self {
        let at = holder_first();
        let rigs = [activator(at[0]).await, activator(at[1]).await];
        for rig in &rigs {
            list(rig, &at).await;
            let mut backend = Backend { container_concurrency: 1, ..backend("app") };
            change(&mut backend);
            let spec = Spec { uid: "u-app".into(), ports: ports.into(), ..Spec::standalone("ns", "app", backend) };
            rig.emit(Event::Revision(Arc::new(spec))).await;
        }
        until(|| rigs.iter().all(|rig| rig.activator.shares_pods())).await;
        Self { rigs, at }
    }

    async fn pods(&self, addresses: &[SocketAddr]) {
        for rig in &self.rigs {
            rig.ready_pods(addresses).await;
        }
    }

    /// Sets the only pod, and waits until the first one holds it.
    async fn hold(&self, pod: &Pod) {
        self.pods(&[pod.address]).await;
        self.rigs[0].until(|load| load.capacity != Capacity::CLOSED).await;
        let other = self.rigs[1].activator.load(&key("app")).expect("known");
        assert_eq!(other.capacity, Capacity::CLOSED, "only one of them holds it");
    }

    /// Returns the number of the workload's requests at each activator.
    fn requests(&self) -> [u32; 2] {
        [0, 1].map(|n| self.rigs[n].activator.load(&key("app")).map_or(0, |load| load.in_flight + load.queued))
    }
}

/// Returns the event of a revision `ns/app` with a hard limit of one.
fn revision() -> Event {
    let backend = Backend { container_concurrency: 1, ..backend("app") };
    Event::Revision(Arc::new(Spec::standalone("ns", "app", backend)))
}

/// Goal: headers and bodies are the same through either activator. A mark sent by a client is ignored and removed. Only
/// the holder reports load.
#[tokio::test]
async fn pod_and_client_see_no_difference_in_a_relayed_request() {
    let mut pair = Pair::start(&[], |backend| backend.max_held = 1).await;
    let pod = Pod::start(|request: Request<Incoming>| async move {
        let description = describe(&request);
        let body = request.into_body().collect().await.map_or_else(|_| Bytes::new(), |body| body.to_bytes());
        Response::new(full(format!("{description} {body:?}")))
    })
    .await;
    pair.hold(&pod).await;
    let forged = "0123 127.0.0.9:1 000 0 ns/other";
    let mut observed = Vec::new();
    for at in pair.at {
        let mut answers = Vec::new();
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let body = if method == Method::POST { "hello" } else { "" };
            let request = Request::builder().method(method).uri("/path?query").header("host", "app.ns");
            let request = request.header("x-forwarded-for", "203.0.113.9").header("zeroscale-relayed", forged);
            let request = request.header("te", "trailers").header("connection", "x-dropped").header("x-dropped", "1");
            let mut answer = ask_with(at, request, body).await;
            answer.headers.remove("date");
            assert_eq!(answer.status, StatusCode::OK);
            assert!(!answer.body.contains("zeroscale") && !answer.body.contains("expect"), "{}", answer.body);
            answers.push((answer.headers, answer.body));
        }
        observed.push(answers);
    }
    assert_eq!(observed[0], observed[1]);
    while let Ok(stat) = pair.rigs[1].stats.try_recv() {
        assert_ne!(stat.name, "app", "only the holder reports it: {stat:?}");
    }
}

/// Goal: requests wait only at the holder, in one queue. Its bound applies to all activators together, with the same
/// error response. A client disconnect takes effect there, too.
#[tokio::test]
async fn requests_at_all_activators_wait_in_one_queue() {
    let pair = Pair::start(&[], |backend| backend.max_held = 2).await;
    let mut clients = Vec::new();
    for (n, at) in [(1, pair.at[1]), (2, pair.at[0])] {
        clients.push(connect_and_write(at, "POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 3\r\n\r\nabc").await);
        until(|| pair.requests() == [n, 0]).await;
    }
    let [refused, relayed] = pair.at.map(|at| ask_with(at, post("/post"), "x"));
    let (refused, relayed) = (refused.await, relayed.await);
    assert_eq!((refused.status, relayed.status), (StatusCode::SERVICE_UNAVAILABLE, StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(refused.body, relayed.body);
    assert_eq!(relayed.header("x-zeroscale-reason"), "max-held");
    reset(clients.remove(0));
    until(|| pair.requests() == [1, 0]).await;
    let pod = Pod::measuring().await;
    pair.pods(&[pod.address]).await;
    let answer = read_until(&mut clients[0], "\r\n\r\n3").await;
    assert!(answer.contains("200 OK"), "{answer}");
    until(|| pair.requests() == [0, 0]).await;
}

/// Goal: HTTP/2 is relayed as HTTP/2, with bodies and trailers in both directions; the holder selects the pod's
/// protocol.
#[tokio::test]
async fn http2_is_relayed() {
    for protocol in [Protocol::H2c, Protocol::Http1] {
        let pair = Pair::start(&[], |backend| backend.protocol = protocol).await;
        let pod = Pod::start(move |request: Request<Incoming>| async move {
            let version = format!("{:?} ", request.version());
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            let trailers =
                HeaderMap::from_iter([("grpc-status".parse().expect("a name"), "0".parse().expect("a value"))]);
            let frames = [Frame::data(Bytes::from(version)), Frame::data(body), Frame::trailers(trailers)];
            let body = StreamBody::new(futures::stream::iter(frames.map(Ok)));
            let mut response = Response::new(body.boxed_unsync());
            response.headers_mut().insert("trailer", "grpc-status".parse().expect("a value"));
            // Has a meaning only if an activator sends it.
            response.headers_mut().insert("zeroscale-turned-away", "1".parse().expect("a value"));
            response
        })
        .await;
        pair.hold(&pod).await;
        let request = Request::post("http://app.ns/test").header("te", "trailers");
        let answer = ask_http2(pair.at[1], request, "hello").await;
        let version = if protocol == Protocol::H2c { "HTTP/2.0" } else { "HTTP/1.1" };
        assert_eq!((answer.status, answer.body), (StatusCode::OK, format!("{version} hello")));
        assert!(!answer.headers.contains_key("zeroscale-turned-away"), "{:?}", answer.headers);
        assert_eq!(answer.trailers.expect("trailers")["grpc-status"], "0");
    }
}

/// Goal: an upgrade becomes a tunnel through both activators and holds its slot at the holder.
#[tokio::test]
async fn an_upgrade_is_relayed() {
    let pair = Pair::start(&[], |_| {}).await;
    let pod = Pod::start(|request: Request<Incoming>| async move { echo_tunnel(request, "websocket") }).await;
    pair.hold(&pod).await;
    let request = UPGRADE.replace("echo", "websocket") + "early";
    let mut client = connect_and_write(pair.at[1], &request).await;
    let answer = read_until(&mut client, "early").await;
    assert!(answer.starts_with("HTTP/1.1 101") && answer.contains("upgrade: websocket\r\n"), "{answer}");
    assert_eq!(pair.requests(), [1, 0]);
    drop(client);
    until(|| pair.requests() == [0, 0]).await;
}

/// Goal: a connection without HTTP is relayed to the same port of the holder, and waits there for the pod's only slot.
#[tokio::test]
async fn a_connection_of_bytes_is_relayed() {
    let id = id("tcp", 5432);
    let port = port(&id, PortProtocol::Tcp);
    let pair = Pair::start(&[port], |_| {}).await;
    for rig in &pair.rigs {
        ledger(rig, &[held_number(FIRST, "app", id.clone())]).await;
    }
    let pod = Pod::raw(listen().await, |mut client, _| async move {
        let (mut read, mut write) = client.split();
        tokio::io::copy(&mut read, &mut write).await
    });
    pair.hold(&pod).await;
    let mut clients = Vec::new();
    for (n, at) in [(1, pair.at[1]), (2, pair.at[1]), (3, pair.at[0])] {
        clients.push(connect_and_write(SocketAddr::new(at.ip(), FIRST), "hello").await);
        until(|| pair.requests() == [n, 0]).await;
    }
    for mut client in clients {
        assert_eq!(read_until(&mut client, "hello").await, "hello");
    }
    until(|| pair.requests() == [0, 0]).await;
}

/// Goal: the next holder gets each upload completely, because the killed one had sent nothing of it to a pod. Method:
/// no request has a pod before the holder is gone.
#[tokio::test]
async fn requests_that_wait_at_a_killed_holder_are_not_lost() {
    let pair = Pair::start(&[], |_| {}).await;
    let Pair { rigs: [first, second], at: [_, b] } = pair;
    let body = "x".repeat(300_000);
    let posts: Vec<_> = (0..5).map(|_| tokio::spawn(ask_with(b, post("/post"), body.clone()))).collect();
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

/// Goal: no second pod gets the upload, even if the client still waits for a 100, because the first one may act on the
/// head.
#[tokio::test]
async fn an_upload_whose_head_reached_a_pod_goes_to_no_other() {
    let pair = Pair::start(&[], |_| {}).await;
    let pod = Pod::start(|request: Request<Incoming>| async move {
        let _unread = request;
        std::future::pending().await
    })
    .await;
    pair.hold(&pod).await;
    let Pair { rigs: [first, second], at: [_, b] } = pair;
    let head = "POST / HTTP/1.1\r\nhost: app.ns\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n";
    let mut client = connect_and_write(b, head).await;
    until(|| pod.requests() == 1).await;
    drop(first);
    list(&second, &[b]).await;
    read_until(&mut client, "502 Bad Gateway").await;
    assert_eq!(pod.requests(), 1);
}

/// Goal: the requests continue once the holder is no longer listed, even if its kernel acknowledges everything.
#[tokio::test]
async fn requests_that_wait_at_a_stalled_holder_are_not_lost() {
    let [a, b] = holder_first();
    let (stalls, stalled) = tokio::sync::oneshot::channel();
    let (resume, resumed) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let first = activator(a).await;
            list(&first, &[a, b]).await;
            first.emit(revision()).await;
            first.until(|load| load.queued == 1).await;
            stalls.send(()).expect("the test waits");
            let _ = resumed.recv(); // Nothing else runs on this thread meanwhile.
        });
    });
    let second = activator(b).await;
    list(&second, &[a, b]).await;
    second.emit(revision()).await;
    until(|| second.activator.shares_pods()).await;
    let post = tokio::spawn(ask_with(b, post("/post"), "x".repeat(100_000)));
    patient(stalled).await.expect("the request waits there");
    list(&second, &[b]).await;
    let pod = Pod::measuring().await;
    second.ready_pods(&[pod.address]).await;
    let answer = patient(post).await.expect("no panic");
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "100000"));
    drop(resume);
    thread.join().expect("no panic");
}

/// Goal: requests that wait at a single activator move to a new one that holds the workload, over both protocols, and
/// with their bodies. When that one is no longer listed, they move back.
#[tokio::test]
async fn waiting_requests_move_to_the_new_holder() {
    let [b, a] = holder_first();
    let first = activator(a).await;
    list(&first, &[a]).await;
    first.emit(revision()).await;
    let posts: Vec<_> = (0..5).map(|_| tokio::spawn(ask_with(a, post("/post"), "x".repeat(100_000)))).collect();
    // Within the window that a holder grants, and beyond it.
    let over_http2 = [64 * 1024, 200_000].map(|length| {
        tokio::spawn(async move { (length, ask_http2(a, Request::post("http://app.ns/"), "x".repeat(length)).await) })
    });
    first.until(|load| load.queued == 7).await;
    let second = activator(b).await;
    second.emit(revision()).await;
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
