//! Backend of the rows of bodies, for HTTP/1.1 and HTTP/2. It responds to `GET /N` with N bytes, discards the bodies of
//! requests, and responds to `GET /received` with the number of body bytes received so far.

use super::announce::serve_each;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// Bytes passed on at once.
const PIECE: u64 = 64 * 1024;

static ZEROS: [u8; PIECE as usize] = [0; PIECE as usize];

/// Windows that are too large to limit a load.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 256 << 20;

pub(super) async fn run() -> anyhow::Result<()> {
    let received = Arc::new(AtomicU64::new(0));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    serve_each(|stream| {
        let (builder, received) = (builder.clone(), received.clone());
        let service = service_fn(move |request| answer(request, received.clone()));
        async move { builder.serve_connection(TokioIo::new(stream), service).await }
    })
    .await
}

async fn answer(
    request: Request<Incoming>,
    received: Arc<AtomicU64>,
) -> Result<Response<Either<Full<Bytes>, Zeros>>, hyper::Error> {
    let length = request.uri().path().trim_start_matches('/').parse::<u64>().ok();
    if let (&Method::GET, Some(left)) = (request.method(), length) {
        return Ok(Response::new(Either::Right(Zeros { left })));
    }
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        let bytes = frame?.data_ref().map_or(0, Bytes::len);
        received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
    Ok(Response::new(Either::Left(Full::from(received.load(Ordering::Relaxed).to_string()))))
}

/// Body of zeros, of which `left` bytes are still to be sent.
struct Zeros {
    left: u64,
}

impl Body for Zeros {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = self.left.min(PIECE);
        self.left -= length;
        let data = Bytes::from_static(&ZEROS[..length as usize]); // At most one piece.
        Poll::Ready((length > 0).then_some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
