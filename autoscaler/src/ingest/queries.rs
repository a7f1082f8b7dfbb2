//! Queries between autoscalers, over the stat port: with the same token, the same TLS, and no further rule in a
//! NetworkPolicy.
//!
//! A query is a GET below [`QUERY_PREFIX`]; the [`Responder`] defines the meaning of its path. If tokens are required,
//! the client must be an autoscaler. If they are not, no client can prove that it is one, and only queries from this
//! machine are served.

use super::peers::Peers;
use bytes::Bytes;
use common_controller::shares::Instance;
use common_runtime::exchange::exchange;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::Incoming;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Path prefix of every query.
pub const QUERY_PREFIX: &str = "/zeroscale/";

/// Longest wait for a response.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest response: ten thousand workloads are about 6 MB.
const ANSWER_MAX: usize = 32 * 1024 * 1024;

/// Responder to other autoscalers' queries: returns the response to a path and query string.
pub type Responder = Arc<dyn Fn(String) -> BoxFuture<'static, Response<Full<Bytes>>> + Send + Sync>;

impl Peers {
    /// Sends a query to another autoscaler, by path and query string.
    ///
    /// # Errors
    /// The autoscaler cannot be reached, does not respond in time, or responds with too much data; the error says
    /// which.
    ///
    /// Cancel safe: dropping the future abandons the query.
    pub async fn query(&self, holder: &Instance, path: &str) -> io::Result<(StatusCode, Bytes)> {
        let answered = timeout(PATIENCE, async {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the autoscaler has no address");
            for url in self.urls(holder) {
                match self.query_at(&url, path).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) => last = error,
                }
            }
            Err(last)
        });
        answered.await.unwrap_or_else(|_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no response within {} s", PATIENCE.as_secs())))
        })
    }

    async fn query_at(&self, url: &str, path: &str) -> io::Result<(StatusCode, Bytes)> {
        let url: Uri = url.parse().map_err(io::Error::other)?;
        let (host, port) = (url.host().unwrap_or_default(), url.port_u16().unwrap_or(common::names::STAT_PORT));
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let addresses = self.resolver.resolve(host, port).await?;
        let address = addresses.first().ok_or_else(|| io::Error::other("the host name has no address"))?;
        let mut request = Request::get(path).header(header::HOST, address.to_string());
        if let Some(token) = &self.settings.token {
            request = request.header(header::AUTHORIZATION, token.bearer().await?);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
        let stream = TcpStream::connect(address).await?;
        let read = async |response: Response<Incoming>| {
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await.map_err(io::Error::other)?;
            Ok((status, body.to_bytes()))
        };
        let answer = match &self.settings.trust {
            Some((trust, _)) if url.scheme_str() == Some("wss") => {
                exchange(trust.connect(stream).await?, request, read).await
            }
            _ => exchange(stream, request, read).await,
        };
        answer.map_err(io::Error::other)?
    }
}
