//! A workload that only uses HTTP/2, as gRPC servers do: it echoes the request, with the status in trailers.

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::future::ready;
use std::process::ExitCode;
use tokio::net::TcpListener;

/// Serves at `HOST` and `PORT` until the process is killed.
pub fn main() -> ExitCode {
    let served = tokio::runtime::Runtime::new().context("no runtime").and_then(|runtime| runtime.block_on(serve()));
    match served {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("grpc: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> anyhow::Result<Infallible> {
    let host = std::env::var("HOST").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let port = std::env::var("PORT").unwrap_or_else(|_| "8080".to_owned());
    let listener = TcpListener::bind(format!("{host}:{port}")).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let service = hyper::service::service_fn(async |request: Request<Incoming>| {
            let sent = request.into_body().collect().await?.to_bytes();
            let status = HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from(0))]);
            let mut answer = Response::new(Full::<Bytes>::from(sent).with_trailers(ready(Some(Ok(status)))));
            answer.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
            Ok::<_, hyper::Error>(answer)
        });
        let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            let _ = connection.await; // The client has disconnected.
        });
    }
}
