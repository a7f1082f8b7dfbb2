//! Runs one reconcile of one autoscaler: carries out the steps of the rules until there is a result.
//!
//! The steps are those of [`hpa_core::reconcile`]. The caller writes the status, and concludes the [`Finish`] with the
//! result of that write.
//!
//! # Cancel safety
//!
//! A reconcile that is dropped midway may or may not have written the scale. Its memory keeps the recommendation and
//! may lack the change. The next reconcile reads the scale anew.

use super::sources::{ScaleObject, Sources, readings};
use common::time::Timestamp;
use hpa_core::memory::Memory;
use hpa_core::options::{Gates, Options};
use hpa_core::reconcile::{Autoscaler, Finish, Step, WriteResult, WriteScale, start};
use hpa_core::selectors::Selectors;
use parking_lot::Mutex;
use std::time::Duration;

/// Rules of a reconcile, apart from its object.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Options of the controller.
    pub options: &'a Options,
    /// Feature gates of the controller.
    pub gates: Gates,
    /// Selectors of all autoscalers that could act on the same pods. The evaluated autoscaler should be
    /// [registered](Selectors::register).
    pub selectors: &'a Mutex<Selectors>,
}

/// Completed reconcile whose status is not written yet.
#[derive(Debug)]
pub struct Outcome {
    /// End of the reconcile: write its status, if there is one, then conclude.
    pub finish: Finish,
    /// Replicas of the target, if they could be read.
    pub current: Option<i32>,
    /// Time taken to read each metric of the spec, in order; empty if the metrics were not evaluated.
    pub measured: Vec<Duration>,
}

/// Evaluates one autoscaler at `now`, and writes its target's scale if the rules require it.
pub async fn evaluate(
    autoscaler: Autoscaler<'_>,
    rules: Rules<'_>,
    memory: &mut Memory,
    now: Timestamp,
    sources: Sources<'_>,
) -> Outcome {
    let namespace = autoscaler.namespace;
    let mut step = start(autoscaler, rules.options, rules.gates, memory, now);
    let (mut scale, mut current, mut measured): (Option<ScaleObject>, _, _) = (None, None, Vec::new());
    loop {
        step = match step {
            Step::ReadScale(ask) => {
                let answer = sources.scales.read(namespace, ask.target()).await;
                scale = answer.as_ref().ok().cloned();
                current = scale.as_ref().map(|object| object.scale.spec_replicas);
                ask.answered(answer.map(|object| object.scale))
            }
            Step::SelectPods(ask) => {
                let pods = sources.pods.select(namespace, ask.selector());
                ask.answered_locking(pods, || rules.selectors.lock())
            }
            Step::Measure(ask) => {
                let answers = readings(sources.metrics, namespace, &ask.requests()).await;
                let (answers, times): (Vec<_>, _) = answers.into_iter().unzip();
                measured = times;
                ask.answered(&answers)
            }
            Step::WriteScale(ask) => {
                let result = match &mut scale {
                    Some(scale) => write(sources, scale, &ask).await,
                    None => WriteResult::Failed("the scale was not read".to_owned()), // The rules read the scale first.
                };
                ask.answered(result)
            }
            Step::Finish(finish) => return Outcome { finish, current, measured },
        };
    }
}

/// Makes one attempt to write the scale. Further attempts start from the present scale, or from the old one if the read
/// fails.
async fn write(sources: Sources<'_>, scale: &mut ScaleObject, ask: &WriteScale<'_>) -> WriteResult {
    if ask.attempt() > 1 {
        tokio::time::sleep(WriteScale::PAUSE.mul_f64(rand::random_range(1.0..1.1))).await;
        match sources.scales.again(scale).await {
            Ok(newer) => *scale = newer,
            Err(error) => tracing::debug!(%error, "the scale could not be read again"),
        }
    }
    sources.scales.write(scale, ask.replicas()).await
}

#[cfg(test)]
mod tests;
