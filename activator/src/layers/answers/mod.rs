//! Responses without a pod: the page, its event stream, placeholders, static responses.
//!
//! [`crate::answers`] decides which request gets which response. This layer counts and bounds them:
//!
//! - Responses that wake the workload (page, event stream, placeholder) count as requests while they are sent. So the
//!   first page wakes the workload like the first held request, and an open stream prolongs the wake. A workload that
//!   is already awake is not kept awake.
//! - Static responses, and event streams requested while pods are ready, do not count. A request that was forwarded
//!   uncounted and finds no pod gets its static response, because it would not wake the workload.
//! - All are counted by kind in `zeroscale_answered_total` and carry their kind in `x-zeroscale-reason`.
//!
//! For a workload without such responses, this layer only checks one pointer.
//!
//! # Bounds
//!
//! A stream is charged to its workload's share of memory, like a held request, and lasts [`events::STREAM_MAX`] at
//! most. Beyond the share it is rejected with 503, and the page asks again later.

mod events;

use super::LayerParts;
use crate::answers::fixed::Fixed;
use crate::answers::page::{Wake, WakeProgress};
use crate::answers::{Answer, Answers, OwnPage, Request};
use crate::layers::call::Call;
use crate::layers::error_responder::{ORIGIN, REASON, plain};
use crate::layers::fallback::PendingFallback;
use crate::layers::report::enter;
use crate::refusal::Refusal;
use crate::registry::revision::Revision;
use activator_net::{BodyError, deadline};
use bytes::Bytes;
use common::time::Timestamp;
use common_runtime::clock::Clock;
use events::{Events, OwnBody, StreamDeadline};
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::Body;
use http_body_util::{Either, Full};
use k8s_openapi::jiff;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;
use tower::Service;

#[derive(Clone)]
pub(crate) struct Answering<S> {
    pub(crate) inner: S,
    pub(crate) parts: Arc<LayerParts>,
}

impl<S, B> Service<Box<Call>> for Answering<S>
where
    S: Service<Box<Call>, Response = Response<B>, Error = Refusal>,
    B: Body<Data = Bytes, Error: Into<BodyError>>,
{
    type Response = Response<Either<B, OwnBody>>;
    type Error = Refusal;
    type Future = Exchange<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut call: Box<Call>) -> Self::Future {
        let answers = call.revision.answers();
        let Some(response) = answers.as_deref().and_then(|answers| answer(&self.parts, answers, &mut call)) else {
            let replacement = answers.and_then(|answers| replacement(&self.parts, &answers, &call));
            return Exchange::Forwarded { exchange: self.inner.call(call), replacement };
        };
        if let Some(trace) = &call.trace {
            trace.end(Some(response.status()));
        }
        Exchange::Answered { response: Some(response) }
    }
}

/// Function that returns the response for the error of a forwarded request, if that error is replaced.
type Replacement = Box<dyn FnOnce(&Refusal) -> Option<Response<OwnBody>> + Send>;

/// Returns the possible replacement for the error of a forwarded request: the page if the pods fail, or the static
/// response of an uncounted request if no pod is ready.
fn replacement(parts: &Arc<LayerParts>, answers: &Answers, call: &Call) -> Option<Replacement> {
    if call.counts {
        let (page, revision, parts) = (answers.page(request_of(call))?.clone(), call.revision.clone(), parts.clone());
        return Some(Box::new(move |refusal| {
            let is_failing = matches!(refusal, Refusal::Failing { .. });
            is_failing.then(|| waiting_page(&parts, &page, &revision, Instant::now()))
        }));
    }
    let (fixed, parts) = (answers.static_for(request_of(call))?.answer.clone(), parts.clone());
    Some(Box::new(move |refusal| {
        let is_cold = matches!(refusal, Refusal::Asleep | Refusal::Failing { .. } | Refusal::Paused);
        is_cold.then(|| fixed_response(&parts, "static", &fixed))
    }))
}

fn fixed_response(parts: &LayerParts, kind: &'static str, fixed: &Fixed) -> Response<OwnBody> {
    own_response(parts, kind, fixed.status, fixed.headers.clone(), full(fixed.body.clone()))
}

