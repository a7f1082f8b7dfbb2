//! Asks the admin port of a process, for a person who waits.

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

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer that is read: 64 entries of some 300 bytes, and a good deal more.
const ANSWER_MAX: usize = 256 * 1024;

/// `GET path` of the port at `admin`: its status, and its JSON (null, if it is none). The port speaks TLS if `trust` says
/// what its certificate must prove.
///
/// # Errors
/// Nobody listens there, no answer comes within five seconds, or the certificate proves something else.
pub async fn get(admin: SocketAddr, trust: Option<&Trust>, path: &str) -> anyhow::Result<(StatusCode, Value)> {
    let asked = timeout(PATIENCE, connect(admin, trust, path)).await;
    asked.with_context(|| format!("no answer from {admin} within {PATIENCE:?}"))?
}

async fn connect(admin: SocketAddr, trust: Option<&Trust>, path: &str) -> anyhow::Result<(StatusCode, Value)> {
    let stream = TcpStream::connect(admin).await.with_context(|| format!("no admin port at {admin}"))?;
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
