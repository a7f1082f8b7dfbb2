//! Pods that stop responding: their kernel is silent, their program is slow, or they break off responses.
//!
//! A pod is silenced with a socket filter that drops every packet before TCP sees it, on the listener and on each
//! connection: nothing is acknowledged or refused, as when a node has lost its network. This needs no privileges.

use crate::rig::{self, Pod, Rig, bind, listen, patient};
use bytes::Bytes;
use common::backend::Protocol;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use parking_lot::Mutex;
use socket2::{SockFilter, SockRef, Socket};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Time limit for the reaction to silence. The activator's is a second; the rest is for machines that are busy with
/// other tests. It is less than the seven seconds of the kernel's own keep-alive, which is not tested here.
const SOON: Duration = Duration::from_secs(5);

/// Pod that can become silent. It never answers `/wait`.
struct Mute {
    pod: Pod,
    sockets: Arc<Mutex<Vec<Socket>>>,
}

impl Mute {
    async fn start() -> Self {
        let listener = listen().await;
        let sockets = Arc::new(Mutex::new(vec![SockRef::from(&listener).try_clone().expect("a descriptor")]));
        let accepted = sockets.clone();
        let pod = Pod::on(
            listener,
            move |stream| accepted.lock().push(descriptor(stream)),
            |request: Request<Incoming>| async move {
                if request.uri().path() == "/wait" {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(Duration::from_millis(20)).await; // So that each request needs a connection.
                Response::new(rig::full("mute"))
            },
        );
        Self { pod, sockets }
    }

    /// Drops all packets to the pod from now on.
    fn fall_silent(&self) {
        self.sockets.lock().iter().for_each(silence);
    }
}

/// Returns the socket of a connection, which may be silenced while the connection is used.
pub(crate) fn descriptor(stream: &TcpStream) -> Socket {
    SockRef::from(stream).try_clone().expect("a descriptor")
}

/// Drops all packets to this socket from now on.
pub(crate) fn silence(socket: &impl AsFd) {
    const RETURN_NOTHING: SockFilter = SockFilter::new(0x06, 0, 0, 0); // BPF_RET | BPF_K: keep 0 bytes.
    SockRef::from(socket).attach_filter(&[RETURN_NOTHING]).expect("permitted to everybody");
}

/// Sends `count` requests at once, and returns the status and duration of each.
async fn burst(rig: &Arc<Rig>, count: usize) -> Vec<(StatusCode, Duration)> {
    let mut sent = JoinSet::new();
    for _ in 0..count {
        let rig = rig.clone();
        sent.spawn(async move {
            let start = Instant::now();
            (rig.get("app.ns", "/").await.status, start.elapsed())
        });
    }
    patient(sent.join_all()).await
}

/// Goal: if one of two pods becomes silent, no GET fails, not even one that waited there. A POST that waited there gets
/// an error. All of this happens soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_posts_in_flight_at_a_silent_pod_fail() {
    for protocol in [Protocol::Http1, Protocol::H2c] {
        let rig = Arc::new(Rig::with_revision(|backend| backend.protocol = protocol).await);
        let mute = Mute::start().await;
        rig.pods(&[mute.pod.address]).await;
        burst(&rig, 8).await;
        let waiting = |method: Method| {
            let rig = rig.clone();
            tokio::spawn(async move {
                let answer = rig.send(Request::builder().method(method).uri("/wait").header("host", "app.ns")).await;
                (answer, Instant::now())
            })
        };
        let (get, post) = (waiting(Method::GET), waiting(Method::POST));
        rig::until(|| mute.pod.requests() == 10).await;
        let other = Pod::saying("other").await;
        rig.pods(&[mute.pod.address, other.address]).await;
        rig::until(|| other.connections.load(Ordering::SeqCst) > 0).await;

        mute.fall_silent();
        let silent = Instant::now();
        for (status, took) in burst(&rig, 16).await {
            assert_eq!(status, StatusCode::OK, "{protocol:?}");
            assert!(took < SOON, "{protocol:?}: {took:?}");
        }
        let (answer, at) = patient(get).await.expect("no panic");
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "other"), "{protocol:?}");
        assert!(at - silent < SOON, "{protocol:?}: {:?}", at - silent);
        let (answer, at) = patient(post).await.expect("no panic");
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{protocol:?}: {}", answer.body);
        assert_eq!(answer.header("x-zeroscale-origin"), "activator", "{protocol:?}");
        assert!(at - silent < SOON, "{protocol:?}: {:?}", at - silent);
        let before = mute.pod.requests();
        burst(&rig, 8).await;
        assert_eq!(mute.pod.requests(), before, "it gets no new requests");
    }
}

/// Pod's response that accepts an upgrade, and first bytes of the tunnel.
const SWITCHED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nhello";

