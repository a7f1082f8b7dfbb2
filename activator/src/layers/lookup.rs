//! Which revision a request is for: the one whose port it came to, or else what the front end reads in it
//! ([`FrontEnd::asked_for`]), looked up in the registry. The headers that choose a revision are taken out later
//! ([`activator_net::Prepared`]).

use crate::discovery::front_end::{AskedFor, FrontEnd};
use crate::layers::call::Call;
use crate::layers::trace::Trace;
use crate::metrics::{ExchangeKind, Unknown};
use crate::refusal::Refusal;
use crate::registry::Registry;
use crate::registry::ports::WorkloadPort;
use crate::registry::readiness::Readiness;
use crate::registry::revision::Revision;
use activator_net::Inbound;
use common_runtime::telemetry::traces::Tracing;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower::Service;

/// Finds a request's revision.
#[derive(Clone)]
pub(crate) struct Lookup<S> {
    inner: S,
    shared: Arc<Shared>,
}

struct Shared {
    registry: Arc<Registry>,
    readiness: Arc<Readiness>,
    front_end: Arc<dyn FrontEnd>,
    unknown: Unknown,
    tracing: Option<Tracing>,
}

impl<S> Lookup<S> {
    /// Around `inner`.
    pub(crate) fn new(
        inner: S,
        registry: Arc<Registry>,
        readiness: Arc<Readiness>,
        front_end: Arc<dyn FrontEnd>,
        unknown: Unknown,
        tracing: Option<Tracing>,
    ) -> Self {
        Self { inner, shared: Arc::new(Shared { registry, readiness, front_end, unknown, tracing }) }
    }
}

impl<S, R> Service<Inbound> for Lookup<S>
where
    S: Service<Call, Response = R, Error = Refusal>,
{
    type Response = R;
    type Error = Refusal;
    type Future = LookedUp<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, inbound: Inbound) -> Self::Future {
        match self.shared.find(&inbound) {
            Ok(revision) => {
                let trace = self.shared.tracing.as_ref().map(|t| Trace::begin(t, &inbound, Some(&revision)));
                let Inbound { request, peer, received, again } = inbound;
                let call = Call { request, peer, received, again, revision, trace, counts: true, standby: None };
                LookedUp::Found { exchange: self.inner.call(call) }
            }
            Err(refusal) => {
                if let Some(tracing) = &self.shared.tracing {
                    Trace::begin(tracing, &inbound, None).end(Some(refusal.status()));
                }
                let (request, tls) = (&inbound.request, inbound.peer.tls);
                let kind = ExchangeKind::new(request.method(), request.version(), tls);
                self.shared.unknown.finished(&kind, (&refusal).into(), inbound.received.elapsed());
                LookedUp::Refused { refusal: Some(refusal) }
            }
        }
    }
}

impl Shared {
    fn find(&self, inbound: &Inbound) -> Result<Arc<Revision>, Refusal> {
        let (request, peer) = (&inbound.request, &inbound.peer);
        if let Some(port) = peer.port::<WorkloadPort>() {
            return self.registry.by_port(port).ok_or(Refusal::NotServed);
        }
        let (found, name) = match self.front_end.asked_for(request.uri(), request.headers(), peer.trust.revision) {
            AskedFor::Key { namespace, name } => (self.registry.by_key(namespace, name), name),
            AskedFor::Host(host) => (self.registry.by_host(host, peer.address.ip()), host),
        };
        found.ok_or_else(|| match self.readiness.is_synced() {
            true => Refusal::NoRevision { name: name.to_owned() },
            false => Refusal::NotSynced,
        })
    }
}

pin_project! {
    /// The exchange below, or a refusal.
    #[project = LookedUpProjection]
    pub(crate) enum LookedUp<F> {
        /// Ours.
        Refused {
            refusal: Option<Refusal>,
        },
        /// Below.
        Found {
            #[pin]
            exchange: F,
        },
    }
}

impl<F, R> Future for LookedUp<F>
where
    F: Future<Output = Result<R, Refusal>>,
{
    type Output = Result<R, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            LookedUpProjection::Refused { refusal } => match refusal.take() {
                Some(refusal) => Poll::Ready(Err(refusal)),
                None => Poll::Pending, // Polled again after its end, which nobody may do.
            },
            LookedUpProjection::Found { exchange } => exchange.poll(cx),
        }
    }
}
