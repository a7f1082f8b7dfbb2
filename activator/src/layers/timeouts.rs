//! Timeouts of a revision's exchanges.
//!
//! | timeout | ends with | reached before the response head | reached later |
//! |---|---|---|---|
//! | total | the response body, or the tunnel | 504 | reset |
//! | response start | the response head | 504 | – |
//! | idle, since the last progress | the response body | 504 | reset |
//!
//! In knative mode they start when the request head was read, as in Knative, so they include the wait for a pod. In
//! standalone mode they start when a pod has the request ([`Released`]); the wait has a timeout of its own
//! ([`super::hold`]). A frame of either body is progress, so the idle timeout ends neither a long upload nor an active
//! stream. It never ends a tunnel, which only the total timeout limits. If a client stops reading, the server of the
//! connection enforces the timeouts ([`activator_net::deadline`]).
//!
//! # Better than Knative
//!
//! Once the response head was sent, a timeout resets the exchange, so that the client can tell it from a complete
//! response. Knative appends a message to the body and ends it cleanly. Its idle timer ignores uploads and cuts active
//! WebSockets.
//!
//! # Cost
//!
//! One timer per concurrent exchange of a connection, created when an exchange first has to wait
//! ([`activator_net::SpareTimers`]). It is reset instead of created again, at most once per idle period.

use crate::layers::call::{Call, Released};
use crate::refusal::{Refusal, TimedOut};
use crate::registry::revision::Bounds;
use activator_net::{BodyError, Peer, Upload, deadline};
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

#[derive(Clone)]
pub(crate) struct Timeouts<S> {
    pub(crate) inner: S,
}

impl<S, B> Service<Box<Call>> for Timeouts<S>
where
    S: Service<Box<Call>, Response = Response<B>, Error = Refusal>,
    B: Body<Data = Bytes, Error: Into<BodyError>>,
{
    type Response = Response<TimedBody<B>>;
    type Error = Refusal;
    type Future = TimedExchange<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut call: Box<Call>) -> Self::Future {
        let bounds = call.revision.bounds();
        if !bounds.limit_exchange() {
            return TimedExchange { exchange: self.inner.call(call), clock: None };
        }
        if !bounds.from_arrival {
            call.released = Some(Arc::default());
        }
        let upload = bounds.idle.and_then(|_| call.request.body().upload());
        upload.iter().for_each(|upload| upload.record_frame_times());
        let clock = Box::new(BoundClock {
            bounds,
            arrived: call.received,
            released: call.released.clone(),
            last_progress: None,
            upload,
            timer: None,
            peer: call.peer.clone(),
        });
        TimedExchange { exchange: self.inner.call(call), clock: Some(clock) }
    }
}

/// Clock of an exchange: its next timeout and the timer for it.
struct BoundClock {
    bounds: Bounds,
    arrived: Instant,
    /// Time at which a pod got the request, if the timeouts start then.
    released: Option<Arc<Released>>,
    /// Time of the last progress of the response.
    last_progress: Option<Instant>,
    upload: Option<Arc<Upload>>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Owner of the spare timers.
    peer: Arc<Peer>,
}

impl Drop for BoundClock {
    fn drop(&mut self) {
        deadline::withdraw_deadline();
        if let Some(timer) = self.timer.take() {
            self.peer.timers.keep(timer);
        }
    }
}

