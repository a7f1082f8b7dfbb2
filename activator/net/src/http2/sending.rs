//! Sends a body into a stream.

use super::reason_of;
use crate::body::RequestBody;
use bytes::Bytes;
use h2::SendStream;
use http_body::{Body, Frame};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A body that is sent as the receiver's window allows. The future ends when the body has ended, or the receiver has
/// reset the stream.
///
/// The next part is polled only when the previous one was sent, so that the source holds back what does not fit. The
/// last part does not wait for the window here: `h2` buffers it and sends it when there is room.
pub(crate) struct Sending {
    stream: SendStream<Bytes>,
    /// A part that waits for the window.
    waiting: Option<Bytes>,
    /// The body, as far as it is still to be read.
    pub(super) body: RequestBody,
}

impl Sending {
    /// Sends `body` into `stream`, whose head was sent.
    pub(crate) fn new(stream: SendStream<Bytes>, body: RequestBody) -> Self {
        Self { stream, waiting: None, body }
    }
}

impl Future for Sending {
    type Output = Result<(), h2::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            if let Some(part) = this.waiting.take() {
                if has_room(&mut this.stream, cx)?.is_pending() {
                    this.waiting = Some(part);
                    return Poll::Pending;
                }
                this.stream.send_data(part, false)?;
            }
            let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
                // If the receiver has reset the stream, the body's sender must learn of it.
                return Poll::Ready(Err(ready!(this.stream.poll_reset(cx))?.into()));
            };
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(part))) => {
                    if this.body.is_end_stream() {
                        return Poll::Ready(this.stream.send_data(part, true));
                    }
                    if !part.is_empty() {
                        // Reserving one byte is enough to be woken when the window opens. More would keep other streams
                        // waiting.
                        this.stream.reserve_capacity(1);
                        this.waiting = Some(part);
                    }
                }
                Some(Ok(Err(frame))) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        return Poll::Ready(this.stream.send_trailers(trailers));
                    }
                }
                Some(Err(error)) => {
                    let reason = reason_of(&*error);
                    tracing::debug!(%error, ?reason, "the body of an HTTP/2 stream failed");
                    this.stream.send_reset(reason);
                    return Poll::Ready(Err(reason.into()));
                }
                None => return Poll::Ready(this.stream.send_data(Bytes::new(), true)),
            }
        }
    }
}

/// Becomes ready when the window has room.
fn has_room(stream: &mut SendStream<Bytes>, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
    while stream.capacity() == 0 {
        match stream.poll_capacity(cx) {
            Poll::Ready(Some(Ok(room))) if room > 0 => break,
            Poll::Ready(Some(room)) => {
                room?;
            }
            Poll::Ready(None) => return Poll::Ready(Err(h2::Reason::CANCEL.into())),
            // A reset wakes this task too, and may have arrived already.
            Poll::Pending => return stream.poll_reset(cx).map(|reason| Err(reason?.into())),
        }
    }
    Poll::Ready(Ok(()))
}
