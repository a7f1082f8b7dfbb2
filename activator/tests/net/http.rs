//! Translation of exchanges: protocols, bodies, trailers, upgrades, heads.

use crate::rig::{self, Answer, Pod, Rig, http2_client, patient, read_to_end, read_until, write};
use activator::Options;
use activator::discovery::{Event, Listing};
use bytes::Bytes;
use common::backend::{Probe, Protocol};
use futures::StreamExt;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn warm(pod: &Pod, protocol: Protocol) -> Rig {
    warm_with(pod, protocol, |_| {}).await
}

async fn warm_with(pod: &Pod, protocol: Protocol, change: impl FnOnce(&mut Options)) -> Rig {
    let rig = Rig::start_with(change).await;
    rig.revision(|backend| backend.protocol = protocol).await;
    rig.pods(&[pod.address]).await;
    rig.until_open().await;
    rig
}

#[tokio::test]
async fn a_plain_pod_sees_its_client_and_nothing_of_ours() {
    let pod = Pod::echoing().await;
    let rig = warm(&pod, Protocol::Http1).await;
    let request = Request::get("//a/../b?q=%zz")
        .header("host", "APP.ns.svc.cluster.local:80")
        .header("k-original-host", "forged")
        .header("knative-serving-revision", "other")
        .header("knative-serving-namespace", "ns")
        .header("connection", "close, x-drop")
        .header("x-drop", "1")
        .header("x-kept", "1");
    let answer = rig.send(request).await;
    let expected = "http/1.1 GET //a/../b?q=%zz
host: APP.ns.svc.cluster.local:80
x-forwarded-for: 127.0.0.1
x-forwarded-proto: http
x-kept: 1";
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, expected));
}

/// Goal: over HTTP/1.1 and HTTP/2, to pods of either protocol, forwarding headers of an untrusted client are replaced,
/// and those of a trusted proxy are extended.
#[tokio::test]
async fn only_a_trusted_proxy_says_whom_a_request_has_passed() {
    const FORGED: [(&str, &str); 3] =
        [("forwarded", "for=203.0.113.9"), ("x-forwarded-for", "203.0.113.9"), ("x-forwarded-proto", "https")];
    const REPLACED: &str = "forwarded: for=127.0.0.1;proto=http|x-forwarded-for: 127.0.0.1|x-forwarded-proto: http";
    const ADDED: &str = "forwarded: for=203.0.113.9, for=127.0.0.1;proto=https|x-forwarded-for: 203.0.113.9, 127.0.0.1|\
                         x-forwarded-proto: https";
    let pod = Pod::echoing().await;
    for (network, expected) in [("127.0.0.0/8", ADDED), ("10.0.0.0/8", REPLACED)] {
        for protocol in [Protocol::Http1, Protocol::H2c] {
            let trusting = |options: &mut Options| options.trusted_proxies = vec![network.parse().expect("a network")];
            let rig = warm_with(&pod, protocol, trusting).await;
            let forge = |request: http::request::Builder| {
                FORGED.iter().fold(request, |request, (name, value)| request.header(*name, *value))
            };
            let over_http1 = rig.send(forge(Request::get("/").header("host", "app.ns"))).await;
            let request = forge(Request::get("http://app.ns/")).body(Empty::<Bytes>::new()).expect("valid");
            let answer = http2_client(rig.address).await.send_request(request).await.expect("an answer");
            for answer in [over_http1, Answer::read(answer).await] {
                let said: Vec<_> = answer.body.lines().filter(|line| line.contains("forwarded")).collect();
                assert_eq!(said.join("|"), expected, "{network} {protocol:?}");
            }
        }
    }
}

#[tokio::test]
async fn protocols_are_translated_both_ways() {
    let pod = Pod::echoing().await;
    let down = warm(&pod, Protocol::Http1).await;
    let mut client = http2_client(down.address).await;
    let request = Request::get("http://app.ns/p?q").header("cookie", "a=1").header("cookie", "b=2");
    let response = client.send_request(request.body(Empty::<Bytes>::new()).expect("valid")).await;
    let answer = Answer::read(response.expect("an answer")).await;
    assert!(answer.body.starts_with("http/1.1 GET /p?q\ncookie: a=1; b=2\n"), "{}", answer.body);
    assert!(answer.body.contains("\nhost: app.ns\n"), "{}", answer.body);

    let up = warm(&pod, Protocol::H2c).await;
    let answer = up.get("app.ns", "/p?q").await;
    assert!(answer.body.starts_with("h2 GET http://app.ns/p?q\n"), "{}", answer.body);
    assert!(!answer.body.contains("\nhost:"), "{}", answer.body);
}

