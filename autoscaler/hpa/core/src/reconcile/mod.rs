//! One reconciliation of one autoscaler, as a state machine that requests its inputs.
//!
//! ```text
//! start ─▶ ReadScale ─▶ SelectPods ─▶ Measure ─▶ WriteScale ⟲ ─▶ Finish
//!    │         │ └── outside the bounds ────────▶    ▲             ▲
//!    └─────────┴── malformed, unreadable, disabled, no metrics ────┘
//! ```
//!
//! The shell carries out each [`Step`] until there is a [`Finish`]. It then writes the status if there is one, and
//! [concludes](Finish::conclude) with the result of that write. The time is constant within a reconcile.
//!
//! # Replicas
//!
//! Let `current` be the replicas in the scale's spec. The first matching row applies:
//!
//! | Case | Metrics | Replicas |
//! |---|---|---|
//! | 0, and not ours to wake | no | 0: scaling is disabled |
//! | above `maxReplicas` | no | `maxReplicas` |
//! | below `minReplicas`, and not 0 | no | `minReplicas` |
//! | any other | yes | the winning proposal, [stabilized](super::behavior) and limited |
//!
//! A target at zero is ours to wake under three conditions: the gate `HPAScaleToZero` is on, this controller scaled the
//! target to zero (the stored ScaledToZero condition), and either a metric needs no pods or `minReplicas` is now above
//! 0.
//!
//! # Effects of a failure
//!
//! The recommendation and the conditions are recorded before the scale is written. A failed write keeps the old desired
//! replicas in the status. An unreadable scale keeps the whole status except its condition. A change of the scale is
//! recorded only after a successful write, also if the bounds caused it.

mod finish;
mod measuring;
mod reading;
mod writing;

use common::time::Timestamp;

pub use finish::{Action, Conclusion, ErrorLabel, Finish, MetricRun};
pub use measuring::{Measure, SelectPods};
pub use reading::{ReadScale, Scale, ScaleError};
pub use writing::{WriteResult, WriteScale};

use super::behavior::Rules;
use super::memory::Memory;
use super::options::{Gates, Options};
use super::status::{self, Event, SCALED_TO_ZERO};
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus, MetricStatus};

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

/// Next step of a reconcile.
#[derive(Debug)]
pub enum Step<'a> {
    /// Read the target's scale.
    ReadScale(ReadScale<'a>),
    /// List the pods that the scale's selector matches.
    SelectPods(SelectPods<'a>),
    /// Query the metrics APIs.
    Measure(Measure<'a>),
    /// Write the target's scale.
    WriteScale(WriteScale<'a>),
    /// Write the status.
    Finish(Finish),
}

/// Begins a reconcile.
pub fn start<'a>(
    autoscaler: Autoscaler<'a>,
    options: &'a Options,
    gates: Gates,
    memory: &'a mut Memory,
    now: Timestamp,
) -> Step<'a> {
    let status = autoscaler.status.clone();
    let pass = Pass { autoscaler, options, gates, memory, now, status, events: Vec::new(), runs: Vec::new() };
    reading::begin(pass)
}

/// State shared by all steps of a reconcile.
#[derive(Debug)]
struct Pass<'a> {
    autoscaler: Autoscaler<'a>,
    options: &'a Options,
    gates: Gates,
    memory: &'a mut Memory,
    now: Timestamp,
    /// Status to write.
    status: HorizontalPodAutoscalerStatus,
    events: Vec<Event>,
    runs: Vec<MetricRun>,
}

impl Pass<'_> {
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
    fn is_ours_at_zero(&self) -> bool {
        self.gates.scale_to_zero && status::is_true(self.autoscaler.status, SCALED_TO_ZERO)
    }

    /// Removes the ScaledToZero condition.
    fn forget_zero(&mut self) {
        if let Some(list) = &mut self.status.conditions {
            list.retain(|condition| condition.type_ != SCALED_TO_ZERO);
        }
    }

    /// Sets the numbers of a rebuilt status.
    fn report(&mut self, current: i32, desired: i32, metrics: Vec<MetricStatus>) {
        self.status.current_replicas = Some(current);
        self.status.desired_replicas = desired;
        self.status.current_metrics = Some(metrics).filter(|metrics| !metrics.is_empty());
        self.status.observed_generation = None;
    }
}

#[cfg(test)]
mod tests;
