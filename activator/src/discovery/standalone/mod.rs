//! Install beside ordinary workloads, without Knative components.
//!
//! A request on a workload's own port belongs to that workload. A request on the shared ports belongs to the revision
//! that its headers `Knative-Serving-Namespace` and `Knative-Serving-Revision` name, if a trusted peer sent them.
//! Otherwise it belongs to the revision of its host.

mod proof;
mod scalers;
mod watch;

use super::front_end::{FrontEnd, RevisionRef, by_headers, host_of};
use super::{Event, Spec};
use activator_core::backends::{Proof, Rules};
use activator_core::contract::Contract;
use activator_net::Trust;
use common::RevisionKey;
use common::backend::{Backend, ProbeKind};
use common::config::NetworkConfig;
use common::pod_names::PodNames;
use common_runtime::environment::Cidr;
use common_runtime::namespaces::Namespaces;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Uri};
use kube::Client;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::mpsc;

pub(crate) struct Standalone {
    pub(crate) system_namespace: String,
    pub(crate) namespaces: Namespaces,
    /// Peers whose headers may select a revision.
    pub(crate) routers: Vec<Cidr>,
    /// Peers whose forwarding headers are trusted.
    pub(crate) proxies: Vec<Cidr>,
}

impl FrontEnd for Standalone {
    fn watch(
        &self,
        client: Client,
        _: tokio::sync::watch::Receiver<Arc<NetworkConfig>>,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'static, ()> {
        watch::run(client, self.system_namespace.clone(), self.namespaces.clone(), events).boxed()
    }

    /// Trusts the forwarding headers of a peer that may select revisions, too.
    fn trust(&self, peer: IpAddr) -> Trust {
        let among = |networks: &[Cidr]| networks.iter().any(|network| network.contains(&peer));
        let revision = among(&self.routers);
        Trust { revision, forwarded: revision || among(&self.proxies) }
    }

    fn revision_ref<'a>(&self, target: &'a Uri, fields: &'a HeaderMap, trusted: bool) -> RevisionRef<'a> {
        let by_headers = trusted.then(|| by_headers(fields)).flatten();
        by_headers.unwrap_or_else(|| RevisionRef::Host(host_of(target, fields)))
    }
}

impl Spec {
    /// Builds the spec of a standalone revision from the status of its ZeroScaler.
    pub fn standalone(namespace: &str, name: &str, backend: Backend) -> Self {
        let contract = if backend.queue_proxy { Contract::QueueProxy } else { Contract::Plain };
        let proof = match backend.probe.kind {
            ProbeKind::Kubernetes => Proof::Ready,
            _ => Proof::Probe,
        };
        let service = backend.service.clone();
        Self {
            key: RevisionKey::new(namespace, name),
            configuration: if *service == *name { service.clone() } else { name.into() },
            service,
            contract,
            rules: Rules { proof, ..Rules::default() },
            passthrough: None,
            uid: Arc::default(),
            further_services: Box::default(),
            ports: Box::default(),
            answers: None,
            pod_names: PodNames::Any,
            is_being_released: false,
            guarded: false,
            backend,
        }
    }
}
