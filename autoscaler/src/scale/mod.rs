//! Interface between reconcilers and decisions, in one process: four small ports and a queue of keys.
//!
//! A reconciler works from state alone. It reads a workload, tells [`Deciders`], [`Collection`] and [`Pods`] what to
//! decide, measure and count, and reads the latest result. No call waits: each returns at once, and a later change
//! puts the revision's key into the queue of [`Requests`].
//!
//! ```text
//! stat ── Collector ── poke ── Multiscaler ── status ── Requests ── reconciler ── patch
//!                                  ▲   ready pods: Pods           ▲
//!                                  └── ensure, observe ───────────┘
//! ```
//!
//! Each port has one real adapter ([`multiscaler`], [`crate::collect`], [`crate::pods`],
//! [`common_controller::shares`]) and is small enough to fake by hand.

#[cfg(test)]
#[path = "tests/fixture.rs"]
pub(crate) mod fixture;
pub mod metrics;
pub mod multiscaler;
pub mod trace;

use autoscaler_core::cause::Cause;
use autoscaler_core::engine::BlendedScale;
use autoscaler_core::history::Action;
pub use autoscaler_core::metrics::CollectSpec;
pub use autoscaler_core::pod_counts::PodCounts;
pub use autoscaler_core::scale_status::ScaleStatus;
use common::RevisionKey;
use common::labels::Selector;
use common::scaling::DeciderSpec;
use common::stat::{Observations, Stat};
use common_api::metric_status::CollectionError;
use common_controller::{Leadership, WorkQueue};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use trace::Waking;

/// Queue of revisions to reconcile, each at most once. Its bound is the number of revisions, so no key is refused or
/// lost, and adding a key never waits.
pub type Requests = WorkQueue<RevisionKey>;

/// Predicate that tells whether a revision of this name exists.
pub type RevisionExists = Arc<dyn Fn(&RevisionKey) -> bool + Send + Sync>;

/// All four ports and the queue, as passed to the reconcilers. Cheap to clone.
#[derive(Clone)]
pub struct Ports {
    /// Decision loops.
    pub deciders: Arc<dyn Deciders>,
    /// Measurements.
    pub collection: Arc<dyn Collection>,
    /// Pod counts.
    pub pods: Arc<dyn Pods>,
    /// Ownership of revisions.
    pub leadership: Arc<dyn Leadership>,
    /// Queue of keys to reconcile, consumed only by the reconcilers.
    pub requests: Requests,
}

/// Decision loops, one for each revision.
pub trait Deciders: Send + Sync + 'static {
    /// Sets, once, the predicate for existing revisions. A stat for a revision without a loop requests a reconcile
    /// only if the revision exists.
    fn set_existing(&self, exists: RevisionExists);

    /// Creates the loop, or gives an existing loop its new subject. A change of the spec leads to an evaluation at
    /// once. `initial` matters at creation only.
    fn ensure(&self, key: &RevisionKey, subject: Subject, initial: Initial);

    /// Updates the surroundings that the reconciler has observed. Cheap; called on every reconcile.
    fn observe(&self, key: &RevisionKey, surroundings: Surroundings);

    /// Returns the latest decision; `None` for a revision that has no loop.
    fn status(&self, key: &RevisionKey) -> Option<ScaleStatus>;

    /// Returns whether requests are held or served now, or were within the panic window or the last three seconds;
    /// none: unknown.
    fn is_serving(&self, key: &RevisionKey) -> Option<bool>;

    /// Discards the measurements, as if no request had arrived for a whole window. Keeps the history.
    fn forget_load(&self, key: &RevisionKey);

    /// Records the requested scale of the target, after bounds and scale to zero, for the metrics. Not called if the
    /// scale is unknown: the former value stays, as in upstream.
    fn requested(&self, key: &RevisionKey, replicas: i32);

    /// Returns the traced wake, if there is one.
    fn waking(&self, key: &RevisionKey) -> Option<Arc<Waking>>;

    /// Records the action on the latest decision, or the obstacle, in the history. A revision without a loop has a
    /// history too, from its first action on.
    fn record_action(&self, key: &RevisionKey, action: Action);

    /// Records the blend of load and metrics in the history.
    fn blended(&self, key: &RevisionKey, scale: &BlendedScale);

    /// Ends the loop and its metrics; keeps the history. Ignores unknown keys.
    fn remove(&self, key: &RevisionKey);

    /// Ends the loop and discards its history, because the revision is gone or owned by another process.
    fn forget(&self, key: &RevisionKey);
}

/// Inputs of a decision loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// Parameters of the rule.
    pub spec: DeciderSpec,
    /// Labels of its metrics.
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

/// Initial scale of a new decider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Initial {
    /// Unknown until the first valid evaluation: replicas stay unchanged. Knative's behaviour.
    #[default]
    Unknown,
    /// Current scale of the target, for a new ZeroScaler in standalone.
    Adopted(i32),
    /// Unknown, and the revision was scaled before, by another process or an earlier run of this one. Nothing may be
    /// scaled down before a full stable window has been observed ([`ScaleStatus::warm_up_left`]).
    TakenOver,
}

/// Reconciler's observations that decide whether missing reports mean zero load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Set if requests pass through activators. Missing reports then count as zero load only while all activators
    /// attest.
    pub activators_in_path: bool,
    /// Replicas of the target as last read. If the desired scale is unknown, a stat pokes the decider only at
    /// `Some(0)`.
    pub replicas: Option<i32>,
}

