//! A response's body as a pod sends it. Frames pass through; its end gives the pod's connection back.

use super::http1::Http1Body;
use super::http2::Stream;
use crate::body::BodyError;
use crate::http2::Received;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of a pod's response.
pub(crate) enum PodBody {
    /// Over HTTP/1.1.
    Http1(Http1Body),
    /// Over HTTP/2.
    Http2 {
        /// The stream's data.
        body: Received,
        /// Its place on the connection.
        _stream: Stream,
    },
    /// The connection became a tunnel: no data, and no end before the tunnel's.
    Tunnel,
}

impl Body for PodBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match self.get_mut() {
            Self::Http1(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Http2 { body, .. } => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Tunnel => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2 { body, .. } => body.is_end_stream(),
            Self::Tunnel => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2 { body, .. } => body.size_hint(),
            Self::Tunnel => SizeHint::default(),
        }
    }
}
