//! Connections between activators that carry something else than requests: HTTP/1.1 on a data port, upgraded.
//!
//! So they need no port of their own, and whoever answers without knowing of them tells so: by any other answer.

use http::header::{CONNECTION, HOST, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::Empty;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// The connection, once both sides have agreed.
pub type Duplex = TokioIo<Upgraded>;

/// Longest wait for the other side's answer, each step.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nobody answers.
    #[error("nobody answers: {0}")]
    Unreachable(#[from] io::Error),
    /// Somebody answers, and does not agree.
    #[error("answered {0}")]
    Refused(StatusCode, Box<HeaderMap>),
}

/// Asks whoever listens on `to` for a connection with `protocol`, from our address `own`.
///
/// # Errors
/// Nobody answers, or not with that protocol.
pub async fn dial(to: SocketAddr, own: IpAddr, protocol: &'static str, marks: HeaderMap) -> Result<Duplex, DialError> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let stream = timeout(PATIENCE, connect(to, own)).await.map_err(late)??;
    stream.set_nodelay(true)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection.with_upgrades());
    let mut request = Request::new(Empty::<bytes::Bytes>::new());
    *request.headers_mut() = marks;
    let host = HeaderValue::try_from(to.to_string()).map_err(io::Error::other)?;
    let fields = [
        (HOST, host),
        (CONNECTION, HeaderValue::from_static("upgrade")),
        (UPGRADE, HeaderValue::from_static(protocol)),
    ];
    request.headers_mut().extend(fields.map(|(name, value)| (Some(name), value)));
    let response = timeout(PATIENCE, sender.send_request(request)).await.map_err(late)?.map_err(io::Error::other)?;
    if !agrees(response.status(), response.headers(), protocol) {
        return Err(DialError::Refused(response.status(), Box::new(response.headers().clone())));
    }
    Ok(TokioIo::new(hyper::upgrade::on(response).await.map_err(io::Error::other)?))
}

/// From `own`, by which the other side knows us; from wherever the system likes, if that is none of its addresses.
async fn connect(to: SocketAddr, own: IpAddr) -> io::Result<TcpStream> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if own.is_ipv4() == to.is_ipv4() && !own.is_unspecified() {
        let _ = socket.bind(SocketAddr::new(own, 0));
    }
    socket.connect(to).await
}

fn agrees(status: StatusCode, fields: &HeaderMap, protocol: &str) -> bool {
    let named = fields.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(protocol.as_bytes()));
    status == StatusCode::SWITCHING_PROTOCOLS && named
}

/// What a request for `protocol` is answered with, and the connection that follows the answer. Nothing: it is no such
/// request.
pub fn accept<B, R: Default>(
    request: &mut Request<B>,
    protocol: &'static str,
) -> Option<(Response<R>, impl Future<Output = io::Result<Duplex>> + Send + 'static)> {
    let asked = request.headers().get(UPGRADE)?;
    if request.version() != Version::HTTP_11 || !asked.as_bytes().eq_ignore_ascii_case(protocol.as_bytes()) {
        return None;
    }
    let upgraded = hyper::upgrade::on(request);
    let mut response = Response::new(R::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(protocol));
    Some((response, async move { Ok(TokioIo::new(upgraded.await.map_err(io::Error::other)?)) }))
}
