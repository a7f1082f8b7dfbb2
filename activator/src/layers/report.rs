//! Counts a request for the autoscaler, from its arrival to the end of its response body or tunnel.
//!
//! The guard is dropped in every case: response, refusal, client disconnect. For a request that timed out, this layer
//! also checks whether its revision could be woken at all.

use crate::layers::call::Call;
use crate::layers::fallback::PendingFallback;
use crate::layers::trace::Trace;
use crate::metrics::ExchangeKind;
use crate::metrics::ending::Ending;
use crate::refusal::Refusal;
use crate::registry::revision::Revision;
use crate::registry::stats::StatSink;
use activator_core::accounting::InFlight;
use activator_net::{BodyError, Guard, Guarded, Upload};
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Instant;
use tower::Service;

#[derive(Clone)]
pub(crate) struct Report<S> {
    pub(crate) inner: S,
    pub(crate) sink: Arc<StatSink>,
}

impl<S, B> Service<Box<Call>> for Report<S>
where
    S: Service<Box<Call>, Response = Response<B>, Error = Refusal>,
    B: Body<Data = Bytes, Error: Into<BodyError>>,
{
    type Response = Response<Guarded<B, Box<Counted>>>;
    type Error = Refusal;
    type Future = Reported<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Box<Call>) -> Self::Future {
        let mut in_flight = call.counts.then(|| enter(&self.sink, &call.revision, call.trace.as_deref()));
        if let Some(pending) = &call.fallback {
            *pending.load.lock() = in_flight.take();
        }
        let counted = Box::new(Counted {
            _in_flight: in_flight,
            _fallback: call.fallback.clone(),
            revision: call.revision.clone(),
            kind: ExchangeKind::new(call.request.method(), call.request.version(), call.peer.tls),
            upload: call.request.body().upload(),
            sent: 0,
            trace: call.trace.clone(),
            received: call.received,
            status: None,
            ending: None,
            is_elsewhere: false,
        });
        Reported { exchange: self.inner.call(call), counted: Some(counted) }
    }
}

/// Counts one more request. The first one wakes the revision; `trace` holds its spans.
pub(super) fn enter(sink: &StatSink, revision: &Arc<Revision>, trace: Option<&Trace>) -> InFlight {
    let entered = revision.stats.enter();
    if entered.first {
        sink.first_request(revision, || trace.and_then(Trace::traceparent));
    }
    entered.in_flight
}

pub(crate) struct Counted {
    _in_flight: Option<InFlight>,
    /// Holds the load instead, until the request is sent to its fallback.
    _fallback: Option<Arc<PendingFallback>>,
    revision: Arc<Revision>,
    kind: ExchangeKind,
    upload: Option<Arc<Upload>>,
    /// Bytes of the response body that were passed on.
    sent: u64,
    trace: Option<Arc<Trace>>,
    received: Instant,
    status: Option<StatusCode>,
    ending: Option<Ending>,
    /// Set if the request goes to another activator, which reports it.
    is_elsewhere: bool,
}

impl Guard for Box<Counted> {
    fn passed(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(trace) = &self.trace {
            trace.end(self.status);
        }
        if self.is_elsewhere {
            return;
        }
        // A client that disconnected before any response is recorded as such.
        let ending = self.ending.unwrap_or(Ending::unanswered(Refusal::ClientGone.reason()));
        let sizes = [self.upload.as_ref().map_or(0, |upload| upload.yielded_bytes()), self.sent];
        self.revision.metrics.finished(&self.kind, ending, self.received.elapsed(), sizes);
    }
}

pin_project! {
    pub(crate) struct Reported<F> {
        #[pin]
        exchange: F,
        // Boxed, because the outer layers move the exchange and its response.
        counted: Option<Box<Counted>>,
    }
}

impl<F, B> Future for Reported<F>
where
    F: Future<Output = Result<Response<B>, Refusal>>,
{
    type Output = Result<Response<Guarded<B, Box<Counted>>>, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut result = std::task::ready!(this.exchange.poll(cx));
        if let (Err(Refusal::Timeout(_)), Some(counted)) = (&result, &this.counted)
            && let Some(why) = counted.revision.wake_refused()
        {
            result = result.map_err(|refusal| refusal.unwoken(&why));
        }
        if let (Err(refusal), Some(counted)) = (&result, &this.counted) {
            counted.revision.record_refusal(counted.received, refusal);
        }
        let counted = this.counted.take().map(|mut counted| {
            let (status, ending) = match &result {
                Ok(response) => (response.status(), Ending::answered(response.status())),
                Err(refusal) => (refusal.status(), refusal.into()),
            };
            (counted.status, counted.ending) = (Some(status), Some(ending));
            counted.is_elsewhere = matches!(result, Err(Refusal::Elsewhere { .. }));
            counted
        });
        Poll::Ready(result.map(|response| response.map(|body| Guarded::new(body, counted))))
    }
}
