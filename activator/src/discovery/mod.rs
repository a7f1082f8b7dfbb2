//! What the activator learns of the cluster: one stream of events, whoever tells it.
//!
//! The stream is the port between the data path and Kubernetes. Its adapters are `standalone` (ZeroScalers,
//! EndpointSlices, the private Services that own some of them, and the ledgers of hosts and ports) and `knative`
//! (Revisions and Endpoints); tests feed it by hand. Every event carries the whole state of what it is about, so losing
//! an earlier one does no harm, and applying one twice changes nothing.

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
use kube::runtime::watcher;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Events that may wait to be applied. The adapters wait for room, which the watches behind them bear; tests never
/// reach it.
pub(crate) const QUEUE_CAPACITY: usize = 1024;

/// Objects of one page of a list. Their memory is needed once, and between what is kept of them: the less, the more
/// densely that lies.
const PAGE: u32 = 100;

/// How objects are watched of which there may be many.
fn listing() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

/// The receiver of events has gone, and so may the watches.
struct Closed;

/// One thing that is so from now on.
#[derive(Clone, Debug)]
pub enum Event {
    /// A revision is, or has become, this.
    Revision(Arc<Spec>),
    /// A revision is no more.
    Deleted(RevisionKey),
    /// A revision's pods are these. May come before the revision.
    Pods {
        /// The revision.
        key: RevisionKey,
        /// All its pods.
        listing: Listing,
    },
    /// A revision's traffic goes through these addresses: activators, or pods in Serve mode.
    Activators {
        /// The revision.
        key: RevisionKey,
        /// Ready addresses, without ports.
        addresses: Vec<String>,
    },
    /// The activators of this install.
    Siblings(Activators),
    /// The Service in front of a revision's pods has this address, or none.
    ClusterIp {
        /// The revision.
        key: RevisionKey,
        /// Address and port, if there is such a Service.
        destination: Option<Destination>,
    },
    /// The workloads of a namespace have these hosts, beside the names of their Services, and no others.
    Hosts {
        /// The namespace.
        namespace: String,
        /// Each host, and the name of the revision that has it.
        hosts: Vec<(HostPattern, String)>,
    },
    /// The numbers of one block of the ledger of ports belong to these, and the others to nobody.
    Numbers {
        /// The block.
        block: Block,
        /// Each number's workload.
        entries: Ledger,
    },
    /// Everything that existed at the start has been told.
    Synced,
}

/// Addresses of pods, terminating ones left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Those that Kubernetes calls ready.
    pub ready: BTreeSet<Destination>,
    /// Those that it does not, or not yet.
    pub not_ready: BTreeSet<Destination>,
    /// Where their Service has several ports: each one's, by name.
    pub ports: BTreeMap<IpAddr, PodPorts>,
}

/// The ports of one pod, by name.
pub type PodPorts = BTreeMap<String, u16>;

impl Listing {
    /// Whether there is no address at all.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.not_ready.is_empty()
    }

    /// All addresses.
    pub fn all(&self) -> impl Iterator<Item = &Destination> {
        self.ready.iter().chain(&self.not_ready)
    }
}

/// The activators of this install, as a list of them has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activators {
    /// Where each is, and whether it is ready.
    pub all: Vec<(SocketAddr, bool)>,
    /// Whether those that are on their way out are among them, to their end.
    pub shows_leaving: bool,
}

/// All that is known of a revision, its addresses aside.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Namespace and name.
    pub key: RevisionKey,
    /// What was resolved for it.
    pub backend: Backend,
    /// What its pods expect of a request.
    pub contract: Contract,
    /// In which protocol they are spoken to.
    pub outbound: Outbound,
    /// When an address is believed.
    pub rules: Rules,
    /// The host that a mesh routes by, where it lets pods be reached by address: for probes and requests.
    pub passthrough: Option<Box<HeaderValue>>,
    /// `serving.knative.dev/configuration`, for metrics.
    pub configuration: Arc<str>,
    /// `serving.knative.dev/service`, for metrics.
    pub service: Arc<str>,
    /// Of the ZeroScaler; empty where there is none.
    pub uid: Arc<str>,
    /// Further Services whose names mean it on the shared ports.
    pub also: Box<[Box<str>]>,
    /// Its Service's ports, if more is known of them than the addresses of its pods say.
    pub ports: Box<[Port]>,
    /// What is answered without a pod, if anything.
    pub answers: Option<Arc<Answers>>,
    /// Names that its pods may have.
    pub pod_names: PodNames,
    /// Whether its Service is being given back: its clients come anew once they are led past this activator.
    pub given_back: bool,
}

/// One port of a revision's Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The Service's name for it, and its number there.
    pub id: PortId,
    /// What clients speak there.
    pub protocol: PortProtocol,
    /// For protocol tcp: how long a silent connection stands before it wakes the revision.
    pub wake_after: Option<Duration>,
    /// Where it leads at a pod; none: where the pods' addresses say.
    pub pod_port: Option<u16>,
    /// HTTP that the pods probably speak there; none: nothing says so.
    pub spoken: Option<Protocol>,
}

/// What decides the protocol towards a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outbound {
    /// What the pods are declared to speak; translated from whatever came in.
    Declared,
    /// What the client speaks (Knative: queue-proxies speak both).
    AsInbound,
}