/// Returns the response of this layer, if the request gets one. Otherwise notes in `call` whether the request counts as
/// load, and its fallback.
fn answer(parts: &LayerParts, answers: &Answers, call: &mut Call) -> Option<Response<OwnBody>> {
    let revision = call.revision.clone();
    let (request, is_cold) = (request_of(call), revision.is_cold());
    let now = Instant::now();
    let is_paused = is_cold && revision.live().spec.backend.paused;
    match if is_paused { answers.decide_paused(request) } else { answers.decide(request, is_cold) } {
        Answer::Forward => {
            if is_cold {
                if !is_paused {
                    revision.wakes.record_waiting(now); // The request is held, so it is part of a wake.
                }
                let fallback = answers.fallback(request).cloned();
                call.fallback = fallback.map(|fallback| Arc::new(PendingFallback { fallback, load: Mutex::default() }));
            }
            None
        }
        Answer::ForwardUncounted => {
            call.counts = false;
            None
        }
        Answer::Static(fixed) => Some(fixed_response(parts, "static", fixed)),
        Answer::Placeholder(fixed) => {
            let _counted = enter(&parts.sink, &revision, None);
            revision.wakes.record_waiting(now);
            Some(fixed_response(parts, "placeholder", fixed))
        }
        Answer::Page(page) if is_paused => Some(page_response(parts, "page-paused", page, &revision, None)),
        Answer::Page(page) => {
            let _counted = enter(&parts.sink, &revision, None);
            Some(waiting_page(parts, page, &revision, now))
        }
        Answer::Events => Some(event_stream(parts, call.peer.address.ip(), &revision, is_cold)),
    }
}

fn page_response(
    parts: &LayerParts,
    kind: &'static str,
    own: &OwnPage,
    revision: &Revision,
    progress: Option<WakeProgress<'_>>,
) -> Response<OwnBody> {
    let page = own.clone().unwrap_or_else(|| parts.page.borrow().clone());
    let wake = Wake { workload: revision.key.name(), progress };
    own_response(parts, kind, StatusCode::SERVICE_UNAVAILABLE, page.headers(wake), full(page.render(wake)))
}

fn waiting_page(parts: &LayerParts, page: &OwnPage, revision: &Revision, now: Instant) -> Response<OwnBody> {
    let elapsed = now.saturating_duration_since(revision.wakes.record_waiting(now));
    let since = rfc3339(Clock::system().now() - elapsed);
    let typical = revision.wakes.typical();
    let cause = revision.cause();
    let progress = WakeProgress { since: &since, elapsed, typical, cause: cause.as_deref() };
    page_response(parts, "page", page, revision, Some(progress))
}

fn event_stream(parts: &LayerParts, client: IpAddr, revision: &Arc<Revision>, is_cold: bool) -> Response<OwnBody> {
    let counted = is_cold.then(|| enter(&parts.sink, revision, None));
    let Some(events) = Events::open(client, revision, counted, parts.readiness.clone()) else {
        let text = "too many waiting pages of this workload are open; try again later\n";
        let (head, body) = plain(StatusCode::SERVICE_UNAVAILABLE, text, true).into_parts();
        let mut headers = head.headers;
        headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
        return own_response(parts, "page-events-full", head.status, headers, Either::Left(body));
    };
    let until = StreamDeadline(events.until);
    let mut response = own_response(parts, "page-events", StatusCode::OK, events::headers(), events.body());
    response.extensions_mut().insert(until);
    response
}

fn full(body: Bytes) -> OwnBody {
    Either::Left(Full::new(body))
}

/// Returns a response of this layer, with its kind, and counts it.
fn own_response(
    parts: &LayerParts,
    kind: &'static str,
    status: StatusCode,
    headers: HeaderMap,
    body: OwnBody,
) -> Response<OwnBody> {
    parts.metrics.answered.count(kind);
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response.headers_mut().insert(ORIGIN, HeaderValue::from_static("activator"));
    response.headers_mut().insert(REASON, HeaderValue::from_static(kind));
    response
}

fn request_of(call: &Call) -> Request<'_> {
    let request = &call.request;
    Request { method: request.method(), path: request.uri().path(), headers: request.headers() }
}

/// Formats a time, in whole seconds.
fn rfc3339(at: Timestamp) -> String {
    jiff::Timestamp::from_second(at.as_secs()).map_or_else(|_| String::new(), |at| at.to_string())
}

pin_project! {
    /// Exchange of the inner service, or a response of this layer.
    #[project = ExchangeProjection]
    pub(crate) enum Exchange<F> {
        Answered {
            response: Option<Response<OwnBody>>,
        },
        Forwarded {
            #[pin]
            exchange: F,
            replacement: Option<Replacement>,
        },
    }
}

impl<F, B> Future for Exchange<F>
where
    F: Future<Output = Result<Response<B>, Refusal>>,
{
    type Output = Result<Response<Either<B, OwnBody>>, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            ExchangeProjection::Answered { response } => match response.take() {
                Some(response) => {
                    if let Some(StreamDeadline(at)) = response.extensions().get() {
                        deadline::report_deadline(*at);
                    }
                    Poll::Ready(Ok(response.map(Either::Right)))
                }
                None => Poll::Pending, // Polled after completion, which callers must not do.
            },
            ExchangeProjection::Forwarded { exchange, replacement } => Poll::Ready(match ready!(exchange.poll(cx)) {
                Ok(response) => Ok(response.map(Either::Left)),
                Err(refusal) => match replacement.take().and_then(|replacement| replacement(&refusal)) {
                    Some(answer) => Ok(answer.map(Either::Right)),
                    None => Err(refusal),
                },
            }),
        }
    }
}
