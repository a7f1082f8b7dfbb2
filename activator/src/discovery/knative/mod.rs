//! Drop-in replacement for Knative's activator.
//!
//! A request belongs to the revision that its headers `Knative-Serving-Namespace` and `Knative-Serving-Revision` name,
//! from any peer, as in Knative. Without the headers it belongs to the revision of a host with exactly the form
//! `REVISION.NAMESPACE.svc.DOMAIN`. A header that contains `/` counts as absent. (Knative's activator accepts it as a
//! revision, and requests wait forever.) Errors that Knative reports too use Knative's texts.

mod revision;
mod watch;

use super::Event;
use super::front_end::{FrontEnd, RevisionRef, by_headers, host_of};
use crate::refusal::Refusal;
use activator_net::{ProxyError, Trust};
use common::config::NetworkConfig;
use common::golang;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Uri};
use kube::Client;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

pub(crate) struct Knative {
    /// `PROBE_TIMEOUT`.
    pub(crate) probe_timeout: Duration,
    /// DNS domain, such as `cluster.local`.
    pub(crate) cluster_domain: String,
    pub(crate) system_namespace: String,
}

impl FrontEnd for Knative {
    fn watch(
        &self,
        client: Client,
        network: tokio::sync::watch::Receiver<Arc<NetworkConfig>>,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'static, ()> {
        watch::run(client, network, self.probe_timeout, self.system_namespace.clone(), events).boxed()
    }

    fn trust(&self, _: IpAddr) -> Trust {
        Trust { revision: true, forwarded: true }
    }

    fn revision_ref<'a>(&self, target: &'a Uri, fields: &'a HeaderMap, _: bool) -> RevisionRef<'a> {
        by_headers(fields)
            .or_else(|| in_cluster(host_of(target, fields), &self.cluster_domain))
            .unwrap_or(RevisionRef::Key { namespace: "", name: "" })
    }

    fn text(&self, refusal: &Refusal) -> String {
        match refusal {
            Refusal::NoRevision { name } => {
                let name = golang::quote(name.as_bytes());
                format!("Error getting active endpoint: revision.serving.knative.dev {name} not found\n")
            }
            Refusal::Timeout(_) | Refusal::Unwoken { .. } => "activator request timeout".to_owned(),
            Refusal::QueueFull { .. } => "pending request queue full\n".to_owned(),
            Refusal::Proxy(ProxyError::Pod { cause, .. }) => format!("{cause}\n"),
            refusal => refusal.text(),
        }
    }
}

/// Parses `NAME.NAMESPACE.svc.DOMAIN[:port]`, case-sensitively.
fn in_cluster<'a>(host: &'a str, cluster_domain: &str) -> Option<RevisionRef<'a>> {
    let mut parts = host.splitn(4, '.');
    let (name, namespace, svc, domain) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let domain = domain.split(':').next()?;
    (svc == "svc" && domain == cluster_domain).then_some(RevisionRef::Key { namespace, name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::TimedOut;

    /// Goal: hosts are parsed as by Knative. Method: rows of Knative's observed behavior.
    #[test]
    fn a_host_names_a_revision_in_one_form_only() {
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
            let expected = expected.map(|(namespace, name)| RevisionRef::Key { namespace, name });
            assert_eq!(in_cluster(host, "cluster.local"), expected, "{host}");
        }
    }

    #[test]
    fn refusals_use_knatives_texts() {
        let knative = Knative {
            probe_timeout: Duration::from_millis(300),
            cluster_domain: "cluster.local".to_owned(),
            system_namespace: "knative-serving".to_owned(),
        };
        let name = r#"<b>"q\ "#.to_owned();
        assert_eq!(
            knative.text(&Refusal::NoRevision { name }),
            "Error getting active endpoint: revision.serving.knative.dev \"<b>\\\"q\\\\ \" not found\n"
        );
        let timeout = Refusal::from(TimedOut::Total(Duration::from_secs(1)));
        assert_eq!(knative.text(&timeout), "activator request timeout");
    }
}