/// Goal: connections on all workers share idle connections to the pod, and a drain ends them. Method: four connections
/// on two workers, two requests on each, one after the other. A request of the second connection uses the connection
/// that the first one's worker has opened.
#[tokio::test]
async fn a_connection_to_the_pod_goes_from_worker_to_worker() {
    let pod = Pod::saying("here").await;
    let rig = Rig::start().await;
    // No probe, so that only requests make connections.
    rig.revision(|backend| backend.probe = Probe::default()).await;
    let listing = Listing { ready: [pod.address.into()].into(), ..Listing::default() };
    rig.tell(Event::Pods { key: rig::key("app"), listing }).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = rig.client().await;
        for _ in 0..2 {
            let request = Request::get("/").header("host", "app.ns").body(Empty::<Bytes>::new()).expect("valid");
            let answer = Answer::read(patient(client.send_request(request)).await.expect("answered")).await;
            assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "here"));
        }
        clients.push(client);
    }
    assert_eq!(pod.connections.load(Ordering::SeqCst), 1, "it is idle each time");
    patient(rig.activator.stop()).await;
    for client in clients {
        rig::until(|| client.is_closed()).await;
    }
}

/// Goal: HTTP/2 connections are spread over the workers, the requests of a worker share one connection to the pod, and
/// a drain ends them. Method: four connections on two workers, two requests on each, one after the other.
#[tokio::test]
async fn http2_connections_on_workers_are_served_and_drained() {
    let pod = Pod::saying("here").await;
    let rig = Rig::start().await;
    // No probe, so that only requests make connections.
    rig.revision(|backend| (backend.protocol, backend.probe) = (Protocol::H2c, Probe::default())).await;
    let listing = Listing { ready: [pod.address.into()].into(), ..Listing::default() };
    rig.tell(Event::Pods { key: rig::key("app"), listing }).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = http2_client(rig.address).await;
        for _ in 0..2 {
            let request = Request::get("http://app.ns/").body(Empty::<Bytes>::new()).expect("valid");
            let answer = Answer::read(patient(client.send_request(request)).await.expect("answered")).await;
            assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "here"));
        }
        clients.push(client);
    }
    assert_eq!(pod.connections.load(Ordering::SeqCst), 2, "one for each worker");
    patient(rig.activator.stop()).await;
    for mut client in clients {
        assert!(patient(client.ready()).await.is_err(), "told to go");
    }
}

/// Goal: a gRPC-like exchange over h2c passes completely: both bodies streamed, trailers at the end.
#[tokio::test]
async fn streams_and_trailers_pass_over_http2() {
    let pod = Pod::start(|request: Request<Incoming>| async move {
        assert_eq!((request.version(), request.headers()["te"].as_bytes()), (Version::HTTP_2, &b"trailers"[..]));
        let echo = request.into_body().map_frame(|frame| frame.map_data(|bytes| bytes.to_ascii_uppercase().into()));
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().expect("a value"));
        Response::new(echo.with_trailers(async move { Some(Ok(trailers)) }).boxed_unsync())
    })
    .await;
    let rig = warm(&pod, Protocol::H2c).await;
    let mut client = http2_client(rig.address).await;
    let (mut sender, body) = tokio::sync::mpsc::channel::<Frame<Bytes>>(1);
    let body = futures::stream::unfold(body, |mut body| async move { body.recv().await.map(|f| (f, body)) });
    let body = StreamBody::new(Box::pin(body.map(Ok::<_, Infallible>)));
    let request = Request::post("http://app.ns/s").header("content-type", "application/grpc").header("te", "trailers");
    let mut response = patient(client.send_request(request.body(body).expect("valid"))).await.expect("a head");
    for word in ["one", "two"] {
        sender.send(Frame::data(Bytes::from_static(word.as_bytes()))).await.expect("open");
        let frame = patient(response.body_mut().frame()).await.expect("more").expect("whole");
        assert_eq!(frame.into_data().expect("data"), word.to_ascii_uppercase(), "echoed while the upload goes on");
    }
    sender = tokio::sync::mpsc::channel(1).0; // Ends the upload.
    drop(sender);
    let end = patient(response.body_mut().frame()).await.expect("trailers").expect("whole");
    assert_eq!(end.into_trailers().expect("trailers")["grpc-status"], "0");
}

#[tokio::test]
async fn response_trailers_reach_an_http1_client_that_takes_them() {
    let pod = Pod::start(|_| async {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "7".parse().expect("a value"));
        let frames = [Ok(Frame::data(Bytes::from_static(b"data"))), Ok(Frame::trailers(trailers))];
        let mut response = Response::new(StreamBody::new(futures::stream::iter(frames)).boxed_unsync());
        response.headers_mut().insert("trailer", "x-sum".parse().expect("a value"));
        response
    })
    .await;
    let rig = warm(&pod, Protocol::Http1).await;
    let answer = rig.send(Request::get("/").header("host", "app.ns").header("te", "trailers")).await;
    assert_eq!(answer.body, "data");
    assert_eq!(answer.trailers.expect("trailers")["x-sum"], "7");
}

