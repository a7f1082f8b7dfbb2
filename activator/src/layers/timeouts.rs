//! The revision's bounds of time.
//!
//! | bound | runs from | until | reached before the head | reached later |
//! |---|---|---|---|---|
//! | total | the request's head was read | the end of the response's body, of a tunnel | 504 | reset |
//! | response start | the same | the response's head | 504 | – |
//! | idle | the last movement | the end of the response's body | 504 | reset |
//!
//! Held time counts. Movement is a frame of either body, so neither a long upload nor a stream that still moves is cut
//! by the idle bound; neither is a tunnel, which only the total bound ends.
//!
//! # Better than Knative
//!
//! Once the head is out, a bound resets the exchange, so that the client can tell it from a complete answer. Knative appends a
//! message to the body and ends it cleanly. Its idle timer ignores uploads and cuts busy WebSockets.
//!
//! # Cost
//!
//! One timer for each exchange that has to wait, made when it first does; it is moved, not made again, and at most once for
//! each idle period.

use crate::body::{BodyError, Upload};
use crate::exchange::Call;
use crate::refusal::{Refusal, TimedOut};
use crate::revision::Bounds;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep};
use tower::Service;

/// Bounds the time of exchanges.
#[derive(Clone)]
pub(crate) struct Timeouts<S> {
    inner: S,
}

impl<S> Timeouts<S> {
    /// Around `inner`.
    pub(crate) fn new(inner: S) -> Self {
        Self { inner }
    }
}

impl<S, B> Service<Call> for Timeouts<S>
where
    S: Service<Call, Response = Response<B>, Error = Refusal>,
    B: Body<Data = Bytes, Error: Into<BodyError>>,
{
    type Response = Response<TimedBody<B>>;
    type Error = Refusal;
    type Future = TimedExchange<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let bounds = call.revision.bounds();
        let upload = bounds.idle.and_then(|_| call.request.body().upload());
        let clock = BoundClock { bounds, started: call.received, moved: call.received, upload, timer: None };
        TimedExchange { exchange: self.inner.call(call), clock: Some(clock) }
    }
}

/// Which bound comes next, and the timer that is set to it.
struct BoundClock {
    bounds: Bounds,
    started: Instant,
    moved: Instant,
    upload: Option<Arc<Upload>>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl BoundClock {
    /// The earliest bound that is in force.
    fn next(&self) -> (Instant, TimedOut) {
        let mut next = (self.started + self.bounds.total, TimedOut::Total(self.bounds.total));
        if let Some(bound) = self.bounds.response_start
            && self.started + bound < next.0
        {
            next = (self.started + bound, TimedOut::ResponseStart(bound));
        }
        if let Some(bound) = self.bounds.idle {
            let uploaded = self.upload.as_ref().and_then(|upload| upload.moved());
            let moved = uploaded.map_or(self.moved, |at| at.max(self.moved));
            if moved + bound < next.0 {
                next = (moved + bound, TimedOut::Idle(bound));
            }
        }
        next
    }

    /// Ready once a bound is reached. Wakes `cx` in time for the next one.
    fn poll_bound(&mut self, cx: &mut Context<'_>) -> Poll<TimedOut> {
        loop {
            let timer = match &mut self.timer {
                Some(timer) => timer,
                None => {
                    let (at, _) = self.next();
                    self.timer.insert(Box::pin(tokio::time::sleep_until(at)))
                }
            };
            std::task::ready!(timer.as_mut().poll(cx));
            // What was next when the timer was set may have moved on.
            let reached = timer.deadline();
            let (at, bound) = self.next();
            if at <= reached {
                return Poll::Ready(bound);
            }
            if let Some(timer) = &mut self.timer {
                timer.as_mut().reset(at);
            }
        }
    }
}

pin_project! {
    /// An exchange up to the response's head.
    pub(crate) struct TimedExchange<F> {
        #[pin]
        exchange: F,
        clock: Option<BoundClock>,
    }
}

impl<F, B> Future for TimedExchange<F>
where
    F: Future<Output = Result<Response<B>, Refusal>>,
{
    type Output = Result<Response<TimedBody<B>>, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.exchange.poll(cx) {
            Poll::Ready(result) => Poll::Ready(result.map(|response| {
                let clock = this.clock.take().map(|mut clock| {
                    clock.bounds.response_start = None;
                    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                        clock.bounds.idle = None;
                    }
                    if clock.bounds.idle.is_some() {
                        clock.moved = Instant::now();
                    }
                    // A timer that was set to the bound that has just gone fires once for nothing, which is cheaper
                    // than setting it again here for every response.
                    clock
                });
                response.map(|body| TimedBody { body, clock })
            })),
            Poll::Pending => match this.clock {
                Some(clock) => clock.poll_bound(cx).map(|bound| Err(bound.into())),
                None => Poll::Pending,
            },
        }
    }
}

pin_project! {
    /// A response's body within the bounds that are left.
    pub(crate) struct TimedBody<B> {
        #[pin]
        body: B,
        clock: Option<BoundClock>,
    }
}

impl<B> Body for TimedBody<B>
where
    B: Body<Data = Bytes, Error: Into<BodyError>>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        match this.body.poll_frame(cx) {
            Poll::Ready(frame) => {
                match this.clock {
                    Some(clock) if clock.bounds.idle.is_some() && matches!(frame, Some(Ok(_))) => {
                        clock.moved = Instant::now();
                    }
                    _ => {}
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => match this.clock {
                Some(clock) => clock.poll_bound(cx).map(|bound| Some(Err(bound.into()))),
                None => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
