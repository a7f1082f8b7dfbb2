//! Asks the admin port of a process, for a person who waits.

use crate::tls::Trust;
use anyhow::Context;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
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
            exchange(stream, request).await
        }
        None => exchange(stream, request).await,
    }
}

async fn exchange<S>(stream: S, request: Request<Empty<Bytes>>) -> anyhow::Result<(StatusCode, Value)>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body =
        Limited::new(response.into_body(), ANSWER_MAX).collect().await.map_err(|error| anyhow::anyhow!(error))?;
    connection.abort();
    Ok((status, serde_json::from_slice(&body.to_bytes()).unwrap_or_default()))
}
