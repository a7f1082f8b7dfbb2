//! Pods that speak only one HTTP version, on ports without a declared protocol.

use crate::ports::{id, port};
use crate::rig::{self, Pod, Rig, full, listen, patient};
use activator::discovery::{Event, Port, Spec};
use common::backend::Protocol;
use common_api::zeroscaler::PortProtocol;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

/// Starts a pod that speaks only this version. It returns the version, the host and the length of the body.
async fn pod(only: Protocol) -> Pod {
    Pod::raw(listen().await, move |stream, _| async move {
        let service = hyper::service::service_fn(|request: Request<Incoming>| async {
            let host = request.uri().authority().map(ToString::to_string);
            let host = host.or(request.headers().get("host").and_then(|host| host.to_str().ok()).map(Into::into));
            let head = format!("{:?} {} ", request.version(), host.unwrap_or_default());
            let length = request.into_body().collect().await.map_or(0, |body| body.to_bytes().len());
            Ok::<_, Infallible>(Response::new(full(format!("{head}{length}"))))
        });
        let io = TokioIo::new(stream);
        match only {
            Protocol::Http1 => http1::Builder::new().serve_connection(io, service).await,
            Protocol::H2c => http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await,
        }
    })
}

/// Creates `ns/app` with one port, for which `spoken` is the hint.
async fn start_rig(spoken: Option<Protocol>) -> Rig {
    let port = Port { spoken, ..port(&id("web", 80), PortProtocol::Auto) };
    let rig = Rig::start().await;
    let spec = Spec { ports: vec![port].into(), ..Spec::standalone("ns", "app", rig::backend("app")) };
    rig.emit(Event::Revision(Arc::new(spec))).await;
    rig.settled().await;
    rig
}

/// Returns the pod's response to a POST.
async fn post(address: SocketAddr, kind: &str, length: usize, over_http2: bool) -> String {
    let (request, body) = (Request::post("http://app.ns/s/m").header("content-type", kind), vec![b'x'; length]);
    let answer = match over_http2 {
        true => rig::ask_http2(address, request, body).await,
        false => rig::ask_with(address, request.header("host", "app.ns"), body).await,
    };
    answer.body
}

/// Goal: the request reaches the pod regardless of the hint, asleep and awake. The detected version is assumed for the
/// next pod, so that a body that cannot be sent twice arrives there, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_reaches_a_pod_that_speaks_only_one_version() {
    for only in [Protocol::Http1, Protocol::H2c] {
        for hint in [None, Some(Protocol::Http1), Some(Protocol::H2c)] {
            for kind in ["application/json", "application/grpc", "application/grpc-web"] {
                let version = if only == Protocol::H2c { "HTTP/2.0" } else { "HTTP/1.1" };
                let rig = start_rig(hint).await;
                let held = tokio::spawn(post(rig.address, kind, 100, kind == "application/grpc"));
                rig.until(|load| load.queued == 1).await;
                let _first = rig.only_pod(pod(only).await).await;
                let expected = |length| format!("{version} app.ns {length}");
                let case = format!("{only:?}, {hint:?}, {kind}");
                assert_eq!(patient(held).await.expect("no panic"), expected(100), "asleep: {case}");
                assert_eq!(post(rig.address, kind, 100, false).await, expected(100), "awake: {case}");
                let _second = rig.only_pod(pod(only).await).await;
                rig.settled().await;
                assert_eq!(post(rig.address, kind, 1 << 20, false).await, expected(1 << 20), "replaced: {case}");
            }
        }
    }
}
