//! What an install decides where Knative's rules and ours differ: one object for each, chosen once at the start.

use super::Event;
use crate::refusal::Refusal;
use activator_net::Trust;
use common::config::NetworkConfig;
use common::headers;
use common_runtime::config_map::{Refusals, RefusedMap};
use common_runtime::tls::Roots;
use futures::future::BoxFuture;
use http::header::{HOST, HeaderName};
use http::{HeaderMap, Uri};
use kube::Client;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

// Parsed once, not for each request.
const REVISION: HeaderName = HeaderName::from_static(headers::REVISION);
const NAMESPACE: HeaderName = HeaderName::from_static(headers::NAMESPACE);

/// Decisions of [`Knative`](super::knative::Knative) and [`Standalone`](super::standalone::Standalone).
pub(crate) trait FrontEnd: Send + Sync {
    /// Tells `events` of all revisions and their addresses, until its receiver is gone.
    fn watch(
        &self,
        client: Client,
        network: watch::Receiver<Arc<NetworkConfig>>,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'static, ()>;

    /// Whether to start although a config map breaks a rule.
    ///
    /// # Errors
    /// The map that stands in the way.
    fn check(&self, refusals: &Refusals) -> Result<(), RefusedMap>;

    /// Whether what a config map said stays in force when it is deleted.
    fn keeps_deleted_maps(&self) -> bool;

    /// The authorities of pods' certificates, of those that system-internal TLS has: where there are some, requests to
    /// pods are encrypted.
    fn pod_roots(&self, internal: &Roots) -> Option<Roots>;

    /// Whether workloads have ports of their own.
    fn has_ports(&self) -> bool;

    /// Which of this peer's headers are believed.
    fn trust(&self, peer: IpAddr) -> Trust;

    /// Which revision a request with this target and these fields is for; `trusted` says whether its peer may choose by
    /// headers.
    fn asked_for<'a>(&self, target: &'a Uri, fields: &'a HeaderMap, trusted: bool) -> AskedFor<'a>;

    /// What a client reads when its request is refused.
    fn text(&self, refusal: &Refusal) -> String {
        refusal.text()
    }
}

/// What a request says of its revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedFor<'a> {
    /// Its key. A request that names none has two empty words.
    Key {
        /// Of the revision.
        namespace: &'a str,
        /// Of the revision.
        name: &'a str,
    },
    /// A host, to be looked up.
    Host(&'a str),
}

/// The revision that both headers name, if each is a single word without `/`.
pub(super) fn by_headers(fields: &HeaderMap) -> Option<AskedFor<'_>> {
    let text = |name: HeaderName| fields.get(name)?.to_str().ok().filter(|v| !v.is_empty() && !v.contains('/'));
    Some(AskedFor::Key { namespace: text(NAMESPACE)?, name: text(REVISION)? })
}

/// The host that the client named: the target's authority, else the `Host` field.
pub(super) fn host_of<'a>(target: &'a Uri, fields: &'a HeaderMap) -> &'a str {
    match target.authority() {
        Some(authority) => authority.as_str(),
        None => fields.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_headers_or_neither() {
        let named = |fields: &[(&'static str, &'static str)]| {
            let fields: HeaderMap =
                fields.iter().map(|(n, v)| (HeaderName::from_static(n), http::HeaderValue::from_static(v))).collect();
            by_headers(&fields).map(|key| format!("{key:?}"))
        };
        let (revision, namespace) = (headers::REVISION, headers::NAMESPACE);
        let key = format!("{:?}", AskedFor::Key { namespace: "n", name: "r" });
        assert_eq!(named(&[(revision, "r"), (namespace, "n")]), Some(key));
        assert_eq!(named(&[(revision, "r")]), None);
        assert_eq!(named(&[(revision, "r"), (namespace, "")]), None);
        assert_eq!(named(&[(revision, "n/r"), (namespace, "n")]), None);
    }
}