/// Goal: an upgrade that waits at a pod that becomes silent is repeated at another pod, and becomes a tunnel there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_whose_pod_vanished_is_repeated_at_another() {
    let rig = Rig::with_revision(|_| {}).await;
    let mute = Mute::start().await;
    rig.pods(&[mute.pod.address]).await;
    let mut client = rig.send_raw(&rig::UPGRADE.replace("/ ", "/wait ")).await;
    rig::until(|| mute.pod.requests() == 1).await;

    let other = Pod::start(|request| async move { rig::echo_tunnel(request, "echo") }).await;
    rig.pods(&[mute.pod.address, other.address]).await;
    mute.fall_silent();
    let text = rig::read_until(&mut client, "\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 101 "), "{text}");
    rig::write(&mut client, "hello").await;
    rig::read_until(&mut client, "hello").await;
}

/// Goal: a request whose only pod is gone signals at once that it waits, and gets the response of the next pod. Method:
/// a signal is sent alone, but the report of each second begins with an attestation.
#[tokio::test]
async fn a_request_that_lost_its_only_pod_sends_a_signal_at_once() {
    let mut rig = Rig::with_revision(|_| {}).await;
    let first = Pod::saying("first").await;
    let address = first.address;
    rig.pods(&[address]).await;
    assert_eq!(rig.get("app.ns", "/").await.body, "first");
    while rig.stats.try_recv().is_ok() {}
    loop {
        // The report that discounts the first signal.
        let message = patient(rig.stats.recv()).await.expect("connected");
        if message.stat.is_some_and(|stat| stat.request_count == 0.0) {
            break;
        }
    }
    first.kill().await;
    let request = tokio::spawn(rig::ask(rig.address, Request::get("/").header("host", "app.ns")));
    let (mut attestations, mut is_report) = (0, false);
    loop {
        let message = patient(rig.stats.recv()).await.expect("connected");
        let load = message.stat.map(|stat| (stat.average_concurrent_requests, stat.request_count));
        match load {
            None => attestations += 1,
            Some((1.0, 0.0)) if !is_report => break,
            // The revision may have become idle meanwhile; then this is a first request.
            Some((1.0, 1.0)) => break,
            Some(_) => {}
        }
        is_report = load.is_none();
        assert!(attestations < 10, "{attestations} seconds have passed");
    }
    let next = Pod::saying("next").await;
    rig.pods(&[address, next.address]).await;
    assert_eq!(patient(request).await.expect("no panic").body, "next");
}

/// Goal: a slow program is not taken for a silent pod, neither for a late response nor for slow reading of an upload.
#[tokio::test]
async fn a_slow_program_is_not_taken_for_a_silent_pod() {
    const UPLOAD: usize = 16 * 1024 * 1024;
    const PAUSE: Duration = Duration::from_millis(2500);
    let (listener, address) = bind().await;
    let pod = tokio::spawn(async move {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.expect("dialled");
            let mut first = [0; 16];
            stream.read_exact(&mut first).await.expect("a request");
            // The kernel's buffers fill up meanwhile, and its window closes.
            tokio::time::sleep(PAUSE).await;
            let wanted = if first.starts_with(b"POST") { UPLOAD } else { 0 };
            let (mut body, mut buffer) = (0, vec![0; 64 * 1024]);
            let mut head = first.to_vec();
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                head.push(stream.read_u8().await.expect("the head"));
            }
            while body < wanted {
                body += stream.read(&mut buffer).await.expect("the upload");
            }
            let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
            stream.write_all(answer).await.expect("open");
        }
    });
    let rig = Rig::with_pods(&[address], |_| {}).await;
    assert_eq!(rig.get("app.ns", "/").await.body, "ok");
    assert_eq!(rig::ask_with(rig.address, rig::post("/"), vec![b'x'; UPLOAD]).await.status, StatusCode::OK);
    patient(pod).await.expect("two requests, and no more connections");
}

/// Goal: tunnels, uploads that fill all buffers, and response bodies whose next part does not come all end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnels_and_bodies_of_a_vanished_pod_end_soon() {
    const UPLOAD: usize = 64 * 1024 * 1024;
    let (listener, address) = bind().await;
    let rig = Rig::with_pods(&[address], |_| {}).await;
    let mut tunnel = rig.send_raw(&rig::UPGRADE.replace("/ ", "/tunnel ")).await;
    let mut body = rig.send_raw("GET /body HTTP/1.1\r\nhost: app.ns\r\n\r\n").await;
    let upload = {
        let mut client = rig::http1_client(rig.address).await;
        let upload = rig::post("/upload").body(Full::new(Bytes::from(vec![b'x'; UPLOAD]))).expect("a request");
        tokio::spawn(async move { client.send_request(upload).await.map(|answer| answer.status()) })
    };
    let mut streams = Vec::new();
    let (mut answered, mut uploading) = (0, false);
    while answered < 2 || !uploading {
        let (mut stream, _) = patient(listener.accept()).await.expect("dialled");
        let mut head = [0; 4096];
        let n = patient(stream.read(&mut head)).await.expect("open"); // Nothing from a probe.
        match &head[..n] {
            head if head.starts_with(b"GET /tunnel") => {
                stream.write_all(SWITCHED).await.expect("open");
                answered += 1;
            }
            head if head.starts_with(b"GET /body") => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello").await.expect("open");
                answered += 1;
            }
            head => uploading |= !head.is_empty(),
        }
        streams.push(stream);
    }
    rig::read_until(&mut tunnel, "hello").await;
    rig::read_until(&mut body, "hello").await;

    streams.iter().for_each(silence);
    silence(&listener);
    let silent = Instant::now();
    rig::write(&mut tunnel, "anybody there?").await;
    // The body ends first: none of its data is unacknowledged, but its pod is known to be gone.
    for stream in [&mut body, &mut tunnel] {
        assert_eq!(rig::read_to_end(stream).await, "");
        assert!(silent.elapsed() < SOON, "{:?}", silent.elapsed());
    }
    let status = patient(upload).await.expect("no panic").expect("an answer");
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert!(silent.elapsed() < SOON, "{:?}", silent.elapsed());
}

