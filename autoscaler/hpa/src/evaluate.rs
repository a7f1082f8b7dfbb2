//! One pass over one autoscaler: the rules ask, the sources answer, until there is something to conclude.
//!
//! What drives this is [`hpa_core::reconcile`]; here is all that it takes to answer it. The status is the
//! caller's to write, and the [`Finish`] to conclude with how that went.
//!
//! # Cancel safety
//!
//! A pass that is dropped half-way has written the scale or has not; its memory keeps the recommendation and may lack
//! the change. The next pass reads the scale anew.

use super::sources::{ScaleObject, Sources, readings};
use common::time::Timestamp;
use hpa_core::memory::Memory;
use hpa_core::options::{Gates, Options};
use hpa_core::reconcile::{Autoscaler, Finish, Step, WriteResult, WriteScale, start};
use hpa_core::selectors::Selectors;
use parking_lot::Mutex;
use std::time::Duration;

/// What governs a pass, apart from its object.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The controller's options.
    pub options: &'a Options,
    /// Its feature gates.
    pub gates: Gates,
    /// The selectors of all autoscalers that could act on the same pods. The one in hand should be
    /// [registered](Selectors::register).
    pub selectors: &'a Mutex<Selectors>,
}

/// A pass that has come to its end but for its status.
#[derive(Debug)]
pub struct Outcome {
    /// Write its status, if there is one, then conclude.
    pub finish: Finish,
    /// The replicas that the target had, if it could be read.
    pub current: Option<i32>,
    /// How long each metric of the spec took to read, in order; empty if metrics were not looked at.
    pub measured: Vec<Duration>,
}

/// Evaluates one autoscaler at `now`, writing its target's scale if the rules say so.
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
                    None => WriteResult::Failed("the scale was not read".to_owned()), // The rules read it first.
                };
                ask.answered(result)
            }
            Step::Finish(finish) => return Outcome { finish, current, measured },
        };
    }
}

/// One attempt; a further one starts from the scale as it is by then. If that cannot be read, from the old one.
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
