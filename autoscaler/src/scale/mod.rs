//! Where reconcilers and decisions meet, in one process: four small ports and a queue of keys.
//!
//! A reconciler works from state alone: it reads a workload, tells [`Deciders`], [`Collection`] and [`Pods`] what
//! there is to decide, measure and count, and reads back the latest answer. Nobody waits for anybody: every call
//! returns at once, and whatever changes later puts the revision's key into the queue of [`Requests`].
//!
//! ```text
//! stat ── Collector ── poke ── Multiscaler ── status ── Requests ── reconciler ── patch
//!                                  ▲   ready pods: Pods           ▲
//!                                  └── ensure, observe ───────────┘
//! ```
//!
//! Each port has one real adapter ([`multiscaler`], [`crate::collect`], [`crate::pods`], [`common_controller::shares`]) and is
//! small enough to fake by hand.

#[cfg(test)]
pub(crate) mod fixture;
pub mod metrics;
pub mod multiscaler;
mod scrapes;
pub mod trace;

use autoscaler_core::cause::Cause;
use autoscaler_core::engine::Answer;
use autoscaler_core::history::Action;
use common::RevisionKey;
use common::labels::Selector;
use common::scaling::{Aggregation, DeciderSpec};
use common::stat::{Seen, Stat};
use common_controller::{Leadership, WorkQueue};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use trace::Waking;

/// Keys of revisions that want a reconcile, each at most once: its bound is the number of revisions, so nothing is ever
/// refused or lost, and whoever adds one never waits.
pub type Requests = WorkQueue<RevisionKey>;

/// Tells whether there is a revision of a name.
pub type Exists = Arc<dyn Fn(&RevisionKey) -> bool + Send + Sync>;

/// All four ports and the queue, as the reconcilers get them. Cheap to clone.
#[derive(Clone)]
pub struct Ports {
    /// Decision loops.
    pub deciders: Arc<dyn Deciders>,
    /// Measurements.
    pub collection: Arc<dyn Collection>,
    /// Pod counts.
    pub pods: Arc<dyn Pods>,
    /// Which revisions are ours.
    pub leadership: Arc<dyn Leadership>,
    /// Keys that want a reconcile. The reconcilers are its one consumer.
    pub requests: Requests,
}

/// One decision loop for each revision.
pub trait Deciders: Send + Sync + 'static {
    /// Told once how to find out which revisions there are: a stat of one that has no loop yet asks for a reconcile, and one
    /// of a name that nobody has does not.
    fn recognise(&self, _exists: Exists) {}

    /// Creates the loop, or hands a living one its new subject. Changes of the spec lead to an evaluation at once.
    /// `initial` matters at creation only.
    fn ensure(&self, key: &RevisionKey, subject: Subject, initial: Initial);

    /// What the reconciler sees of the surroundings; cheap, meant to be called on every reconcile.
    fn observe(&self, key: &RevisionKey, surroundings: Surroundings);

    /// The latest answer; `None` for a revision that has no loop.
    fn status(&self, key: &RevisionKey) -> Option<DeciderStatus>;

    /// Whether anybody is held or served, or was within the panic window or three seconds; none: unknown.
    fn is_serving(&self, _key: &RevisionKey) -> Option<bool> {
        None
    }

    /// Forgets what was measured, as if nobody had called for a window. The history stays.
    fn forget_load(&self, _key: &RevisionKey) {}

    /// The scale that was asked of the target, bounds and the way to zero applied; for the metrics. An unknown one is
    /// not told: the former value stays, as upstream's does.
    fn requested(&self, _key: &RevisionKey, _replicas: i32) {}

    /// The wake that is traced now, if one is.
    fn waking(&self, _key: &RevisionKey) -> Option<Arc<Waking>> {
        None
    }

    /// Told what was made of the latest answer, or why nothing: for the history. A revision that has no loop has a
    /// history nevertheless, from the first action on.
    fn acted(&self, _key: &RevisionKey, _action: Action) {}

    /// Told what became of load and metrics together: for the history.
    fn blended(&self, _key: &RevisionKey, _answer: &Answer) {}

    /// Ends the loop and its metrics; the history stays. Unknown keys are ignored.
    fn remove(&self, key: &RevisionKey);

    /// Ends the loop and forgets its history too: the revision is gone, or somebody else's.
    fn forget(&self, key: &RevisionKey) {
        self.remove(key);
    }
}

