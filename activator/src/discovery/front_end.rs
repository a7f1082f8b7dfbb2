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

    /// Returns which headers of this peer are trusted.
    fn trust(&self, peer: IpAddr) -> Trust;

    /// Determines the revision of a request from its target and header fields. `trusted`: the peer may select the
    /// revision by headers.
    fn revision_ref<'a>(&self, target: &'a Uri, fields: &'a HeaderMap, trusted: bool) -> RevisionRef<'a>;

    /// Returns the response body for a refused request.
    fn text(&self, refusal: &Refusal) -> String {
        refusal.text()
    }
}

/// Reference to a revision in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RevisionRef<'a> {
    /// Namespace and name; both are empty if the request names no revision.
    Key {
        /// Namespace of the revision.
        namespace: &'a str,
        /// Name of the revision.
        name: &'a str,
    },
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
        let named = |fields: &[(&'static str, &'static str)]| {
            let fields: HeaderMap =
                fields.iter().map(|(n, v)| (HeaderName::from_static(n), http::HeaderValue::from_static(v))).collect();
            by_headers(&fields).map(|key| format!("{key:?}"))
        };
        let (revision, namespace) = (headers::REVISION, headers::NAMESPACE);
        let key = format!("{:?}", RevisionRef::Key { namespace: "n", name: "r" });
        assert_eq!(named(&[(revision, "r"), (namespace, "n")]), Some(key));
        assert_eq!(named(&[(revision, "r")]), None);
        assert_eq!(named(&[(revision, "r"), (namespace, "")]), None);
        assert_eq!(named(&[(revision, "n/r"), (namespace, "n")]), None);
    }
}
