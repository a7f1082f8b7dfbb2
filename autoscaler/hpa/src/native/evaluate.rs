//! Runs one reconcile of one autoscaler: carries out the steps of the rules until there is a result.
//!
//! The steps are those of [`hpa_core::reconcile`]. The caller writes the status, and concludes the [`Finish`] with the
//! result of that write.
//!
//! # Cancel safety
//!
//! A reconcile that is dropped midway may or may not have written the scale. Its memory keeps the recommendation and
//! may lack the change. The next reconcile reads the scale anew.

use super::controller::Controller;
use crate::pods;
use crate::sources::ScaleObject;
use common::RevisionKey as Key;
use common::time::Timestamp;
use common_controller::{WRITE_TIMEOUT, WriteError};
use hpa_core::memory::Memory;
use hpa_core::reconcile::{Autoscaler, Finish, Step, WriteResult, WriteScale, start};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Completed reconcile whose status is not written yet.
#[derive(Debug)]
pub(super) struct EvaluationOutcome {
    /// End of the reconcile: write its status, if there is one, then conclude.
    pub(super) finish: Finish,
    /// Replicas of the target, if they could be read.
    pub(super) current: Option<i32>,
    /// Time taken to read each metric of the spec, in order; empty if the metrics were not evaluated.
    pub(super) measured: Vec<Duration>,
}

impl Controller {
    /// Evaluates one autoscaler at `now`, and writes its target's scale if the rules require it.
    pub(super) async fn evaluate(
        &self,
        key: &Key,
        autoscaler: Autoscaler<'_>,
        memory: &mut Memory,
        now: Timestamp,
    ) -> EvaluationOutcome {
        let namespace = key.namespace();
        let rules = self.wiring.options.rules();
        let mut step = start(autoscaler, &rules, self.wiring.options.gates, memory, now);
        let (mut scale, mut measured): (Option<ScaleObject>, _) = (None, Vec::new());
        let mut current = None;
        loop {
            step = match step {
                Step::ReadScale(ask) => {
                    let read = self.scales.read(namespace, ask.target()).await;
                    scale = read.as_ref().ok().cloned();
                    current = scale.as_ref().map(|object| object.scale.spec_replicas);
                    ask.resume(read.map(|object| object.scale))
                }
                Step::SelectPods(ask) => {
                    let pods = pods::select(&self.pods, namespace, ask.selector());
                    ask.resume(pods, &mut self.selectors.lock())
                }
                Step::Measure(ask) => {
                    let readings = self.metrics.readings(namespace, &ask.requests()).await;
                    let (readings, times): (Vec<_>, _) = readings.into_iter().unzip();
                    measured = times;
                    ask.resume(&readings)
                }
                Step::WriteScale(ask) => {
                    let result = match &mut scale {
                        Some(scale) => self.write_scale(key, scale, &ask).await,
                        None => WriteResult::Failed("the scale was not read".to_owned()), // The rules read it first.
                    };
                    ask.resume(result)
                }
                Step::Finish(finish) => return EvaluationOutcome { finish, current, measured },
            };
        }
    }

    /// Makes one attempt to write the scale, which is given up before the lease ends. Further attempts start from the
    /// present scale, or from the old one if the read fails.
    async fn write_scale(&self, key: &Key, scale: &mut ScaleObject, ask: &WriteScale<'_>) -> WriteResult {
        if ask.attempt() > 1 {
            sleep(WriteScale::PAUSE.mul_f64(rand::random_range(1.0..1.1))).await;
            match self.scales.again(scale).await {
                Ok(newer) => *scale = newer,
                Err(error) => tracing::debug!(%error, "the scale could not be read again"),
            }
        }
        let Some(guard) = self.wiring.leadership.begin_write(key) else {
            return WriteResult::Failed(WriteError::LeaseEnds.to_string());
        };
        let left = guard.deadline().map_or(WRITE_TIMEOUT, |deadline| deadline - Instant::now());
        let result = self.scales.write(scale, ask.replicas(), left.min(WRITE_TIMEOUT)).await;
        // A failure may be a missing response.
        if !matches!(result, WriteResult::Failed(_)) {
            guard.answered();
        }
        result
    }
}

#[cfg(test)]
mod tests;
