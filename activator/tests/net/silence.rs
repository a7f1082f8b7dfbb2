//! Pods that stop responding: their kernel is silent, their program is slow, or they break off responses.
//!
//! A pod is silenced with a socket filter that drops every packet before TCP sees it, on the listener and on each
//! connection: nothing is acknowledged or refused, as when a node has lost its network. This needs no privileges.

use crate::rig::{self, Pod, Rig, listen, patient};
use bytes::Bytes;
use common::backend::Protocol;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use socket2::{SockFilter, SockRef, Socket};
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// The bound is a second; the rest is for machines that are busy with other tests. It is less than the seven seconds of
/// the kernel's own keep-alive, which is not tested here.
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
        let pod = Pod::watched(
            listener,
            move |stream| accepted.lock().unwrap_or_else(PoisonError::into_inner).push(descriptor(stream)),
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
        for socket in self.sockets.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            silence(socket);
        }
    }
}

/// Returns the socket of a connection, which may be silenced while the connection is used.
pub(crate) fn descriptor(stream: &TcpStream) -> Socket {
    SockRef::from(stream).try_clone().expect("a descriptor")
}

/// Drops all packets to this socket from now on.
pub(crate) fn silence(socket: &Socket) {
    const RETURN_NOTHING: SockFilter = SockFilter::new(0x06, 0, 0, 0); // BPF_RET | BPF_K: keep 0 bytes.
    socket.attach_filter(&[RETURN_NOTHING]).expect("permitted to everybody");
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
/// an error. All of it happens within the bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_pod_costs_only_the_posts_that_were_in_flight_there() {
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
        assert_eq!(mute.pod.requests(), before, "it gets nothing new");
    }
}

/// Goal: an upgrade that waits at a pod that becomes silent is repeated at another pod, and becomes a tunnel there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_that_lost_its_pod_is_made_with_another() {
    let rig = Rig::with_revision(|_| {}).await;
    let mute = Mute::start().await;
    rig.pods(&[mute.pod.address]).await;
    let mut client = rig.raw().await;
    let head = "GET /wait HTTP/1.1\r\nhost: app.ns\r\nconnection: Upgrade\r\nupgrade: echo\r\n\r\n";
    rig::write(&mut client, head).await;
    rig::until(|| mute.pod.requests() == 1).await;

    let listener = listen().await;
    rig.pods(&[mute.pod.address, listener.local_addr().expect("bound")]).await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                if stream.read(&mut [0; 1024]).await.is_ok_and(|n| n > 0) {
                    let agreed =
                        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nhello";
                    stream.write_all(agreed).await.expect("open");
                    let _ = stream.read(&mut [0; 1024]).await;
                }
            });
        }
    });
    mute.fall_silent();
    let text = rig::read_until(&mut client, "hello").await;
    assert!(text.starts_with("HTTP/1.1 101 "), "{text}");
}

