//! Admin port for operators: `GET /metrics`, and the pages by which a plane explains itself. Never on a public port.
//!
//! A separate thread with lower priority serves the port, so any number of scrapers costs requests no time. Its
//! connections are bounded ([`crate::bounded_accept`]). Each has [`HEAD_TIMEOUT`] to send a request and lasts at most
//! [`CONNECTION_MAX`].

mod ask;

pub use ask::get;

use crate::bounded_accept::{Acceptor, Limits};
use crate::telemetry::{Metrics, TextFormat};
use crate::tls::{self, rustls::ServerConfig};
use bytes::Bytes;
use common::text::printable_document;
use futures::stream;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::fmt;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Responds to a GET of a path, or returns `None` for an unknown path.
pub type Page = Arc<dyn Fn(&str) -> Option<Response<Full<Bytes>>> + Send + Sync>;

/// Path at which a plane explains its decisions: `/explain/NAMESPACE/NAME`.
pub const EXPLAIN: &str = "/explain/";

/// Longest wait for a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest duration of a connection, including responses.
const CONNECTION_MAX: Duration = Duration::from_secs(60);

/// Connection limits: a scraper has one or two.
const LIMITS: Limits = Limits { total: 256, per_address: 64 };

const NICENESS: i32 = 10;

/// Content of the admin port.
#[derive(Clone)]
pub struct Admin {
    /// Metrics at `/metrics`; `None`: 404.
    pub metrics: Option<Metrics>,
    /// Pages, tried in order.
    pub pages: Vec<Page>,
    /// TLS settings; `None`: plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
}

/// Serves metrics and `pages` without TLS until `shutdown`. Fails if `listen` cannot be bound.
pub async fn serve(
    listen: SocketAddr,
    metrics: Metrics,
    pages: Vec<Page>,
    shutdown: CancellationToken,
) -> std::io::Result<SocketAddr> {
    Admin { metrics: Some(metrics), pages, tls: None }.serve(listen, shutdown).await
}

impl Admin {
    /// Serves until `shutdown`. Fails if `listen` cannot be bound.
    pub async fn serve(self, listen: SocketAddr, shutdown: CancellationToken) -> std::io::Result<SocketAddr> {
        let socket = crate::listen::open(listen).map_err(|e| {
            std::io::Error::new(
                e.kind(),
                format!("admin port {listen} cannot be bound: {e}; free the port, or choose another one"),
            )
        })?;
        let address = socket.local_addr()?.as_socket().unwrap_or(listen);
        std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
            // On Linux this sets the niceness of the calling thread. If it is not permitted, the thread keeps its
            // normal priority.
            let _ = rustix::process::setpriority_process(None, NICENESS);
            if let Err(error) = self.run(socket.into(), shutdown) {
                tracing::error!(%error, "the admin port cannot be served");
            }
        })?;
        Ok(address)
    }

    fn run(self, listener: StdListener, shutdown: CancellationToken) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let acceptor = Acceptor::new(TcpListener::from_std(listener)?, "admin", LIMITS);
            let serve = |stream, _| {
                let admin = self.clone();
                async move { _ = timeout(CONNECTION_MAX, admin.connection(stream)).await }
            };
            acceptor.serve(shutdown, serve).await;
            Ok(())
        })
    }

    async fn connection(&self, stream: TcpStream) {
        let Some(config) = self.tls.clone() else { return self.exchanges(stream).await };
        match timeout(HEAD_TIMEOUT, tls::accept(stream, config)).await {
            Ok(Ok(stream)) => self.exchanges(stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "admin port"),
            Err(_) => {}
        }
    }

    async fn exchanges(&self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let service = hyper::service::service_fn(|request: Request<Incoming>| {
            let answer = self.answer(request.method(), request.uri().path(), request.headers());
            async move { Ok::<_, Infallible>(answer) }
        });
        // The peer causes such errors: a partial request or a reset.
        let _ = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }

    /// Builds the response to a request. A metric that cannot be written aborts the body.
    fn answer(&self, method: &Method, path: &str, headers: &HeaderMap) -> Response<UnsyncBoxBody<Bytes, fmt::Error>> {
        let whole = |response: Response<Full<Bytes>>| {
            response.map(|body| body.map_err(|never: Infallible| match never {}).boxed_unsync())
        };
        if method != Method::GET {
            return whole(text(StatusCode::METHOD_NOT_ALLOWED, "this port supports only GET\n"));
        }
        if path == "/metrics" {
            let Some(metrics) = &self.metrics else {
                return whole(text(
                    StatusCode::NOT_FOUND,
                    "there are no metrics: metrics-protocol in config-observability is none\n",
                ));
            };
            let format = TextFormat::negotiate(headers);
            let parts =
                metrics.exposition().map(move |part| part.map(|text| Frame::data(Bytes::from(format.convert(text)))));
            let body = StreamBody::new(stream::iter(parts)).boxed_unsync();
            let mut response = with_type(StatusCode::OK, format.content_type(), body);
            response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
            return response;
        }
        let page = self.pages.iter().find_map(|page| page(path));
        whole(page.unwrap_or_else(|| text(StatusCode::NOT_FOUND, format!("there is no page {path}; try /metrics\n"))))
    }
}

