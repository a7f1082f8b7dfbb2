//! Cluster state that the activator learns: one stream of events from any source.
//!
//! The stream separates the data path from Kubernetes. Its adapters are `standalone` (ZeroScalers, EndpointSlices, the
//! private Services that own some of them, and the ledgers of hosts and ports) and `knative` (Revisions and Endpoints).
//! Each collects the events that follow from a change, and then sends them. Tests feed the stream by hand. Every event
//! carries the whole state of its subject. So a lost earlier event does no harm, and applying an event twice changes
//! nothing.

pub(crate) mod front_end;
pub(crate) mod knative;
mod siblings;
mod slices;
pub(crate) mod standalone;

use activator_core::Destination;
use activator_core::backends::Rules;
use activator_core::contract::Contract;
use common::RevisionKey;
use common::backend::{Backend, Protocol};
use common::host::HostPattern;
use common::pod_names::PodNames;
use common::ports::{Block, Ledger, PortId};
use common_api::zeroscaler::{Answers, PortProtocol};
use http::HeaderValue;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of events that wait to be applied. The adapters wait for room, and their watches tolerate the delay.
/// Tests never reach the limit.
pub(crate) const QUEUE_CAPACITY: usize = 1024;

/// Change of the cluster state.
#[derive(Clone, Debug)]
pub enum Event {
    /// A revision was created or changed.
    Revision(Arc<Spec>),
    /// A revision was deleted.
    Deleted(RevisionKey),
    /// The pods of a revision changed. May come before the revision.
    Pods {
        /// Revision of the pods.
        key: RevisionKey,
        /// All its pods.
        listing: Listing,
    },
    /// The addresses that receive a revision's traffic changed: activators, or pods in Serve mode.
    Activators {
        /// Revision of the addresses.
        key: RevisionKey,
        /// Ready addresses, without ports.
        addresses: Vec<String>,
    },
    /// The activators of this install changed.
    Siblings(Activators),
    /// The address of the Service in front of a revision's pods changed.
    ClusterIp {
        /// Revision of the Service.
        key: RevisionKey,
        /// Address and port; `None` if there is no such Service.
        destination: Option<Destination>,
    },
    /// The hosts of a namespace's workloads changed. They add to the names of the workloads' Services.
    Hosts {
        /// Namespace of the workloads.
        namespace: String,
        /// Each host with the name of its revision.
        hosts: Vec<(HostPattern, String)>,
    },
    /// One block of the port ledger changed. Numbers without an entry are free.
    Numbers {
        /// Block of the numbers.
        block: Block,
        /// Workload of each number.
        entries: Ledger,
    },
    /// All objects that existed at start were sent.
    Synced,
}

/// Addresses of pods, without terminating ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Addresses that Kubernetes reports ready.
    pub ready: BTreeSet<Destination>,
    /// Addresses that Kubernetes does not report ready.
    pub not_ready: BTreeSet<Destination>,
    /// Named ports of each pod, if the Service has several ports.
    pub ports: BTreeMap<IpAddr, PodPorts>,
}

/// Ports of one pod, by name.
pub type PodPorts = BTreeMap<String, u16>;

impl Listing {
    /// Reports whether there is no address at all.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.not_ready.is_empty()
    }

    /// Returns all addresses.
    pub fn all(&self) -> impl Iterator<Item = &Destination> {
        self.ready.iter().chain(&self.not_ready)
    }
}

/// Activators of this install, from the endpoints of their Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activators {
    /// Address of each activator, and whether it is ready.
    pub all: Vec<(SocketAddr, bool)>,
    /// `all` includes terminating activators until they exit.
    pub includes_terminating: bool,
}

/// Everything known about a revision except its addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Namespace and name.
    pub key: RevisionKey,
    /// Backend from the status of its ZeroScaler, or from its Knative Revision.
    pub backend: Backend,
    /// Contract between the activator and the pods.
    pub contract: Contract,
    /// Rules that decide when an address may receive requests.
    pub rules: Rules,
    /// Host that a mesh routes by, if the mesh lets pods be addressed. Probes and requests carry it.
    pub passthrough: Option<Box<HeaderValue>>,
    /// `serving.knative.dev/configuration`, for metrics.
    pub configuration: Arc<str>,
    /// `serving.knative.dev/service`, for metrics.
    pub service: Arc<str>,
    /// UID of the ZeroScaler; empty if there is none.
    pub uid: Arc<str>,
    /// Further Services whose names select this revision on the shared ports.
    pub further_services: Box<[Box<str>]>,
    /// Ports of the Service, if more is known about them than the pods' addresses say.
    pub ports: Box<[Port]>,
    /// Responses without a pod, if configured.
    pub answers: Option<Arc<Answers>>,
    /// Names that the revision's pods may have.
    pub pod_names: PodNames,
    /// The ZeroScaler is being deleted and the Service returns to direct routing. Once the Service bypasses this
    /// activator, clients must reconnect.
    pub is_being_released: bool,
    /// NetworkPolicies restrict who may connect, so the revision is served on its own ports only.
    pub guarded: bool,
}

/// Port of a revision's Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name and number of the port in the Service.
    pub id: PortId,
    /// Protocol that clients speak on the port.
    pub protocol: PortProtocol,
    /// Time after which a silent connection wakes the revision, for protocol tcp.
    pub wake_after: Option<Duration>,
    /// Target port at the pods; `None` uses the port in the pods' addresses.
    pub pod_port: Option<u16>,
    /// HTTP version that the pods probably speak on the port; `None` if unknown.
    pub spoken: Option<Protocol>,
}