impl BoundClock {
    /// Returns the earliest timeout in force; `None` if the clock has not started.
    fn next(&self) -> Option<(Instant, TimedOut)> {
        let started = match &self.released {
            Some(released) => (*released.lock())?,
            None => self.arrived,
        };
        let total = if self.bounds.from_arrival { TimedOut::Total } else { TimedOut::Request };
        let total = self.bounds.total.map(|bound| (started + bound, total(bound)));
        let start = self.bounds.response_start.map(|bound| (started + bound, TimedOut::ResponseStart(bound)));
        let idle = self.bounds.idle.map(|bound| {
            let uploaded = self.upload.as_ref().and_then(|upload| upload.last_frame_at());
            let progress = started.max(self.last_progress.unwrap_or(started)).max(uploaded.unwrap_or(started));
            (progress + bound, TimedOut::Idle(bound))
        });
        [total, start, idle].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Reports the deadline to the server of the connection, in case the body is not polled.
    fn report_deadline(&self) {
        match self.next() {
            Some((at, _)) => deadline::report_deadline(at),
            None => deadline::withdraw_deadline(),
        }
    }

    /// Resolves once a timeout is reached. Wakes `cx` in time for the next one.
    fn poll_bound(&mut self, cx: &mut Context<'_>) -> Poll<TimedOut> {
        loop {
            let timer = match &mut self.timer {
                Some(timer) => timer,
                None => {
                    let Some((at, _)) = self.next() else { return Poll::Pending };
                    self.timer.insert(self.peer.timers.take(at))
                }
            };
            std::task::ready!(timer.as_mut().poll(cx));
            // The timeout may have moved since the timer was set.
            let reached = timer.deadline();
            let Some((at, bound)) = self.next() else {
                self.timer = None;
                return Poll::Pending;
            };
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
    /// Exchange up to the response head.
    pub(crate) struct TimedExchange<F> {
        #[pin]
        exchange: F,
        // Boxed, because the outer layers move the exchange and its response.
        clock: Option<Box<BoundClock>>,
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
                        clock.last_progress = Some(Instant::now());
                    }
                    // A timer that was set for the response start fires once in vain, which is cheaper than a reset for
                    // every response.
                    clock.report_deadline(); // The body may never be polled.
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
    /// Response body with the remaining timeouts.
    pub(crate) struct TimedBody<B> {
        #[pin]
        body: B,
        clock: Option<Box<BoundClock>>,
    }
}

impl<B> Body for TimedBody<B>
where
    B: Body<Data = Bytes, Error: Into<BodyError>>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut this = self.project();
        match this.body.as_mut().poll_frame(cx) {
            Poll::Ready(frame) => {
                match (&frame, this.clock) {
                    // Includes the last frame: over HTTP/2 hyper keeps the body until the client takes it.
                    (Some(Ok(_)), Some(clock)) => {
                        if clock.bounds.idle.is_some() {
                            clock.last_progress = Some(Instant::now());
                        }
                        clock.report_deadline();
                    }
                    _ => deadline::withdraw_deadline(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::call;
    use crate::registry::revision::fixture;
    use activator_net::deadline::ExchangeDeadline;
    use http_body_util::{BodyExt, Full, StreamBody};
    use std::future::poll_fn;
    use std::time::Duration;
    use tokio::time::sleep;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Runs an exchange that sends its head at `head` and the parts of its body after `pauses`, in ms. Returns its end,
    /// the number of parts, and the time.
    async fn outcome(head: u64, pauses: &[u64], bounds: (u64, u64, u64)) -> (String, usize, u64) {
        let revision = fixture::revision(|backend| {
            (backend.timeout_ms, backend.response_start_timeout_ms, backend.idle_timeout_ms) = bounds;
        });
        let start = Instant::now();
        let pauses = pauses.to_vec();
        let inner = tower::service_fn(move |_: Box<Call>| {
            let pauses = pauses.clone();
            async move {
                sleep(ms(head)).await;
                let parts = futures::stream::unfold(pauses.into_iter(), |mut pauses| async move {
                    sleep(ms(pauses.next()?)).await;
                    Some((Ok::<_, BodyError>(Frame::data(Bytes::from_static(b"x"))), pauses))
                });
                Ok::<_, Refusal>(Response::new(StreamBody::new(Box::pin(parts))))
            }
        });
        let mut parts = 0;
        let ended = match (Timeouts { inner }).call(call::fixture::call(&revision)).await {
            Err(refusal) => refusal.reason().to_owned(),
            Ok(response) => {
                let mut body = response.into_body();
                loop {
                    match body.frame().await {
                        Some(Ok(_)) => parts += 1,
                        Some(Err(error)) => break format!("reset: {error}"),
                        None => break "whole".to_owned(),
                    }
                }
            }
        };
        (ended, parts, u64::try_from(start.elapsed().as_millis()).expect("short"))
    }

    /// Rows: those of Knative's tests, with a reset in place of Knative's message. Timeouts: total, response start,
    /// idle.
    #[tokio::test(start_paused = true)]
    async fn timeouts_are_exact_to_the_millisecond() {
        let idle_reset = "reset: no data was transferred for the workload's idle timeout of 50ms";
        let total_reset = "reset: request took longer than the workload's timeout of 500ms";
        type Row<'a> = (u64, &'a [u64], (u64, u64, u64), (&'a str, usize, u64));
        let rows: [Row<'_>; 11] = [
            (0, &[0], (100, 10, 50), ("whole", 1, 0)),
            (200, &[0], (100, 0, 0), ("timeout", 0, 100)),
            (200, &[0], (500, 50, 0), ("response-start-timeout", 0, 50)),
            (200, &[0], (500, 0, 50), ("idle-timeout", 0, 50)),
            (200, &[0], (100, 50, 60), ("response-start-timeout", 0, 50)),
            (40, &[30], (500, 50, 0), ("whole", 1, 70)), // The head was in time.
            (49, &[49, 49, 49], (500, 50, 50), ("whole", 3, 196)),
            (0, &[10, 200], (500, 0, 50), (idle_reset, 1, 60)),
            (45, &[49, 200], (500, 0, 50), (idle_reset, 1, 144)),
            (0, &[110; 20], (500, 0, 0), (total_reset, 4, 500)),
            (0, &[45; 20], (500, 0, 50), (total_reset, 11, 500)),
        ];
        for (head, pauses, bounds, expected) in rows {
            let (ended, parts, at) = outcome(head, pauses, bounds).await;
            let (end, count, when) = expected;
            // Timers have a resolution of a millisecond, and may be one late.
            assert!(
                ended == end && parts == count && (when..=when + 2).contains(&at),
                "{head} {pauses:?} {bounds:?}: {ended} {parts} {at}"
            );
        }
    }

    /// Goal: in standalone mode timeouts start when a pod has the request. An exchange without timeouts has no limit.
    #[tokio::test(start_paused = true)]
    async fn timeouts_do_not_include_the_wait_for_a_pod_in_standalone() {
        let rows = [
            (900_000, (0, 0, 0), "whole"),
            (90, (100, 0, 0), "whole"),
            (200, (100, 0, 0), "request-timeout"),
            (40, (100, 50, 50), "whole"),
            (60, (100, 50, 0), "response-start-timeout"),
            (60, (100, 0, 50), "idle-timeout"),
        ];
        for (head, bounds, expected) in rows {
            let revision = fixture::revision(|backend| {
                (backend.request_timeout_ms, backend.response_start_timeout_ms, backend.idle_timeout_ms) = bounds;
            });
            let inner = tower::service_fn(move |call: Box<Call>| async move {
                sleep(ms(1_000)).await;
                call.released.iter().for_each(|clock| *clock.lock() = Some(Instant::now()));
                sleep(ms(head)).await;
                Ok::<_, Refusal>(Response::new(Full::new(Bytes::new())))
            });
            let answer = Timeouts { inner }.call(call::fixture::call(&revision)).await;
            assert_eq!(answer.err().map_or("whole", |refusal| refusal.reason()), expected, "{head} {bounds:?}");
        }
    }

    /// Rows: number of frames that are read, body kept after that, exchange ended. The only frame completes the body.
    #[tokio::test(start_paused = true)]
    async fn an_unread_body_ends_at_its_timeout_and_a_dropped_one_has_none() {
        for (frames, keeps, ended) in [(0, true, true), (1, true, true), (1, false, false)] {
            let revision = fixture::revision(|backend| backend.timeout_ms = 100);
            let inner = tower::service_fn(|_: Box<Call>| async {
                Ok::<_, Refusal>(Response::new(Full::new(Bytes::from_static(b"hello"))))
            });
            let mut exchange = Box::pin(Timeouts { inner }.call(call::fixture::call(&revision)));
            let (mut body, mut reported) = (None, ExchangeDeadline::default());
            let connection = poll_fn(|cx| {
                reported.poll(cx, |cx| {
                    if let Some(exchange) = Some(&mut exchange).filter(|_| body.is_none())
                        && let Poll::Ready(Ok(response)) = exchange.as_mut().poll(cx)
                    {
                        let mut taken = response.into_body();
                        for _ in 0..frames {
                            assert!(Pin::new(&mut taken).poll_frame(cx).is_ready());
                            assert!(taken.is_end_stream());
                        }
                        body = Some(keeps.then_some(taken));
                    }
                    Poll::<()>::Pending
                })
            });
            let over = tokio::time::timeout(ms(60_000), connection).await;
            assert_eq!(over.is_ok(), ended, "{frames} frames, kept: {keeps}");
        }
    }
}
