//! Which revision a request is for.
//!
//! | mode | rule |
//! |---|---|
//! | standalone | `Knative-Serving-Revision` and `-Namespace` from a trusted peer; else the host ([`crate::registry`]) |
//! | knative | both headers; else a host `REVISION.NAMESPACE.svc.DOMAIN`, exactly so |
//!
//! In knative mode a header pair is believed from every peer, as upstream; a `/` in either is not (there it leads to
//! a revision whose requests wait for ever). The headers are taken out by [`activator_net::Prepared`].

use crate::health::Health;
use crate::layers::call::Call;
use crate::layers::refusal::Refusal;
use crate::layers::trace::Trace;
use crate::metrics::{Kind, Unknown};
use crate::registry::Registry;
use crate::registry::revision::Revision;
use activator_net::Inbound;
use common::headers;
use common_runtime::environment::Mode;
use common_runtime::telemetry::traces::Tracing;
use http::Request;
use http::header::{HOST, HeaderName};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower::Service;

// Parsed once, not for each request.
const REVISION: HeaderName = HeaderName::from_static(headers::REVISION);
const NAMESPACE: HeaderName = HeaderName::from_static(headers::NAMESPACE);

/// Finds a request's revision.
#[derive(Clone)]
pub(crate) struct Lookup<S> {
    inner: S,
    shared: Arc<Shared>,
}

struct Shared {
    registry: Arc<Registry>,
    health: Arc<Health>,
    mode: Mode,
    cluster_domain: String,
    unknown: Unknown,
    tracing: Option<Tracing>,
}

impl<S> Lookup<S> {
    /// Around `inner`.
    pub(crate) fn new(
        inner: S,
        registry: Arc<Registry>,
        health: Arc<Health>,
        mode: Mode,
        cluster_domain: String,
        unknown: Unknown,
        tracing: Option<Tracing>,
    ) -> Self {
        Self { inner, shared: Arc::new(Shared { registry, health, mode, cluster_domain, unknown, tracing }) }
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
                let Inbound { request, peer, received } = inbound;
                LookedUp::Found { exchange: self.inner.call(Call { request, peer, received, revision, trace }) }
            }
            Err(refusal) => {
                if let Some(tracing) = &self.shared.tracing {
                    Trace::begin(tracing, &inbound, None).end(Some(refusal.status()));
                }
                let (request, tls) = (&inbound.request, inbound.peer.tls);
                let kind = Kind::new(request.method(), request.version(), tls);
                self.shared.unknown.finished(&kind, refusal.status(), inbound.received.elapsed());
                LookedUp::Refused { refusal: Some(refusal) }
            }
        }
    }
}

impl Shared {
    fn find(&self, inbound: &Inbound) -> Result<Arc<Revision>, Refusal> {
        let request = &inbound.request;
        let found = match self.mode {
            Mode::Standalone => self.find_standalone(inbound),
            Mode::Knative => {
                let (namespace, name) =
                    named(request).or_else(|| in_cluster(host_of(request), &self.cluster_domain)).unwrap_or_default();
                self.registry.by_key(namespace, name).ok_or(name)
            }
        };
        found.map_err(|name| match self.health.is_synced() {
            true => Refusal::NoRevision { name: name.to_owned() },
            false => Refusal::NotSynced,
        })
    }

    fn find_standalone<'a>(&self, inbound: &'a Inbound) -> Result<Arc<Revision>, &'a str> {
        if inbound.peer.trusted
            && let Some((namespace, name)) = named(&inbound.request)
        {
            return self.registry.by_key(namespace, name).ok_or(name);
        }
        let host = host_of(&inbound.request);
        self.registry.by_host(host, inbound.peer.address.ip()).ok_or(host)
    }
}

/// Namespace and name that both headers give.
fn named<B>(request: &Request<B>) -> Option<(&str, &str)> {
    let text =
        |name: HeaderName| request.headers().get(name)?.to_str().ok().filter(|v| !v.is_empty() && !v.contains('/'));
    Some((text(NAMESPACE)?, text(REVISION)?))
}

/// Namespace and name in `NAME.NAMESPACE.svc.DOMAIN[:port]`, cases and all.
fn in_cluster<'a>(host: &'a str, cluster_domain: &str) -> Option<(&'a str, &'a str)> {
    let mut parts = host.splitn(4, '.');
    let (name, namespace, svc, domain) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let domain = domain.split(':').next()?;
    (svc == "svc" && domain == cluster_domain).then_some((namespace, name))
}

/// The host that the client named: the target's authority, else the `Host` field.
fn host_of<B>(request: &Request<B>) -> &str {
    match request.uri().authority() {
        Some(authority) => authority.as_str(),
        None => request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default(),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of upstream's behaviour, as observed.
    #[test]
    fn a_host_names_a_revision_in_one_form_alone() {
        let rows = [
            ("r1.n1.svc.cluster.local", Some(("n1", "r1"))),
            ("r1.n1.svc.cluster.local:80", Some(("n1", "r1"))),
            ("r1.n1.svc", None),
            ("r1.n1", None),
            ("r1.n1.SVC.cluster.local", None),
            ("r1.n1.svc.cluster.local.", None),
            ("x.r1.n1.svc.cluster.local", None),
            ("r1.n1.svc.other.domain", None),
        ];
        for (host, expected) in rows {
            assert_eq!(in_cluster(host, "cluster.local"), expected, "{host}");
        }
    }

    #[test]
    fn both_headers_or_neither() {
        let request = |fields: &[(&str, &str)]| {
            fields.iter().fold(Request::builder(), |r, (n, v)| r.header(*n, *v)).body(()).expect("valid")
        };
        let (revision, namespace) = (headers::REVISION, headers::NAMESPACE);
        assert_eq!(named(&request(&[(revision, "r"), (namespace, "n")])), Some(("n", "r")));
        assert_eq!(named(&request(&[(revision, "r")])), None);
        assert_eq!(named(&request(&[(revision, "r"), (namespace, "")])), None);
        assert_eq!(named(&request(&[(revision, "n/r"), (namespace, "n")])), None);
    }
}
