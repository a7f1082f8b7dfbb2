//! Relays requests of workloads with a hard limit to the activator that holds them ([`crate::holders`]).
//!
//! # The rule
//!
//! A request that the holder must serve is relayed unmodified, except for hop-by-hop parts and an added
//! [mark](crate::holders::Mark). It uses connections like those to pods, in the client's protocol, and goes to the
//! workload's own port if it came to one. Everything else happens at the holder, once: load, queueing, timeouts,
//! request log, spans and metrics. Here the request only adds to `zeroscale_relayed_total`. The holder's response is
//! passed on as it is.
//!
//! If another activator takes the workload over, [`super::hold`] hands off the requests held here, and they are
//! relayed.
//!
//! # Edge cases
//!
//! - A relayed request is not relayed again. If this activator is not the holder any more, it turns the request away,
//!   and the sender looks up the holder again.
//! - If a holder turns a request away, or has gone before a pod got the request, the request goes to the next holder,
//!   or waits here until there is one. [`Prepared::relayed`] determines which requests have certainly not reached a
//!   pod. Requests that are safe to repeat are repeated here, too. If the client itself waits for a 100, a pod gets the
//!   head first: such a request goes to the next holder only if it is turned away.
//! - If a holder stalls while its kernel acknowledges everything, its requests go to the next holder once it is
//!   considered dead: then the connections to it are cut.
//! - Without a session with the holder, a request waits here like a request of a workload that this activator holds.
//! - Unsent parts of a request stay at the client, wherever the request waits. The memory of the head is charged here,
//!   too, until the response.

use super::LayerParts;
use super::charge::charge;
use super::hold::{memory_refusal, unless_it_gives_way};
use crate::holders::{FIELD, Link, Mark, Relayed, Target};
use crate::layers::call::{Call, Handoff};
use crate::refusal::{Refusal, TimedOut};
use crate::registry::ports::WorkloadPort;
use activator_net::{BodyError, Failure, Guard, Guarded, PodBody, Prepared};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::Response;
use http_body::Body;
use http_body_util::Either;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use std::future::{Future, pending};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tower::Service;

/// First and longest wait before another attempt. The wait doubles each time.
pub(super) const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// Longest time until a holder takes a request, if its workload has no timeout.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);

/// Longest wait for the end of the session with a holder that broke an exchange off. The session ends with the process.
const REPLACED_WITHIN: Duration = Duration::from_secs(1);

/// Layer that relays a request or passes it on.
pub(crate) struct Relay<S> {
    /// One service per connection: a clone per request would touch counts that all threads share.
    inner: Arc<RelayInner<S>>,
}

struct RelayInner<S> {
    service: Mutex<S>,
    parts: Arc<LayerParts>,
}

/// Response body, from another activator or from the inner service.
pub(crate) type RelayedBody<B> = Either<Guarded<PodBody, Relayed>, B>;

impl Guard for Relayed {}

impl<S> Relay<S> {
    pub(crate) fn new(inner: S, parts: Arc<LayerParts>) -> Self {
        Self { inner: Arc::new(RelayInner { service: Mutex::new(inner), parts }) }
    }
}

impl<S: Clone> Clone for Relay<S> {
    fn clone(&self) -> Self {
        Self::new(self.inner.service.lock().clone(), self.inner.parts.clone())
    }
}

impl<S, B> Service<Box<Call>> for Relay<S>
where
    S: Service<Box<Call>, Response = Response<B>, Error = Refusal, Future: Send> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
{
    type Response = Response<RelayedBody<B>>;
    type Error = Refusal;
    type Future = Relaying<S, S::Future, B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(())) // All inner layers are always ready.
    }

    fn call(&mut self, mut call: Box<Call>) -> Self::Future {
        let link = call.revision.link().as_ref().cloned();
        let Some(link) = link else {
            return Relaying::Here { exchange: self.inner.service.lock().call(call), context: None };
        };
        let context = RelayContext { inner: self.inner.clone(), link };
        if context.link.target(call.is_relayed).is_some() {
            return Relaying::There { exchange: Box::pin(context.relay_until_taken(call)) };
        }
        let handoff = call.prepare_handoff();
        Relaying::Here { exchange: self.inner.service.lock().call(call), context: Some((context, handoff)) }
    }
}

pub(crate) struct RelayContext<S> {
    inner: Arc<RelayInner<S>>,
    link: Arc<Link>,
}

impl<S, B> RelayContext<S>
where
    S: Service<Box<Call>, Response = Response<B>, Error = Refusal, Future: Send> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
{
    /// Relays a request to the holder of its workload, until one has taken it.
    async fn relay_until_taken(self, mut call: Box<Call>) -> Result<Response<RelayedBody<B>>, Refusal> {
        let mut pause = PAUSE.0;
        loop {
            let Some(target) = self.link.target(call.is_relayed) else {
                let handoff = call.prepare_handoff();
                let (is_relayed, exchange) = (call.is_relayed, self.inner.service.lock().call(call));
                match exchange.await {
                    Err(Refusal::Elsewhere { .. }) if is_relayed => return Err(Refusal::Elsewhere { relayed: true }),
                    Err(Refusal::Elsewhere { .. }) => call = handoff.take()?,
                    answered => return answered.map(|response| response.map(Either::Right)),
                }
                // The holder will be known soon.
                wait(&mut pause).await;
                continue;
            };
            if call.is_relayed {
                return Err(Refusal::Elsewhere { relayed: true });
            }
            call = match relay(&self.inner.parts, call, &self.link, &target).await? {
                Ok(response) => return Ok(response.map(Either::Left)),
                Err(call) => call,
            };
            let bounds = call.revision.bounds();
            let bound = bounds.wait.or(bounds.total).unwrap_or(TAKEN_WITHIN);
            if call.received.elapsed() >= bound {
                return Err(TimedOut::Wait(bound).into());
            }
            wait(&mut pause).await;
        }
    }
}

