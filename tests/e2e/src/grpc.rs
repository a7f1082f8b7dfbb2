//! A workload that only uses HTTP/2, as gRPC servers do: it echoes the request, with the status in trailers.

use crate::server;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::future::ready;
use std::process::ExitCode;

/// Serves until the process is killed.
pub fn main() -> ExitCode {
    server::run("8080", |stream| {
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
