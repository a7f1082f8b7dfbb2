//! Clients that request more than they read, and clients that send more than the pod reads.

use super::frames::{END_STREAM, begin, head, request, windows_open};
use super::hostile::HostileResponse;
use bytes::Bytes;
use http::Request;
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Number of requests on one HTTP/2 connection: the maximum number of concurrent streams.
const STREAMS: u32 = 250;

/// Time after which a client that reads nothing starts again. It would not notice that its connection was closed.
const AGAIN: Duration = Duration::from_secs(25);

/// Speed at which a client reads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// 4 KiB every half second.
    Slow,
    /// Not at all.
    None,
}

impl Pace {
    /// Reads until the connection ends. A client that reads nothing waits for `AGAIN` instead.
    pub(super) async fn read(self, mut stream: TcpStream) -> anyhow::Result<()> {
        match self {
            Self::None => tokio::time::sleep(AGAIN).await,
            Self::Slow => {
                while stream.read(&mut [0; 4096]).await? > 0 {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
        Ok(())
    }
}

/// Reads until the connection ends.
pub(super) async fn until_closed(mut stream: TcpStream) -> anyhow::Result<()> {
    while stream.read(&mut [0; 4096]).await? > 0 {}
    Ok(())
}

/// Sends one request over HTTP/1.1.
pub(super) async fn ask_http1(stream: &mut TcpStream, host: &str, target: &str) -> anyhow::Result<()> {
    let request = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n");
    Ok(stream.write_all(request.as_bytes()).await?)
}

/// Sends as many requests as an HTTP/2 connection can have, with windows large enough for all responses.
pub(super) async fn ask_http2(stream: &mut TcpStream, host: &str, target: &str) -> anyhow::Result<()> {
    begin(stream).await?;
    let mut bytes = windows_open();
    for n in 0..STREAMS {
        bytes.extend(head(END_STREAM, 2 * n + 1, &request("GET", host, target)));
    }
    Ok(stream.write_all(&bytes).await?)
}

/// Sends as many uploads, without end, to the pod that reads nothing.
pub(super) async fn upload(stream: TcpStream) -> anyhow::Result<()> {
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let mut tasks = JoinSet::new();
    for _ in 0..STREAMS {
        let piece = Bytes::from_static(&[7; 16 * 1024]);
        let pieces = futures::stream::repeat_with(move || Ok::<_, Infallible>(Frame::data(piece.clone())));
        let target = format!("http://{}/", HostileResponse::Silent.host());
        let request = Request::post(target).body(StreamBody::new(pieces))?;
        let answer = sender.send_request(request);
        tasks.spawn(async move {
            let _ = answer.await;
        });
    }
    Ok(connection.await?)
}
