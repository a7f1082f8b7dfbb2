//! Programs that close the connection instead of responding, like a handler that panics, or nginx's 444. The number of
//! runs is limited, and no pod is taken out of use.

use crate::frames::*;
use crate::log;
use crate::rig::{self, Pod, Rig, bind, listen};
use crate::scripted::read_head;
use activator_core::breaker::Capacity;
use bytes::Bytes;
use common::backend::{Backend, Probe, Protocol};
use http::{Request, StatusCode};
use http_body_util::Full;
use socket2::SockRef;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;

/// Number of idle connections to each pod at the start.
const IDLE: usize = 4;

/// Ways in which a program ends the connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ConnectionEnd {
    /// Orderly close.
    Finish,
    /// Reset.
    Reset,
    /// Orderly close, after a part of a head.
    HalfAHead,
}

/// Starts a pod that sends responses for `/meet` once it has [`IDLE`] such requests, and closes on every other request.
/// It counts only the latter.
async fn closing(way: ConnectionEnd) -> Pod {
    let met = Arc::new(Barrier::new(IDLE));
    Pod::raw(listen().await, move |stream, runs| serve(stream, way, runs, met.clone()))
}

async fn serve(
    mut stream: TcpStream,
    way: ConnectionEnd,
    runs: Arc<AtomicUsize>,
    met: Arc<Barrier>,
) -> std::io::Result<()> {
    while let Some(head) = read_head(&mut stream).await {
        if !head.starts_with("GET /meet ") {
            runs.fetch_add(1, Ordering::SeqCst);
            match way {
                ConnectionEnd::Finish => {}
                ConnectionEnd::Reset => SockRef::from(&stream).set_linger(Some(Duration::ZERO))?,
                ConnectionEnd::HalfAHead => stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-le").await?,
            }
            return Ok(());
        }
        met.wait().await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await?;
    }
    Ok(())
}

/// Starts an activator with two such pods, each with [`IDLE`] slots.
async fn two(way: ConnectionEnd) -> (Arc<Rig>, [Pod; 2]) {
    let rig = Rig::with_revision(|backend| {
        backend.probe = Probe::default(); // A pod that was taken out of use does not return without a new listing.
        backend.container_concurrency = IDLE as u32;
    });
    let rig = Arc::new(rig.await);
    let pods = [closing(way).await, closing(way).await];
    rig.ready_pods(&pods.each_ref().map(|pod| pod.address)).await;
    rig.until(has_both_pods).await;
    (rig, pods)
}

/// Returns how many requests each pod has run, in ascending order.
fn runs_of(pods: &[Pod; 2]) -> [usize; 2] {
    let mut runs = pods.each_ref().map(Pod::requests);
    runs.sort_unstable();
    runs
}

/// Returns true if both pods are in use.
fn has_both_pods(load: activator_core::breaker::Load) -> bool {
    load.capacity == Capacity::Limited(2 * IDLE as u32)
}

/// Sends as many requests at once as both pods accept, so that each connection is opened and used.
async fn meet(rig: &Arc<Rig>) {
    for answer in rig::patient(rig.get_many("/meet", 2 * IDLE).join_all()).await {
        assert_eq!(answer.status, StatusCode::OK);
    }
}

/// Goal: the request runs at most twice: over an idle connection and over a new one to the other pod. If no connection
/// was idle, it runs once, over a new connection, unless that was reset. Half a head is a response that began: the
/// request runs once. Idle connections stay open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_program_closes_gets_a_502_and_its_pod_stays_in_use() {
    const ONCE: [usize; 2] = [0, 1];
    const ON_BOTH: [usize; 2] = [1, 1];
    for (way, over_idle) in
        [(ConnectionEnd::Finish, ON_BOTH), (ConnectionEnd::Reset, ON_BOTH), (ConnectionEnd::HalfAHead, ONCE)]
    {
        // A reset of a new connection may come from the kernel of a killed pod.
        let over_new = if way == ConnectionEnd::Reset { ON_BOTH } else { ONCE };
        for (warm, expected) in [(true, over_idle), (false, over_new)] {
            let (rig, pods) = two(way).await;
            if warm {
                meet(&rig).await;
            }
            let answer = rig.get("app.ns", "/close").await;
            let refusal = (answer.status, answer.header("x-zeroscale-origin"), answer.header("x-zeroscale-reason"));
            assert_eq!(refusal, (StatusCode::BAD_GATEWAY, "activator", "pod"), "{way:?}: {}", answer.body);
            assert_eq!(runs_of(&pods), expected, "{way:?}, warm: {warm}");
            let load = rig.activator.load(&rig::key("app"));
            assert!(load.is_some_and(has_both_pods), "{way:?}, warm: {warm}: a pod is out of use");
            meet(&rig).await;
            let accepted: usize = pods.iter().map(|pod| pod.connections.load(Ordering::SeqCst)).sum();
            assert!(accepted <= 2 * IDLE + 2, "{way:?}, warm: {warm}: {accepted} connections");
            rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
        }
    }
}

