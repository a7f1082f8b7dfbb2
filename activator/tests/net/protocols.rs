//! Exchanges that must pass unchanged for each protocol of client and pod: four pairs with the same expectations.

use crate::rig::{self, AnyBody, FullResponse, Pod, Rig, patient};
use bytes::Bytes;
use common::backend::Protocol;
use futures::StreamExt;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use std::convert::Infallible;
use tokio::sync::mpsc;

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

    /// Sends a request like `send`, and reads the response.
    pub(crate) async fn ask(self, rig: &Rig, request: http::request::Builder, body: Upload) -> FullResponse {
        FullResponse::read(self.send(rig, request, body).await).await
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
                rig::http1_client(rig.address).await.send_request(request).await
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
        let mut response = Response::new(rig::full(if with_body { "body" } else { "" }));
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
            let answer = pair.ask(&rig, request, nothing()).await;
            assert_eq!(format!("/{}", answer.status.as_u16()), path, "{pair:?}");
            let announced = answer.headers.get("content-length").map(|v| v.to_str().expect("text"));
            // HTTP/2 may omit a length that the end of the stream implies.
            if !(announced.is_none() && length == Some("0")) {
                assert_eq!(announced, length, "{pair:?} {method} {path}");
            }
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
        let answer = pair.ask(&rig, Request::head("/"), nothing()).await;
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::GATEWAY_TIMEOUT, ""), "{pair:?}");
        assert_ne!(answer.headers["content-length"], "0", "{pair:?}");
    }
}

/// Goal: a client that announces trailers and sends no body gets a response. (Knative hangs until its timeout.)
#[tokio::test]
async fn announced_trailers_without_a_body_do_not_hang() {
    for pair in PAIRS {
        let pod = Pod::echoing().await;
        let rig = pair.start(&pod).await;
        let answer = pair.ask(&rig, Request::get("/").header("trailer", "x-asked"), nothing()).await;
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

/// Goal: POSTs are sent again, too, and even requests whose bodies are still being sent.
#[tokio::test]
async fn requests_that_an_http2_pod_refuses_unprocessed_are_sent_again() {
    let pod = Pod::raw(rig::listen().await, |stream, _| async move {
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
    let pair = Pair { client: Protocol::Http1, pod: Protocol::H2c };
    let rig = pair.start(&pod).await;
    for method in ["GET", "POST", "DELETE"] {
        let request = Request::builder().method(method).uri("/");
        assert_eq!(pair.send(&rig, request, nothing()).await.status(), StatusCode::OK, "{method}");
    }
    let (upload, body) = streamed();
    upload.send(Frame::data(Bytes::from_static(b"x"))).await.expect("open");
    let response = pair.send(&rig, Request::post("/"), body).await;
    assert_eq!(response.status(), StatusCode::OK, "with its body");
}
