//! A request's body that can be sent again from its start.
//!
//! An HTTP/2 pod may reject a request as unprocessed (REFUSED_STREAM, GOAWAY) after a part of its body was sent; every
//! gRPC call has a body. So the first bytes of a body are kept until the response begins, and are replayed if the
//! request is retried. A body cannot be replayed once more than [`REPLAY_MAX`] ([`REPLAY_FOR_ACTIVATOR_MAX`] to another
//! activator) or its trailers were sent.
//!
//! The bytes are kept by reference until the response begins.

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
    bytes: usize,
    /// Maximum number of bytes that are kept.
    pub(super) most: usize,
}

impl<B> ReplayBuffer<B> {
    /// Wraps a body of which nothing was sent.
    pub(crate) fn new(body: B) -> Self {
        Self { body, keeps_sent: false, chunks: SmallVec::new(), sent: 0, bytes: 0, most: REPLAY_MAX }
    }

    /// Stops keeping sent bytes, because the response has begun.
    pub(crate) fn release(&mut self) {
        self.keeps_sent = false;
        self.chunks.drain(..self.sent);
        (self.sent, self.bytes) = (0, 0);
    }

    /// Returns the body as it was, and the number of bytes to send again; `None` if it cannot be replayed.
    pub(crate) fn rewind(mut self) -> Option<(Self, usize)> {
        let bytes = std::mem::take(&mut self.bytes);
        self.sent = 0;
        self.keeps_sent.then_some((self, bytes))
    }

    /// Returns the next chunk to replay.
    fn next_replayed(&mut self) -> Option<Bytes> {
        if self.sent == self.chunks.len() {
            return None;
        }
        if !self.keeps_sent {
            return Some(self.chunks.remove(self.sent));
        }
        let again = self.chunks[self.sent].clone();
        self.sent += 1;
        self.bytes += again.len();
        Some(again)
    }

    /// Keeps a sent frame. Gives up if too much was sent.
    fn keep<E>(&mut self, frame: Option<&Result<Frame<Bytes>, E>>) {
        let data = match frame {
            Some(Ok(frame)) => frame.data_ref(),
            Some(Err(_)) => None,
            None => return,
        };
        match data {
            Some(data) if self.bytes + data.len() <= self.most => {
                self.chunks.push(data.clone());
                self.sent += 1;
                self.bytes += data.len();
            }
            _ => self.release(), // All kept chunks were sent before the body was read on.
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ReplayBuffer<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(again) = self.next_replayed() {
            return Poll::Ready(Some(Ok(Frame::data(again))));
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
        let again: u64 = self.chunks[self.sent..].iter().map(|bytes| bytes.len() as u64).sum();
        let rest = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(again + rest.lower());
        if let Some(upper) = rest.upper() {
            hint.set_upper(again + upper);
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

    fn three() -> ReplayBuffer<Parts> {
        parts(&[Frame::data(b"one".as_slice()), Frame::data(b"two".as_slice()), Frame::data(b"three".as_slice())])
    }

    /// Goal: the whole body can be sent again, however often and wherever sending stops.
    #[tokio::test]
    async fn a_body_comes_back_whole() {
        for taken in 0..=4 {
            let mut body = three();
            for attempt in 0..3 {
                body.keeps_sent = true;
                for _ in 0..taken {
                    body.frame().await;
                }
                let (back, bytes) = body.rewind().expect("little was sent");
                assert_eq!(bytes, [0, 3, 6, 11, 11][taken], "attempt {attempt}, {taken} taken");
                body = back;
            }
            assert_eq!(body.collect().await.expect("whole").to_bytes(), "onetwothree", "{taken} taken");
        }
    }

    #[tokio::test]
    async fn what_was_too_much_or_had_its_answer_does_not_come_back() {
        static LARGE: [u8; REPLAY_MAX] = [b'x'; REPLAY_MAX];
        let mut large = parts(&[Frame::data(LARGE.as_slice()), Frame::data(b"!".as_slice())]);
        large.keeps_sent = true;
        large.frame().await;
        assert!(large.keeps_sent);
        large.frame().await;
        assert!(!large.keeps_sent);
        assert!(large.rewind().is_none());

        let mut trailed = parts(&[Frame::data(b"one".as_slice()), Frame::trailers(http::HeaderMap::new())]);
        trailed.keeps_sent = true;
        trailed.frame().await;
        trailed.frame().await;
        assert!(trailed.rewind().is_none());

        let mut answered = three();
        answered.keeps_sent = true;
        answered.frame().await;
        answered.release();
        assert!(answered.rewind().is_none());
    }

    /// Goal: a response that begins during a replay drops the chunks that were sent, and only those.
    #[tokio::test]
    async fn an_answer_amid_the_replay_loses_nothing() {
        for again in 0..=2 {
            let mut body = three();
            body.keeps_sent = true;
            body.frame().await;
            body.frame().await;
            let (mut body, _) = body.rewind().expect("little was sent");
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
