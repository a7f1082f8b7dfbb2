//! One question to one queue-proxy: `GET /metrics` at port 9090, answered by a `Stat`.
//!
//! A pod is asked at its own address, over a connection that is kept ([`super::kept`]). A Service is asked over a new
//! connection each time, so that each question may reach another pod; so is a pod whose answer has an uncommon form.
//!
//! # Not here
//!
//! What upstream's client inherits from its library: `HTTP_PROXY`, gzip, redirects.

use super::kept::{Answer, AnswerError, BODY_MAX, Kept};
use bytes::Bytes;
use common::headers;
use common::stat::Stat;
use common_runtime::resolve::Resolve;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// Where a queue-proxy serves its stat.
pub const PORT: u16 = 9090;
/// Time for one answer, the connection included.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// The media type that an answer must have.
pub(super) const PROTOBUF: &str = "application/protobuf";

/// Why a stat could not be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScrapeError {
    #[error("GET request for URL \"{0}\" returned HTTP status {1}")]
    Status(String, u16),
    #[error("{0} answered with the unsupported metric type {1:?}")]
    Type(String, String),
    #[error("{0}: {1}")]
    Transport(String, String),
    #[error("{0}: unmarshalling failed: {1}")]
    Decode(String, common::wire::DecodeError),
    /// A pod has answered that had answered before.
    #[error("did not receive stat from an unscraped pod")]
    Unscraped,
    /// Not all that were asked have answered when the time for the whole was over.
    #[error("not all had answered within {0:?}")]
    Late(Duration),
}

impl ScrapeError {
    /// Whether a mesh that hides the pods would answer like this.
    pub(super) fn is_mesh_like(&self) -> bool {
        matches!(self, Self::Status(_, 502 | 503))
    }
}

/// A Service in front of queue-proxies.
#[derive(Clone, Debug)]
pub(super) struct Service {
    /// What it is called in requests: `NAME.NAMESPACE`.
    pub(super) host: String,
    /// What it is looked up by: the whole name.
    pub(super) name: String,
}

/// Asks. Cheap to clone.
#[derive(Clone)]
pub(super) struct Http {
    kept: Arc<Kept>,
    resolver: Arc<dyn Resolve>,
    pub(super) port: u16,
}

impl Http {
    pub(super) fn new(resolver: Arc<dyn Resolve>) -> Self {
        Self { kept: Arc::default(), resolver, port: PORT }
    }

    /// Closes connections that nobody uses.
    pub(super) fn sweep(&self) {
        self.kept.sweep(Instant::now());
    }

    /// Asks the pod at `ip`; `through`: in the name of this Service, for a mesh that passes such requests on.
    pub(super) async fn pod(&self, ip: IpAddr, through: Option<&Service>) -> Result<Stat, ScrapeError> {
        let address = SocketAddr::new(ip, self.port);
        let url = || format!("http://{address}/metrics");
        let exchange = async {
            let own = address.to_string();
            let question =
                Question { host: through.map_or(&own, |service| &service.host), directly: through.is_some() };
            let head = question.head().map_err(|error| transport(&url(), error))?;
            match self.kept.ask(address, &head).await {
                Ok(answer) => stat(url, answer),
                Err(AnswerError::Unsupported) => once(&url(), &[address], &question).await,
                Err(error) => Err(transport(&url(), error)),
            }
        };
        timeout(ANSWER_TIMEOUT, exchange).await.unwrap_or_else(|_| Err(transport(&url(), "no answer in time")))
    }

    /// Asks whichever pod the Service leads to this time.
    pub(super) async fn service(&self, service: &Service) -> Result<Stat, ScrapeError> {
        let authority = format!("{}:{}", service.host, self.port);
        let url = format!("http://{authority}/metrics");
        let exchange = async {
            let resolved = self.resolver.resolve(&service.name, self.port).await;
            let addresses = resolved.map_err(|error| transport(&url, error))?;
            once(&url, &addresses, &Question { host: &authority, directly: false }).await
        };
        timeout(ANSWER_TIMEOUT, exchange).await.unwrap_or_else(|_| Err(transport(&url, "no answer in time")))
    }
}

/// What is asked.
struct Question<'a> {
    /// In whose name.
    host: &'a str,
    /// A mesh is to pass it on to the pod that it was sent to.
    directly: bool,
}

impl Question<'_> {
    /// The request, byte by byte.
    fn head(&self) -> Result<Vec<u8>, http::Error> {
        HeaderValue::from_str(self.host)?; // A name with a line's end would add fields of its own.
        let directly = if self.directly { format!("{}: true\r\n", headers::DIRECT_LB) } else { String::new() };
        let host = self.host;
        Ok(format!("GET /metrics HTTP/1.1\r\naccept: {PROTOBUF}\r\nhost: {host}\r\n{directly}\r\n").into_bytes())
    }

    /// The same for a connection that is used once.
    fn request(&self) -> Result<Request<Empty<Bytes>>, http::Error> {
        let mut request = Request::get("/metrics")
            .header(header::HOST, self.host)
            .header(header::ACCEPT, PROTOBUF)
            .header(header::CONNECTION, "close");
        if self.directly {
            request = request.header(headers::DIRECT_LB, "true");
        }
        request.body(Empty::new())
    }
}

/// Asks over a new connection.
async fn once(url: &str, addresses: &[SocketAddr], question: &Question<'_>) -> Result<Stat, ScrapeError> {
    let stream = TcpStream::connect(addresses).await.map_err(|error| transport(url, error))?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| transport(url, error))?;
    let request = question.request().map_err(|error| transport(url, error))?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| transport(url, error))?;
        read(url, response).await
    };
    // In one task: the connection ends with the answer, or with whoever gives up on it.
    tokio::pin!(answer, connection);
    tokio::select! {
        biased;
        stat = &mut answer => stat,
        _ = &mut connection => answer.await,
    }
}

async fn read(url: &str, response: Response<Incoming>) -> Result<Stat, ScrapeError> {
    let status = response.status().as_u16();
    let media_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut answer = Answer { status, media_type: media_type.unwrap_or_default().to_owned(), body: Vec::new() };
    if response.status().is_success() && answer.media_type == PROTOBUF {
        let body = Limited::new(response.into_body(), BODY_MAX).collect().await;
        answer.body = body.map_err(|error| transport(url, error))?.to_bytes().into();
    }
    stat(|| url.to_owned(), answer)
}

/// What an answer says.
fn stat(url: impl Fn() -> String, answer: Answer) -> Result<Stat, ScrapeError> {
    if !(200..300).contains(&answer.status) {
        return Err(ScrapeError::Status(url(), answer.status));
    }
    if answer.media_type != PROTOBUF {
        return Err(ScrapeError::Type(url(), answer.media_type));
    }
    common::wire::decode_stat(&answer.body).map_err(|error| ScrapeError::Decode(url(), error))
}

fn transport(url: &str, error: impl ToString) -> ScrapeError {
    ScrapeError::Transport(url.to_owned(), error.to_string())
}
