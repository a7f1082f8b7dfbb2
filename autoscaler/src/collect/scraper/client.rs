//! Sends one request to a queue-proxy: `GET /metrics` on port 9090, with a `Stat` as response.
//!
//! A request to a pod uses the pod's address and a kept connection. A request to a Service uses a new connection each
//! time, so that it may reach another pod.
//!
//! # Not here
//!
//! Features that upstream's client inherits from its library: `HTTP_PROXY`, gzip, redirects.

use bytes::Bytes;
use common::headers;
use common::stat::Stat;
use common_runtime::api_server::chain;
use common_runtime::exchange::exchange;
use common_runtime::resolve::Resolve;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Port on which a queue-proxy serves its stat.
pub const PORT: u16 = 9090;
/// Timeout of one request, including the connection.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum length of a response body: six numbers, a name of 256 bytes, and some reserve.
pub const BODY_MAX: usize = 336;
/// Time after which an unused connection is closed.
const IDLE: Duration = Duration::from_secs(90);
/// Smallest buffer that the library accepts.
const BUFFER: usize = 8 * 1024;
/// Required media type of a response.
pub(super) const PROTOBUF: &str = "application/protobuf";

/// Reason for a missing stat.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScrapeError {
    #[error("GET request for URL \"{0}\" returned HTTP status {1}")]
    Status(String, u16),
    #[error("{0}")]
    Other(String),
    /// The pod that responded had already responded before.
    #[error("did not receive stat from an unscraped pod")]
    Unscraped,
    /// Some pods did not respond before the deadline of the whole sample.
    #[error("not all pods responded within {0:?}")]
    Late(Duration),
}

impl ScrapeError {
    /// Returns whether a mesh that hides the pods would respond like this.
    pub(super) fn is_mesh_like(&self) -> bool {
        matches!(self, Self::Status(_, 502 | 503))
    }
}

/// Service in front of queue-proxies.
#[derive(Clone, Debug)]
pub(super) struct Service {
    /// Host header of requests: `NAME.NAMESPACE`.
    pub(super) host: String,
    /// Fully qualified name, for resolution.
    pub(super) name: String,
}

/// HTTP client for scrapes. Cheap to clone.
#[derive(Clone)]
pub(super) struct Http {
    client: Client<HttpConnector, Empty<Bytes>>,
    resolver: Arc<dyn Resolve>,
    pub(super) port: u16,
}

impl Http {
    pub(super) fn new(resolver: Arc<dyn Resolve>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(1)
            .http1_max_buf_size(BUFFER)
            .build(connector);
        Self { client, resolver, port: PORT }
    }

    /// Requests the stat of the pod at `ip`. With `through`, the request names this Service, for a mesh that routes by
    /// it.
    pub(super) async fn pod(&self, ip: IpAddr, through: Option<&Service>) -> Result<Stat, ScrapeError> {
        let url = format!("http://{}/metrics", SocketAddr::new(ip, self.port));
        let mut request = Request::get(&url).header(header::ACCEPT, PROTOBUF);
        if let Some(service) = through {
            request = request.header(header::HOST, &service.host).header(headers::DIRECT_LB, "true");
        }
        within(&url, async {
            let request = request.body(Empty::new()).map_err(|error| transport(&url, &error))?;
            let response = self.client.request(request).await.map_err(|error| transport(&url, &error))?;
            stat(&url, response).await
        })
        .await
    }

    /// Requests the stat of any pod of the Service.
    pub(super) async fn service(&self, service: &Service) -> Result<Stat, ScrapeError> {
        let authority = format!("{}:{}", service.host, self.port);
        let url = format!("http://{authority}/metrics");
        within(&url, async {
            let addresses = self.resolver.resolve(&service.name, self.port).await;
            let addresses = addresses.map_err(|error| transport(&url, &error))?;
            let stream = TcpStream::connect(&addresses[..]).await.map_err(|error| transport(&url, &error))?;
            let request = Request::get("/metrics")
                .header(header::HOST, authority)
                .header(header::ACCEPT, PROTOBUF)
                .header(header::CONNECTION, "close")
                .body(Empty::<Bytes>::new())
                .map_err(|error| transport(&url, &error))?;
            let exchanged = exchange(stream, request, async |response| stat(&url, response).await).await;
            exchanged.map_err(|error| transport(&url, &error))?
        })
        .await
    }
}

async fn within(url: &str, exchange: impl Future<Output = Result<Stat, ScrapeError>>) -> Result<Stat, ScrapeError> {
    let late = |_| Err(ScrapeError::Other(format!("{url}: no response within {ANSWER_TIMEOUT:?}")));
    timeout(ANSWER_TIMEOUT, exchange).await.unwrap_or_else(late)
}

async fn stat(url: &str, response: Response<Incoming>) -> Result<Stat, ScrapeError> {
    if !response.status().is_success() {
        return Err(ScrapeError::Status(url.to_owned(), response.status().as_u16()));
    }
    let media_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if media_type != Some(PROTOBUF) {
        let media_type = media_type.unwrap_or_default();
        return Err(ScrapeError::Other(format!("{url} answered with the unsupported metric type {media_type:?}")));
    }
    let body = Limited::new(response.into_body(), BODY_MAX).collect().await;
    let body = body.map_err(|error| transport(url, &*error))?.to_bytes();
    common::wire::decode_stat(&body)
        .map_err(|error| ScrapeError::Other(format!("{url}: unmarshalling failed: {error}")))
}

fn transport(url: &str, error: &(dyn Error + 'static)) -> ScrapeError {
    ScrapeError::Other(format!("{url}: {}", chain(error)))
}
