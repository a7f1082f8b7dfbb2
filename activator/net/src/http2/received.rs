//! Data and trailers received on a stream.

use super::exchange::UploadTask;
use crate::limits::{FIELDS_MAX, TRAILERS_MAX};
use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A body received over HTTP/2. Reading it reopens the window by the same number of bytes.
pub(crate) struct Received {
    stream: RecvStream,
    /// Rest of the length that the head announced.
    left: Option<u64>,
    data_done: bool,
    /// Dropping it ends an upload that is still being sent.
    _upload: Option<UploadTask>,
}

impl Received {
    /// Creates the body for a head that announced `length`. `h2` verifies the length. `upload` ends with the body.
    pub(crate) fn new(stream: RecvStream, length: Option<u64>, upload: Option<UploadTask>) -> Self {
        let left = length.or_else(|| stream.is_end_stream().then_some(0));
        Self { stream, left, data_done: false, _upload: upload }
    }
}

/// Converts an error of the stream. NO_ERROR only means that the pod needs no more of the request (RFC 9113, 8.1).
fn ended(error: h2::Error) -> Option<Result<Frame<Bytes>, h2::Error>> {
    (error.reason() != Some(Reason::NO_ERROR)).then_some(Err(error))
}

fn size(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

impl Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let this = self.get_mut();
        if !this.data_done {
            match ready!(this.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    // This fails if the stream has ended, and then the window does not matter.
                    let _ = this.stream.flow_control().release_capacity(data.len());
                    this.left = this.left.map(|left| left.saturating_sub(data.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(ended(error)),
                None => this.data_done = true,
            }
        }
        Poll::Ready(match ready!(this.stream.poll_trailers(cx)) {
            Ok(Some(trailers)) if trailers.len() > FIELDS_MAX || size(&trailers) > TRAILERS_MAX => {
                Some(Err(Reason::ENHANCE_YOUR_CALM.into()))
            }
            Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
            Err(error) => ended(error),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
