//! Exchanges that must pass unchanged for each protocol of client and pod: four pairs with the same expectations.

use crate::rig::{self, AnyBody, Pod, Rig, patient};
use activator::WorkerRuntimes;
use bytes::Bytes;
use common::backend::Protocol;
use futures::StreamExt;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Incoming;
use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Barrier, mpsc};
use tokio::time::Instant;

/// Request body of a client.
pub(crate) type Upload = UnsyncBoxBody<Bytes, Infallible>;

/// Protocols of a client and its pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) client: Protocol,
    pub(crate) pod: Protocol,
}

pub(crate) const PAIRS: [Pair; 4] = [
    Pair { client: Protocol::Http1, pod: Protocol::Http1 },
    Pair { client: Protocol::Http1, pod: Protocol::H2c },
    Pair { client: Protocol::H2c, pod: Protocol::Http1 },
    Pair { client: Protocol::H2c, pod: Protocol::H2c },
];

impl Pair {
    /// Starts an activator with `pod`, which speaks this pair's protocol.
    pub(crate) async fn start(self, pod: &Pod) -> Rig {
        let rig = Rig::with_pods(&[pod.address], |backend| backend.protocol = self.pod).await;
        rig.until_open().await;
        rig
    }

    /// Sends a request to `ns/app` over its own connection.
    pub(crate) async fn send(self, rig: &Rig, request: http::request::Builder, body: Upload) -> Response<Incoming> {
        patient(self.send_slowly(rig, request, body)).await
    }

    /// Sends a request like `send`, without a time limit.
    pub(crate) async fn send_slowly(
        self,
        rig: &Rig,
        request: http::request::Builder,
        body: Upload,
    ) -> Response<Incoming> {
        let mut request = request.body(body).expect("a request");
        let target = format!("{} {}", request.method(), request.uri());
        let answer = match self.client {
            Protocol::Http1 => {
                request.headers_mut().insert("host", "app.ns".parse().expect("a value"));
                rig.client().await.send_request(request).await
            }
            Protocol::H2c => {
                let absolute = format!("http://app.ns{}", request.uri());
                *request.uri_mut() = absolute.parse().expect("a target");
                rig::http2_client(rig.address).await.send_request(request).await
            }
        };
        answer.unwrap_or_else(|error| panic!("{self:?}, {target}: {error:?}"))
    }
}

pub(crate) fn nothing() -> Upload {
    Empty::new().boxed_unsync()
}

/// Returns a body that is sent as the test provides it.
pub(crate) fn streamed() -> (mpsc::Sender<Frame<Bytes>>, Upload) {
    let (sender, frames) = mpsc::channel::<Frame<Bytes>>(1);
    let frames = futures::stream::unfold(frames, |mut frames| async move { frames.recv().await.map(|f| (f, frames)) });
    (sender, StreamBody::new(frames.map(Ok)).boxed_unsync())
}

fn fields(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(n, v)| (http::HeaderName::from_static(n), v.parse().expect("a value"))).collect()
}

fn empty() -> AnyBody {
    rig::full("")
}

/// Converts the body to upper case as it arrives, and adds a trailer to the request's trailers.
async fn echo(request: Request<Incoming>) -> Response<AnyBody> {
    let frames = request.into_body().map_frame(|frame| match frame.into_data() {
        Ok(data) => Frame::data(Bytes::from(data.to_ascii_uppercase())),
        Err(frame) => {
            let mut trailers = frame.into_trailers().unwrap_or_default();
            trailers.insert("x-sum", "7".parse().expect("a value"));
            Frame::trailers(trailers)
        }
    });
    let mut response = Response::new(frames.boxed_unsync());
    response.headers_mut().insert("trailer", "x-sum, x-asked".parse().expect("a value"));
    response
}

