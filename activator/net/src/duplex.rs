//! Connections between activators that carry a protocol other than HTTP: an HTTP/1.1 connection to a data port,
//! upgraded.
//!
//! The upgrade needs no extra port. A peer that does not know the protocol sends any other response than 101, which
//! [`dial`] reports as an error.

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

/// An upgraded connection.
pub type Duplex = TokioIo<Upgraded>;

/// Maximum duration of each step of a dial: the connect, and the wait for the response.
const PATIENCE: Duration = Duration::from_secs(2);

/// Reason why a dial failed.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The peer does not answer.
    #[error("no response: {0}")]
    Unreachable(#[from] io::Error),
    /// The peer answers, but does not upgrade the connection.
    #[error("the peer responded with status {0}")]
    Refused(StatusCode, Box<HeaderMap>),
}

/// Dials `to` from our address `own` and upgrades the connection to `protocol`. `fields` are added to the request.
///
/// # Errors
/// The peer does not answer, or does not upgrade to `protocol`.
pub async fn dial(to: SocketAddr, own: IpAddr, protocol: &'static str, fields: HeaderMap) -> Result<Duplex, DialError> {
    let timed_out = |_| io::Error::from(io::ErrorKind::TimedOut);
    let stream = timeout(PATIENCE, connect(to, own)).await.map_err(timed_out)??;
    stream.set_nodelay(true)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection.with_upgrades());
    let request = Request::get("/")
        .header(HOST, to.to_string())
        .header(CONNECTION, "upgrade")
        .header(UPGRADE, protocol)
        .body(Empty::<bytes::Bytes>::new());
    let mut request = request.map_err(io::Error::other)?;
    request.headers_mut().extend(fields);
    let response =
        timeout(PATIENCE, sender.send_request(request)).await.map_err(timed_out)?.map_err(io::Error::other)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS || !upgrades_to(response.headers(), protocol) {
        return Err(DialError::Refused(response.status(), Box::new(response.headers().clone())));
    }
    Ok(TokioIo::new(hyper::upgrade::on(response).await.map_err(io::Error::other)?))
}

/// Connects from `own`, the address by which the peer knows us. If it cannot be bound, the system picks the address.
async fn connect(to: SocketAddr, own: IpAddr) -> io::Result<TcpStream> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if own.is_ipv4() == to.is_ipv4() && !own.is_unspecified() {
        let _ = socket.bind(SocketAddr::new(own, 0));
    }
    socket.connect(to).await
}

fn upgrades_to(fields: &HeaderMap, protocol: &str) -> bool {
    fields.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(protocol.as_bytes()))
}

/// Accepts a request to upgrade to `protocol`. Returns the response and a future of the upgraded connection, or `None`
/// if the request asks for something else.
pub fn accept<B, R: Default>(
    request: &mut Request<B>,
    protocol: &'static str,
) -> Option<(Response<R>, impl Future<Output = io::Result<Duplex>> + Send + 'static)> {
    if request.version() != Version::HTTP_11 || !upgrades_to(request.headers(), protocol) {
        return None;
    }
    let upgraded = hyper::upgrade::on(request);
    let mut response = Response::new(R::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(protocol));
    Some((response, async move { Ok(TokioIo::new(upgraded.await.map_err(io::Error::other)?)) }))
}
