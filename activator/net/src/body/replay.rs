//! A request's body on a journey that it may have to make again.
//!
//! An HTTP/2 pod may say that it has not looked at a request (REFUSED_STREAM, GOAWAY) whose body was already on its
//! way: every gRPC call has one. So the first bytes of a body are kept until its answer begins, and whoever has the
//! body then can have it begin anew. A body of which more than [`KEPT_MAX`] has gone, or trailers, cannot be sent
//! again.
//!
//! Bytes are kept by reference, for as long as the answer is waited for.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use smallvec::SmallVec;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Most bytes that are kept of one body: a frame of HTTP/2, by default.
const KEPT_MAX: usize = 16 * 1024;

/// A body, with what has gone of it and may be sent again.
pub(crate) struct Lent<B> {
    body: B,
    journey: Journey,
    /// In order: what has gone, then what is to go again before the body is read on. Mostly one, and no allocation.
    kept: SmallVec<[Bytes; 1]>,
    /// How many of them have gone.
    gone: usize,
    /// And bytes.
    bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Journey {
    /// One from which it need not come back.
    Last,
    /// What goes is kept.
    Lent,
    /// Something has gone that was not kept.
    Spoilt,
}

impl<B> Lent<B> {
    /// Not on its way yet.
    pub(crate) fn new(body: B) -> Self {
        Self { body, journey: Journey::Last, kept: SmallVec::new(), gone: 0, bytes: 0 }
    }

    /// Sends it on a journey from which it can come back. Nothing of it has gone yet.
    pub(crate) fn lend(&mut self) {
        self.journey = Journey::Lent;
    }

    /// Whether all of it can still be sent again.
    pub(crate) fn is_whole(&self) -> bool {
        self.journey == Journey::Lent
    }

    /// It need not come back: its answer has begun.
    pub(crate) fn end(&mut self) {
        self.journey = Journey::Last;
        self.kept.drain(..self.gone);
        (self.gone, self.bytes) = (0, 0);
    }

    /// The body as it was, and how many bytes of it are to be sent again; none if that cannot be.
    pub(crate) fn reclaim(mut self) -> Option<(Self, usize)> {
        let bytes = std::mem::take(&mut self.bytes);
        self.gone = 0;
        self.is_whole().then_some((self, bytes))
    }

    /// What is to go again next.
    fn next_again(&mut self) -> Option<Bytes> {
        if self.gone == self.kept.len() {
            return None;
        }
        if self.journey != Journey::Lent {
            return Some(self.kept.remove(self.gone));
        }
        let again = self.kept[self.gone].clone();
        self.gone += 1;
        self.bytes += again.len();
        Some(again)
    }

    /// Keeps what goes, or nothing any more.
    fn keep<E>(&mut self, frame: Option<&Result<Frame<Bytes>, E>>) {
        let data = match frame {
            Some(Ok(frame)) => frame.data_ref(),
            Some(Err(_)) => None,
            None => return,
        };
        match data {
            Some(data) if self.bytes + data.len() <= KEPT_MAX => {
                self.kept.push(data.clone());
                self.gone += 1;
                self.bytes += data.len();
            }
            _ => {
                self.end(); // All that was kept has gone before the body was read.
                self.journey = Journey::Spoilt;
            }
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Lent<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(again) = self.next_again() {
            return Poll::Ready(Some(Ok(Frame::data(again))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if self.journey == Journey::Lent {
            self.keep(frame.as_ref());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.gone == self.kept.len() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let again: u64 = self.kept[self.gone..].iter().map(|bytes| bytes.len() as u64).sum();
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

    fn parts(parts: &[Frame<&'static [u8]>]) -> Lent<Parts> {
        let frames: Vec<_> = parts
            .iter()
            .map(|frame| match (frame.data_ref(), frame.trailers_ref()) {
                (Some(data), _) => Ok(Frame::data(Bytes::from_static(data))),
                (None, trailers) => Ok(Frame::trailers(trailers.cloned().unwrap_or_default())),
            })
            .collect();
        Lent::new(StreamBody::new(stream::iter(frames)))
    }

    fn three() -> Lent<Parts> {
        parts(&[Frame::data(b"one".as_slice()), Frame::data(b"two".as_slice()), Frame::data(b"three".as_slice())])
    }

    /// Goal: wherever a journey ends, and however often, the whole body can be sent again.
    #[tokio::test]
    async fn a_body_comes_back_whole() {
        for taken in 0..=4 {
            let mut body = three();
            for journey in 0..3 {
                body.lend();
                for _ in 0..taken {
                    body.frame().await;
                }
                let (back, bytes) = body.reclaim().expect("little was sent");
                assert_eq!(bytes, [0, 3, 6, 11, 11][taken], "journey {journey}, {taken} taken");
                body = back;
            }
            assert_eq!(body.collect().await.expect("whole").to_bytes(), "onetwothree", "{taken} taken");
        }
    }

    #[tokio::test]
    async fn what_was_too_much_or_had_its_answer_does_not_come_back() {
        static LARGE: [u8; KEPT_MAX] = [b'x'; KEPT_MAX];
        let mut large = parts(&[Frame::data(LARGE.as_slice()), Frame::data(b"!".as_slice())]);
        large.lend();
        large.frame().await;
        assert!(large.is_whole());
        large.frame().await;
        assert!(!large.is_whole());
        assert!(large.reclaim().is_none());

        let mut trailed = parts(&[Frame::data(b"one".as_slice()), Frame::trailers(http::HeaderMap::new())]);
        trailed.lend();
        trailed.frame().await;
        trailed.frame().await;
        assert!(trailed.reclaim().is_none());

        let mut answered = three();
        answered.lend();
        answered.frame().await;
        answered.end();
        assert!(answered.reclaim().is_none());
    }

    /// Goal: an answer that comes while kept bytes go once more lets go of those that have gone, and of no others.
    #[tokio::test]
    async fn an_answer_amid_the_second_journey_loses_nothing() {
        for again in 0..=2 {
            let mut body = three();
            body.lend();
            body.frame().await;
            body.frame().await;
            let (mut body, _) = body.reclaim().expect("little was sent");
            body.lend();
            let mut received = Vec::new();
            for _ in 0..again {
                received.extend(body.frame().await.expect("more").expect("no error").into_data().expect("data"));
            }
            body.end();
            received.extend(body.collect().await.expect("whole").to_bytes());
            assert_eq!(received, b"onetwothree", "{again} sent again");
        }
    }
}