/// Goal: bodies stream in both directions at once, and trailers pass in both directions if the peer accepts them.
#[tokio::test]
async fn full_duplex_and_trailers_in_all_pairs() {
    for pair in PAIRS {
        let pod = Pod::start(echo).await;
        let rig = pair.start(&pod).await;
        let (upload, body) = streamed();
        let request = Request::post("/").header("te", "trailers").header("trailer", "x-asked");
        // Some clients do not send the head before the first piece of the body.
        upload.send(Frame::data(Bytes::from_static(b"one"))).await.expect("open");
        let mut response = pair.send(&rig, request, body).await;
        for word in ["ONE", "TWO", "THREE"] {
            if word != "ONE" {
                upload.send(Frame::data(Bytes::from(word.to_ascii_lowercase()))).await.expect("open");
            }
            let frame = patient(response.body_mut().frame()).await.expect("more").expect("whole");
            assert_eq!(frame.into_data().expect("data"), word, "{pair:?}: returned while the upload continues");
        }
        upload.send(Frame::trailers(fields(&[("x-asked", "yes")]))).await.expect("open");
        drop(upload);
        let end = patient(response.body_mut().frame()).await.expect("trailers").expect("whole");
        let trailers = end.into_trailers().expect("trailers");
        assert_eq!(trailers, fields(&[("x-asked", "yes"), ("x-sum", "7")]), "{pair:?}");
    }
}

/// Goal: a response without a body stays so, and the length is passed on, by the rules of method and status.
#[tokio::test]
async fn responses_without_a_body_pass_without_one() {
    let pod = Pod::start(|request: Request<Incoming>| async move {
        let path = request.uri().path();
        let with_body = path == "/200" && request.method() == "GET";
        let mut response = Response::new(if with_body { rig::full("body") } else { empty() });
        if path == "/200" {
            response.headers_mut().insert("content-length", "4".parse().expect("a value"));
        }
        *response.status_mut() = path[1..].parse().expect("a status");
        response
    })
    .await;
    for pair in PAIRS {
        let rig = pair.start(&pod).await;
        for (method, path, length, body) in [
            ("GET", "/200", Some("4"), "body"),
            ("HEAD", "/200", Some("4"), ""),
            ("GET", "/204", None, ""),
            ("GET", "/304", None, ""),
            ("POST", "/201", Some("0"), ""),
        ] {
            let request = Request::builder().method(method).uri(path);
            let response = pair.send(&rig, request, nothing()).await;
            let status: u16 = path[1..].parse().expect("a status");
            assert_eq!(response.status(), StatusCode::from_u16(status).expect("a status"), "{pair:?}");
            let announced = response.headers().get("content-length").map(|v| v.to_str().expect("text").to_owned());
            // HTTP/2 may omit a length that the end of the stream implies.
            if !(announced.is_none() && length == Some("0")) {
                assert_eq!(announced.as_deref(), length, "{pair:?} {method} {path}");
            }
            let answer = rig::FullResponse::read(response).await;
            assert_eq!(answer.body, body, "{pair:?} {method} {path}");
        }
    }
}

/// Goal: if a POST, PUT or PATCH has no body, the pod gets a length of 0, as in Knative, regardless of the client's
/// headers: some pods refuse the request otherwise (411). Method: clients that omit the length, which most libraries
/// would add.
#[tokio::test]
async fn a_missing_body_is_announced_to_the_pod() {
    let pod = Pod::echoing().await;
    for pair in PAIRS {
        let rig = pair.start(&pod).await;
        let methods = [("POST", true), ("PUT", true), ("PATCH", true), ("GET", false), ("DELETE", false)];
        for (method, has_length) in methods {
            let text = match pair.client {
                Protocol::Http1 => {
                    let request = format!("{method} / HTTP/1.1\r\nhost: app.ns\r\nconnection: close\r\n\r\n");
                    rig::read_to_end(&mut rig.send_raw(&request).await).await
                }
                Protocol::H2c => {
                    let (client, connection) = patient(h2::client::handshake(rig.raw().await)).await.expect("settings");
                    tokio::spawn(connection);
                    let mut client = patient(client.ready()).await.expect("open");
                    let request = Request::builder().method(method).uri("http://app.ns/").body(()).expect("valid");
                    let (response, _) = client.send_request(request, true).expect("open");
                    let mut body = patient(response).await.expect("an answer").into_body();
                    let mut text = Vec::new();
                    while let Some(data) = patient(body.data()).await {
                        text.extend_from_slice(&data.expect("whole"));
                    }
                    String::from_utf8_lossy(&text).into_owned()
                }
            };
            assert!(text.contains("x-forwarded-for: "), "{pair:?} {method}: {text}");
            let lines = text.trim_end().lines().rev().take_while(|line| !line.is_empty());
            let announced: Vec<_> = lines.filter(|line| line.starts_with("content-length")).collect();
            let expected: &[&str] = if has_length { &["content-length: 0"] } else { &[] };
            assert_eq!(announced, expected, "{pair:?} {method}: {text}");
        }
    }
}