/// Goal: a request whose only pod is gone signals at once that it waits, and gets the response of the next pod. Method:
/// a signal comes alone, while the report of a second begins with an attestation.
#[tokio::test]
async fn a_request_that_lost_its_only_pod_says_so_at_once() {
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
    let request = {
        let mut client = rig.client::<Empty<Bytes>>().await;
        tokio::spawn(async move {
            let request = Request::get("/").header("host", "app.ns").body(Empty::new()).expect("a request");
            rig::Answer::read(client.send_request(request).await.expect("an answer")).await
        })
    };
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
async fn a_slow_program_is_left_alone() {
    const UPLOAD: usize = 16 * 1024 * 1024;
    const PAUSE: Duration = Duration::from_millis(2500);
    let listener = listen().await;
    let address = listener.local_addr().expect("bound");
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
    let upload = rig::post("/").body(Full::new(Bytes::from(vec![b'x'; UPLOAD]))).expect("a request");
    let answer = patient(rig.client().await.send_request(upload)).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    patient(pod).await.expect("two requests, and no more connections");
}

/// Goal: tunnels and uploads without room end soon after their pod vanishes, and so does a body that waits for its next
/// part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnels_and_bodies_of_a_pod_that_vanished_end_soon() {
    const UPLOAD: usize = 64 * 1024 * 1024;
    let listener = listen().await;
    let rig = Rig::with_pods(&[listener.local_addr().expect("bound")], |_| {}).await;
    let mut tunnel = rig.raw().await;
    rig::write(&mut tunnel, "GET /tunnel HTTP/1.1\r\nhost: app.ns\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").await;
    let mut body = rig.raw().await;
    rig::write(&mut body, "GET /body HTTP/1.1\r\nhost: app.ns\r\n\r\n").await;
    let upload = {
        let mut client = rig.client().await;
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
                let switch = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nhello";
                stream.write_all(switch).await.expect("open");
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

    for socket in streams.iter().map(SockRef::from).chain([SockRef::from(&listener)]) {
        silence(&socket);
    }
    let silent = Instant::now();
    rig::write(&mut tunnel, "anybody there?").await;
    // The body first: none of its data is unacknowledged, but its pod is known to be gone.
    for stream in [&mut body, &mut tunnel] {
        assert_eq!(rig::read_to_end(stream).await, "");
        assert!(silent.elapsed() < SOON, "{:?}", silent.elapsed());
    }
    let status = patient(upload).await.expect("no panic").expect("an answer");
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert!(silent.elapsed() < SOON, "{:?}", silent.elapsed());
}

/// Goal: a tunnel ends soon if its pod vanished before its client half-closed: only the half-close is unacknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_whose_end_is_not_acknowledged_is_over_soon() {
    let listener = listen().await;
    let rig = Rig::with_pods(&[listener.local_addr().expect("bound")], |_| {}).await;
    let sockets = Arc::new(Mutex::new(Vec::<Socket>::new()));
    let accepted = sockets.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            accepted.lock().unwrap_or_else(PoisonError::into_inner).push(descriptor(&stream));
            tokio::spawn(async move {
                if stream.read(&mut [0; 1024]).await.is_ok_and(|n| n > 0) {
                    let switch = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nhello";
                    stream.write_all(switch).await.expect("open");
                    let _ = stream.read(&mut [0; 1024]).await;
                }
            });
        }
    });
    let mut client = rig.raw().await;
    rig::write(&mut client, "GET / HTTP/1.1\r\nhost: app.ns\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").await;
    rig::read_until(&mut client, "hello").await;
    sockets.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(silence);
    let ended = Instant::now();
    client.shutdown().await.expect("open");
    assert_eq!(rig::read_to_end(&mut client).await, "");
    assert!(ended.elapsed() < SOON, "{:?}", ended.elapsed());
}

/// Goal: one lost keep-alive probe ends no exchange. Method: during the wait for a response the kernel probes once a
/// second. Packets are dropped for so long that one probe may be lost, but not two. If threads stalled, so that two may
/// be lost, the test is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_is_lost_ends_no_exchange() {
    for _ in 0..10 {
        if let Some(status) = answered_after_a_lost_question().await {
            assert_eq!(status, StatusCode::OK);
            return;
        }
    }
    panic!("threads stand still each time");
}

/// Returns the status of a POST; `None` if more than one probe may have been lost.
async fn answered_after_a_lost_question() -> Option<StatusCode> {
    let (sockets, over) = (Arc::new(Mutex::new(Vec::<Socket>::new())), Arc::new(Notify::new()));
    let (accepted, awaited) = (sockets.clone(), over.clone());
    let pod = Pod::watched(
        listen().await,
        move |stream| accepted.lock().unwrap_or_else(PoisonError::into_inner).push(descriptor(stream)),
        move |_: Request<Incoming>| {
            let awaited = awaited.clone();
            async move {
                awaited.notified().await;
                Response::new(rig::full("late"))
            }
        },
    );
    let each = |act: fn(&Socket)| sockets.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(act);
    let rig = Arc::new(Rig::with_revision(|_| {}).await);
    rig.pods(&[pod.address]).await;
    rig.until_open().await;
    // The kernel probes a second after the request was acknowledged, and another second later.
    let begun = Instant::now();
    let asking = rig.clone();
    let answer = tokio::spawn(async move { asking.send(rig::post("/")).await });
    rig::until(|| pod.requests() == 1).await;
    sleep_until(begun + Duration::from_millis(300)).await;
    each(silence);
    sleep_until(begun + Duration::from_millis(1500)).await;
    each(|socket| socket.detach_filter().expect("attached"));
    if begun.elapsed() > Duration::from_millis(1900) {
        return None;
    }
    sleep_until(begun + Duration::from_secs(3)).await;
    over.notify_one();
    Some(patient(answer).await.expect("no panic").status)
}

