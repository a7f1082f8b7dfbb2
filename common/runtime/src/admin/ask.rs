//! Client of the admin port, for interactive commands.

use crate::exchange::exchange;
use crate::tls::Trust;
use anyhow::Context;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest wait for a response.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest response that is read; 64 entries of some 300 bytes need much less.
const ANSWER_MAX: usize = 256 * 1024;

/// Sends `GET path` to the admin port at `admin`. Returns the status and the JSON body (null if the body is not JSON).
/// Uses TLS if `trust` is set. Fails if no process listens there, if no response comes within five seconds, or if the
/// certificate does not satisfy `trust`.
pub async fn get(admin: SocketAddr, trust: Option<&Trust>, path: &str) -> anyhow::Result<(StatusCode, Value)> {
    let response = timeout(PATIENCE, connect(admin, trust, path)).await;
    response.with_context(|| format!("{admin} did not respond within {PATIENCE:?}"))?
}

async fn connect(admin: SocketAddr, trust: Option<&Trust>, path: &str) -> anyhow::Result<(StatusCode, Value)> {
    let stream =
        TcpStream::connect(admin).await.with_context(|| format!("no process serves an admin port at {admin}"))?;
    let request = Request::get(path).header(header::HOST, admin.to_string()).body(Empty::<Bytes>::new())?;
    match trust {
        Some(trust) => {
            let stream = trust.connect(stream).await.with_context(|| format!("admin port {admin}"))?;
            exchange(stream, request, read).await?
        }
        None => exchange(stream, request, read).await?,
    }
}

async fn read(response: Response<Incoming>) -> anyhow::Result<(StatusCode, Value)> {
    let status = response.status();
    let body =
        Limited::new(response.into_body(), ANSWER_MAX).collect().await.map_err(|error| anyhow::anyhow!(error))?;
    Ok((status, serde_json::from_slice(&body.to_bytes()).unwrap_or_default()))
}
