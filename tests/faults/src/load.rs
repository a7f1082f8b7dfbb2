//! Clients of the activator: requests at a steady rate, whether or not answers come.

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Longest wait for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Clients that share their kept-alive connections.
#[derive(Clone)]
pub struct Clients {
    client: Client<HttpConnector, Full<Bytes>>,
    activator: SocketAddr,
}

/// What one request came to.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its method.
    pub method: Method,
    /// When it was sent.
    pub sent: Instant,
    /// Until its answer was complete, or it failed.
    pub took: Duration,
    /// The status of a complete answer.
    pub status: Option<StatusCode>,
    /// Whether the answer names the activator as its origin.
    pub named: bool,
}

impl Sample {
    /// Whether it was answered as it should be.
    pub fn is_good(&self) -> bool {
        self.status == Some(StatusCode::OK)
    }
}

impl Clients {
    /// Of an activator.
    pub fn of(activator: SocketAddr) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), activator }
    }

    /// Sends one request and reads all of its answer.
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