/// Measurements of each revision.
pub trait Collection: Send + Sync + 'static {
    /// Starts to collect, or changes the parameters. Windows keep their contents.
    fn ensure(&self, key: &RevisionKey, how: CollectSpec);

    /// Returns the health of the measurements; `None` for a revision that is not collected.
    fn health(&self, key: &RevisionKey) -> Option<CollectionHealth>;

    /// Discards a revision's measurements. Ignores unknown keys.
    fn remove(&self, key: &RevisionKey);

    /// Returns the activators' observations about the ports of a revision's Service.
    fn ports(&self, key: &RevisionKey) -> ObservedPorts;

    /// Sets, once, the queue that receives revisions with new observations about their ports.
    fn report_ports(&self, queue: Requests);
}

/// Port numbers of a Service about which activators have made observations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedPorts {
    /// Ports whose clients sent nothing and disconnected, since the last wake.
    pub silent: BTreeSet<u16>,
    /// Ports on which pods send first.
    pub pod_speaks_first: BTreeSet<u16>,
}

/// Result of the last scrape; healthy if there is nothing to scrape.
pub type CollectionHealth = Result<(), CollectionError>;

/// Observer of revisions, for display. Its methods are called from the tasks in which events happen, so they must not
/// block. No decision depends on it.
pub trait LoadObserver: Send + Sync + 'static {
    /// Called when a stat of a revision was recorded.
    fn measured(&self, key: &RevisionKey, stat: &Stat);

    /// Called when an activator has reported further observations.
    fn record_observations(&self, key: &RevisionKey, observations: &Observations);

    /// Called when a target was given its first pods, `took` after a stat had requested them.
    fn woken(&self, key: &RevisionKey, took: Duration);
}

/// Pods of each revision, counted as they change.
pub trait Pods: Send + Sync + 'static {
    /// Starts to count, or changes what is counted: the pods of this set that belong to `owner`, if there is one. A
    /// change of the counts queues the key.
    fn track(&self, key: &RevisionKey, pods: PodSet, owner: Option<PodOwner>);

    /// Counts its pods as ready only once they listen on this port; none: once Kubernetes reports them ready.
    fn require_listening(&self, key: &RevisionKey, port: Option<u16>);

    /// Returns whether pods of a revision are counted.
    fn is_tracked(&self, key: &RevisionKey) -> bool;

    /// Returns the current counts; all zero for a revision that is not tracked.
    fn counts(&self, key: &RevisionKey) -> PodCounts;

    /// Returns why no pod serves, if none is ready and none is merely starting; terminating and finished pods do not
    /// count. A change queues the key.
    fn failing(&self, key: &RevisionKey) -> Option<Failing>;

    /// Returns the addresses of pods that are not finished, ordered by name. A change of their number queues the key.
    fn addresses(&self, key: &RevisionKey) -> Vec<PodAddress>;

    /// Returns the different label sets of own pods that start or run; none: not known yet. A change queues the key.
    fn labels(&self, key: &RevisionKey) -> Option<BTreeSet<BTreeMap<String, String>>>;

    /// Returns the selected pods that do not belong to the revision's owner; none: not known yet. A change of their
    /// controllers queues the key.
    fn foreign_pods(&self, key: &RevisionKey) -> Option<ForeignPods>;

    /// Stops counting. Ignores unknown keys.
    fn untrack(&self, key: &RevisionKey);
}

/// Set of a revision's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodSet {
    /// Pods whose label `serving.knative.dev/revision` has this value.
    Revision(String),
    /// Pods with all of these labels; empty: none.
    Selector(BTreeMap<String, String>),
    /// Pods that the selector matches.
    Expressions(Selector),
}

impl Default for PodSet {
    /// Contains no pods.
    fn default() -> Self {
        Self::Selector(BTreeMap::new())
    }
}

/// Workload as the owner of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodOwner {
    /// Chain of controllers between the workload and its pods.
    pub chain: Chain,
    /// Name of the workload.
    pub name: String,
    /// Uid of the workload.
    pub uid: String,
}

/// Chain of controllers between a workload and its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chain {
    /// No controller in between: the workload controls its pods itself, as a StatefulSet does.
    Direct,
    /// ReplicaSets, as with a Deployment.
    ReplicaSets,
    /// Unknown controllers, because the kind is not one of Kubernetes' own.
    Unknown,
}

/// Pods that a workload's selector matches but that are not its own, without finished ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignPods {
    /// Names of the pods.
    pub pods: Vec<String>,
    /// Kind and name of each controller of such pods, or of a pod without one, in order.
    pub controllers: Vec<String>,
}

/// Reason why no pod serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Cause, and its remedy.
    pub cause: Cause,
    /// Name of a failing pod.
    pub pod: String,
    /// Time at which this pod began to fail for this reason.
    pub since: Instant,
}

/// Address of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAddress {
    /// Name of the pod.
    pub pod: String,
    /// IP address of the pod.
    pub address: IpAddr,
    /// Set if it is ready and not being deleted.
    pub ready: bool,
    /// Set if it is being deleted.
    pub deleting: bool,
}

/// Callback for each accepted change of replicas, called from the task that made it. Must not block.
pub type OnScale = Arc<dyn Fn(&ScaleEvent) + Send + Sync>;

/// Change of replicas that the API server has accepted.
#[derive(Clone, Debug)]
pub struct ScaleEvent {
    /// The revision.
    pub key: RevisionKey,
    /// Replicas before.
    pub from: i32,
    /// Replicas after.
    pub to: i32,
    /// Reason in words.
    pub reason: String,
    /// Time of the API server's response.
    pub at: Instant,
}
