//! Combines the scale that the load requires with the scale that metrics require.
//!
//! | Replicas | Case | Desired |
//! |---|---|---|
//! | 0 | any | as the load requires: the first request wakes, whatever the metrics |
//! | some | all is known | the largest result, limited by the behavior |
//! | | a metric failed, or was not measured yet | the same, but no fewer than there are: neither down nor to zero |
//! | | the load is not known yet | as the metrics require, if that is more than there are; otherwise unknown |
//! | | the load requires none, and the result is 1 | 0: only the load decides on the last pod |
//!
//! A metric never asks for zero and never prevents it. An idle processor does not prove that there are no requests, and
//! a busy one does not prove that there are any. A metric may ask for more than one pod without any load, for example
//! to work off a queue. The rest of the way to zero (windows, proof, grace) is [`crate::scale_to_zero`], as for any
//! revision.
//!
//! # Behavior
//!
//! A behavior in the PodAutoscaler applies to all results together: stabilization windows and policies apply to the
//! largest one. Without a behavior the load keeps its own pace (its windows, panic mode and rates). The metrics then
//! have the default behavior of `autoscaling/v2`: up at once, by 4 pods or 100 % in 15 s; down to the highest result of
//! five minutes. The older rules of the Kubernetes controller for objects without a behavior are not used. They limit
//! the change per evaluation, and evaluations here have no fixed interval but follow each change.
//!
//! The memory of a behavior starts with the replicas that are found, and restarts with each scale from zero. A lower
//! recommendation is not recorded if a metric failed or the load is unknown.

use std::sync::Arc;
use std::time::Duration;

use common::scaling::Bounds;
use common::time::Timestamp;
use hpa_core::behavior::{self, Rules};
use hpa_core::combine::{Combined, CombinedOutcome};
use hpa_core::decision::{Demand, Limit, Stabilization};
use hpa_core::memory::Memory;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerBehavior as Behavior;
use serde::{Serialize, Serializer};

/// Time for which the highest recommendation holds if a behavior does not specify it; the default of Kubernetes.
pub const DOWNSCALE_STABILIZATION: Duration = Duration::from_secs(300);

/// Result of one measurement of the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Largest result and the metric it comes from; `None` if there is none, or too little is known.
    pub proposal: Option<(i32, Arc<str>)>,
    /// Number of metrics that failed.
    pub failed: u16,
    /// Reason and message of the first failure.
    pub first_failure: Option<(&'static str, String)>,
}

impl Measured {
    /// Converts the result of combined metrics.
    pub fn from_combined(combined: &Combined) -> Self {
        let proposal = match &combined.outcome {
            CombinedOutcome::Proposed { replicas, metric } => Some((*replicas, Arc::from(metric.as_str()))),
            CombinedOutcome::NoMetrics | CombinedOutcome::Failed => None,
        };
        let first_failure = combined.failures.first().map(|failure| (failure.reason, failure.inner.clone()));
        Self { proposal, failed: u16::try_from(combined.failures.len()).unwrap_or(u16::MAX), first_failure }
    }
}

/// Input of [`Blend::combine`].
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Wall-clock time.
    pub now: Timestamp,
    /// Current replicas of the target.
    pub current: i32,
    /// Limits.
    pub bounds: Bounds,
    /// Result of the decider; `None` if not known yet.
    pub load: Option<i32>,
    /// Name of the load metric.
    pub load_name: &'a str,
    /// Latest measurement of the metrics; `None` before the first.
    pub measured: Option<&'a Measured>,
    /// Requested behavior.
    pub behavior: Option<&'a Behavior>,
}