/// What there is to decide about.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// Parameters of the rule.
    pub spec: DeciderSpec,
    /// What its metrics are labelled with.
    pub labels: SubjectLabels,
}

/// Label values of a revision's metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectLabels {
    /// Knative Service; may be empty.
    pub service: String,
    /// Configuration; in standalone the ZeroScaler's name.
    pub configuration: String,
}

/// The answer that a new decider starts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Initial {
    /// Unknown until the first valid evaluation: replicas stay as they are. What Knative does.
    #[default]
    Unknown,
    /// The scale that the target was found with: a new ZeroScaler in standalone.
    Adopted(i32),
    /// As unknown, and the revision was scaled before, by another process or an earlier life of this one: nothing may
    /// go down before a full stable window has been seen ([`DeciderStatus::warm_in`]).
    TakenOver,
}

/// What a reconciler knows that decides what silence means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Whether requests come through activators: silence counts only while all of them attest it.
    pub activators_in_path: bool,
    /// The target's replicas as last read. A stat pokes a decider whose desired scale is unknown only at `Some(0)`.
    pub replicas: Option<i32>,
}

/// The latest answer about one revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeciderStatus {
    /// Pods that the rule wants, bounds not applied; `None` until the first valid evaluation.
    pub desired: Option<i32>,
    /// Excess burst capacity; negative keeps the activators in the path.
    pub excess_burst_capacity: i32,
    /// How long the stable window still needs to fill after a takeover; `None`: it is full. Until then a new owner may
    /// scale up, and neither scales down nor changes the path mode.
    pub warm_in: Option<Duration>,
    /// The last evaluation knew nothing, since a ready activator was not heard: the last pod stays.
    pub unheard: bool,
}

/// Measurement for each revision.
pub trait Collection: Send + Sync + 'static {
    /// Starts to collect, or changes how. Windows keep what they hold.
    fn ensure(&self, key: &RevisionKey, how: CollectSpec);

    /// Whether measurements come in; `None` for a revision that is not collected.
    fn health(&self, key: &RevisionKey) -> Option<CollectionHealth>;

    /// Forgets a revision's measurements. Unknown keys are ignored.
    fn remove(&self, key: &RevisionKey);

    /// Returns what activators have found out about the ports of a revision's Service.
    fn ports(&self, _key: &RevisionKey) -> ObservedPorts {
        ObservedPorts::default()
    }

    /// Told once of the queue to which revisions are added when something more is found out about their ports.
    fn report_ports(&self, _queue: Requests) {}
}

/// Ports of a Service, by number, of which activators have found out something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedPorts {
    /// Ports whose clients said nothing and left since the last wake.
    pub silent: BTreeSet<u16>,
    /// Ports on which pods speak first.
    pub pod_speaks_first: BTreeSet<u16>,
}

/// How to measure one revision: what a Metric object says.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectSpec {
    /// Length of the stable window, whole seconds.
    pub stable_window: Duration,
    /// Length of the panic window, whole seconds.
    pub panic_window: Duration,
    /// How the windows average.
    pub aggregation: Aggregation,
    /// Service whose pods report when asked on port 9090; `None`: only activators report, nothing is scraped.
    pub scrape_target: Option<String>,
}

/// Whether the last scrape told anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectionHealth {
    /// It did, or there is nothing to scrape.
    Healthy,
    /// No pod could be found.
    NoEndpoints(String),
    /// Pods were found, none told anything new.
    DidNotReceiveStat(String),
    /// Any other failure.
    Failed(String),
}

/// Told of what happens to revisions, for whoever shows it. Called from the tasks in which it happens: it must not block,
/// and nothing is decided by it.
pub trait Onlooker: Send + Sync + 'static {
    /// A stat of a revision was recorded.
    fn measured(&self, key: &RevisionKey, stat: &Stat);

    /// An activator has told what else it saw.
    fn seen(&self, key: &RevisionKey, seen: &Seen);

    /// A target was given its first pods, so long after a stat had asked for them.
    fn woken(&self, key: &RevisionKey, took: Duration);
}

