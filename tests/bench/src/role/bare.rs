//! Proxy that consists of hyper only: its server and its pooled client. In between, only the URI of a request changes.

use super::announce::serve_each;
use http::uri::{Authority, Scheme};
use http::{Request, Uri};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;

/// Serves forever, with HTTP/2 or HTTP/1.1 on both sides.
pub(crate) async fn run(h2c: bool, backend: SocketAddr) -> anyhow::Result<()> {
    let authority = Authority::try_from(backend.to_string())?;
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).http2_only(h2c).build(connector());
    serve_each(|stream| {
        let (client, authority, stream) = (client.clone(), authority.clone(), TokioIo::new(stream));
        let service = service_fn(move |request| client.request(with_authority(request, &authority)));
        async move {
            match h2c {
                true => http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await,
                false => http1::Builder::new().serve_connection(stream, service).await,
            }
        }
    })
    .await
}

fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector
}

fn with_authority(mut request: Request<Incoming>, authority: &Authority) -> Request<Incoming> {
    let mut target = request.uri().clone().into_parts();
    target.scheme = Some(Scheme::HTTP);
    target.authority = Some(authority.clone());
    if let Ok(uri) = Uri::from_parts(target) {
        *request.uri_mut() = uri;
    }
    request
}