/// Desired scale, with its reasons. All scales from one metric share its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlendedScale {
    /// Name of the metric or load that asked for the most pods.
    #[serde(serialize_with = "text")]
    pub metric: Arc<str>,
    /// Number of pods that it asked for.
    pub asked: i32,
    /// Number of pods before bounds are applied; `None` if unknown.
    pub desired: Option<i32>,
    /// Number of metrics that failed.
    pub failing: u16,
    /// True if fewer pods were asked for, and that is not trusted.
    pub held: bool,
    /// Effect of the stabilization windows.
    #[serde(serialize_with = "stabilization")]
    pub stabilization: Stabilization,
    /// Limit that was applied.
    #[serde(serialize_with = "limit")]
    pub limit: Limit,
    /// True if a metric asked for the most pods, not the load.
    #[serde(skip)]
    pub measured: bool,
}

impl BlendedScale {
    /// Returns true if `next` has the same effect, whatever number of pods was asked for.
    pub(crate) fn is_confirmed_by(&self, next: &Self) -> bool {
        let essence = |a: &Self| (a.desired, a.failing > 0, a.held, a.stabilization, a.limit);
        essence(self) == essence(next) && self.metric == next.metric
    }
}

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

fn stabilization<S: Serializer>(value: &Stabilization, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(value.reason_and_message().0)
}

fn limit<S: Serializer>(value: &Limit, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(value.reason_and_message().0)
}

/// Memory of one revision.
#[derive(Clone, Debug, Default)]
pub struct Blend {
    memory: Memory,
}

impl Blend {
    /// Combines all results into one desired scale.
    pub fn combine(&mut self, input: &Input<'_>) -> BlendedScale {
        let Input { now, current, .. } = *input;
        let load = input.load;
        let mut blended = BlendedScale {
            desired: load,
            metric: Arc::from(input.load_name),
            asked: load.unwrap_or(0),
            failing: input.measured.map_or(0, |measured| measured.failed),
            ..BlendedScale::default()
        };
        if current <= 0 {
            self.memory = Memory::default();
            return blended;
        }
        self.memory.seed(current, now);
        let proposal = input.measured.and_then(|measured| measured.proposal.as_ref());
        if let Some((pods, metric)) = proposal.filter(|(pods, _)| (*pods).max(1) > blended.asked) {
            (blended.asked, blended.metric, blended.measured) = ((*pods).max(1), metric.clone(), true);
        }
        let doubtful = blended.failing > 0 || input.measured.is_none();
        let requested = blended.asked.max(1);
        let pods = match (input.behavior, proposal) {
            _ if requested < current && (doubtful || load.is_none()) => current,
            (Some(behavior), _) => self.apply_behavior(behavior, requested, input, &mut blended),
            (None, Some((pods, _))) => {
                self.apply_behavior(&Behavior::default(), (*pods).max(1), input, &mut blended).max(load.unwrap_or(0))
            }
            (None, None) => requested,
        };
        blended.held = doubtful && blended.asked < current;
        blended.desired = match load {
            None => (pods > current).then_some(pods),
            Some(0) if pods <= 1 && !doubtful => Some(0),
            Some(_) => Some(pods),
        };
        blended
    }

    /// Records a change of replicas that the API server has accepted.
    pub fn scaled(&mut self, behavior: Option<&Behavior>, from: i32, to: i32, at: Timestamp) {
        if from > 0 {
            let rules = rules(behavior.unwrap_or(&Behavior::default()));
            behavior::record_change(&mut self.memory, Some(&rules), from, to, at);
        }
    }

    fn apply_behavior(
        &mut self,
        behavior: &Behavior,
        proposed: i32,
        input: &Input<'_>,
        blended: &mut BlendedScale,
    ) -> i32 {
        let (min, max) = (input.bounds.min.max(1), input.bounds.max.unwrap_or(i32::MAX));
        let demand = Demand { current: input.current, proposed, min, max };
        let decision = rules(behavior).decide(&mut self.memory, &demand, input.now);
        (blended.stabilization, blended.limit) = (decision.stabilization, decision.limit);
        decision.replicas
    }
}

fn rules(behavior: &Behavior) -> Rules {
    Rules::from_behavior(behavior, DOWNSCALE_STABILIZATION)
}

#[cfg(test)]
mod tests;
