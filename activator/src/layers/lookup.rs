//! Determines the revision of a request.
//!
//! A request on a workload's own port belongs to that workload. For other requests the front end extracts a reference
//! ([`FrontEnd::revision_ref`](crate::discovery::front_end::FrontEnd::revision_ref)), which is looked up in the
//! registry. The headers that select a revision are removed later ([`activator_net::Prepared`]).
//!
//! An HTTP/1.0 request may lack a host, and health checks often do (HAProxy's `option httpchk`). Pods tend to reject an
//! empty `Host`, so such a request gets the name of its Service, except in knative mode.
//!
//! A workload whose pods NetworkPolicies select is served on its own ports only. On shared ports the cluster's network
//! cannot tell workloads apart.
//!
//! A request relayed by another activator carries a mark with its revision and its client ([`crate::holders`]).
//!
//! An activator that has just started knows no revision. Clients may already send to it, because another activator
//! recently had its address. Some of these requests wait for the first lists, but not for long ([`STARTING_WAIT`]).

use super::LayerParts;
use crate::discovery::front_end::RevisionRef;
use crate::holders::{FIELD, Mark};
use crate::layers::call::Call;
use crate::layers::trace::Trace;
use crate::metrics::ExchangeKind;
use crate::refusal::Refusal;
use crate::registry::ports::WorkloadPort;
use crate::registry::revision::{LINKS, Revision};
use activator_core::contract::Contract;
use activator_net::Inbound;
use futures::future::{BoxFuture, Either};
use http::header::{EXPECT, HOST, HeaderMap, HeaderValue};
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tower::Service;

/// Longest wait for the first lists: shorter than usual client timeouts. Waiting longer would not help during an API
/// server outage.
const STARTING_WAIT: Duration = Duration::from_secs(5);

/// Maximum number of requests that wait for the first lists: some MiB at the usual size of a head. Others are refused
/// at once.
const STARTING_MAX: usize = 1000;

#[derive(Clone)]
pub(crate) struct Lookup<S> {
    inner: S,
    parts: Arc<LayerParts>,
    /// Permits for requests that wait for the first lists.
    starting: Arc<Semaphore>,
}

impl<S> Lookup<S> {
    pub(crate) fn new(inner: S, parts: Arc<LayerParts>) -> Self {
        Self { inner, parts, starting: Arc::new(Semaphore::new(STARTING_MAX)) }
    }
}

impl<S, R> Service<Inbound> for Lookup<S>
where
    S: Service<Box<Call>, Response = R, Error = Refusal, Future: Send> + Clone + Send + 'static,
{
    type Response = R;
    type Error = Refusal;
    type Future = Either<Ready<Result<R, Refusal>>, Either<BoxFuture<'static, Result<R, Refusal>>, S::Future>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut inbound: Inbound) -> Self::Future {
        let parts = &self.parts;
        let relayed = take_mark(parts, &mut inbound);
        let found = match &relayed {
            // If the revision is not known here yet, the request is turned away.
            Some(Mark { workload, .. }) => {
                let known = parts.registry.by_key(workload.namespace(), workload.name());
                known.ok_or(Refusal::Elsewhere { relayed: true })
            }
            None => find(parts, &inbound),
        };
        match found {
            Ok(revision) => {
                // A connection of another activator carries requests for many workloads.
                let claimant = if relayed.is_some() { LINKS } else { revision.number };
                if let Err(error) = inbound.peer.count_to_workload(claimant) {
                    return Either::Left(ready(Err(error.into())));
                }
                let call = call(parts, inbound, revision, relayed.is_some());
                Either::Right(Either::Right(self.inner.call(call)))
            }
            Err(refusal) if relayed.is_some() => Either::Left(ready(Err(refusal))),
            Err(Refusal::NotSynced) if self.starting.available_permits() > 0 => {
                let (mut inner, parts, starting) = (self.inner.clone(), parts.clone(), self.starting.clone());
                Either::Right(Either::Left(Box::pin(async move {
                    if let Ok(_place) = starting.try_acquire() {
                        let _ = timeout(STARTING_WAIT, parts.readiness.synced()).await; // On timeout the lookup fails.
                    }
                    match find(&parts, &inbound) {
                        Ok(revision) => {
                            inbound.peer.count_to_workload(revision.number)?;
                            inner.call(call(&parts, inbound, revision, false)).await
                        }
                        Err(refusal) => Err(refused(&parts, &inbound, refusal)),
                    }
                })))
            }
            Err(refusal) => Either::Left(ready(Err(refused(parts, &inbound, refusal)))),
        }
    }
}

