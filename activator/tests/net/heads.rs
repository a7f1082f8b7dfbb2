//! Heads and trailers with many fields, in both directions and all pairs of protocols, and a long request target that
//! must be encoded.

use crate::protocols::{PAIRS, Pair, nothing};
use crate::rig::{self, Pod, patient};
use bytes::Bytes;
use common::backend::Protocol;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use tokio::io::AsyncWriteExt;

/// Returns `count` fields with distinct names and values of `size` bytes.
fn fields(count: usize, size: usize) -> HeaderMap {
    let value = HeaderValue::try_from("v".repeat(size)).expect("a value");
    (0..count).map(|n| (HeaderName::try_from(format!("x{n}")).expect("a name"), value.clone())).collect()
}

fn frames<E: Send + 'static>(frames: Vec<Frame<Bytes>>) -> UnsyncBoxBody<Bytes, E> {
    StreamBody::new(futures::stream::iter(frames.into_iter().map(Ok))).boxed_unsync()
}

/// Starts a pod that answers `/fields/COUNT/SIZE` with such fields, and `/trailers/COUNT/SIZE` with such trailers. The
/// body holds the number of fields and trailers of the request.
async fn pod() -> Pod {
    Pod::start(|request: Request<Incoming>| async move {
        let path = request.uri().path().to_owned();
        let field_count = request.headers().keys().filter(|name| name.as_str().starts_with('x')).count();
        let trailers = request.into_body().collect().await.map(|body| body.trailers().map_or(0, HeaderMap::len));
        let mut parts = path.split('/').skip(1);
        let kind = parts.next();
        let mut number = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
        let (count, size) = (number(), number());
        let data = Frame::data(Bytes::from(format!("{field_count} {}", trailers.unwrap_or(usize::MAX))));
        match kind {
            Some("fields") => {
                let mut response = Response::new(frames(vec![data]));
                *response.headers_mut() = fields(count, size);
                response
            }
            Some("trailers") => Response::new(frames(vec![data, Frame::trailers(fields(count, size))])),
            _ => Response::new(frames(vec![data])),
        }
    })
    .await
}

/// Goal: a head of a thousand fields, and of 360 KB, passes in both directions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_fields_pass() {
    let pod = pod().await;
    for pair in PAIRS {
        let rig = pair.start(&pod).await;
        let mut request = Request::get("/fields/1000/320");
        if let Some(headers) = request.headers_mut() {
            *headers = fields(1000, 64);
        }
        let answer = pair.ask(&rig, request, nothing()).await;
        for (name, value) in &fields(1000, 320) {
            assert_eq!(answer.headers.get(name), Some(value), "{pair:?}, {name}");
        }
        // Two fields are ours: `x-forwarded-for` and `x-forwarded-proto`.
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "1002 0"), "{pair:?}");
    }
}

/// Goal: a head with as many names as `http::HeaderMap` can hold, to which ours cannot be added, is refused, and so is
/// one slightly above the limit. Other requests are not affected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_fields_are_refused() {
    let pod = pod().await;
    for pair in PAIRS {
        let rig = pair.start(&pod).await;
        for count in [1_100, 24_575] {
            let before = pod.requests();
            let mut request = Request::get("/");
            if let Some(headers) = request.headers_mut() {
                *headers = fields(count, 1);
            }
            // Over HTTP/1 the client's own Host is one more.
            if pair.client == Protocol::H2c || count < 24_000 {
                let response = pair.send(&rig, request, nothing()).await;
                assert_eq!(response.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "{pair:?}, {count}");
                assert_eq!(pod.requests(), before, "{pair:?}, {count}");
            }
            let answer = pair.ask(&rig, Request::get(format!("/fields/{count}/1")), nothing()).await;
            assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{pair:?}, {count}");
            assert_eq!(answer.header("x-zeroscale-origin"), "activator", "{pair:?}, {count}");
            let response = pair.send(&rig, Request::get("/"), nothing()).await;
            assert_eq!(response.status(), StatusCode::OK, "{pair:?}, {count}");
        }
        rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
    }
}

/// Goal: if a request has too many trailers, which only HTTP/2 permits, it gets an error response. If a response has
/// too many, it is broken off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_trailers_are_refused() {
    let pod = pod().await;
    for protocol in [Protocol::Http1, Protocol::H2c] {
        let pair = Pair { client: Protocol::H2c, pod: protocol };
        let rig = pair.start(&pod).await;
        for count in [1_100, 24_575] {
            let body = frames(vec![Frame::data(Bytes::from_static(b"data")), Frame::trailers(fields(count, 1))]);
            let response = pair.send(&rig, Request::post("/"), body).await;
            assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{pair:?}, {count}");
            if protocol == Protocol::H2c {
                let request = Request::get(format!("http://app.ns/trailers/{count}/1")).body(nothing());
                let mut client = rig::http2_client(rig.address).await;
                // The reset may arrive before the head has been sent on.
                if let Ok(response) = patient(client.send_request(request.expect("a request"))).await {
                    assert!(patient(response.into_body().collect()).await.is_err(), "{pair:?}, {count}");
                }
            }
        }
        let few = frames(vec![Frame::trailers(fields(1_000, 1))]);
        let response = pair.send(&rig, Request::post("/trailers/1000/1"), few).await;
        if protocol == Protocol::H2c {
            let answer = rig::FullResponse::read(response).await;
            assert_eq!(answer.body, "2 1000");
            assert_eq!(answer.trailers.map_or(0, |trailers| trailers.len()), 1000);
        }
        rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
    }
}

/// Goal: the target is complete even if its encoding exceeds a read buffer. Requests behind it are served.
#[tokio::test]
async fn a_long_odd_target_is_passed_on_completely() {
    let pod = Pod::start(|request: Request<Incoming>| async move {
        Response::new(rig::full(format!("{} {}\n", request.uri().path().len(), request.uri())))
    })
    .await;
    let rig = PAIRS[0].start(&pod).await;
    let target = "\"".repeat(20_000);
    let request = format!("GET /{target} HTTP/1.1\r\nhost: app.ns\r\n\r\n");
    let last = "GET /< HTTP/1.1\r\nhost: app.ns\r\nconnection: close\r\n\r\n";
    let answers = rig::read_to_end(&mut rig.send_raw(&format!("{request}{request}{last}")).await).await;
    let whole = format!("60001 /{}\n", "%22".repeat(20_000));
    assert_eq!(answers.matches(&whole).count(), 2, "{} bytes", answers.len());
    assert!(answers.ends_with("4 /%3C\n"), "{}", &answers[answers.len().saturating_sub(200)..]);

    // Longer than allowed after encoding.
    let mut client = rig.raw().await;
    let request = format!("GET /{} HTTP/1.1\r\nhost: app.ns\r\n\r\n", "\"".repeat(22_000));
    let _ = patient(client.write_all(request.as_bytes())).await;
    let answer = rig::read_to_end(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 414"), "{answer}");
}
