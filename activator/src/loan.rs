//! A request's body on a journey that it may have to make again.
//!
//! An HTTP/2 pod may say that it has not looked at a request (REFUSED_STREAM, GOAWAY) whose body was already on its
//! way: every gRPC call has one. So the first bytes of a body are kept until its answer begins, and the rest comes back
//! when the journey ends. A body of which more than [`KEPT_MAX`] has gone, or trailers, cannot be sent again.
//!
//! Bytes are kept by reference, for as long as the answer is waited for.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;

/// Most bytes that are kept of one body: a frame of HTTP/2, by default.
const KEPT_MAX: usize = 16 * 1024;

/// Longest wait for a body to come back from a journey that has failed. Whoever had it has been told by then.
const RETURN_MAX: Duration = Duration::from_secs(1);

/// A body, with what is to be sent of it before it is read on.
pub(crate) struct Lent<B> {
    again: VecDeque<Bytes>,
    /// None once it went back.
    rest: Option<B>,
    loan: Option<Arc<Loan<B>>>,
}

/// Where it comes back to.
pub(crate) struct Loan<B> {
    state: Mutex<State<B>>,
    returned: Notify,
}

struct State<B> {
    kept: VecDeque<Bytes>,
    bytes: usize,
    /// It cannot be sent again.
    spoilt: bool,
    rest: Option<B>,
}

impl<B> Lent<B> {
    /// Not on its way yet.
    pub(crate) fn new(body: B) -> Self {
        Self { again: VecDeque::new(), rest: Some(body), loan: None }
    }

    /// Sends it on a journey from which it can come back.
    pub(crate) fn lend(&mut self) -> Arc<Loan<B>> {
        let state = State { kept: VecDeque::new(), bytes: 0, spoilt: false, rest: None };
        let loan = Arc::new(Loan { state: Mutex::new(state), returned: Notify::new() });
        self.loan = Some(loan.clone());
        loan
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Lent<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = match (self.again.pop_front(), &mut self.rest) {
            (Some(bytes), _) => Some(Ok(Frame::data(bytes))),
            (None, Some(rest)) => std::task::ready!(Pin::new(rest).poll_frame(cx)),
            (None, None) => None,
        };
        if let Some(loan) = &self.loan {
            match &frame {
                Some(Ok(frame)) => loan.keep(frame.data_ref()),
                Some(Err(_)) => loan.end(),
                None => {}
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.again.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let again: u64 = self.again.iter().map(|bytes| bytes.len() as u64).sum();
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(again + rest.lower());
        if let Some(upper) = rest.upper() {
            hint.set_upper(again + upper);
        }
        hint
    }
}

impl<B> Drop for Lent<B> {
    fn drop(&mut self) {
        if let Some(loan) = self.loan.take() {
            loan.give_back(std::mem::take(&mut self.again), self.rest.take());
        }
    }
}

impl<B> Loan<B> {
    /// It need not come back: its answer has begun.
    pub(crate) fn end(&self) {
        let kept = {
            let mut state = self.state.lock();
            state.spoilt = true;
            (std::mem::take(&mut state.kept), state.rest.take())
        };
        drop(kept); // Not under the lock.
    }

    /// The body as it was, and how many bytes of it are to be sent again; none if that cannot be.
    ///
    /// # Cancel safety
    /// The body may be lost.
    pub(crate) async fn reclaim(&self) -> Option<(Lent<B>, usize)> {
        let returned = async {
            loop {
                let returned = self.returned.notified();
                {
                    let mut state = self.state.lock();
                    if state.spoilt {
                        return None;
                    }
                    if let Some(rest) = state.rest.take() {
                        let again = std::mem::take(&mut state.kept);
                        return Some((Lent { again, rest: Some(rest), loan: None }, state.bytes));
                    }
                }
                returned.await;
            }
        };
        tokio::time::timeout(RETURN_MAX, returned).await.ok().flatten()
    }

    fn keep(&self, data: Option<&Bytes>) {
        let mut state = self.state.lock();
        let bytes = state.bytes + data.map_or(KEPT_MAX + 1, Bytes::len);
        if state.spoilt || bytes > KEPT_MAX {
            drop(state);
            return self.end();
        }
        state.bytes = bytes;
        state.kept.extend(data.cloned());
    }

    fn give_back(&self, unsent: VecDeque<Bytes>, rest: Option<B>) {
        {
            let mut state = self.state.lock();
            if state.spoilt {
                return;
            }
            state.kept.extend(unsent);
            state.rest = rest;
        }
        self.returned.notify_waiters();
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
                let loan = body.lend();
                for _ in 0..taken {
                    body.frame().await;
                }
                drop(body);
                let (back, bytes) = loan.reclaim().await.expect("little was sent");
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
        let loan = large.lend();
        large.frame().await;
        large.frame().await;
        drop(large);
        assert!(loan.reclaim().await.is_none());

        let mut trailed = parts(&[Frame::data(b"one".as_slice()), Frame::trailers(http::HeaderMap::new())]);
        let loan = trailed.lend();
        trailed.frame().await;
        trailed.frame().await;
        drop(trailed);
        assert!(loan.reclaim().await.is_none());

        let mut answered = three();
        let loan = answered.lend();
        answered.frame().await;
        loan.end();
        drop(answered);
        assert!(loan.reclaim().await.is_none());
    }

    /// Goal: whoever still has the body is waited for, and not for ever.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_late_is_waited_for() {
        let mut body = three();
        let loan = body.lend();
        let mut reclaimed = tokio_test::task::spawn(async { loan.reclaim().await.is_some() });
        tokio_test::assert_pending!(reclaimed.poll());
        drop(body);
        assert!(reclaimed.is_woken());
        assert!(tokio_test::assert_ready!(reclaimed.poll()));

        let mut kept = three();
        let loan = kept.lend();
        assert!(loan.reclaim().await.is_none());
        drop(kept);
    }
}
