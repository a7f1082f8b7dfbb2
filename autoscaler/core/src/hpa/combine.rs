//! All metrics of a spec together.
//!
//! Every metric is tried. The largest proposal wins, the earlier one among equals; while none is above 0, the last.
//! If some fail, the others may scale up or hold, but not down: then all count as failed, for the reason of the first
//! that did.

use super::measure::{Failure, Proposal, Scene, measure};
use super::request::Reading;
use super::spec::MetricSpec;
use super::status::MetricStatus;

/// What a spec's metrics ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combined {
    /// The winner, or none.
    pub outcome: Outcome,
    /// One for each metric.
    pub statuses: Vec<MetricStatus>,
    /// Each that failed, in order.
    pub failures: Vec<Failure>,
    /// Each metric's proposal; none if it failed.
    pub proposals: Vec<Option<i32>>,
}

/// What came out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A metric won.
    Proposed {
        /// Replicas it asks for.
        replicas: i32,
        /// What it is called.
        metric: String,
    },
    /// There are no metrics, which defaulting prevents: taken for a proposal of 0.
    NoMetrics,
    /// Too many failed.
    Failed,
}

impl Combined {
    /// What to say of the failures, if there are any.
    pub fn error(&self) -> Option<String> {
        let (first, failed, all) = (self.failures.first()?, self.failures.len(), self.proposals.len());
        Some(format!("invalid metrics ({failed} invalid out of {all}), first error is: {}", first.outer))
    }
}

/// Measures all, and picks the winner. A metric without a reading was not asked.
pub fn combine(scene: &Scene<'_>, metrics: &[MetricSpec], readings: &[Reading]) -> Combined {
    let (mut statuses, mut failures, mut proposals) = (Vec::new(), Vec::new(), Vec::new());
    let mut best: Option<(i32, String)> = None;
    for (i, metric) in metrics.iter().enumerate() {
        match measure(scene, metric, readings.get(i).unwrap_or(&Reading::None)) {
            Ok(Proposal { replicas, name, status }) => {
                statuses.push(status);
                proposals.push(Some(replicas));
                if best.as_ref().is_none_or(|(most, _)| *most == 0 || replicas > *most) {
                    best = Some((replicas, name));
                }
            }
            Err(failure) => {
                statuses.push(MetricStatus::Failed);
                proposals.push(None);
                failures.push(failure);
            }
        }
    }
    let partly = !failures.is_empty();
    let outcome = match best {
        Some((replicas, _)) if partly && replicas < scene.spec_replicas => Outcome::Failed,
        Some((replicas, metric)) => Outcome::Proposed { replicas, metric },
        None if metrics.is_empty() => Outcome::NoMetrics,
        None => Outcome::Failed,
    };
    Combined { outcome, statuses, failures, proposals }
}