/// Pods of each revision, counted as they come and go.
pub trait Pods: Send + Sync + 'static {
    /// Starts to count, or changes what is counted: of these pods those that are `owner`'s, if there is one. A change of the
    /// counts puts the key on the feed.
    fn track(&self, key: &RevisionKey, pods: PodSet, owner: Option<PodOwner>);

    /// Has its pods count as ready only once they listen on this port; none: once Kubernetes calls them so.
    fn prove(&self, _key: &RevisionKey, _port: Option<u16>) {}

    /// Whether pods of a revision are counted.
    fn is_tracked(&self, _key: &RevisionKey) -> bool {
        true
    }

    /// The counts now; all zero for a revision that is not tracked.
    fn counts(&self, key: &RevisionKey) -> PodCounts;

    /// Why no pod serves, if none is ready and none is merely starting; pods that end or have finished aside. A change of
    /// it puts the key on the feed.
    fn failing(&self, _key: &RevisionKey) -> Option<Failing> {
        None
    }

    /// The addresses of pods that are not finished, in order of their names. A change of their number puts the key on the
    /// feed.
    fn addresses(&self, _key: &RevisionKey) -> Vec<PodAddress> {
        Vec::new()
    }

    /// The pods among those of a revision that are not its owner's; none: that is not known yet. A change of who controls them
    /// puts the key on the feed.
    fn strangers(&self, _key: &RevisionKey) -> Option<Strangers> {
        Some(Strangers::default())
    }

    /// Stops counting. Unknown keys are ignored.
    fn untrack(&self, key: &RevisionKey);
}

/// Which pods are a revision's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodSet {
    /// Those with the label `serving.knative.dev/revision` of this value.
    Revision(String),
    /// Those with all of these labels; empty: none.
    Selector(BTreeMap<String, String>),
    /// Those that it matches.
    Expressions(Selector),
}

/// A workload, as the owner of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodOwner {
    /// Chain of controllers between it and its pods.
    pub chain: Chain,
    /// Its name.
    pub name: String,
    /// Identity of this incarnation.
    pub uid: String,
}

/// Chain of controllers between a workload and its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chain {
    /// Nothing: it controls them itself, as a StatefulSet does.
    Direct,
    /// ReplicaSets, as of a Deployment.
    ReplicaSets,
    /// Whatever its kind, which is not Kubernetes' own, puts there.
    Unknown,
}

/// Pods that a workload's selector finds and that are not its own, finished ones aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strangers {
    /// Their names.
    pub pods: Vec<String>,
    /// Kind and name of each that controls some, or of the pod itself, in order.
    pub controllers: Vec<String>,
}

/// Why no pod serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Why, and what helps.
    pub cause: Cause,
    /// Name of a pod of which it is so.
    pub pod: String,
    /// Since when this pod fails for this reason.
    pub since: Instant,
}

/// Where a pod can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAddress {
    /// Its name.
    pub pod: String,
    /// Its address.
    pub address: IpAddr,
    /// Whether it is ready, and stays.
    pub ready: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// How many pods are in which state. Finished pods are in none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    /// Running, ready, not being deleted.
    pub ready: i32,
    /// All others that are not finished: pending, terminating, running and not ready.
    pub not_ready: i32,
    /// Of those, the ones that wait to be scheduled or started.
    pub pending: i32,
    /// Of those, the ones being deleted.
    pub terminating: i32,
}

/// Called with each accepted change of replicas, from the task that made it; must not block.
pub type OnScale = Arc<dyn Fn(&ScaleEvent) + Send + Sync>;

/// A change of replicas that the API server has accepted.
#[derive(Clone, Debug)]
pub struct ScaleEvent {
    /// The revision.
    pub key: RevisionKey,
    /// Replicas before.
    pub from: i32,
    /// Replicas after.
    pub to: i32,
    /// Why, in words.
    pub reason: String,
    /// When the patch was answered.
    pub at: Instant,
}
