//! Last step of a reconcile: writes the scale, with up to five attempts if other clients write it, too.

use super::{Action, Cluster, Pass};
use crate::behavior;
use crate::spec::{has_pod_independent_metric, min_replicas};
use crate::status::{self, ABLE_TO_SCALE, Event, SCALED_TO_ZERO};
use k8s_openapi::api::autoscaling::v2::MetricStatus;
use std::time::Duration;

/// Maximum number of attempts of a write with conflicts.
const ATTEMPTS_MAX: u32 = 5;
/// Pause before the write after a conflict, with a jitter of a tenth.
pub const CONFLICT_PAUSE: Duration = Duration::from_millis(10);

/// Decided change of the scale.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) current: i32,
    pub(super) desired: i32,
    pub(super) reason: String,
    pub(super) metrics: Vec<MetricStatus>,
    /// Error of failed metrics if the other metrics sufficed.
    pub(super) partial_error: Option<String>,
}

/// Result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// The scale was written.
    Written,
    /// Another client wrote first.
    Conflict(String),
    /// The write failed for another reason.
    Failed(String),
}

impl Pass<'_> {
    /// Writes the scale if it changes.
    pub(super) async fn apply(&mut self, plan: Plan, cluster: &mut impl Cluster) -> Result<(), String> {
        let Plan { current, desired, .. } = plan;
        if desired == current {
            self.set_numbers(current, current, plan.metrics);
        } else {
            let mut attempt = 1;
            loop {
                match cluster.write_scale(desired, attempt).await {
                    WriteResult::Written => break self.record_write(&plan.reason, current, desired, plan.metrics),
                    WriteResult::Conflict(_) if attempt < ATTEMPTS_MAX => attempt += 1,
                    WriteResult::Conflict(e) | WriteResult::Failed(e) => return Err(self.fail_write(plan, &e)),
                }
            }
        }
        self.conclusion.desired_replicas = Some(desired);
        self.conclusion.error = plan.partial_error;
        Ok(())
    }

    fn fail_write(&mut self, plan: Plan, why: &str) -> String {
        let Plan { current, desired, reason, metrics, .. } = plan;
        let event = format!("New size: {desired}; reason: {reason}; error: {why}");
        self.conclusion.events.push(Event::warning("FailedRescale", event));
        let message = format!("the HPA controller was unable to update the target scale: {why}");
        self.set(ABLE_TO_SCALE, false, "FailedUpdateScale", message);
        self.set_numbers(current, self.status.desired_replicas, metrics);
        format!("failed to rescale {}: {why}", self.reference())
    }

    fn record_write(&mut self, reason: &str, current: i32, desired: i32, metrics: Vec<MetricStatus>) {
        let message = format!("the HPA controller was able to update the target scale to {desired}");
        self.set(ABLE_TO_SCALE, true, "SucceededRescale", message);
        let event = Event::normal("SuccessfulRescale", format!("New size: {desired}; reason: {reason}"));
        self.conclusion.events.push(event);
        let rules = self.rules();
        behavior::record_change(self.memory, rules.as_ref(), current, desired, self.now);
        self.set_scaled_to_zero(current, desired);
        self.set_numbers(current, desired, metrics);
        self.status.last_scale_time = Some(status::time(self.now));
        self.conclusion.action = Action::between(current, desired);
    }

    /// Sets the condition that records whether this controller scaled to zero.
    fn set_scaled_to_zero(&mut self, current: i32, desired: i32) {
        let spec = self.autoscaler.spec;
        if !self.gates.scale_to_zero {
            self.remove_scaled_to_zero();
        } else if current > 0 && desired == 0 && min_replicas(spec) == 0 && has_pod_independent_metric(spec) {
            let message = "the HPA controller scaled the workload to zero";
            self.set(SCALED_TO_ZERO, true, "ScaledToZero", message);
        } else {
            let message = "the HPA controller did not scale the workload to zero";
            self.set(SCALED_TO_ZERO, false, "NotScaledToZero", message);
        }
    }
}
