//! gRPC with a real client: all four kinds of calls, errors of the pod and of the activator, deadlines, a cold start.

use crate::rig::{self, Rig, patient};
use common::backend::Protocol;
use futures::{Stream, StreamExt};
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
struct Number {
    #[prost(int64, tag = "1")]
    value: i64,
}

type Numbers = Pin<Box<dyn Stream<Item = Result<Number, Status>> + Send>>;

fn number(value: i64) -> Number {
    Number { value }
}

/// Answers calls as the pod: each path is one kind of call.
async fn answer(request: http::Request<Incoming>) -> http::Response<tonic::body::Body> {
    let mut grpc = tonic::server::Grpc::new(ProstCodec::<Number, Number>::default());
    match request.uri().path() {
        "/test/Double" => {
            let call = |request: Request<Number>| async move {
                let mut response = Response::new(number(request.get_ref().value * 2));
                if let Some(deadline) = request.metadata().get("grpc-timeout") {
                    response.metadata_mut().insert("x-deadline", deadline.clone());
                }
                Ok(response)
            };
            grpc.unary(tower::service_fn(call), request).await
        }
        "/test/Fail" => {
            let call = |_: Request<Number>| async { Err::<Response<Number>, _>(Status::not_found("no such number")) };
            grpc.unary(tower::service_fn(call), request).await
        }
        "/test/Hang" => {
            let call = |_: Request<Number>| std::future::pending::<Result<Response<Number>, Status>>();
            grpc.unary(tower::service_fn(call), request).await
        }
        "/test/Sum" => {
            let call = |request: Request<Streaming<Number>>| async move {
                let mut numbers = request.into_inner();
                let mut sum = 0;
                while let Some(one) = numbers.message().await? {
                    sum += one.value;
                }
                Ok(Response::new(number(sum)))
            };
            grpc.client_streaming(tower::service_fn(call), request).await
        }
        "/test/Count" => {
            let call = |request: Request<Number>| async move {
                let end = request.get_ref().value;
                let numbers = futures::stream::iter((0..end).map(|n| Ok(number(n))));
                // After the messages, an error in the trailers.
                let numbers = numbers.chain(futures::stream::iter([Err(Status::out_of_range("the end"))]));
                Ok(Response::new(Box::pin(numbers) as Numbers))
            };
            grpc.server_streaming(tower::service_fn(call), request).await
        }
        "/test/Echo" => {
            let call = |request: Request<Streaming<Number>>| async move {
                Ok(Response::new(Box::pin(request.into_inner()) as Numbers))
            };
            grpc.streaming(tower::service_fn(call), request).await
        }
        _ => Status::unimplemented("unknown").into_http(),
    }
}

async fn pod() -> SocketAddr {
    let (listener, address) = rig::bind().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let service =
                    hyper::service::service_fn(|request| async { Ok::<_, Infallible>(answer(request).await) });
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

async fn rig_with(timeout_ms: u64) -> Rig {
    Rig::with_revision(|backend| (backend.protocol, backend.timeout_ms) = (Protocol::H2c, timeout_ms)).await
}

async fn client(rig: &Rig) -> Grpc<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", rig.address)).expect("an address");
    let origin = "http://app.ns".parse().expect("a URI");
    let channel = patient(endpoint.origin(origin).connect()).await.expect("connected");
    Grpc::new(channel)
}

async fn ready(grpc: &mut Grpc<Channel>) -> &mut Grpc<Channel> {
    patient(grpc.ready()).await.expect("ready");
    grpc
}

async fn unary(
    grpc: &mut Grpc<Channel>,
    request: Request<Number>,
    to: &'static str,
) -> Result<Response<Number>, Status> {
    patient(ready(grpc).await.unary(request, path(to), codec())).await
}

fn codec() -> ProstCodec<Number, Number> {
    ProstCodec::default()
}

fn path(path: &'static str) -> PathAndQuery {
    PathAndQuery::from_static(path)
}

/// Goal: calls of all four kinds pass unchanged, and the first call wakes the revision.
#[tokio::test]
async fn all_kinds_of_calls_pass() {
    let rig = rig_with(30_000).await;
    let mut grpc = client(&rig).await;
    let pod = pod().await;
    let (first, ()) = tokio::join!(unary(&mut grpc, Request::new(number(21)), "/test/Double"), async {
        rig.until(|load| load.queued == 1).await;
        rig.pods(&[pod]).await;
    });
    assert_eq!(first.expect("woken").into_inner(), number(42));

    let failed = unary(&mut grpc, Request::new(number(1)), "/test/Fail").await.expect_err("refused");
    assert_eq!((failed.code(), failed.message()), (Code::NotFound, "no such number"), "trailers-only");

    let numbers = futures::stream::iter((0..100).map(number));
    let sum = ready(&mut grpc)
        .await
        .client_streaming(Request::new(numbers), path("/test/Sum"), codec())
        .await
        .expect("a sum");
    assert_eq!(sum.into_inner(), number(4950));

    let counted = ready(&mut grpc).await.server_streaming(Request::new(number(50)), path("/test/Count"), codec()).await;
    let mut counted = counted.expect("a stream").into_inner();
    for n in 0..50 {
        assert_eq!(patient(counted.message()).await.expect("no error yet"), Some(number(n)));
    }
    let end = patient(counted.message()).await.expect_err("the error in the trailers");
    assert_eq!((end.code(), end.message()), (Code::OutOfRange, "the end"));

    let (sender, receiver) = tokio::sync::mpsc::channel::<Number>(1);
    let upload = futures::stream::unfold(receiver, |mut r| async move { r.recv().await.map(|n| (n, r)) });
    let echoed = patient(ready(&mut grpc).await.streaming(Request::new(upload), path("/test/Echo"), codec())).await;
    let mut echoed = echoed.expect("a stream").into_inner();
    for n in 0..20 {
        sender.send(number(n)).await.expect("open");
        assert_eq!(patient(echoed.message()).await.expect("whole"), Some(number(n)), "while the upload is open");
    }
    drop(sender);
    assert_eq!(patient(echoed.message()).await.expect("a clean end"), None);
    rig.until(|load| load.in_flight == 0).await;
}

/// Goal: a client's deadline reaches the pod. Calls that end early are no longer counted. A timeout of the activator is
/// reported as a deadline.
#[tokio::test]
async fn deadlines_end_calls_and_leave_nothing_behind() {
    let rig = rig_with(30_000).await;
    rig.pods(&[pod().await]).await;
    rig.until_open().await;
    let mut grpc = client(&rig).await;
    let mut request = Request::new(number(1));
    request.set_timeout(Duration::from_secs(7));
    let answer = unary(&mut grpc, request, "/test/Double").await.expect("in time");
    assert_eq!(answer.metadata().get("x-deadline").expect("passed on"), "7000000u");

    let mut request = Request::new(number(1));
    request.set_timeout(Duration::from_millis(100));
    let ended = unary(&mut grpc, request, "/test/Hang").await.expect_err("too late");
    assert!(matches!(ended.code(), Code::Cancelled | Code::DeadlineExceeded), "{ended:?}");
    rig.until(|load| load.in_flight == 0).await;

    rig.revision(|backend| (backend.protocol, backend.timeout_ms) = (Protocol::H2c, 400)).await;
    let ended = unary(&mut grpc, Request::new(number(1)), "/test/Hang").await.expect_err("too late");
    assert_eq!(ended.code(), Code::DeadlineExceeded, "{ended:?}");
    rig.until(|load| load.in_flight == 0).await;
}
