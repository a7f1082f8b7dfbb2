//! HTTP server that delays and shapes its responses by the settings.

use crate::knobs::Knobs;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, request};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use rustix::time::{ClockId, clock_gettime};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

type Body = BoxBody<Bytes, hyper::Error>;

/// Serves until a signal, then finishes the requests in flight. Fails after the time in `HELLO_EXIT_AFTER_MS`.
pub(crate) async fn run(knobs: Knobs) -> Result<(), String> {
    let handler = |kind| signal(kind).map_err(|error| format!("the signal handler cannot be installed: {error}"));
    let (mut terminate, mut interrupt) = (handler(SignalKind::terminate())?, handler(SignalKind::interrupt())?);
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let exit = knobs.exit_after;
    tokio::select! {
        served = serve(knobs, stop) => served,
        () = after(exit) => Err("exits after the time in HELLO_EXIT_AFTER_MS".to_owned()),
    }
}

/// Waits for the delay, or forever if there is none. A delay of zero ends at once, without a tick of the timer.
async fn after(delay: Option<Duration>) {
    match delay {
        Some(delay) if delay.is_zero() => {}
        Some(delay) => tokio::time::sleep(delay).await,
        None => std::future::pending().await,
    }
}

async fn serve(knobs: Knobs, stop: impl Future<Output = ()>) -> Result<(), String> {
    tokio::pin!(stop);
    tokio::select! {
        () = &mut stop => return Ok(()),
        () = after((!knobs.never_ready).then_some(knobs.start)) => {}
    }
    let listen = knobs.listen;
    let listener = TcpListener::bind(listen).await.map_err(|error| format!("cannot listen on {listen}: {error}"))?;
    let knobs = Arc::new(knobs);
    let graceful = GracefulShutdown::new();
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    loop {
        let stream = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(10)).await; // Out of descriptors: let some close.
                    continue;
                }
            },
        };
        let _ = stream.set_nodelay(true); // Affects only latency.
        let knobs = knobs.clone();
        let service = hyper::service::service_fn(move |request| {
            let knobs = knobs.clone();
            async move { Ok::<_, Infallible>(answer(&knobs, request).await) }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let watched = graceful.watch(connection);
        tokio::spawn(async move {
            let _ = watched.await; // An error means that the client has disconnected.
        });
    }
    drop(listener);
    graceful.shutdown().await;
    Ok(())
}

async fn answer(knobs: &Knobs, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let mut response = match head.uri.path() {
        "/echo" => Response::new(body.boxed()),
        path => {
            drain(body);
            match path {
                "/healthz" => text(StatusCode::OK, "ok\n"),
                "/headers" => headers(&head),
                _ => match knobs.request.with_query(head.uri.query().unwrap_or_default()) {
                    Ok(settings) => work(knobs, settings).await,
                    Err(error) => text(StatusCode::BAD_REQUEST, format!("{error}\n")),
                },
            }
        }
    };
    if let Ok(pod) = HeaderValue::from_str(&knobs.pod) {
        response.headers_mut().insert("x-pod", pod);
    }
    response
}

/// Drains an unused body. Closing a connection with unread bytes would reset it, and a client that is still sending
/// would lose the response.
fn drain(mut body: Incoming) {
    if !body.is_end_stream() {
        tokio::spawn(async move { while let Some(Ok(_)) = body.frame().await {} });
    }
}

async fn work(knobs: &Knobs, settings: crate::knobs::Request) -> Response<Body> {
    if !settings.cpu.is_zero() {
        let cpu = settings.cpu;
        let _ = tokio::task::spawn_blocking(move || burn(cpu)).await; // The task cannot fail.
    }
    if !settings.latency.is_zero() {
        tokio::time::sleep(settings.latency).await;
    }
    let status = StatusCode::from_u16(settings.status).unwrap_or(StatusCode::OK);
    match settings.bytes {
        None => text(status, knobs.text.clone()),
        Some(bytes) => text(status, knobs.text.bytes().cycle().take(bytes).collect::<Vec<u8>>()),
    }
}

/// Uses this much CPU time, which takes longer if other processes need the CPU too.
fn burn(time: Duration) {
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or(Duration::MAX);
    let start = used();
    let mut value = 1_u64;
    while used().saturating_sub(start) < time {
        for _ in 0..1000 {
            value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

fn headers(head: &request::Parts) -> Response<Body> {
    let headers: Vec<(String, String)> = head
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let request_data = serde_json::json!({
        "method": head.method.as_str(),
        "uri": head.uri.to_string(),
        "version": format!("{:?}", head.version),
        "headers": headers,
    });
    let mut response = text(StatusCode::OK, request_data.to_string());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    response
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
