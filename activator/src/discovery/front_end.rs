//! Decisions that differ between Knative and standalone installs. One object per kind of install, chosen once at start.

use super::Event;
use crate::refusal::Refusal;
use activator_net::Trust;
use common::config::NetworkConfig;
use common::headers;
use futures::future::BoxFuture;
use http::header::{HOST, HeaderName};
use http::{HeaderMap, Uri};
use kube::Client;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

// Parsed at compile time, not per request.
const REVISION: HeaderName = HeaderName::from_static(headers::REVISION);
const NAMESPACE: HeaderName = HeaderName::from_static(headers::NAMESPACE);

/// Decisions of a [`Knative`](super::knative::Knative) or [`Standalone`](super::standalone::Standalone) install.
pub(crate) trait FrontEnd: Send + Sync {
    /// Sends all revisions and their addresses to `events`, until its receiver is gone.
    fn watch(
        &self,
        client: Client,
        network: watch::Receiver<Arc<NetworkConfig>>,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'static, ()>;

    fn trust(&self, peer: IpAddr) -> Trust;

    /// Determines the revision of a request from its target and header fields. `trusted`: the peer may select the
    /// revision by headers.
    fn revision_ref<'a>(&self, target: &'a Uri, fields: &'a HeaderMap, trusted: bool) -> RevisionRef<'a>;

    /// Returns the response body for a refused request.
    fn text(&self, refusal: &Refusal) -> String {
        refusal.text()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RevisionRef<'a> {
    /// Namespace and name; both are empty if the request names no revision.
    Key { namespace: &'a str, name: &'a str },
    /// Host to look up.
    Host(&'a str),
}

/// Returns the revision that the headers [`NAMESPACE`] and [`REVISION`] name, if each is non-empty and contains no `/`.
pub(super) fn by_headers(fields: &HeaderMap) -> Option<RevisionRef<'_>> {
    let text = |name: HeaderName| fields.get(name)?.to_str().ok().filter(|v| !v.is_empty() && !v.contains('/'));
    Some(RevisionRef::Key { namespace: text(NAMESPACE)?, name: text(REVISION)? })
}

/// Returns the requested host: the target's authority, or else the `Host` header.
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
    fn a_revision_needs_both_headers() {
        for (name, namespace, is_key) in [("r", "n", true), ("r", "", false), ("n/r", "n", false)] {
            let fields = [(REVISION, name), (NAMESPACE, namespace)];
            let mut fields: HeaderMap =
                fields.map(|(n, v)| (n, http::HeaderValue::from_static(v))).into_iter().collect();
            let expected = is_key.then_some(RevisionRef::Key { namespace, name });
            assert_eq!(by_headers(&fields), expected, "{namespace} {name}");
            fields.remove(NAMESPACE);
            assert_eq!(by_headers(&fields), None, "{name}, no namespace");
        }
    }
}
