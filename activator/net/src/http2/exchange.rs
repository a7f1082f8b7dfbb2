//! A request on its HTTP/2 connection, until the head of its response.
//!
//! Body and response progress independently. The end of one does not end the other, except that a complete response
//! ends the upload: the pod does not need the rest.

use crate::body::{EndsConnection, RequestBody};
use crate::http2::{Received, Sending, content_length};
use crate::limits::FIELDS_MAX;
use h2::client::ResponseFuture;
use http::Response;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio_util::task::AbortOnDropHandle;

/// Reason why an exchange has no response.
pub(crate) enum Failed {
    /// The connection accepts no more streams. The body is untouched.
    Unsent(h2::Error, RequestBody),
    /// A part of the request may have been sent. Includes the body if it can be sent [again](RequestBody::rewound).
    Broken(h2::Error, Option<RequestBody>),
    /// The response was rejected.
    Refused(&'static str),
}

/// A request on its connection.
pub(crate) enum Exchange {
    /// The stream is open.
    Sent {
        /// Head of the response.
        answer: ResponseFuture,
        /// Body of the request.
        upload: Outgoing,
    },
    /// The stream could not be opened, or the error was returned.
    Failed(Option<Failed>),
}

/// Task of an upload that is unfinished when its response begins.
pub(super) type UploadTask = AbortOnDropHandle<Result<(), h2::Error>>;

/// A request's body while its response is pending.
pub(crate) enum Outgoing {
    Going(Sending<RequestBody>),
    /// The body was sent, or is no longer needed. Kept if it can be sent again.
    Over(Option<RequestBody>),
}

impl Outgoing {
    fn poll(&mut self, cx: &mut Context<'_>) {
        // The response reports how sending ended, too.
        if let Self::Going(sending) = self
            && Pin::new(&mut *sending).poll(cx).is_ready()
            && let Self::Going(sending) = std::mem::replace(self, Self::Over(None))
        {
            *self = Self::Over(Some(sending.into_body()).filter(RequestBody::is_whole));
        }
    }

    /// Ends the upload because there is no response. Returns the body if it can be sent again.
    fn failed(&mut self) -> Option<RequestBody> {
        match std::mem::replace(self, Self::Over(None)) {
            Self::Going(sending) => Some(sending.into_body()).filter(RequestBody::is_whole),
            Self::Over(body) => body,
        }
    }

    /// Moves an unfinished upload to its own task, because the response has begun. Dropping the returned handle ends
    /// the upload: after the response, it would go on uncounted and without limits.
    fn answer_begun(&mut self) -> Option<UploadTask> {
        let Self::Going(mut sending) = std::mem::replace(self, Self::Over(None)) else { return None };
        sending.body_mut().release();
        Some(AbortOnDropHandle::new(tokio::spawn(sending)))
    }

    /// Ends the upload, because the response is complete. Returns whether it was unfinished.
    fn answer_complete(&mut self) -> bool {
        matches!(std::mem::replace(self, Self::Over(None)), Self::Going(_))
    }
}

impl Future for Exchange {
    type Output = Result<Response<Received>, Failed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Failed(failed) => failed.take().map_or(Poll::Pending, |failed| Poll::Ready(Err(failed))),
            Self::Sent { answer, upload } => {
                upload.poll(cx);
                let mut answered = match ready!(Pin::new(answer).poll(cx)) {
                    Ok(answered) => answered,
                    Err(error) => return Poll::Ready(Err(Failed::Broken(error, upload.failed()))),
                };
                if answered.headers().len() > FIELDS_MAX {
                    return Poll::Ready(Err(Failed::Refused("the response has more than 1024 fields")));
                }
                let upload = if !answered.body().is_end_stream() {
                    upload.answer_begun()
                } else {
                    if upload.answer_complete() {
                        answered.extensions_mut().insert(EndsConnection);
                    }
                    None
                };
                let length = content_length(answered.headers());
                Poll::Ready(Ok(answered.map(|stream| Received::new(stream, length, upload))))
            }
        }
    }
}
