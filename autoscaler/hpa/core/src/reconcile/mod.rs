//! One reconciliation of one autoscaler, as a state machine that asks for what it needs.
//!
//! ```text
//! start ─▶ ReadScale ─▶ SelectPods ─▶ Measure ─▶ WriteScale ⟲ ─▶ Finish
//!    │         │ └── outside the bounds ────────▶    ▲             ▲
//!    └─────────┴── malformed, unreadable, disabled, no metrics ────┘
//! ```
//!
//! The shell answers each [`Step`] until there is a [`Finish`], writes its status if there is one, and
//! [concludes](Finish::conclude) with how that went. Time stands still within a pass.
//!
//! # Which replicas
//!
//! With `current` the replicas of the scale's spec, the first row that fits:
//!
//! | Case | Metrics | Replicas |
//! |---|---|---|
//! | 0, and not ours to wake | no | 0: scaling is disabled |
//! | above `maxReplicas` | no | `maxReplicas` |
//! | below `minReplicas`, and not 0 | no | `minReplicas` |
//! | any other | yes | the winner's, [stabilized](super::behavior) and limited |
//!
//! Zero is ours to wake with the gate `HPAScaleToZero`, if this controller put the target there (the ScaledToZero
//! condition that is stored) and either a metric does without pods or `minReplicas` is above 0 by now.
//!
//! # What survives a failure
//!
//! The recommendation is remembered, and conditions are set, before the scale is written. A failed write keeps the old
//! desired replicas in the status; an unreadable scale keeps everything but its condition. A scale event is remembered
//! only after a write that succeeded, for jumps into the bounds as well.

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
use super::condition::{self, ConditionType};
use super::memory::Memory;
use super::options::{Gates, Options};
use super::spec::Spec;
use super::status::{Event, MetricStatus, Status};

/// An autoscaler as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Autoscaler<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// What it should do, defaults filled in.
    pub spec: &'a Spec,
    /// What was last written.
    pub status: &'a Status,
}

/// What to do next.
#[derive(Debug)]
pub enum Step<'a> {
    /// Read the target's scale.
    ReadScale(ReadScale<'a>),
    /// List the pods that its selector finds.
    SelectPods(SelectPods<'a>),
    /// Ask the metrics APIs.
    Measure(Measure<'a>),
    /// Write the target's scale.
    WriteScale(WriteScale<'a>),
    /// Write the status.
    Finish(Finish),
}

/// Begins.
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

/// What all steps of a pass share.
#[derive(Debug)]
struct Pass<'a> {
    autoscaler: Autoscaler<'a>,
    options: &'a Options,
    gates: Gates,
    memory: &'a mut Memory,
    now: Timestamp,
    /// As it will be written.
    status: Status,
    events: Vec<Event>,
    runs: Vec<MetricRun>,
}

impl Pass<'_> {
    fn set(&mut self, kind: ConditionType, status: bool, reason: &str, message: impl Into<String>) {
        condition::set(&mut self.status.conditions, kind, status, reason, message.into(), self.now);
    }

    /// The target, for error texts.
    fn reference(&self) -> String {
        let target = &self.autoscaler.spec.scale_target;
        format!("{}/{}/{}", target.kind, self.autoscaler.namespace, target.name)
    }

    fn rules(&self) -> Option<Rules> {
        let behavior = self.autoscaler.spec.behavior.as_ref();
        behavior.map(|behavior| Rules::of(behavior, self.options.downscale_stabilization))
    }

    /// Whether this controller scaled to zero, as the stored status says.
    fn is_ours_at_zero(&self) -> bool {
        self.gates.scale_to_zero && condition::is_true(&self.autoscaler.status.conditions, &ConditionType::ScaledToZero)
    }

    /// Drops the ScaledToZero condition.
    fn forget_zero(&mut self) {
        self.status.conditions.retain(|condition| condition.kind != ConditionType::ScaledToZero);
    }

    /// The numbers of a status that is rebuilt.
    fn report(&mut self, current: i32, desired: i32, metrics: Vec<MetricStatus>) {
        self.status.current_replicas = current;
        self.status.desired_replicas = desired;
        self.status.current_metrics = metrics;
        self.status.observed_generation = None;
    }
}

#[cfg(test)]
mod tests;
