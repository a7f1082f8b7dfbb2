//! One question and its answer over an HTTP/1.1 connection that is used for nothing else.
//!
//! Not bounded in time, and the answer not in length: that is the caller's part.

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper_util::rt::TokioIo;
use std::error::Error;
use tokio::io::{AsyncRead, AsyncWrite};

/// Sends `request` over `stream`, and has `read` read the answer. The connection ends with it.
///
/// # Errors
/// The connection breaks before there is an answer.
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
        // What has been received already can still be read.
        _ = &mut connection => answer.await,
    }
}