/// Waits before another attempt, and doubles the next wait.
pub(super) async fn wait(pause: &mut Duration) {
    sleep(*pause).await;
    *pause = (*pause * 2).min(PAUSE.1);
}

/// Waits until requests go elsewhere than to `target`, at most for [`REPLACED_WITHIN`]. A repeated request is lost if the
/// second exchange breaks off, too, and the kernel of a killed holder accepts connections until the process is gone.
async fn until_replaced(link: &Link, target: &Target) {
    let deadline = Instant::now() + REPLACED_WITHIN;
    while link.target(false).is_some_and(|next| next.key == target.key) && Instant::now() < deadline {
        sleep(PAUSE.1).await;
    }
}

/// Response of another activator, or the unmodified request.
type Sent = Result<Response<Guarded<PodBody, Relayed>>, Box<Call>>;

async fn relay(parts: &LayerParts, call: Box<Call>, link: &Link, target: &Target) -> Result<Sent, Refusal> {
    let port = call.peer.port::<WorkloadPort>().map(WorkloadPort::number);
    let address = port.map_or(target.address, |port| SocketAddr::new(target.address.ip(), port));
    let pool = parts.pools.of_activator(address);
    let held = call
        .revision
        .memory
        .hold(call.peer.address.ip(), charge(&call.request, call.is_subsequent))
        .map_err(memory_refusal)?;
    let Call { request, peer, received, is_subsequent, revision, is_relayed, .. } = *call;
    let mut disconnect = peer.disconnect(request.version(), request.body());
    let upload = request.body().upload();
    let mark = |expects_continue| {
        let (client, tls, workload) = (peer.address, peer.tls, revision.key.clone());
        let age = received.elapsed();
        let mark = Mark { client, tls, age, expects_continue, workload, asks_speaker: false };
        (FIELD, mark.value(&target.key))
    };
    let prepared = Prepared::relayed(request, revision.live().spec.contract, peer.clone(), mark)?;
    let (had_run, relayed) = (prepared.may_have_run(), target.enter());
    parts.metrics.relayed.inc();
    let gone = async {
        let Some(disconnect) = &mut disconnect else { return pending().await };
        disconnect.gone().await;
        // Once the body is read, its reader detects the disconnect.
        if upload.is_some_and(|upload| upload.yielded_bytes() > 0) {
            pending().await
        }
    };
    let sent = tokio::select! {
        biased; // A result that is ready counts.
        sent = unless_it_gives_way(Some(&held), &revision.memory, prepared.send(&pool)) => sent?,
        () = gone => return Err(Refusal::ClientGone),
    };
    match sent {
        Ok(response) => Ok(Ok(response.map(|body| Guarded::new(body, relayed)))),
        Err(Failure::Final { error, .. }) => Err(error.into()),
        Err(Failure::Elsewhere { request, cause, .. }) => {
            tracing::debug!(revision = %revision.key, to = %address, cause, "the other activator did not take a request");
            if request.may_have_run() && !had_run {
                drop(relayed);
                until_replaced(link, target).await;
            }
            let request = request.into_original().ok_or(Refusal::Elsewhere { relayed: false })?;
            Ok(Err(Call::new(request, peer, received, is_subsequent, revision, is_relayed)))
        }
    }
}

pin_project! {
    /// Exchange here, or at another activator.
    #[project = RelayingProjection]
    pub(crate) enum Relaying<S, F, B> {
        Here {
            #[pin]
            exchange: F,
            // In case another activator holds the workload.
            context: Option<(RelayContext<S>, Arc<Handoff>)>,
        },
        There {
            exchange: BoxFuture<'static, Result<Response<RelayedBody<B>>, Refusal>>,
        },
    }
}

impl<S, B> Future for Relaying<S, S::Future, B>
where
    S: Service<Box<Call>, Response = Response<B>, Error = Refusal, Future: Send> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
{
    type Output = Result<Response<RelayedBody<B>>, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let exchange: BoxFuture<'static, _> = match self.as_mut().project() {
                RelayingProjection::There { exchange } => return exchange.as_mut().poll(cx),
                RelayingProjection::Here { exchange, context } => {
                    let answered = ready!(exchange.poll(cx));
                    match (answered, context.take()) {
                        (Err(Refusal::Elsewhere { .. }), Some((_, handoff))) if handoff.is_relayed => {
                            return Poll::Ready(Err(Refusal::Elsewhere { relayed: true }));
                        }
                        (Err(Refusal::Elsewhere { .. }), Some((context, handoff))) => {
                            let call = handoff.take();
                            Box::pin(async move { context.relay_until_taken(call?).await })
                        }
                        (answered, _) => return Poll::Ready(answered.map(|response| response.map(Either::Right))),
                    }
                }
            };
            self.set(Relaying::There { exchange });
        }
    }
}