/// Method: the pod vanishes before the client half-closes, so that only the half-close is unacknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_whose_half_close_is_not_acknowledged_ends_soon() {
    let sockets = Arc::new(Mutex::new(Vec::<Socket>::new()));
    let accepted = sockets.clone();
    let pod = Pod::on(
        listen().await,
        move |stream| accepted.lock().push(descriptor(stream)),
        |request| async move { rig::echo_tunnel(request, "echo") },
    );
    let rig = Rig::with_pods(&[pod.address], |_| {}).await;
    let mut client = rig.send_raw(rig::UPGRADE).await;
    rig::read_until(&mut client, "\r\n\r\n").await;
    sockets.lock().iter().for_each(silence);
    let ended = Instant::now();
    client.shutdown().await.expect("open");
    assert_eq!(rig::read_to_end(&mut client).await, "");
    assert!(ended.elapsed() < SOON, "{:?}", ended.elapsed());
}

/// Method: during the wait for a response the kernel probes once a second. Packets are dropped for so long that one
/// probe may be lost, but not two. If threads stalled, so that two may be lost, the test is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_keepalive_probe_ends_no_exchange() {
    for _ in 0..10 {
        if let Some(status) = answered_after_a_lost_probe().await {
            assert_eq!(status, StatusCode::OK);
            return;
        }
    }
    panic!("threads stall each time");
}

/// Returns the status of a POST; `None` if more than one probe may have been lost.
async fn answered_after_a_lost_probe() -> Option<StatusCode> {
    let (sockets, answers) = (Arc::new(Mutex::new(Vec::<Socket>::new())), Arc::new(Notify::new()));
    let (accepted, awaited) = (sockets.clone(), answers.clone());
    let pod = Pod::on(
        listen().await,
        move |stream| accepted.lock().push(descriptor(stream)),
        move |_: Request<Incoming>| {
            let awaited = awaited.clone();
            async move {
                awaited.notified().await;
                Response::new(rig::full("late"))
            }
        },
    );
    let each = |act: fn(&Socket)| sockets.lock().iter().for_each(act);
    let rig = Rig::with_pods(&[pod.address], |_| {}).await;
    rig.until_open().await;
    // The kernel probes a second after the request was acknowledged, and another second later.
    let begun = Instant::now();
    let answer = tokio::spawn(rig::ask(rig.address, rig::post("/")));
    rig::until(|| pod.requests() == 1).await;
    sleep_until(begun + Duration::from_millis(300)).await;
    each(silence);
    sleep_until(begun + Duration::from_millis(1500)).await;
    each(|socket| socket.detach_filter().expect("attached"));
    if begun.elapsed() > Duration::from_millis(1900) {
        return None;
    }
    sleep_until(begun + Duration::from_secs(3)).await;
    answers.notify_one();
    Some(patient(answer).await.expect("no panic").status)
}

/// Goal: an HTTP/1.0 client gets a reset, because an orderly close would complete the response. A complete response
/// ends with an orderly close.
#[tokio::test]
async fn a_response_that_breaks_off_is_a_reset_over_http_1_0() {
    for (rest, expected) in [("", Err(ErrorKind::ConnectionReset)), ("0\r\n\r\n", Ok(0))] {
        // Without workers, so that the request comes over the probe's connection: the pod accepts one.
        let rig = Rig::with_options(|options| options.workers = None, |_| {}).await;
        let (listener, address) = bind().await;
        rig.pods(&[address]).await;
        let mut client = rig.send_raw("GET / HTTP/1.0\r\nhost: app.ns\r\n\r\n").await;
        let (mut pod, _) = patient(listener.accept()).await.expect("dialled");
        rig::read_until(&mut pod, "\r\n\r\n").await;
        rig::write(&mut pod, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nparts\r\n").await;
        rig::read_until(&mut client, "parts").await;
        rig::write(&mut pod, rest).await;
        drop(pod);
        let end = patient(client.read(&mut [0; 16])).await.map_err(|error| error.kind());
        assert_eq!(end, expected, "after {rest:?}");
    }
}