/// Goal: bytes pass in both directions after a 101, including those sent with the request; the slot is held meanwhile.
#[tokio::test]
async fn an_upgrade_becomes_a_tunnel_that_holds_its_place() {
    let pod = Pod::start(|mut request: Request<Incoming>| async move {
        assert_eq!(request.headers()["upgrade"], "websocket");
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgraded.await.expect("upgraded"));
            let mut word = [0; 5];
            while io.read_exact(&mut word).await.is_ok() {
                word.make_ascii_uppercase();
                io.write_all(&word).await.expect("writable");
            }
        });
        let mut response = Response::new(rig::full(""));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert("connection", "upgrade".parse().expect("a value"));
        response.headers_mut().insert("upgrade", "websocket".parse().expect("a value"));
        response
    })
    .await;
    let rig = warm(&pod, Protocol::Http1).await;
    let mut client = rig.raw().await;
    write(&mut client, "GET / HTTP/1.1\r\nhost: app.ns\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\nearly")
        .await;
    let head = read_until(&mut client, "EARLY").await.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101") && head.contains("upgrade: websocket\r\n"), "{head}");
    write(&mut client, "hello").await;
    read_until(&mut client, "HELLO").await;
    rig.until(|load| load.in_flight == 1).await;
    drop(client);
    rig.until(|load| load.in_flight == 0).await;
}

#[tokio::test]
async fn an_upload_is_asked_for_only_once_there_is_a_pod() {
    let pod = Pod::start(|request: Request<Incoming>| async move {
        let body = request.into_body().collect().await.expect("whole").to_bytes();
        Response::new(rig::full(body))
    })
    .await;
    let rig = Rig::start().await;
    rig.revision(|_| {}).await;
    let mut client = rig.raw().await;
    write(&mut client, "POST / HTTP/1.1\r\nhost: app.ns\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n").await;
    rig.until(|load| load.queued == 1).await;
    let mut byte = [0];
    let nothing = tokio::time::timeout(Duration::from_millis(50), client.peek(&mut byte)).await;
    assert!(nothing.is_err(), "no 100 while it waits");
    rig.pods(&[pod.address]).await;
    let interim = read_until(&mut client, "\r\n\r\n").await;
    assert!(interim.starts_with("HTTP/1.1 100"), "{interim}");
    write(&mut client, "hello").await;
    let answer = read_until(&mut client, "hello").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn old_clients_and_heads_alone_are_served() {
    let pod = Pod::saying("body").await;
    let rig = warm(&pod, Protocol::Http1).await;
    let mut old = rig.raw().await;
    write(&mut old, "GET / HTTP/1.0\r\nhost: app.ns\r\n\r\n").await;
    let answer = read_to_end(&mut old).await;
    assert!(answer.starts_with("HTTP/1.0 200") && answer.ends_with("body"), "{answer}");

    let mut head = rig.raw().await;
    write(&mut head, "HEAD / HTTP/1.1\r\nhost: app.ns\r\nconnection: close\r\n\r\n").await;
    let answer = read_to_end(&mut head).await;
    assert!(answer.contains("content-length: 4\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
}

/// Goal: a body of many megabytes passes in both directions, over one connection to the pod that is reused afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_pass_and_the_connection_is_used_again() {
    let pod =
        Pod::start(|request: Request<Incoming>| async move { Response::new(request.into_body().boxed_unsync()) }).await;
    let rig = warm(&pod, Protocol::Http1).await;
    let large = Bytes::from(vec![b'x'; 16 * 1024 * 1024]);
    let mut client = rig.client().await;
    for _ in 0..3 {
        patient(client.ready()).await.expect("kept alive");
        let request = rig::post("/").body(Full::new(large.clone())).expect("valid");
        let response = patient(client.send_request(request)).await.expect("an answer");
        let echoed = patient(response.into_body().collect()).await.expect("whole").to_bytes();
        assert!(echoed == large, "{} bytes came back", echoed.len());
    }
    for _ in 0..20 {
        patient(client.ready()).await.expect("kept alive");
        let response = patient(client.send_request(rig::post("/").body(Full::default()).expect("valid"))).await;
        response.expect("an answer").into_body().collect().await.expect("whole");
    }
    // The echo of a streamed body begins before the upload ends, and costs its connection. The other requests share a few: a
    // connection may return to the pool a little after its client has sent the next request.
    let connections = pod.connections.load(Ordering::SeqCst);
    assert!(connections <= 12, "{connections} connections for 23 requests");
}

/// Goal: the pod's connection ends with the client's, in the middle of a body.
#[tokio::test]
async fn a_client_that_goes_away_takes_the_pods_exchange_with_it() {
    let (gone, mut told) = tokio::sync::mpsc::unbounded_channel();
    let pod = Pod::start(move |_| {
        let gone = gone.clone();
        async move {
            struct Tell(tokio::sync::mpsc::UnboundedSender<()>);
            impl Drop for Tell {
                fn drop(&mut self) {
                    let _ = self.0.send(());
                }
            }
            let drip = futures::stream::unfold(Tell(gone), |tell| async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                Some((Ok(Frame::data(Bytes::from_static(b"drip"))), tell))
            });
            Response::new(StreamBody::new(drip).boxed_unsync())
        }
    })
    .await;
    let rig = warm(&pod, Protocol::Http1).await;
    let mut client = rig.raw().await;
    write(&mut client, "GET / HTTP/1.1\r\nhost: app.ns\r\n\r\n").await;
    read_until(&mut client, "drip").await;
    drop(client);
    patient(told.recv()).await.expect("the pod's body was dropped");
    rig.until(|load| load.in_flight == 0).await;
}
