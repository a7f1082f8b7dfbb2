//! Backend of the HTTP/2 rows. It responds to each request with the same body, and to gRPC calls also with a status
//! in trailers.

use super::announce::{BODY, serve_each};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;

pub(crate) async fn run() -> anyhow::Result<()> {
    serve_each(|stream| {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.max_concurrent_streams(1000).serve_connection(TokioIo::new(stream), service_fn(answer))
    })
    .await
}

async fn answer(request: Request<Incoming>) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, hyper::Error> {
    let whole = Full::new(Bytes::from_static(BODY.as_bytes()));
    if request.headers().get(CONTENT_TYPE).is_none_or(|kind| kind != "application/grpc") {
        return Ok(Response::new(whole.boxed_unsync()));
    }
    request.into_body().collect().await?;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let mut response = Response::new(whole.with_trailers(async { Some(Ok(trailers)) }).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}