/// Goal: a response that breaks off is never taken for a complete one, for every kind of length and end.
#[tokio::test]
async fn a_response_that_breaks_off_is_passed_on_as_a_reset() {
    for version_2 in [false, true] {
        for head in [
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nparts\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nparts",
        ] {
            let broken = breaks_off(version_2, Protocol::Http1, head.as_bytes(), &[]).await;
            assert!(broken, "{head:?} to HTTP/2: {version_2}: ended cleanly");
        }
        // SETTINGS; HEADERS of stream 1 with END_HEADERS (the static table's `:status: 200`); DATA.
        let head =
            [b"\0\0\0\x04\0\0\0\0\0".as_slice(), b"\0\0\x01\x01\x04\0\0\0\x01\x88", b"\0\0\x05\0\0\0\0\0\x01parts"];
        let reset = b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08";
        for end in [&[] as &[u8], reset] {
            let broken = breaks_off(version_2, Protocol::H2c, &head.concat(), end).await;
            assert!(broken, "HTTP/2 to HTTP/2: {version_2}, {end:?}: ended cleanly");
        }
    }
}

/// Goal: a response that breaks off is a reset even for an HTTP/1.0 client, for which an orderly close would end the
/// response; a complete response ends with an orderly close.
#[tokio::test]
async fn a_response_that_breaks_off_is_a_reset_over_http_1_0() {
    for (rest, expected) in [("", Err(ErrorKind::ConnectionReset)), ("0\r\n\r\n", Ok(0))] {
        // Without workers, so that the request comes over the probe's connection: the pod accepts one.
        let rig = Rig::start_with(|options| options.workers = None).await;
        rig.revision(|_| {}).await;
        let listener = listen().await;
        rig.pods(&[listener.local_addr().expect("bound")]).await;
        let mut client = rig.raw().await;
        rig::write(&mut client, "GET / HTTP/1.0\r\nhost: app.ns\r\n\r\n").await;
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

/// Returns whether a client notices that its response, `head`, is incomplete when the pod sends `end` and closes the
/// connection.
async fn breaks_off(version_2: bool, protocol: Protocol, head: &[u8], end: &'static [u8]) -> bool {
    // Without workers, on which an HTTP/2 request needs another connection than the probe's: this pod accepts one.
    let rig = Rig::start_with(|options| options.workers = None).await;
    rig.revision(|backend| backend.protocol = protocol).await;
    let listener = listen().await;
    rig.pods(&[listener.local_addr().expect("bound")]).await;
    let (hang_up, hung_up) = tokio::sync::oneshot::channel::<()>();
    let head = head.to_owned();
    let pod = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("dialled");
        let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
        // An HTTP/2 request is complete once its HEADERS frame (type 1 on stream 1) has come.
        let is_whole = |bytes: &[u8]| match protocol {
            Protocol::Http1 => bytes.ends_with(b"\r\n\r\n"),
            Protocol::H2c => bytes.windows(6).any(|part| part[0] == 1 && part[2..] == [0, 0, 0, 1]),
        };
        while !is_whole(&request) {
            let n = stream.read(&mut chunk).await.expect("a request");
            request.extend_from_slice(&chunk[..n]);
        }
        stream.write_all(&head).await.expect("open");
        let _ = hung_up.await;
        stream.write_all(end).await.expect("open");
    });
    let (first, rest) = first_and_rest(&rig, version_2, hang_up).await;
    assert_eq!(first, "parts");
    patient(pod).await.expect("no panic");
    rest.is_err()
}

/// Returns the first frame of the response, and its rest after the pod has closed.
async fn first_and_rest(
    rig: &Rig,
    version_2: bool,
    hang_up: tokio::sync::oneshot::Sender<()>,
) -> (Bytes, Result<Bytes, hyper::Error>) {
    let target = if version_2 { "http://app.ns/" } else { "/" };
    let request = Request::get(target).header("host", "app.ns").body(Empty::<Bytes>::new()).expect("a request");
    let response = if version_2 {
        patient(rig::http2_client(rig.address).await.send_request(request)).await
    } else {
        patient(rig.client().await.send_request(request)).await
    };
    let mut body = response.expect("a head").into_body();
    let first = patient(body.frame()).await.expect("a frame").expect("whole").into_data().expect("data");
    drop(hang_up);
    (first, patient(body.collect()).await.map(http_body_util::Collected::to_bytes))
}