/// Goal: error responses of the activator to HEAD announce the length of a body, but have none, in both protocols.
#[tokio::test]
async fn refusals_of_head_requests_have_no_body() {
    let rig = Rig::with_revision(|backend| backend.timeout_ms = 200).await;
    for pair in [PAIRS[0], PAIRS[2]] {
        let response = pair.send(&rig, Request::head("/"), nothing()).await;
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT, "{pair:?}");
        assert_ne!(response.headers()["content-length"], "0", "{pair:?}");
        assert_eq!(rig::FullResponse::read(response).await.body, "", "{pair:?}");
    }
}

/// Goal: a client that announces trailers and sends no body gets a response. (Knative hangs until its timeout.)
#[tokio::test]
async fn announced_trailers_without_a_body_do_not_hang() {
    for pair in PAIRS {
        let pod = Pod::echoing().await;
        let rig = pair.start(&pod).await;
        let response = pair.send(&rig, Request::get("/").header("trailer", "x-asked"), nothing()).await;
        let answer = rig::FullResponse::read(response).await;
        assert!(!answer.body.contains("trailer"), "{pair:?}: {}", answer.body);
    }
}

/// Goal: each of several pipelined requests gets its own response, in order, a HEAD without a body; the pod gets one at
/// a time.
#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let pod = Pod::start(|request: Request<Incoming>| async move {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.expect("whole").to_bytes();
        Response::new(rig::full(format!("<{path}:{}>", String::from_utf8_lossy(&body))))
    })
    .await;
    for protocol in [Protocol::Http1, Protocol::H2c] {
        let rig = Pair { client: Protocol::Http1, pod: protocol }.start(&pod).await;
        let requests = "GET /a HTTP/1.1\r\nHost: app.ns\r\n\r\n\
             POST /b HTTP/1.1\r\nHost: app.ns\r\nContent-Length: 3\r\n\r\nxyz\
             POST /c HTTP/1.1\r\nHost: app.ns\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nuvw\r\n0\r\n\r\n\
             HEAD /without-body HTTP/1.1\r\nHost: app.ns\r\n\r\n\
             GET /d HTTP/1.1\r\nHost: app.ns\r\nConnection: close\r\n\r\n";
        let text = rig::read_to_end(&mut rig.send_raw(requests).await).await;
        let answers: Vec<&str> = text.split('<').skip(1).filter_map(|rest| rest.split('>').next()).collect();
        assert_eq!(answers, ["/a:", "/b:xyz", "/c:uvw", "/d:"], "{text}");
    }
}

/// Goal: the connection of an HTTP/1.0 client stays open if the client requests it and the length is known. Otherwise
/// the close marks the end.
#[tokio::test]
async fn http10_clients_keep_their_connection_if_they_ask() {
    let pod = Pod::start(|request: Request<Incoming>| async move {
        match request.uri().path() {
            "/known" => Response::new(rig::full("known")),
            _ => {
                let parts = ["un", "known"].map(|part| Ok(Frame::data(Bytes::from_static(part.as_bytes()))));
                Response::new(StreamBody::new(futures::stream::iter(parts)).boxed_unsync())
            }
        }
    })
    .await;
    for protocol in [Protocol::Http1, Protocol::H2c] {
        let rig = Pair { client: Protocol::Http1, pod: protocol }.start(&pod).await;
        let mut client = rig.raw().await;
        let known = "GET /known HTTP/1.0\r\nHost: app.ns\r\nConnection: keep-alive\r\n\r\n";
        for _ in 0..2 {
            rig::write(&mut client, known).await;
            let text = rig::read_until(&mut client, "\r\n\r\nknown").await;
            let is_persistent = text.to_ascii_lowercase().contains("connection: keep-alive");
            assert!(text.starts_with("HTTP/1.0 200") && is_persistent, "{text}");
        }
        rig::write(&mut client, "GET /unknown HTTP/1.0\r\nHost: app.ns\r\n\r\n").await;
        let text = rig::read_to_end(&mut client).await;
        assert!(text.ends_with("\r\n\r\nunknown") && !text.contains("chunked"), "{text}");
    }
}