/// Goal: an idempotent request whose reused connection is closed, or whose new one is reset, goes to the other pod once,
/// with its body. A request with a chunked body runs once, even if the body is empty, whatever the method and headers,
/// and so does a request that is not safe to repeat.
#[tokio::test]
async fn only_a_request_that_is_safe_to_repeat_runs_twice() {
    use ConnectionEnd::{Finish, Reset};
    const ANY: &str = "accept: */*";
    const KEY: &str = "idempotency-key: once";
    const CHUNKED: &str = "transfer-encoding: chunked";
    const EMPTY: &str = "content-length: 0";
    let rows = [
        (Reset, "GET", [ANY, EMPTY], "", [1, 1]),
        (Reset, "DELETE", [ANY, EMPTY], "", [1, 1]),
        (Reset, "PUT", [ANY, "content-length: 4"], "body", [1, 1]),
        (Reset, "POST", [ANY, "content-length: 4"], "body", [0, 1]),
        (Finish, "POST", [KEY, EMPTY], "", [1, 1]),
        (Finish, "POST", [KEY, CHUNKED], "5\r\nhello\r\n0\r\n\r\n", [0, 1]),
        (Finish, "POST", [KEY, CHUNKED], "0\r\n\r\n", [0, 1]),
        (Finish, "POST", [ANY, CHUNKED], "5\r\nhello\r\n0\r\n\r\n", [0, 1]),
        (Finish, "POST", [ANY, "content-length: 5"], "hello", [0, 1]),
        (Finish, "GET", [ANY, CHUNKED], "0\r\n\r\n", [0, 1]),
        (Finish, "GET", [ANY, "accept: text/html"], "", [1, 1]),
    ];
    for (way, method, [one, other], body, expected) in rows {
        let (rig, pods) = two(way).await;
        if way == Finish {
            meet(&rig).await;
        }
        let request = format!("{method} /close HTTP/1.1\r\nhost: app.ns\r\n{one}\r\n{other}\r\n\r\n{body}");
        let answer = rig::read_until(&mut rig.send_raw(&request).await, "\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{request}: {answer}");
        assert_eq!(runs_of(&pods), expected, "{way:?} {request}");
        assert!(rig.activator.load(&rig::key("app")).is_some_and(has_both_pods), "{request}: a pod is out of use");
        rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
        rig::until(|| rig.activator.held() == (0, 0)).await;
    }
}

/// Goal: regardless of the number of requests without a response, there is one line for each pod in the first minute.
#[tokio::test]
async fn a_pod_that_sends_no_response_is_logged_once() {
    log::capture();
    let (rig, pods) = two(ConnectionEnd::HalfAHead).await;
    while pods.iter().any(|pod| pod.requests() < 3) {
        assert_eq!(rig.send(rig::post("/close")).await.status, StatusCode::BAD_GATEWAY);
    }
    for pod in &pods {
        let lines = log::lines(&format!("pod={}", pod.address));
        assert_eq!(lines.len(), 1, "{} failures: {lines:#?}", pod.requests());
        assert!(lines[0].contains("WARN") && lines[0].contains("no answer from pod"), "{lines:?}");
    }
}

/// Reaction of an HTTP/2 program to the first request of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum First {
    Answered,
    /// No response, until the client gives up.
    Unanswered,
    /// The response that every other request gets.
    AsOthers,
}

/// Reaction of an HTTP/2 program to every other request.
#[derive(Clone, Copy, Debug)]
enum Http2Way {
    Finish,
    Reset,
    /// Resets the stream only, with this code.
    ResetStream(u32),
    /// Sends GOAWAY for the connection; this stream was taken.
    GoAway,
}

async fn http2(mut stream: TcpStream, way: Http2Way, mut first: First, runs: Arc<AtomicUsize>) -> std::io::Result<()> {
    stream.read_exact(&mut [0; PREFACE.len()]).await?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    loop {
        let id = next_stream(&mut stream).await?;
        runs.fetch_add(1, Ordering::SeqCst);
        match std::mem::replace(&mut first, First::AsOthers) {
            First::Answered => {
                let no_content = block(&[(b":status", b"204")]);
                stream.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, id, &no_content)).await?;
                continue;
            }
            First::Unanswered => continue,
            First::AsOthers => {}
        }
        match way {
            Http2Way::Finish => return Ok(()),
            Http2Way::Reset => return SockRef::from(&stream).set_linger(Some(Duration::ZERO)),
            Http2Way::ResetStream(code) => stream.write_all(&frame(RST_STREAM, 0, id, &code.to_be_bytes())).await?,
            Http2Way::GoAway => {
                return stream.write_all(&frame(GOAWAY, 0, 0, &[id.to_be_bytes(), [0; 4]].concat())).await;
            }
        }
    }
}

