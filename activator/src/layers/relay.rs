//! Relays requests of workloads with a hard limit to the activator that holds them ([`crate::holders`]).
//!
//! # The rule
//!
//! A request that the workload's holder is to serve goes there as it came, but for what is between its client and this
//! activator alone, with a [mark](crate::holders::Mark): over the connections that lead to pods, in the client's protocol,
//! to the workload's own port if it came to one. Everything else happens there, once: it is load there, has its turn, its
//! bounds of time, its line in the log and its spans there, and is counted by its metrics. Here it is one more of
//! `zeroscale_relayed_total`. What the holder answers is passed on as it is.
//!
//! A request that is held here while another activator takes the workload over is given back by [`super::hold`] and goes there.
//!
//! # Odd cases
//!
//! - One that was relayed already is not relayed again: where this activator is not the holder any more it is turned away,
//!   and whoever relayed it looks again who is.
//! - A holder that has gone, or turns a request away, has not given it to a pod: it goes to the next one, or waits here
//!   until somebody holds the workload. What has certainly not been given to a pod is what [`Prepared::relayed`] says, and
//!   what may be repeated may be so here, too. Where the client itself waits for a 100, a pod has its head before:
//!   that request goes on only if it is turned away.
//! - What is with one that stands still while its kernel acknowledges all goes on once that one is dead: the connections to
//!   it are cut then.
//! - Without a session with the holder a request waits here, as one of this activator's own.
//! - What a client did not send yet waits at that client, wherever its request waits. What the head keeps is charged here,
//!   too, until it is answered.

use super::charge::charge;
use super::hold::{too_much, unless_it_gives_way};
use crate::holders::{FIELD, Link, Mark, Relayed, Target};
use crate::layers::call::{Back, Call};
use crate::metrics::RelayCounter;
use crate::refusal::{Refusal, TimedOut};
use crate::registry::ports::WorkloadPort;
use activator_net::{BodyError, Failure, Guard, Guarded, PodBody, Pools, Prepared};
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
use tokio::time::sleep;
use tower::Service;

/// Wait before another attempt: it begins so, doubles, and ends so.
pub(super) const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// Time within which somebody takes a request whose workload says nothing of that.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);

/// Relays, or passes on.
pub(crate) struct Relay<S> {
    /// One for each connection: a copy for each request would touch counts that all threads share.
    inner: Arc<Mutex<S>>,
    shared: Arc<Shared>,
}

struct Shared {
    pools: Arc<Pools>,
    relayed: RelayCounter,
}

/// A response's body, of another activator or from below.
pub(crate) type RelayedBody<B> = Either<Guarded<PodBody, Relayed>, B>;

impl Guard for Relayed {}

impl<S> Relay<S> {
    /// Around `inner`.
    pub(crate) fn new(inner: S, pools: Arc<Pools>, relayed: RelayCounter) -> Self {
        Self { inner: Arc::new(Mutex::new(inner)), shared: Arc::new(Shared { pools, relayed }) }
    }
}

impl<S: Clone> Clone for Relay<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::new(Mutex::new(self.inner.lock().clone())), shared: self.shared.clone() }
    }
}

impl<S, B> Service<Call> for Relay<S>
where
    S: Service<Call, Response = Response<B>, Error = Refusal, Future: Send> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
{
    type Response = Response<RelayedBody<B>>;
    type Error = Refusal;
    type Future = Relaying<S, S::Future, B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(())) // All layers are.
    }

    fn call(&mut self, mut call: Call) -> Self::Future {
        let link = call.revision.link().as_ref().cloned();
        let Some(link) = link else {
            return Relaying::Here { exchange: self.inner.lock().call(call), led: None };
        };
        let led = Led { inner: self.inner.clone(), shared: self.shared.clone(), link };
        if led.link.target(call.is_relayed).is_some() {
            return Relaying::There { exchange: Box::pin(led.lead(call)) };
        }
        let back = call.give_back_to();
        Relaying::Here { exchange: self.inner.lock().call(call), led: Some((led, back)) }
    }
}

/// What a request's way needs that may lead elsewhere.
pub(crate) struct Led<S> {
    inner: Arc<Mutex<S>>,
    shared: Arc<Shared>,
    link: Arc<Link>,
}

