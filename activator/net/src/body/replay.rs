//! A request's body that can be sent again from its start.
//!
//! An HTTP/2 pod may reject a request as unprocessed (REFUSED_STREAM, GOAWAY) after a part of its body was sent; every
//! gRPC call has a body. So the first bytes of a body are kept by reference until the response begins, and are replayed
//! if the request is retried. A body cannot be replayed once more than [`REPLAY_MAX`] ([`REPLAY_FOR_ACTIVATOR_MAX`] to
//! another activator) or its trailers were sent.

use crate::limits::STREAM_WINDOW;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use smallvec::SmallVec;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Maximum number of bytes that are kept of one body: the default HTTP/2 frame size.
pub(super) const REPLAY_MAX: usize = 16 * 1024;

/// Maximum kept of a body sent to another activator, which accepts a window of it before it has a pod: the window, the
/// frame that exceeds it, and one frame that waits for room.
pub(super) const REPLAY_FOR_ACTIVATOR_MAX: usize = STREAM_WINDOW as usize + 2 * REPLAY_MAX;

/// A body, with the sent bytes that may be replayed.
pub(crate) struct ReplayBuffer<B> {
    body: B,
    /// Sent bytes are kept, so that the whole body can be replayed. Must be set before anything was sent.
    pub(super) keeps_sent: bool,
    /// Sent chunks, then chunks to replay before the body is read on. Mostly one, without an allocation.
    chunks: SmallVec<[Bytes; 1]>,
    /// Number of chunks that were sent.
    sent: usize,
    /// Number of bytes in these.
    sent_bytes: usize,
    /// Maximum number of bytes that are kept.
    pub(super) kept_max: usize,
}

impl<B> ReplayBuffer<B> {
    /// Wraps a body of which nothing was sent.
    pub(crate) fn new(body: B) -> Self {
        Self { body, keeps_sent: false, chunks: SmallVec::new(), sent: 0, sent_bytes: 0, kept_max: REPLAY_MAX }
    }

    /// Stops keeping sent bytes, because the response has begun.
    pub(crate) fn release(&mut self) {
        self.keeps_sent = false;
        self.chunks.drain(..self.sent);
        (self.sent, self.sent_bytes) = (0, 0);
    }

    /// Returns the body as it was, and the number of bytes to send again; `None` if it cannot be replayed.
    pub(crate) fn rewind(mut self) -> Option<(Self, usize)> {
        let bytes = std::mem::take(&mut self.sent_bytes);
        self.sent = 0;
        self.keeps_sent.then_some((self, bytes))
    }

    fn next_replayed(&mut self) -> Option<Bytes> {
        if self.sent == self.chunks.len() {
            return None;
        }
        if !self.keeps_sent {
            return Some(self.chunks.remove(self.sent));
        }
        let chunk = self.chunks[self.sent].clone();
        self.sent += 1;
        self.sent_bytes += chunk.len();
        Some(chunk)
    }

    /// Keeps a sent frame. Gives up the replay after too many bytes, trailers or an error.
    fn keep<E>(&mut self, frame: Option<&Result<Frame<Bytes>, E>>) {
        let data = match frame {
            Some(Ok(frame)) => frame.data_ref(),
            Some(Err(_)) => None,
            None => return,
        };
        match data {
            Some(data) if self.sent_bytes + data.len() <= self.kept_max => {
                self.chunks.push(data.clone());
                self.sent += 1;
                self.sent_bytes += data.len();
            }
            _ => self.release(), // All kept chunks were sent before the body was read on.
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ReplayBuffer<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(chunk) = self.next_replayed() {
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if self.keeps_sent {
            self.keep(frame.as_ref());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.sent == self.chunks.len() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let replayed: u64 = self.chunks[self.sent..].iter().map(|bytes| bytes.len() as u64).sum();
        let rest = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(replayed + rest.lower());
        if let Some(upper) = rest.upper() {
            hint.set_upper(replayed + upper);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use http_body_util::{BodyExt, StreamBody};

    type Parts = StreamBody<stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, std::convert::Infallible>>>>;

    fn parts(parts: &[Frame<&'static [u8]>]) -> ReplayBuffer<Parts> {
        let frames: Vec<_> = parts
            .iter()
            .map(|frame| match (frame.data_ref(), frame.trailers_ref()) {
                (Some(data), _) => Ok(Frame::data(Bytes::from_static(data))),
                (None, trailers) => Ok(Frame::trailers(trailers.cloned().unwrap_or_default())),
            })
            .collect();
        ReplayBuffer::new(StreamBody::new(stream::iter(frames)))
    }

    fn three_frames() -> ReplayBuffer<Parts> {
        parts(&[Frame::data(b"one".as_slice()), Frame::data(b"two".as_slice()), Frame::data(b"three".as_slice())])
    }

    /// Sends this number of frames, and keeps them for a replay.
    async fn send(mut body: ReplayBuffer<Parts>, frames: usize) -> ReplayBuffer<Parts> {
        body.keeps_sent = true;
        for _ in 0..frames {
            body.frame().await;
        }
        body
    }

    #[tokio::test]
    async fn a_body_can_be_replayed_any_number_of_times() {
        for taken in 0..=4 {
            let mut body = three_frames();
            for attempt in 0..3 {
                let (back, bytes) = send(body, taken).await.rewind().expect("little was sent");
                assert_eq!(bytes, [0, 3, 6, 11, 11][taken], "attempt {attempt}, {taken} taken");
                body = back;
            }
            assert_eq!(body.collect().await.expect("whole").to_bytes(), "onetwothree", "{taken} taken");
        }
    }

    #[tokio::test]
    async fn a_large_trailed_or_answered_body_cannot_be_replayed() {
        static LARGE: [u8; REPLAY_MAX] = [b'x'; REPLAY_MAX];
        let mut large = send(parts(&[Frame::data(LARGE.as_slice()), Frame::data(b"!".as_slice())]), 1).await;
        assert!(large.keeps_sent);
        large.frame().await;
        assert!(!large.keeps_sent);
        assert!(large.rewind().is_none());

        let trailed = parts(&[Frame::data(b"one".as_slice()), Frame::trailers(http::HeaderMap::new())]);
        assert!(send(trailed, 2).await.rewind().is_none());

        let mut answered = send(three_frames(), 1).await;
        answered.release();
        assert!(answered.rewind().is_none());
    }

    /// Goal: a response that begins during a replay drops the chunks that were sent, and only those.
    #[tokio::test]
    async fn a_response_during_the_replay_loses_no_bytes() {
        for again in 0..=2 {
            let (mut body, _) = send(three_frames(), 2).await.rewind().expect("little was sent");
            body.keeps_sent = true;
            let mut received = Vec::new();
            for _ in 0..again {
                received.extend(body.frame().await.expect("more").expect("no error").into_data().expect("data"));
            }
            body.release();
            received.extend(body.collect().await.expect("whole").to_bytes());
            assert_eq!(received, b"onetwothree", "{again} sent again");
        }
    }
}
