//! Determines the revision of a request.
//!
//! A request on a workload's own port belongs to that workload. For other requests the front end extracts a reference
//! ([`FrontEnd::revision_ref`]), which is looked up in the registry. The headers that select a revision are removed
//! later ([`activator_net::Prepared`]).
//!
//! An HTTP/1.0 request may lack a host, and health checks often do (HAProxy's `option httpchk`). Pods tend to reject an
//! empty `Host`, so such a request gets the name of its Service, except in knative mode.
//!
//! A workload whose pods NetworkPolicies select is served on its own ports only. On shared ports the cluster's network
//! cannot tell workloads apart.
//!
//! A request relayed by another activator carries a mark with its revision and its client ([`crate::holders`]).
//!
//! An activator that has just started knows no revision. Peers may still send to its address, because an activator was
//! there a moment ago. Some of these requests wait until the first lists have come, but not for long
//! ([`STARTING_WAIT`]).

use crate::discovery::front_end::{FrontEnd, RevisionRef};
use crate::holders::{FIELD, Holders, Mark};
use crate::layers::call::Call;
use crate::layers::trace::Trace;
use crate::metrics::{ExchangeKind, Unknown};
use crate::refusal::Refusal;
use crate::registry::Registry;
use crate::registry::ports::WorkloadPort;
use crate::registry::readiness::Readiness;
use crate::registry::revision::{LINKS, Revision};
use activator_core::contract::Contract;
use activator_net::Inbound;
use common_runtime::telemetry::traces::Tracing;
use futures::future::{BoxFuture, Either};
use http::header::{EXPECT, HOST, HeaderMap, HeaderValue};
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tower::Service;

/// Longest wait for the first lists. Clients and proxies in front wait longer; an API server outage lasts longer.
const STARTING_WAIT: Duration = Duration::from_secs(5);

/// Maximum number of requests that wait for the first lists: some MiB at the usual size of a head. Others are refused
/// at once.
const STARTING_MAX: usize = 1000;

/// Layer that finds a request's revision.
#[derive(Clone)]
pub(crate) struct Lookup<S> {
    inner: S,
    shared: Arc<LookupShared>,
}

struct LookupShared {
    registry: Arc<Registry>,
    readiness: Arc<Readiness>,
    front_end: Arc<dyn FrontEnd>,
    unknown: Unknown,
    tracing: Option<Tracing>,
    /// Set if other activators may relay requests.
    holders: Option<Holders>,
    /// Places for requests that came before the revisions were known.
    starting: Semaphore,
}

impl<S> Lookup<S> {
    /// Wraps `inner`.
    pub(crate) fn new(
        inner: S,
        registry: Arc<Registry>,
        readiness: Arc<Readiness>,
        front_end: Arc<dyn FrontEnd>,
        unknown: Unknown,
        tracing: Option<Tracing>,
        holders: Option<Holders>,
    ) -> Self {
        let starting = Semaphore::new(STARTING_MAX);
        let shared = LookupShared { registry, readiness, front_end, unknown, tracing, holders, starting };
        Self { inner, shared: Arc::new(shared) }
    }
}

impl<S, R> Service<Inbound> for Lookup<S>
where
    S: Service<Call, Response = R, Error = Refusal, Future: Send> + Clone + Send + 'static,
{
    type Response = R;
    type Error = Refusal;
    type Future = Either<Ready<Result<R, Refusal>>, Either<BoxFuture<'static, Result<R, Refusal>>, S::Future>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut inbound: Inbound) -> Self::Future {
        let relayed = self.shared.relayed(&mut inbound);
        let found = match &relayed {
            Some(mark) => self.shared.find_relayed(mark),
            None => self.shared.find(&inbound),
        };
        match found {
            Ok(revision) => {
                // A connection of another activator carries requests for many workloads.
                let claimant = if relayed.is_some() { LINKS } else { revision.number };
                if let Err(error) = inbound.peer.count_to_workload(claimant) {
                    return Either::Left(ready(Err(error.into())));
                }
                let call = self.shared.call(inbound, revision, relayed.is_some());
                Either::Right(Either::Right(self.inner.call(call)))
            }
            Err(refusal) if relayed.is_some() => Either::Left(ready(Err(refusal))),
            Err(Refusal::NotSynced) if self.shared.starting.available_permits() > 0 => {
                let (mut inner, shared) = (self.inner.clone(), self.shared.clone());
                Either::Right(Either::Left(Box::pin(async move {
                    match shared.known(&inbound).await {
                        Ok(revision) => {
                            inbound.peer.count_to_workload(revision.number)?;
                            inner.call(shared.call(inbound, revision, false)).await
                        }
                        Err(refusal) => Err(shared.refused(&inbound, refusal)),
                    }
                })))
            }
            Err(refusal) => Either::Left(ready(Err(self.shared.refused(&inbound, refusal)))),
        }
    }
}