impl<S, B> Led<S>
where
    S: Service<Call, Response = Response<B>, Error = Refusal, Future: Send> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
{
    /// Leads a request to whoever holds the workload, until somebody has taken it.
    async fn lead(self, mut call: Call) -> Result<Response<RelayedBody<B>>, Refusal> {
        let mut pause = PAUSE.0;
        loop {
            let Some(target) = self.link.target(call.is_relayed) else {
                let back = call.give_back_to();
                let (is_relayed, exchange) = (call.is_relayed, self.inner.lock().call(call));
                match exchange.await {
                    Err(Refusal::Elsewhere { .. }) if is_relayed => return Err(Refusal::Elsewhere { relayed: true }),
                    Err(Refusal::Elsewhere { .. }) => call = back.call()?,
                    answered => return answered.map(|response| response.map(Either::Right)),
                }
                // It is about to be known where.
                wait(&mut pause).await;
                continue;
            };
            if call.is_relayed {
                return Err(Refusal::Elsewhere { relayed: true });
            }
            call = match self.shared.relay(call, &target).await? {
                Ok(response) => return Ok(response.map(Either::Left)),
                Err(call) => *call,
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

/// Waits before another attempt, and makes the next wait longer.
pub(super) async fn wait(pause: &mut Duration) {
    sleep(*pause).await;
    *pause = (*pause * 2).min(PAUSE.1);
}

/// What another activator answers, or the request as it came.
type Sent = Result<Response<Guarded<PodBody, Relayed>>, Box<Call>>;

impl Shared {
    async fn relay(&self, call: Call, target: &Target) -> Result<Sent, Refusal> {
        let port = call.peer.port::<WorkloadPort>().map(WorkloadPort::number);
        let address = port.map_or(target.address, |port| SocketAddr::new(target.address.ip(), port));
        let pool = self.pools.of_activator(address);
        let back = Back::of(&call);
        let held =
            call.revision.memory.hold(call.peer.address.ip(), charge(&call.request, call.again)).map_err(too_much)?;
        let Call { request, peer, received, revision, .. } = call;
        let mut disconnect = peer.disconnect(request.version(), request.body());
        let upload = request.body().upload();
        let mark = |expects| {
            let (client, tls, workload) = (peer.address, peer.tls, revision.key.clone());
            let mark = Mark { client, tls, age: received.elapsed(), expects, workload, asks: false };
            (FIELD, target.mark(&mark))
        };
        let prepared = Prepared::relayed(request, revision.live().contract, peer.clone(), mark)?;
        let relayed = target.enter();
        self.relayed.count();
        let gone = async {
            match &mut disconnect {
                Some(disconnect) => disconnect.gone().await,
                None => pending().await,
            }
            // Once it is read from, whoever reads notices.
            if upload.is_some_and(|upload| upload.passed() > 0) {
                pending().await
            }
        };
        let sent = tokio::select! {
            biased; // What has come counts.
            sent = unless_it_gives_way(Some(&held), &revision.memory, prepared.send(&pool)) => sent?,
            () = gone => return Err(Refusal::ClientGone),
        };
        match sent {
            Ok(response) => Ok(Ok(response.map(|body| Guarded::new(body, relayed)))),
            Err(Failure::Final { error, .. }) => Err(error.into()),
            Err(Failure::Elsewhere { request, cause, .. }) => {
                tracing::debug!(revision = %revision.key, to = %address, cause, "a request goes elsewhere");
                if request.may_have_run() {
                    sleep(PAUSE.1).await; // It may go twice: not once more to one that is just ending.
                }
                let request = request.into_original().ok_or(Refusal::Elsewhere { relayed: false })?;
                back.put(request);
                back.call().map(|call| Err(Box::new(call)))
            }
        }
    }
}

pin_project! {
    /// An exchange here, or elsewhere.
    #[project = RelayingProjection]
    pub(crate) enum Relaying<S, F, B> {
        /// Below.
        Here {
            #[pin]
            exchange: F,
            // How it goes on if it is held elsewhere.
            led: Option<(Led<S>, Arc<Back>)>,
        },
        /// There.
        There {
            exchange: BoxFuture<'static, Result<Response<RelayedBody<B>>, Refusal>>,
        },
    }
}

impl<S, B> Future for Relaying<S, S::Future, B>
where
    S: Service<Call, Response = Response<B>, Error = Refusal, Future: Send> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
{
    type Output = Result<Response<RelayedBody<B>>, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let exchange: BoxFuture<'static, _> = match self.as_mut().project() {
                RelayingProjection::There { exchange } => return exchange.as_mut().poll(cx),
                RelayingProjection::Here { exchange, led } => {
                    let answered = ready!(exchange.poll(cx));
                    match (answered, led.take()) {
                        (Err(Refusal::Elsewhere { .. }), Some((_, back))) if back.is_relayed => {
                            return Poll::Ready(Err(Refusal::Elsewhere { relayed: true }));
                        }
                        (Err(Refusal::Elsewhere { .. }), Some((led, back))) => {
                            let call = back.call();
                            Box::pin(async move { led.lead(call?).await })
                        }
                        (answered, _) => return Poll::Ready(answered.map(|response| response.map(Either::Right))),
                    }
                }
            };
            self.set(Relaying::There { exchange });
        }
    }
}
