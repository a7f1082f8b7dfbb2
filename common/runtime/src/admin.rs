//! The port for operators: `GET /metrics`, and whatever else a plane explains of itself. Never on a public port.

use crate::telemetry::Metrics;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Answers a GET on a path, or says that it knows no such thing.
pub type Page = Arc<dyn Fn(&str) -> Option<Response<Full<Bytes>>> + Send + Sync>;

/// Longest wait for a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves metrics and `pages` (asked in order) until `shutdown`.
///
/// # Errors
/// `listen` cannot be bound.
pub async fn serve(
    listen: SocketAddr,
    metrics: Metrics,
    pages: Vec<Page>,
    shutdown: CancellationToken,
) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(listen).await.map_err(|e| {
        std::io::Error::new(e.kind(), format!("admin port {listen} cannot be bound: {e}; choose another or free it"))
    })?;
    let address = listener.local_addr()?;
    tokio::spawn(accept(listener, metrics, pages, shutdown));
    Ok(address)
}

async fn accept(listener: TcpListener, metrics: Metrics, pages: Vec<Page>, shutdown: CancellationToken) {
    loop {
        let stream = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "admin port: accept failed");
                    tokio::time::sleep(Duration::from_millis(100)).await; // Out of descriptors: let some close.
                    continue;
                }
            },
        };
        let (metrics, pages, shutdown) = (metrics.clone(), pages.clone(), shutdown.clone());
        tokio::spawn(async move {
            let service = hyper::service::service_fn(|request: Request<Incoming>| {
                let answer = answer(&metrics, &pages, request.method(), request.uri().path());
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                _ = connection => {}
                () = shutdown.cancelled() => {}
            }
        });
    }
}

fn answer(metrics: &Metrics, pages: &[Page], method: &Method, path: &str) -> Response<Full<Bytes>> {
    if method != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n");
    }
    if path == "/metrics" {
        return match metrics.encode() {
            Ok(body) => {
                let mut response = text(StatusCode::OK, body);
                response.headers_mut().insert(
                    header::CONTENT_TYPE,
                    header::HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8"),
                );
                response
            }
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "a metric could not be written\n"),
        };
    }
    pages
        .iter()
        .find_map(|page| page(path))
        .unwrap_or_else(|| text(StatusCode::NOT_FOUND, format!("nothing at {path}; try /metrics\n")))
}

/// A plain text response.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    with_type(status, "text/plain; charset=utf-8", body)
}

/// A JSON response.
pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    with_type(status, "application/json", body)
}

fn with_type(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;

    #[test]
    fn metrics_and_pages_share_the_port() {
        let metrics = Metrics::default();
        let served: Counter = metrics.register("served", "Requests served", Counter::default());
        served.inc();
        let page: Page = Arc::new(|path| (path == "/why").then(|| json(StatusCode::OK, "{}")));
        assert_eq!(answer(&metrics, std::slice::from_ref(&page), &Method::GET, "/metrics").status(), StatusCode::OK);
        assert_eq!(answer(&metrics, std::slice::from_ref(&page), &Method::GET, "/why").status(), StatusCode::OK);
        assert_eq!(answer(&metrics, std::slice::from_ref(&page), &Method::GET, "/x").status(), StatusCode::NOT_FOUND);
        assert_eq!(answer(&metrics, &[page], &Method::POST, "/metrics").status(), StatusCode::METHOD_NOT_ALLOWED);
        assert!(metrics.encode().expect("text").contains("served_total 1"));
    }
}
