//! Gives the rules of [`hpa_core::reconcile`] access to the cluster, for one reconcile of one autoscaler.

use super::controller::Controller;
use crate::sources::ScaleObject;
use common::RevisionKey as Key;
use common::labels::Selector;
use common_controller::{WRITE_TIMEOUT, WriteError};
use hpa_core::pod::Pod;
use hpa_core::reconcile::{CONFLICT_PAUSE, Cluster, Scale, ScaleError, WriteResult};
use hpa_core::request::{Reading, Request};
use hpa_core::selectors::Selectors;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use std::time::Duration;
use tokio::time::{Instant, sleep};

pub(super) struct Target<'a> {
    pub(super) controller: &'a Controller,
    pub(super) key: &'a Key,
    /// Scale as it was last read.
    pub(super) scale: Option<ScaleObject>,
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