/// Builds a plain text response.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    with_type(status, "text/plain; charset=utf-8", Full::new(body.into()))
}

/// Builds a JSON response. Unprintable characters in strings are escaped.
pub fn json(status: StatusCode, body: impl AsRef<str>) -> Response<Full<Bytes>> {
    let body = printable_document(body.as_ref()).into_owned();
    with_type(status, "application/json", Full::new(body.into()))
}

/// Builds a response with this content type.
pub fn with_type<B>(status: StatusCode, content_type: &'static str, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Instrument;
    use crate::telemetry::instrument::Kind;
    use hyper::body::Body;
    use prometheus_client::metrics::counter::Counter;

    #[tokio::test]
    async fn metrics_and_pages_share_the_port() {
        let metrics = Metrics::default();
        let served: Counter =
            metrics.register(Instrument::new(Kind::Counter, "served", "Requests served"), Counter::default());
        served.inc();
        let page: Page = Arc::new(|path| (path == "/why").then(|| json(StatusCode::OK, "{}")));
        let admin = Admin { metrics: Some(metrics.clone()), pages: vec![page], tls: None };
        let ask = |method, path, accept| {
            let accept = HeaderValue::from_static(accept);
            admin.answer(&method, path, &[(header::ACCEPT, accept)].into_iter().collect())
        };
        let status = |method, path| ask(method, path, "*/*").status();
        assert_eq!(status(Method::GET, "/metrics"), StatusCode::OK);
        assert_eq!(status(Method::GET, "/why"), StatusCode::OK);
        assert_eq!(status(Method::GET, "/x"), StatusCode::NOT_FOUND);
        assert_eq!(status(Method::POST, "/metrics"), StatusCode::METHOD_NOT_ALLOWED);
        let rows = [
            (
                "application/openmetrics-text",
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                "# HELP served Requests served.\n# TYPE served counter\nserved_total 1\n# EOF\n",
            ),
            (
                "text/plain",
                "text/plain; version=0.0.4; charset=utf-8",
                "# HELP served_total Requests served.\n# TYPE served_total counter\nserved_total 1\n",
            ),
        ];
        for (accept, content_type, expected) in rows {
            let answer = ask(Method::GET, "/metrics", accept);
            assert_eq!(answer.headers()[header::CONTENT_TYPE], content_type);
            let body = answer.into_body();
            assert!(!body.is_end_stream() && body.size_hint().upper().is_none(), "the body is streamed");
            assert_eq!(body.collect().await.expect("written").to_bytes(), expected);
        }
    }
}