/// Goal: a burst before the first connection to a pod waits until the pod has announced its limit of streams, and no
/// request is refused. Method: a limit of one, which the pod announces a moment after the connection is open, and
/// bodies that are too large to be sent again. If threads stalled, so that the limit may have come too late, the test
/// is repeated.
#[tokio::test]
async fn a_burst_keeps_to_the_stream_limit_of_a_new_pod() {
    for _ in 0..10 {
        if let Some(statuses) = burst_before_a_new_pod().await {
            assert!(statuses.iter().all(|status| *status == StatusCode::OK), "{statuses:?}");
            return;
        }
    }
    panic!("threads stall each time");
}

/// Resolves once its thread has stalled for so long that a pod may not have announced its limit within half a second.
async fn stall() {
    loop {
        let before = Instant::now();
        tokio::time::sleep(Duration::from_millis(10)).await;
        if before.elapsed() > Duration::from_millis(200) {
            return;
        }
    }
}

/// Returns the statuses of the requests; `None` if the thread of the pod or of the activator's worker stalled.
async fn burst_before_a_new_pod() -> Option<Vec<StatusCode>> {
    const BURST: usize = 8;
    let (listener, address) = rig::bind().await;
    let inside = Arc::new(Barrier::new(BURST));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let inside = inside.clone();
            tokio::spawn(async move {
                let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                    let inside = inside.clone();
                    async move {
                        let body = request.into_body().collect().await.expect("whole").to_bytes();
                        inside.wait().await;
                        Ok::<_, Infallible>(Response::new(rig::full(body)))
                    }
                });
                tokio::time::sleep(Duration::from_millis(20)).await; // A slow pod.
                let executor = hyper_util::rt::TokioExecutor::new();
                let _ = hyper::server::conn::http2::Builder::new(executor)
                    .max_concurrent_streams(1)
                    .serve_connection(hyper_util::rt::TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    let workers = WorkerRuntimes::start(NonZeroUsize::MIN).expect("a thread");
    let worker = workers.next().clone();
    let rig = Rig::with_options(|options| options.workers = Some(workers), |backend| backend.protocol = Protocol::H2c);
    let rig = rig.await;
    rig.pods(&[address]).await;
    rig.until_open().await;
    let worker_stalls = worker.spawn(stall());
    let client = rig::http2_client(rig.address).await;
    let mut sent = tokio::task::JoinSet::new();
    for _ in 0..BURST {
        let (mut client, body) = (client.clone(), Full::new(Bytes::from_static(&[b'x'; 20_000])));
        let request = Request::post("http://app.ns/").body(body).expect("a request");
        sent.spawn(async move { client.send_request(request).await.expect("an answer").status() });
    }
    tokio::select! {
        biased;
        () = stall() => None,
        _ = worker_stalls => None,
        statuses = patient(sent.join_all()) => Some(statuses),
    }
}

/// Goal: POSTs are sent again, too, and even requests whose bodies are still being sent.
#[tokio::test]
async fn requests_that_an_http2_pod_refuses_unprocessed_are_sent_again() {
    let (listener, address) = rig::bind().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                let mut refuses = false;
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    refuses = !refuses;
                    match refuses {
                        true => respond.send_reset(h2::Reason::REFUSED_STREAM),
                        false => drop(respond.send_response(Response::new(()), true)),
                    }
                }
            });
        }
    });
    let rig = Rig::with_pods(&[address], |backend| backend.protocol = Protocol::H2c).await;
    for method in ["GET", "POST", "DELETE"] {
        let request = Request::builder().method(method).uri("/").header("host", "app.ns");
        assert_eq!(rig.send(request).await.status, StatusCode::OK, "{method}");
    }
    let pair = Pair { client: Protocol::Http1, pod: Protocol::H2c };
    let (upload, body) = streamed();
    upload.send(Frame::data(Bytes::from_static(b"x"))).await.expect("open");
    let response = pair.send(&rig, Request::post("/"), body).await;
    assert_eq!(response.status(), StatusCode::OK, "with its body");
}