fn call(parts: &LayerParts, mut inbound: Inbound, revision: Arc<Revision>, is_relayed: bool) -> Box<Call> {
    let (target, fields) = (inbound.request.uri(), inbound.request.headers());
    if target.authority().is_none() && fields.get(HOST).is_none_or(HeaderValue::is_empty) {
        name_host(inbound.request.headers_mut(), &revision);
    }
    // The holder writes the spans of a relayed request.
    let is_here = || is_relayed || revision.link().as_ref().is_none_or(|link| !link.is_elsewhere());
    let tracing = parts.tracing.as_ref().filter(|_| is_here());
    let trace = tracing.map(|t| Trace::begin(t, &inbound, Some(&revision)));
    let Inbound { request, peer, received, is_subsequent } = inbound;
    let mut call = Call::new(request, peer, received, is_subsequent, revision, is_relayed);
    call.trace = trace;
    call
}

/// Removes and reads the mark of a relayed request; the request then belongs to the client in the mark. The header is
/// removed even if the mark is not valid.
fn take_mark(parts: &LayerParts, inbound: &mut Inbound) -> Option<Mark> {
    // A pass over the names costs less than a lookup of a name that is mostly absent.
    inbound.request.headers().keys().find(|name| **name == FIELD)?;
    let value = inbound.request.headers_mut().remove(FIELD)?;
    let mark = parts.holders.as_ref()?.relayed(value.to_str().ok()?)?;
    inbound.peer = inbound.peer.relaying(mark.client, parts.front_end.trust(mark.client.ip()), mark.tls);
    inbound.received = inbound.received.checked_sub(mark.age).unwrap_or(inbound.received);
    if !mark.expects_continue {
        inbound.request.headers_mut().remove(EXPECT);
    }
    Some(mark)
}

fn refused(parts: &LayerParts, inbound: &Inbound, refusal: Refusal) -> Refusal {
    if let Some(tracing) = &parts.tracing {
        Trace::begin(tracing, inbound, None).end(Some(refusal.status()));
    }
    let (request, tls) = (&inbound.request, inbound.peer.tls);
    let kind = ExchangeKind::new(request.method(), request.version(), tls);
    parts.metrics.refused_unknown(&kind, (&refusal).into(), inbound.received.elapsed());
    refusal
}

fn find(parts: &LayerParts, inbound: &Inbound) -> Result<Arc<Revision>, Refusal> {
    let (request, peer) = (&inbound.request, &inbound.peer);
    if let Some(port) = peer.port::<WorkloadPort>() {
        return parts.registry.by_port(port).ok_or(Refusal::NotServed);
    }
    let (found, name) = match parts.front_end.revision_ref(request.uri(), request.headers(), peer.trust.revision) {
        RevisionRef::Key { namespace, name } => (parts.registry.by_key(namespace, name), name),
        RevisionRef::Host(host) => (parts.registry.by_host(host, peer.address.ip()), host),
    };
    match found {
        Some(revision) if revision.live().spec.guarded => Err(Refusal::Guarded),
        Some(revision) => Ok(revision),
        None if parts.readiness.is_synced() => Err(Refusal::NoRevision { name: name.to_owned() }),
        None => Err(Refusal::NotSynced),
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
