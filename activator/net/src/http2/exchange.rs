//! A request that was handed to its HTTP/2 connection, until the head of its answer.
//!
//! Body and answer go on independently of each other; the one that is over first does not end the other, unless the
//! answer is complete: then nobody wants the rest.

use crate::body::{EndsConnection, RequestBody};
use crate::http2::{Received, Sending, content_length};
use crate::limits::FIELDS_MAX;
use h2::client::ResponseFuture;
use http::Response;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;

/// Why an exchange brought no response.
pub(crate) enum Failed {
    /// The connection takes no more; the body was not touched.
    Unsent(h2::Error, RequestBody),
    /// Something may have been sent. With the body, if all of it is there [again](RequestBody::rewound).
    Broken(h2::Error, Option<RequestBody>),
    /// An answer came that is not passed on.
    Refused(&'static str),
}

/// A request that was handed to its connection.
pub(crate) enum Exchange {
    /// Its stream is open.
    Sent {
        /// The response's head.
        answer: ResponseFuture,
        /// The request's body.
        upload: Outgoing,
    },
    /// It has none.
    Failed(Option<Failed>),
}

/// A request's body while its answer is waited for.
pub(crate) enum Outgoing {
    Going(Sending<RequestBody>),
    /// All of it has gone, or nobody wants it. Kept if it can be sent again.
    Over(Option<RequestBody>),
}

impl Outgoing {
    fn poll(&mut self, cx: &mut Context<'_>) {
        // How sending ended tells the answer, too.
        if let Self::Going(sending) = self
            && Pin::new(&mut *sending).poll(cx).is_ready()
            && let Self::Going(sending) = std::mem::replace(self, Self::Over(None))
        {
            *self = Self::Over(Some(sending.into_body()).filter(RequestBody::is_whole));
        }
    }

    /// There is no answer. The body, if it can be sent again.
    fn failed(&mut self) -> Option<RequestBody> {
        match std::mem::replace(self, Self::Over(None)) {
            Self::Going(sending) => Some(sending.into_body()).filter(RequestBody::is_whole),
            Self::Over(body) => body,
        }
    }

    /// The answer has begun. If not everything has gone, both go on, independently of each other, until the answer is
    /// over, which the loss of what is returned tells: an upload that ran on would be counted and bounded by nobody.
    fn answer_begun(&mut self) -> Option<oneshot::Sender<()>> {
        let Self::Going(mut sending) = std::mem::replace(self, Self::Over(None)) else { return None };
        sending.body_mut().release();
        let (over, answer) = oneshot::channel();
        tokio::spawn(async move {
            tokio::select! {
                _ = &mut sending => {}
                _ = answer => tracing::debug!("an upload ended with its answer"),
            }
        });
        Some(over)
    }

    /// The answer is complete. Says whether something has not gone.
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
                    return Poll::Ready(Err(Failed::Refused("its answer has too many fields")));
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
