//! The listener of test workloads, and the one that serves gRPC.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::future::ready;
use std::process::ExitCode;
use tokio::net::{TcpListener, TcpStream};

/// Serves each connection in its own task, at `HOST` and `PORT` (default: `port`), until the process is killed.
pub fn run<S>(port: &str, serve: impl Fn(TcpStream) -> S) -> ExitCode
where
    S: Future<Output: Send + 'static> + Send + 'static,
{
    match tokio::runtime::Runtime::new().and_then(|runtime| runtime.block_on(listen(port, serve))) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("the workload cannot listen: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn listen<S>(port: &str, serve: impl Fn(TcpStream) -> S) -> std::io::Result<Infallible>
where
    S: Future<Output: Send + 'static> + Send + 'static,
{
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let listener = TcpListener::bind(format!("{}:{}", variable("HOST", "127.0.0.1"), variable("PORT", port))).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve(stream));
    }
}

/// A workload that only uses HTTP/2, as gRPC servers do: it echoes the request, with the status in trailers. Serves
/// until the process is killed.
pub fn grpc() -> ExitCode {
    run("8080", |stream| {
        let service = hyper::service::service_fn(async |request: Request<Incoming>| {
            let sent = request.into_body().collect().await?.to_bytes();
            let status = HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from(0))]);
            let mut answer = Response::new(Full::<Bytes>::from(sent).with_trailers(ready(Some(Ok(status)))));
            answer.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
            Ok::<_, hyper::Error>(answer)
        });
        let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
        async move {
            let _ = connection.await; // The client has disconnected.
        }
    })
}
