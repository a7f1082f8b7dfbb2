//! Reconciles one autoscaler, with access to the cluster through a [`Cluster`].
//!
//! ```text
//! read the scale ─▶ select pods ─▶ measure ─▶ write the scale ⟲ ─▶ Finish
//!     │         └── outside the bounds ─────────▶   ▲                ▲
//!     └── malformed, unreadable, disabled, no metrics ───────────────┘
//! ```
//!
//! The shell writes the status of the [`Finish`] if there is one, and [concludes](Finish::conclude) with the result of
//! that write. The time is constant within a reconcile.
//!
//! # Replicas
//!
//! Let `current` be the replicas in the scale's spec. The first matching row applies:
//!
//! | Case | Metrics | Replicas |
//! |---|---|---|
//! | 0, and this controller may not wake the target | no | 0: scaling is disabled |
//! | above `maxReplicas` | no | `maxReplicas` |
//! | below `minReplicas`, and not 0 | no | `minReplicas` |
//! | any other | yes | the winning proposal, [stabilized](super::behavior) and limited |
//!
//! This controller may wake a target at zero under three conditions: the gate `HPAScaleToZero` is on, this controller
//! scaled the target to zero (the stored ScaledToZero condition), and either a metric needs no pods or `minReplicas` is
//! now above 0.
//!
//! # Effects of a failure
//!
//! The recommendation and the conditions are recorded before the scale is written. If the write fails, the status keeps
//! the old desired replicas. If the scale cannot be read, only its condition changes. A change of the scale is recorded
//! only after a successful write, even if the bounds caused it.

mod finish;
mod measuring;
mod reading;
mod writing;

use common::labels::Selector;
use common::time::Timestamp;

pub use finish::{Action, Conclusion, ErrorLabel, Finish, MetricRun};
pub use reading::{Scale, ScaleError};
pub use writing::{CONFLICT_PAUSE, WriteResult};

use super::behavior::Rules;
use super::memory::Memory;
use super::options::{Gates, Options};
use super::pod::Pod;
use super::request::{Reading, Request};
use super::selectors::Selectors;
use super::spec::{has_pod_independent_metric, min_replicas};
use super::status::{self, Event, SCALED_TO_ZERO, SCALING_ACTIVE};
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus, MetricStatus,
};
use writing::Plan;

/// Autoscaler as stored.
#[derive(Clone, Copy, Debug)]
pub struct Autoscaler<'a> {
    /// Namespace of the autoscaler.
    pub namespace: &'a str,
    /// Name of the autoscaler.
    pub name: &'a str,
    /// Spec with defaults.
    pub spec: &'a HorizontalPodAutoscalerSpec,
    /// Last written status.
    pub status: &'a HorizontalPodAutoscalerStatus,
}

/// Access of a reconcile to the cluster.
pub trait Cluster: Send {
    /// Reads the scale of the target. Only the group of its API version matters.
    fn read_scale(
        &mut self,
        target: &CrossVersionObjectReference,
    ) -> impl Future<Output = Result<Scale, ScaleError>> + Send;

    /// Returns the pods of the namespace that the selector matches. Other pods are ignored.
    fn pods(&mut self, selector: &Selector) -> Vec<Pod>;

    /// Calls `with` with the selectors of all autoscalers.
    fn selectors<T>(&mut self, with: impl FnOnce(&mut Selectors) -> T) -> T;

    /// Sends the request for each metric, and returns the responses in their order. Malformed metrics have no request.
    fn measure(&mut self, requests: &[Option<Request>]) -> impl Future<Output = Vec<Reading>> + Send;

    /// Writes the replicas to `spec.replicas` of the scale. Attempts are numbered from 1. A further attempt follows a
    /// conflict: it waits for [`CONFLICT_PAUSE`] with a jitter of a tenth, and reads the scale anew.
    fn write_scale(&mut self, replicas: i32, attempt: u32) -> impl Future<Output = WriteResult> + Send;
}

