//! Body of a pod's response. Frames pass through. Its end returns the pod's connection.

use crate::body::BodyError;
use crate::http1::connection::Http1Body;
use crate::http2::Received;
use crate::http2::connection::Stream;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Body of a pod's response.
pub struct PodBody(pub(super) Source);

/// Source of a response's body.
pub(super) enum Source {
    /// Over HTTP/1.1.
    Http1(Http1Body),
    /// Over HTTP/2.
    Http2 {
        /// The stream's data.
        body: Received,
        /// Its place on the connection.
        _stream: Stream,
    },
    /// The connection became a tunnel: no data, and no end before the tunnel's end.
    Tunnel,
}

impl Body for PodBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match &mut self.get_mut().0 {
            Source::Http1(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Source::Http2 { body, .. } => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Source::Tunnel => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Http1(body) => body.is_end_stream(),
            Source::Http2 { body, .. } => body.is_end_stream(),
            Source::Tunnel => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Http1(body) => body.size_hint(),
            Source::Http2 { body, .. } => body.size_hint(),
            Source::Tunnel => SizeHint::default(),
        }
    }
}
