//! Response body, from a pod or from the activator.

use super::events::Own;
use activator_net::BodyError;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// Body from a pod or from the activator.
    #[project = AnswerBodyProjection]
    pub(crate) enum AnswerBody<B> {
        /// Body from a pod.
        Pod {
            #[pin]
            body: B,
        },
        /// Body from the activator.
        Own {
            own: Own,
        },
    }
}

impl<B> Body for AnswerBody<B>
where
    B: Body<Data = Bytes, Error: Into<BodyError>>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.project() {
            AnswerBodyProjection::Pod { body } => body.poll_frame(cx).map_err(Into::into),
            AnswerBodyProjection::Own { own } => own.poll_next(cx).map(|next| next.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Pod { body } => body.is_end_stream(),
            Self::Own { own } => own.is_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Pod { body } => body.size_hint(),
            Self::Own { own } => own.length().map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
