//! A request on its HTTP/2 connection, until the head of its response.
//!
//! Body and response progress independently. The end of one does not end the other, except that a complete response
//! ends the upload: the pod does not need the rest.

use crate::body::{EndsConnection, RequestBody};
use crate::http2::{Received, Sending, content_length};
use crate::limits::FIELDS_MAX;
use h2::RecvStream;
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

/// A request whose stream is open.
pub(super) struct Exchange {
    pub(super) answer: ResponseFuture,
    pub(super) upload: Outgoing,
}

/// Task of an upload that is unfinished when its response begins.
pub(super) type UploadTask = AbortOnDropHandle<Result<(), h2::Error>>;

/// A request's body while its response is pending.
pub(super) enum Outgoing {
    Going(Sending),
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
            *self = Self::Over(Some(sending.body).filter(RequestBody::is_whole));
        }
    }

    /// Ends the upload because there is no response. Returns the body if it can be sent again.
    fn failed(&mut self) -> Option<RequestBody> {
        match std::mem::replace(self, Self::Over(None)) {
            Self::Going(sending) => Some(sending.body).filter(RequestBody::is_whole),
            Self::Over(body) => body,
        }
    }

    /// Ends or moves the upload, because the response has begun. An unfinished upload goes on in its own task, unless
    /// the response is complete. Dropping the returned handle ends it: after the response, it would go on uncounted and
    /// without limits.
    fn answered(&mut self, response: &mut Response<RecvStream>) -> Option<UploadTask> {
        let Self::Going(mut sending) = std::mem::replace(self, Self::Over(None)) else { return None };
        if response.body().is_end_stream() {
            response.extensions_mut().insert(EndsConnection);
            return None;
        }
        sending.body.release();
        Some(AbortOnDropHandle::new(tokio::spawn(sending)))
    }
}

impl Future for Exchange {
    type Output = Result<Response<Received>, Failed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { answer, upload } = &mut *self;
        upload.poll(cx);
        let mut response = match ready!(Pin::new(answer).poll(cx)) {
            Ok(response) => response,
            Err(error) => return Poll::Ready(Err(Failed::Broken(error, upload.failed()))),
        };
        if response.headers().len() > FIELDS_MAX {
            return Poll::Ready(Err(Failed::Refused("the response has more than 1024 fields")));
        }
        let upload = upload.answered(&mut response);
        let length = content_length(response.headers());
        Poll::Ready(Ok(response.map(|stream| Received::new(stream, length, upload))))
    }
}
