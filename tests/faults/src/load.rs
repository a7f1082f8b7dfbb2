//! Clients of the activator. They send requests at a steady rate, whether or not responses arrive.

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Timeout of one request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Clients that share their kept-alive connections.
#[derive(Clone)]
pub struct Clients {
    client: Client<HttpConnector, Full<Bytes>>,
    activator: SocketAddr,
}

/// Result of one request.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Method of the request.
    pub method: Method,
    /// Time at which the request was sent.
    pub sent: Instant,
    /// Duration until its response was complete or it failed.
    pub took: Duration,
    /// Status of a complete response.
    pub status: Option<StatusCode>,
    /// Set if the response names the activator as its origin.
    pub named: bool,
}

impl Sample {
    /// Reports whether the request succeeded.
    pub fn is_good(&self) -> bool {
        self.status == Some(StatusCode::OK)
    }
}

impl Clients {
    /// Creates clients of `activator`.
    pub fn new(activator: SocketAddr) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), activator }
    }

    /// Sends one request and reads its whole response.
    pub async fn send(&self, method: Method, query: &str) -> Sample {
        let sent = Instant::now();
        let body = if method == Method::POST { Bytes::from_static(&[b'x'; 100]) } else { Bytes::new() };
        let request = Request::builder()
            .method(method.clone())
            .uri(format!("http://{}/?{query}", self.activator))
            .header("host", "app.ns")
            .body(Full::new(body));
        let answered = async {
            let response = self.client.request(request.ok()?).await.ok()?;
            let (head, body) = response.into_parts();
            body.collect().await.ok()?;
            Some((head.status, head.headers.contains_key("x-zeroscale-origin")))
        };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, answered).await.ok().flatten();
        let (status, named) = answer.map_or((None, false), |(status, named)| (Some(status), named));
        Sample { method, sent, took: sent.elapsed(), status, named }
    }
}
