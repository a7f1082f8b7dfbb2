//! Last step: writes the scale, with up to five attempts if other clients write it too.

use super::{Action, ErrorLabel, Finish, Pass, Step};
use crate::behavior;
use crate::spec::{has_pod_independent_metric, min_replicas};
use crate::status::{self, ABLE_TO_SCALE, Event, SCALED_TO_ZERO};
use k8s_openapi::api::autoscaling::v2::MetricStatus;

/// Maximum number of attempts of a write with conflicts.
const ATTEMPTS: u32 = 5;

/// Decided change of the scale.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) current: i32,
    pub(super) desired: i32,
    /// Reason for the event.
    pub(super) reason: String,
    pub(super) metrics: Vec<MetricStatus>,
    /// Error of failed metrics if the other metrics sufficed.
    pub(super) partial_error: Option<String>,
}

/// Step: write [`WriteScale::replicas`] to `spec.replicas` of the scale.
///
/// After a conflict this step is repeated: read the scale anew and write the same number. The pause before that is
/// [`WriteScale::PAUSE`].
#[derive(Debug)]
pub struct WriteScale<'a> {
    pass: Pass<'a>,
    plan: Plan,
    attempt: u32,
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

/// Writes the scale if it changes.
pub(super) fn carry_out(mut pass: Pass<'_>, plan: Plan) -> Step<'_> {
    let Plan { current, desired, .. } = plan;
    if desired != current {
        return Step::WriteScale(WriteScale { pass, plan, attempt: 1 });
    }
    pass.report(current, current, plan.metrics);
    Step::Finish(Finish::done(pass, current, Action::None, plan.partial_error))
}

impl<'a> WriteScale<'a> {
    /// Pause before the write after a conflict, with a jitter of a tenth.
    pub const PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

    /// Returns the replicas to write.
    pub fn replicas(&self) -> i32 {
        self.plan.desired
    }

    /// Returns the number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Continues with the result.
    pub fn resume(self, result: WriteResult) -> Step<'a> {
        let Self { pass, plan, attempt } = self;
        match result {
            WriteResult::Written => Step::Finish(written(pass, plan)),
            WriteResult::Conflict(_) if attempt < ATTEMPTS => {
                Step::WriteScale(WriteScale { pass, plan, attempt: attempt + 1 })
            }
            WriteResult::Conflict(e) | WriteResult::Failed(e) => Step::Finish(unwritten(pass, plan, &e)),
        }
    }
}

fn unwritten(mut pass: Pass<'_>, plan: Plan, why: &str) -> Finish {
    let Plan { current, desired, reason, metrics, .. } = plan;
    pass.events.push(Event::warning("FailedRescale", format!("New size: {desired}; reason: {reason}; error: {why}")));
    let message = format!("the HPA controller was unable to update the target scale: {why}");
    pass.set(ABLE_TO_SCALE, false, "FailedUpdateScale", message);
    let before = pass.status.desired_replicas;
    pass.report(current, before, metrics);
    let error = format!("failed to rescale {}: {why}", pass.reference());
    Finish::failed(pass, error, ErrorLabel::Internal, None)
}

fn written(mut pass: Pass<'_>, plan: Plan) -> Finish {
    let Plan { current, desired, reason, metrics, partial_error } = plan;
    let message = format!("the HPA controller was able to update the target scale to {desired}");
    pass.set(ABLE_TO_SCALE, true, "SucceededRescale", message);
    pass.events.push(Event::normal("SuccessfulRescale", format!("New size: {desired}; reason: {reason}")));
    let rules = pass.rules();
    behavior::remember(pass.memory, rules.as_ref(), current, desired, pass.now);
    mark_zero(&mut pass, current, desired);
    pass.report(current, desired, metrics);
    pass.status.last_scale_time = Some(status::time(pass.now));
    Finish::done(pass, desired, Action::between(current, desired), partial_error)
}

/// Sets the condition that records whether this controller scaled to zero.
fn mark_zero(pass: &mut Pass<'_>, current: i32, desired: i32) {
    let spec = pass.autoscaler.spec;
    if !pass.gates.scale_to_zero {
        pass.forget_zero();
    } else if current > 0 && desired == 0 && min_replicas(spec) == 0 && has_pod_independent_metric(spec) {
        let message = "the HPA controller scaled the workload to zero";
        pass.set(SCALED_TO_ZERO, true, "ScaledToZero", message);
    } else {
        let message = "the HPA controller did not scale the workload to zero";
        pass.set(SCALED_TO_ZERO, false, "NotScaledToZero", message);
    }
}
