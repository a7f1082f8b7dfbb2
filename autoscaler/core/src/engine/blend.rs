//! One wish of all answers: what the load asks for and what the metrics ask for.
//!
//! | Replicas | Case | Wish |
//! |---|---|---|
//! | 0 | any | the load's: the first request wakes, whatever the metrics |
//! | some | all is known | the largest answer, through the behavior |
//! | | a metric failed, or none was taken yet | the same, but never fewer than there are: neither down nor to zero |
//! | | the load is not known yet | the metrics', if that is more than there are; else unknown |
//! | | the load asks for none, and the answer is 1 | 0: the last pod is the load's to let go |
//!
//! A metric never asks for zero, nor against it: an idle processor does not prove that nobody calls, and a busy one
//! does not call. More than one pod it may ask for without any load (a queue is worked off). What follows on the way to
//! zero (windows, proof, grace) is [`crate::scale_to_zero`], as for any revision.
//!
//! # Behavior
//!
//! A behavior that the PodAutoscaler states governs the answers together: stabilization windows and policies apply to
//! the largest. Without one the load keeps its own pace (its windows, panic and rates), and the metrics have the one
//! that `autoscaling/v2` fills in: up at once, by 4 pods or 100 % in 15 s; down to the highest of five minutes. The
//! controller's older rules for objects without a behavior are not used: they limit what one look may add, and looks
//! are not paced here but come whenever something changes.
//!
//! The memory of a behavior begins with the replicas that are found, and anew with each wake from zero. After a failed
//! look nothing is remembered.

use std::sync::Arc;
use std::time::Duration;

use common::scaling::Bounds;
use common::time::Timestamp;
use hpa_core::behavior::{self, Rules};
use hpa_core::combine::{Combined, Outcome};
use hpa_core::decision::{Demand, Limit, Stabilization};
use hpa_core::memory::Memory;
use hpa_core::spec::Behavior;

/// How long the highest recommendation holds, if a behavior does not say; upstream's.
pub const DOWNSCALE_STABILIZATION: Duration = Duration::from_secs(300);

/// What one look at the metrics found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// The largest answer and the metric it comes from; none if there is none, or too little is known.
    pub wish: Option<(i32, Arc<str>)>,
    /// Metrics that failed.
    pub failed: u16,
    /// Reason and words of the first failure.
    pub why: Option<(&'static str, String)>,
}

impl Measured {
    /// Of metrics that were combined.
    pub fn of(combined: &Combined) -> Self {
        let wish = match &combined.outcome {
            Outcome::Proposed { replicas, metric } => Some((*replicas, Arc::from(metric.as_str()))),
            Outcome::NoMetrics | Outcome::Failed => None,
        };
        let why = combined.failures.first().map(|failure| (failure.reason, failure.inner.clone()));
        Self { wish, failed: u16::try_from(combined.failures.len()).unwrap_or(u16::MAX), why }
    }
}

/// What is known at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The wall clock.
    pub now: Timestamp,
    /// Replicas of the target.
    pub current: i32,
    /// Limits.
    pub bounds: Bounds,
    /// The decider's answer; none: not known yet.
    pub load: Option<i32>,
    /// What the load is called.
    pub load_name: &'a str,
    /// The latest look at the metrics; none before the first.
    pub measured: Option<&'a Measured>,
    /// The behavior that was asked for.
    pub behavior: Option<&'a Behavior>,
}

/// A wish, and how it came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Pods, bounds not applied; none: unknown.
    pub desired: Option<i32>,
    /// What asked for the most.
    pub metric: Arc<str>,
    /// Whether that was a metric, not the load.
    pub measured: bool,
    /// How many pods it asked for.
    pub asked: i32,
    /// Metrics that failed.
    pub failing: u16,
    /// Fewer were asked for, and that is not believed.
    pub held: bool,
    /// What stabilization did.
    pub stabilization: Stabilization,
    /// What limited it.
    pub limit: Limit,
}

/// What is remembered of one revision.
#[derive(Clone, Debug, Default)]
pub struct Blend {
    memory: Memory,
}

impl Blend {
    /// One wish of all answers.
    pub fn answer(&mut self, input: &Input<'_>) -> Answer {
        let Input { now, current, .. } = *input;
        let load = input.load;
        let mut answer = Answer {
            desired: load,
            metric: Arc::from(input.load_name),
            measured: false,
            asked: load.unwrap_or(0),
            failing: input.measured.map_or(0, |measured| measured.failed),
            held: false,
            stabilization: Stabilization::Ready,
            limit: Limit::WithinRange,
        };
        if current <= 0 {
            self.memory = Memory::default();
            return answer;
        }
        self.memory.seed(current, now);
        let wish = input.measured.and_then(|measured| measured.wish.as_ref());
        if let Some((pods, metric)) = wish.filter(|(pods, _)| (*pods).max(1) > answer.asked) {
            (answer.asked, answer.metric, answer.measured) = ((*pods).max(1), metric.clone(), true);
        }
        let doubtful = answer.failing > 0 || input.measured.is_none();
        let asked = answer.asked.max(1);
        let pods = match (input.behavior, wish) {
            _ if asked < current && (doubtful || load.is_none()) => current,
            (Some(behavior), _) => self.behave(behavior, asked, input, &mut answer),
            (None, Some((pods, _))) => {
                self.behave(&Behavior::default(), (*pods).max(1), input, &mut answer).max(load.unwrap_or(0))
            }
            (None, None) => asked,
        };
        answer.held = doubtful && answer.asked < current;
        answer.desired = match load {
            None => (pods > current).then_some(pods),
            Some(0) if pods <= 1 && !doubtful => Some(0),
            Some(_) => Some(pods),
        };
        answer
    }

    /// Replicas were changed, and the API server has agreed.
    pub fn scaled(&mut self, behavior: Option<&Behavior>, from: i32, to: i32, at: Timestamp) {
        if from > 0 {
            let rules = rules(behavior.unwrap_or(&Behavior::default()));
            behavior::remember(&mut self.memory, Some(&rules), from, to, at);
        }
    }

    fn behave(&mut self, behavior: &Behavior, proposed: i32, input: &Input<'_>, answer: &mut Answer) -> i32 {
        let (min, max) = (input.bounds.min.max(1), input.bounds.max.unwrap_or(i32::MAX));
        let demand = Demand { current: input.current, proposed, min, max };
        let decision = rules(behavior).decide(&mut self.memory, &demand, input.now);
        (answer.stabilization, answer.limit) = (decision.stabilization, decision.limit);
        decision.replicas
    }
}

fn rules(behavior: &Behavior) -> Rules {
    Rules::of(behavior, DOWNSCALE_STABILIZATION)
}

#[cfg(test)]
#[path = "blend_tests.rs"]
mod tests;
