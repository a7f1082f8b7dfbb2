//! Runs one reconcile of one autoscaler: gives the rules of [`hpa_core::reconcile`] access to the cluster.
//!
//! The caller writes the status, and concludes the [`Finish`] with the result of that write.

use super::controller::Controller;
use crate::sources::ScaleObject;
use common::RevisionKey as Key;
use common::labels::Selector;
use common::time::Timestamp;
use common_controller::{WRITE_TIMEOUT, WriteError};
use hpa_core::memory::Memory;
use hpa_core::pod::Pod;
use hpa_core::reconcile::{Autoscaler, CONFLICT_PAUSE, Cluster, Finish, Scale, ScaleError, WriteResult, reconcile};
use hpa_core::request::{Reading, Request};
use hpa_core::selectors::Selectors;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use std::time::Duration;
use tokio::time::{Instant, sleep};

impl Controller {
    /// Evaluates one autoscaler at `now`, and writes its target's scale if the rules require it.
    pub(super) async fn evaluate<'a>(
        &'a self,
        key: &'a Key,
        autoscaler: Autoscaler<'_>,
        memory: &mut Memory,
        now: Timestamp,
    ) -> (Finish, Target<'a>) {
        let mut target = Target { controller: self, key, scale: None, current: None, measured: Vec::new() };
        let options = &self.wiring.options;
        let finish = reconcile(autoscaler, &options.rules(), options.gates, memory, now, &mut target).await;
        (finish, target)
    }
}

/// Target of one reconcile.
pub(super) struct Target<'a> {
    controller: &'a Controller,
    key: &'a Key,
    /// Scale as it was last read.
    scale: Option<ScaleObject>,
    /// Replicas of the target, if they could be read.
    pub(super) current: Option<i32>,
    /// Time taken to read each metric of the spec, in order; empty if the metrics were not evaluated.
    pub(super) measured: Vec<Duration>,
}

impl Cluster for Target<'_> {
    async fn read_scale(&mut self, target: &CrossVersionObjectReference) -> Result<Scale, ScaleError> {
        let read = self.controller.scales.read(self.key.namespace(), target).await?;
        let scale = read.scale.clone();
        (self.scale, self.current) = (Some(read), Some(scale.spec_replicas));
        Ok(scale)
    }

    fn pods(&mut self, selector: &Selector) -> Vec<Pod> {
        let pods = self.controller.pods.within(self.key.namespace());
        pods.iter().filter(|pod| selector.matches(&pod.labels)).map(|pod| Pod::clone(pod)).collect()
    }

    fn selectors<T>(&mut self, with: impl FnOnce(&mut Selectors) -> T) -> T {
        with(&mut self.controller.selectors.lock())
    }

    async fn measure(&mut self, requests: &[Option<Request>]) -> Vec<Reading> {
        let readings = self.controller.metrics.readings(self.key.namespace(), requests).await;
        let (readings, times) = readings.into_iter().unzip();
        self.measured = times;
        readings
    }

    /// Makes one attempt, which is given up before the lease ends. Further attempts start from the present scale, or
    /// from the old one if the read fails.
    async fn write_scale(&mut self, replicas: i32, attempt: u32) -> WriteResult {
        let Self { controller, key, scale: Some(scale), .. } = self else {
            return WriteResult::Failed("the scale was not read".to_owned()); // The rules read it first.
        };
        if attempt > 1 {
            sleep(CONFLICT_PAUSE.mul_f64(rand::random_range(1.0..1.1))).await;
            match controller.scales.read_again(scale).await {
                Ok(newer) => *scale = newer,
                Err(error) => tracing::debug!(%error, "the scale could not be read again"),
            }
        }
        let Some(guard) = controller.wiring.leadership.begin_write(key) else {
            return WriteResult::Failed(WriteError::LeaseEnds.to_string());
        };
        let left = guard.deadline().map_or(WRITE_TIMEOUT, |deadline| deadline - Instant::now());
        let result = controller.scales.write(scale, replicas, left.min(WRITE_TIMEOUT)).await;
        // A write without a response also counts as failed, and may still be applied.
        if !matches!(result, WriteResult::Failed(_)) {
            guard.answered();
        }
        result
    }
}

#[cfg(test)]
mod tests;
