//! A request's body as hyper delivers it. Over HTTP/2, it reports to its connection which frames are read, when their
//! data is dropped, and whether the rest will not be read ([`super::unread_frames`]).

use super::unread_frames::UnreadFrames;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

/// Number of frames to drain on drop: more than a body can have unread, even with one byte each.
const FRAMES_MAX: u32 = 1 << 16;

pub(crate) struct FromClient {
    body: Incoming,
    /// Counters of its connection, over HTTP/2.
    unread: Option<Arc<UnreadFrames>>,
    polled: bool,
}

impl FromClient {
    /// Wraps a client's body. `unread` belongs to its connection, over HTTP/2.
    pub(crate) fn new(body: Incoming, unread: Option<Arc<UnreadFrames>>) -> Self {
        if let Some(unread) = &unread {
            unread.count_opened();
        }
        Self { body, unread, polled: false }
    }
}

impl Body for FromClient {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if !std::mem::replace(&mut self.polled, true)
            && let Some(unread) = &self.unread
        {
            unread.count_polled();
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let Some(unread) = &self.unread else { return Poll::Ready(frame) };
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| {
                frame.map_data(|data| {
                    if data.is_empty() {
                        return data;
                    }
                    unread.count_yielded();
                    unread.track_yielded(data)
                })
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Discards the frames that are still buffered, and counts them.
impl Drop for FromClient {
    fn drop(&mut self) {
        if self.unread.is_none() {
            return;
        }
        let mut cx = Context::from_waker(Waker::noop());
        let mut is_cut_short = false;
        for _ in 0..FRAMES_MAX {
            let frame = Pin::new(&mut *self).poll_frame(&mut cx);
            is_cut_short = frame.is_pending();
            if !matches!(frame, Poll::Ready(Some(Ok(_)))) {
                break;
            }
        }
        if let Some(unread) = &self.unread {
            // A complete body may not have reported its end yet.
            if is_cut_short && self.body.size_hint().exact() != Some(0) {
                unread.count_cut_short();
            }
            unread.count_closed();
        }
    }
}
