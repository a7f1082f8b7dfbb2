//! Combines all metrics of a spec.
//!
//! Every metric is evaluated. The largest proposal wins, and the earlier one among equals. As upstream, any later
//! proposal replaces a leading proposal of 0. If some metrics fail, the others may scale up or hold the scale. If they
//! would scale down, all metrics count as failed, with the reason of the first failure.

use super::measure::{Failure, MetricInputs, Proposal, measure};
use super::request::Reading;
use k8s_openapi::api::autoscaling::v2::{MetricSpec, MetricStatus};

/// Combined result of a spec's metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Combined {
    /// Winning proposal, if there is one.
    pub outcome: CombinedOutcome,
    /// Status of each metric.
    pub statuses: Vec<MetricStatus>,
    /// All failures, in order.
    pub failures: Vec<Failure>,
    /// Proposal of each metric; `None` if it failed.
    pub proposals: Vec<Option<i32>>,
}

/// Result of the combination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CombinedOutcome {
    /// Some metric won.
    Proposed {
        /// Proposed replicas.
        replicas: i32,
        /// Name of the winning metric.
        metric: String,
    },
    /// There are no metrics, which defaulting prevents. Counts as a proposal of 0.
    NoMetrics,
    /// Too many metrics failed.
    Failed,
}

impl Combined {
    /// Returns the error text about the failures, if there are any.
    pub fn error(&self) -> Option<String> {
        let (first, failed, all) = (self.failures.first()?, self.failures.len(), self.proposals.len());
        Some(format!("invalid metrics ({failed} invalid out of {all}), first error is: {}", first.outer))
    }
}

/// Evaluates all metrics and picks the winner. A metric without a reading was not requested.
pub fn combine(inputs: &MetricInputs<'_>, metrics: &[MetricSpec], readings: &[Reading]) -> Combined {
    let (mut statuses, mut failures, mut proposals) = (Vec::new(), Vec::new(), Vec::new());
    let mut best: Option<(i32, String)> = None;
    for (i, metric) in metrics.iter().enumerate() {
        match measure(inputs, metric, readings.get(i).unwrap_or(&Reading::None)) {
            Ok(Proposal { replicas, name, status }) => {
                statuses.push(status);
                proposals.push(Some(replicas));
                if best.as_ref().is_none_or(|(most, _)| *most == 0 || replicas > *most) {
                    best = Some((replicas, name));
                }
            }
            Err(failure) => {
                statuses.push(MetricStatus::default());
                proposals.push(None);
                failures.push(failure);
            }
        }
    }
    let partly = !failures.is_empty();
    let outcome = match best {
        Some((replicas, _)) if partly && replicas < inputs.spec_replicas => CombinedOutcome::Failed,
        Some((replicas, metric)) => CombinedOutcome::Proposed { replicas, metric },
        None if metrics.is_empty() => CombinedOutcome::NoMetrics,
        None => CombinedOutcome::Failed,
    };
    Combined { outcome, statuses, failures, proposals }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::tests::inputs;
    use crate::tests::scenario::{bogus, external};
    use crate::tolerance::Tolerances;

    /// Combines external metrics, each with a target average of 1 and this total in thousandths; `None`: its API fails.
    fn combined(replicas: i32, totals: &[Option<i64>]) -> Combined {
        let options = Options::default();
        let inputs = inputs(&options, replicas, Tolerances { up: 0.0, down: 0.0 }, &[]);
        let metric = |i: usize| {
            let mut metric = external(0, 1_000);
            metric.external.as_mut().expect("an external metric").metric.name = format!("m{i}");
            metric
        };
        let metrics: Vec<_> = (0..totals.len()).map(metric).collect();
        let reading =
            |total: &Option<i64>| total.map_or(Reading::Failed("down".into()), |total| Reading::External(vec![total]));
        combine(&inputs, &metrics, &totals.iter().map(reading).collect::<Vec<_>>())
    }

    fn proposed(replicas: i32, metric: &str) -> CombinedOutcome {
        CombinedOutcome::Proposed { replicas, metric: format!("external metric {metric}(nil)") }
    }

    #[test]
    fn the_largest_proposal_wins_and_a_failure_blocks_scaling_down() {
        let (none, two, four) = (Some(0), Some(2_000), Some(4_000));
        for (replicas, totals, outcome) in [
            (3, &[two, four][..], proposed(4, "m1")),
            (3, &[four, two], proposed(4, "m0")),
            (3, &[two, two], proposed(2, "m0")), // The earlier one among equals.
            (3, &[none, two], proposed(2, "m1")),
            (3, &[none, none], proposed(0, "m1")), // No proposal is above 0, so the last one wins.
            (3, &[two, None], CombinedOutcome::Failed),
            (3, &[None, four], proposed(4, "m1")),
            (2, &[None, two], proposed(2, "m1")), // Neither up nor down, so it is accepted.
            (3, &[None, None], CombinedOutcome::Failed),
            (3, &[], CombinedOutcome::NoMetrics),
        ] {
            let combined = combined(replicas, totals);
            assert_eq!(combined.outcome, outcome, "{totals:?} at {replicas}");
            let replicas = |total: &Option<i64>| total.map(|total| (total / 1_000) as i32);
            assert_eq!(combined.proposals, totals.iter().map(replicas).collect::<Vec<_>>());
            assert_eq!(combined.failures.len(), totals.iter().filter(|total| total.is_none()).count());
            assert_eq!(combined.statuses.len(), totals.len());
        }
    }

    #[test]
    fn the_error_counts_the_failures_and_quotes_the_first() {
        assert_eq!(combined(3, &[Some(1_000)]).error(), None);
        let error = combined(3, &[None, Some(9_000), None]).error().expect("two failures");
        assert!(
            error.starts_with("invalid metrics (2 invalid out of 3), first error is: failed to get m0 "),
            "{error}"
        );
        let options = Options::default();
        let inputs = inputs(&options, 1, Tolerances { up: 0.0, down: 0.0 }, &[]);
        let error = combine(&inputs, &[bogus()], &[]).error();
        let text = "invalid metrics (1 invalid out of 1), first error is: unknown metric source type \"Bogus\"";
        assert_eq!(error.as_deref(), Some(text), "a metric without a reading was not requested");
    }
}
