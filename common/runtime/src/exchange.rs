//! Sends one request over an HTTP/1.1 connection that is used for nothing else.
//!
//! Not here: limits on the time and on the length of the response; the caller sets them.

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper_util::rt::TokioIo;
use std::error::Error;
use tokio::io::{AsyncRead, AsyncWrite};

/// Sends `request` over `stream` and reads the response with `read`. The connection ends afterwards. Fails if the
/// connection breaks before the response.
pub async fn exchange<S, B, T>(
    stream: S,
    request: Request<B>,
    read: impl AsyncFnOnce(Response<Incoming>) -> T,
) -> hyper::Result<T>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let answer = async { Ok(read(sender.send_request(request).await?).await) };
    tokio::pin!(answer, connection);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        // The connection has ended, but received data can still be read.
        _ = &mut connection => answer.await,
    }
}