/// Goal: over HTTP/2 a request whose program closes runs at most twice. It counts as taken if its stream is reset,
/// except by REFUSED_STREAM (see `terminating_pods` and `hostile_pods`), and if a GOAWAY names it. An idle connection
/// is treated like one with an earlier response. A small body is sent again with its PUT.
#[tokio::test]
async fn a_stream_that_was_taken_runs_twice_at_most() {
    let rows = [
        // A reset of a new connection may come from the kernel of a killed pod. Frames that cross its end reset it,
        // too.
        (Http2Way::Finish, 2..=2, 1..=2),
        (Http2Way::Reset, 2..=2, 1..=2),
        (Http2Way::GoAway, 2..=2, 1..=2),
        (Http2Way::ResetStream(2), 1..=1, 1..=1),
        (Http2Way::ResetStream(8), 1..=1, 1..=1),
    ];
    for (way, over_used, over_new) in rows {
        for (method, first, expected) in [
            ("GET", First::Answered, over_used.clone()),
            ("GET", First::Unanswered, over_used.clone()),
            ("GET", First::AsOthers, over_new),
            ("PUT", First::Answered, over_used),
            ("POST", First::Answered, 1..=1),
        ] {
            let change = |backend: &mut Backend| {
                (backend.protocol, backend.probe, backend.container_concurrency) = (Protocol::H2c, Probe::default(), 1)
            };
            let rig = Rig::with_revision(change).await;
            // Only on the first connection: elsewhere it would be another run.
            let mut of_next = first;
            let pod = Pod::raw(listen().await, move |stream, runs| {
                http2(stream, way, std::mem::replace(&mut of_next, First::AsOthers), runs)
            });
            rig.ready_pods(&[pod.address]).await;
            // One client, so that one worker has all requests.
            let mut client = rig::http2_client(rig.address).await;
            let mut send = |method: &str| {
                let request = Request::builder().method(method).uri("http://app.ns/");
                let body = if method == "PUT" { "body" } else { "" };
                client.send_request(request.body(Full::<Bytes>::from(body)).expect("a request"))
            };
            let name = format!("{way:?} {method}, first: {first:?}");
            match first {
                First::Answered => {
                    let answer = rig::patient(send("GET")).await.expect("an answer");
                    assert_eq!(answer.status(), StatusCode::NO_CONTENT);
                }
                First::Unanswered => {
                    let waiting = tokio::spawn(send("GET"));
                    rig::until(|| pod.requests() == 1).await;
                    waiting.abort();
                    rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
                }
                First::AsOthers => {}
            }
            let before = pod.requests();
            let answer = rig::FullResponse::receive(send(method)).await;
            assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{name}: {}", answer.body);
            let runs = pod.requests() - before;
            assert!(expected.contains(&runs), "{name}: {runs} runs");
            let load = rig.activator.load(&rig::key("app")).expect("known");
            assert_eq!(load.capacity, Capacity::Limited(1), "{name}: the pod is out of use");
            rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
        }
    }
}

/// Closes a listener, and waits until no process has a copy of it. A child process of another test may, until its exec.
async fn close(listener: TcpListener, address: SocketAddr) {
    drop(listener);
    while TcpStream::connect(address).await.is_ok() {}
}

/// Goal: on a connection without an earlier response, a pod that died is distinguished from a program that closes: it
/// accepts no other connection, so the request goes to another pod, with its body. Method: the pod ends after it has
/// read the request.
#[tokio::test]
async fn a_request_whose_pod_died_goes_to_another() {
    for (method, body, reset) in [("GET", "", false), ("GET", "", true), ("PUT", "whole", false)] {
        let rig = Rig::with_revision(|backend| backend.probe = Probe::default()).await;
        let (dying, address) = bind().await;
        rig.ready_pods(&[address]).await;
        let next = Pod::returning().await;
        let length = body.len();
        let request = format!("{method} / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: {length}\r\n\r\n{body}");
        let mut client = rig.send_raw(&request).await;
        let (mut stream, _) = dying.accept().await.expect("dialled");
        rig::read_until(&mut stream, &format!("\r\n\r\n{body}")).await;
        rig.ready_pods(&[address, next.address]).await;
        rig.settled().await;
        close(dying, address).await;
        if reset {
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("open");
        }
        drop(stream);
        let answer = rig::read_until(&mut client, &format!("\r\n\r\n{body}")).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{method}, reset: {reset}: {answer}");
        assert_eq!(next.requests(), 1);
    }
}