impl LookupShared {
    /// Waits until revisions are known, then returns the revision.
    async fn known(&self, inbound: &Inbound) -> Result<Arc<Revision>, Refusal> {
        if let Ok(_place) = self.starting.try_acquire() {
            let _ = timeout(STARTING_WAIT, self.readiness.synced()).await; // On timeout the lookup fails.
        }
        self.find(inbound)
    }

    fn call(&self, mut inbound: Inbound, revision: Arc<Revision>, is_relayed: bool) -> Call {
        let (target, fields) = (inbound.request.uri(), inbound.request.headers());
        if target.authority().is_none() && fields.get(HOST).is_none_or(HeaderValue::is_empty) {
            name_host(inbound.request.headers_mut(), &revision);
        }
        // The holder writes the spans of a relayed request.
        let is_here = || is_relayed || revision.link().as_ref().is_none_or(|link| !link.is_elsewhere());
        let tracing = self.tracing.as_ref().filter(|_| is_here());
        let trace = tracing.map(|t| Trace::begin(t, &inbound, Some(&revision)));
        let Inbound { request, peer, received, again } = inbound;
        Call { trace, ..Call::new(request, peer, received, again, revision, is_relayed) }
    }

    /// Removes and reads the mark of a relayed request; the request then belongs to the client in the mark. The header
    /// is removed even if the mark is not valid.
    fn relayed(&self, inbound: &mut Inbound) -> Option<Mark> {
        let value = inbound.request.headers_mut().remove(FIELD)?;
        let mark = self.holders.as_ref()?.relayed(value.to_str().ok()?)?;
        inbound.peer = inbound.peer.relaying(mark.client, self.front_end.trust(mark.client.ip()), mark.tls);
        inbound.received = inbound.received.checked_sub(mark.age).unwrap_or(inbound.received);
        if !mark.expects {
            inbound.request.headers_mut().remove(EXPECT);
        }
        Some(mark)
    }

    /// Returns the revision that another activator has found. If it is not known here yet, the request is turned away.
    fn find_relayed(&self, mark: &Mark) -> Result<Arc<Revision>, Refusal> {
        let (namespace, name) = (mark.workload.namespace(), mark.workload.name());
        self.registry.by_key(namespace, name).ok_or(Refusal::Elsewhere { relayed: true })
    }

    /// Records a refusal in metrics and traces.
    fn refused(&self, inbound: &Inbound, refusal: Refusal) -> Refusal {
        if let Some(tracing) = &self.tracing {
            Trace::begin(tracing, inbound, None).end(Some(refusal.status()));
        }
        let (request, tls) = (&inbound.request, inbound.peer.tls);
        let kind = ExchangeKind::new(request.method(), request.version(), tls);
        self.unknown.finished(&kind, (&refusal).into(), inbound.received.elapsed());
        refusal
    }

    fn find(&self, inbound: &Inbound) -> Result<Arc<Revision>, Refusal> {
        let (request, peer) = (&inbound.request, &inbound.peer);
        if let Some(port) = peer.port::<WorkloadPort>() {
            return self.registry.by_port(port).ok_or(Refusal::NotServed);
        }
        let (found, name) = match self.front_end.revision_ref(request.uri(), request.headers(), peer.trust.revision) {
            RevisionRef::Key { namespace, name } => (self.registry.by_key(namespace, name), name),
            RevisionRef::Host(host) => (self.registry.by_host(host, peer.address.ip()), host),
        };
        match found {
            Some(revision) if revision.live().spec.guarded => Err(Refusal::Guarded),
            Some(revision) => Ok(revision),
            None if self.readiness.is_synced() => Err(Refusal::NoRevision { name: name.to_owned() }),
            None => Err(Refusal::NotSynced),
        }
    }
}

/// Sets the host to the name of the revision's Service, as clients in the cluster use it.
fn name_host(fields: &mut HeaderMap, revision: &Revision) {
    let live = revision.live();
    if live.spec.contract != Contract::Knative
        && let Ok(host) = HeaderValue::try_from(format!("{}.{}.svc", live.spec.service, revision.key.namespace()))
    {
        fields.insert(HOST, host);
    }
}