/// Runs a reconcile. One that is dropped midway may or may not have written the scale. Its memory keeps the
/// recommendation and may lack the change. The next reconcile reads the scale anew.
pub async fn reconcile(
    autoscaler: Autoscaler<'_>,
    options: &Options,
    gates: Gates,
    memory: &mut Memory,
    now: Timestamp,
    cluster: &mut impl Cluster,
) -> Finish {
    let status = autoscaler.status.clone();
    let (conclusion, last_event) = (Conclusion::default(), None);
    let mut pass = Pass { autoscaler, options, gates, memory, now, status, conclusion, last_event };
    let outcome = pass.run(cluster).await;
    Finish::new(pass, outcome)
}

/// State shared by all steps of a reconcile.
#[derive(Debug)]
struct Pass<'a> {
    autoscaler: Autoscaler<'a>,
    options: &'a Options,
    gates: Gates,
    memory: &'a mut Memory,
    now: Timestamp,
    status: HorizontalPodAutoscalerStatus,
    /// Result of the steps so far.
    conclusion: Conclusion,
    /// Event that follows the write of the status.
    last_event: Option<Event>,
}

impl Pass<'_> {
    /// Runs all steps. Returns the error of the step that ended them early.
    async fn run(&mut self, cluster: &mut impl Cluster) -> Result<(), String> {
        let scale = self.read_scale(cluster).await?;
        let spec = self.autoscaler.spec;
        let (current, min, max) = (scale.spec_replicas, min_replicas(spec), spec.max_replicas);
        let to_bound = |desired, reason: &str| Plan { current, desired, reason: reason.to_owned(), ..Plan::default() };
        let plan = if current == 0 && !self.is_wakeable() {
            self.set_disabled();
            return Ok(());
        } else if current != 0 && current > max {
            to_bound(max, "Current number of replicas above Spec.MaxReplicas")
        } else if current != 0 && current < min {
            to_bound(min, "Current number of replicas below Spec.MinReplicas")
        } else {
            self.measure(&scale, cluster).await?
        };
        self.apply(plan, cluster).await
    }

    /// Reports whether this controller may wake a target at zero.
    fn is_wakeable(&self) -> bool {
        let spec = self.autoscaler.spec;
        self.has_scaled_to_zero() && (min_replicas(spec) != 0 || has_pod_independent_metric(spec))
    }

    /// Ends the reconcile of a target at zero that this controller may not wake.
    fn set_disabled(&mut self) {
        let message = "scaling is disabled since the replica count of the target is zero";
        self.set(SCALING_ACTIVE, false, "ScalingDisabled", message);
        if !self.gates.scale_to_zero {
            self.remove_scaled_to_zero();
        }
        self.set_numbers(0, 0, Vec::new());
        self.conclusion.desired_replicas = Some(0);
    }

    fn set(&mut self, kind: &str, is_true: bool, reason: &str, message: impl Into<String>) {
        status::set(&mut self.status, kind, is_true, reason, message.into(), self.now);
    }

    /// Returns the target for error texts.
    fn reference(&self) -> String {
        let target = &self.autoscaler.spec.scale_target_ref;
        format!("{}/{}/{}", target.kind, self.autoscaler.namespace, target.name)
    }

    fn rules(&self) -> Option<Rules> {
        let behavior = self.autoscaler.spec.behavior.as_ref();
        behavior.map(|behavior| Rules::from_behavior(behavior, self.options.downscale_stabilization))
    }

    /// Reports whether this controller scaled to zero, according to the stored status.
    fn has_scaled_to_zero(&self) -> bool {
        self.gates.scale_to_zero && status::is_true(self.autoscaler.status, SCALED_TO_ZERO)
    }

    fn remove_scaled_to_zero(&mut self) {
        if let Some(list) = &mut self.status.conditions {
            list.retain(|condition| condition.type_ != SCALED_TO_ZERO);
        }
    }

    fn set_numbers(&mut self, current: i32, desired: i32, metrics: Vec<MetricStatus>) {
        self.status.current_replicas = Some(current);
        self.status.desired_replicas = desired;
        self.status.current_metrics = Some(metrics).filter(|metrics| !metrics.is_empty());
        self.status.observed_generation = None;
    }
}

#[cfg(test)]
mod tests;
