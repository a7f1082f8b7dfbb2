//! First step: reads the scale and handles its replicas.

use super::measuring;
use super::writing::{self, Plan};
use super::{Action, ErrorLabel, Finish, Pass, Step};
use crate::spec::{group, has_pod_independent_metric, min_replicas};
use crate::status::{ABLE_TO_SCALE, Event, SCALING_ACTIVE};
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;

/// Scale of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// `spec.replicas`.
    pub spec_replicas: i32,
    /// `status.replicas`.
    pub status_replicas: i32,
    /// `status.selector`, as text.
    pub selector: String,
}

/// Reason why there is no scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScaleError {
    /// The target's kind is unknown.
    Kind(String),
    /// The scale could not be read.
    Read(String),
}

/// Step: read the scale of [`ReadScale::target`].
#[derive(Debug)]
pub struct ReadScale<'a>(Pass<'a>);

pub(super) fn begin(pass: Pass<'_>) -> Step<'_> {
    match group(&pass.autoscaler.spec.scale_target_ref) {
        Ok(_) => Step::ReadScale(ReadScale(pass)),
        Err(e) => {
            let error = format!("invalid API version in scale target reference: {e}");
            unreadable(pass, &e, error, ErrorLabel::Spec)
        }
    }
}

impl<'a> ReadScale<'a> {
    /// Returns the object to scale. Only the group of its API version matters.
    pub fn target(&self) -> &'a CrossVersionObjectReference {
        &self.0.autoscaler.spec.scale_target_ref
    }

    /// Continues with the scale.
    pub fn resume(self, scale: Result<Scale, ScaleError>) -> Step<'a> {
        let mut pass = self.0;
        let scale = match scale {
            Ok(scale) => scale,
            Err(ScaleError::Kind(e)) => {
                let error = format!("unable to determine resource for scale target reference: {e}");
                return unreadable(pass, &e, error, ErrorLabel::Internal);
            }
            Err(ScaleError::Read(e)) => {
                let error = format!("failed to query scale subresource for {}: {e}", pass.reference());
                return unreadable(pass, &e, error, ErrorLabel::Internal);
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        pass.set(ABLE_TO_SCALE, true, "SucceededGetScale", message);
        let current = scale.spec_replicas;
        pass.memory.seed(current, pass.now);
        let (min, max) = (min_replicas(pass.autoscaler.spec), pass.autoscaler.spec.max_replicas);
        let jump = |desired, reason: &str| Plan { current, desired, reason: reason.to_owned(), ..Plan::default() };
        if current == 0 {
            if is_wakeable(&pass, min) { measuring::select(pass, scale) } else { Step::Finish(disabled(pass)) }
        } else if current > max {
            writing::carry_out(pass, jump(max, "Current number of replicas above Spec.MaxReplicas"))
        } else if current < min {
            writing::carry_out(pass, jump(min, "Current number of replicas below Spec.MinReplicas"))
        } else {
            measuring::select(pass, scale)
        }
    }
}

fn is_wakeable(pass: &Pass<'_>, min: i32) -> bool {
    pass.is_ours_at_zero() && (min != 0 || has_pod_independent_metric(pass.autoscaler.spec))
}

fn disabled(mut pass: Pass<'_>) -> Finish {
    let message = "scaling is disabled since the replica count of the target is zero";
    pass.set(SCALING_ACTIVE, false, "ScalingDisabled", message);
    if !pass.gates.scale_to_zero {
        pass.forget_zero();
    }
    pass.report(0, 0, Vec::new());
    Finish::done(pass, 0, Action::None, None)
}

/// Ends the reconcile with only the condition changed in the status.
fn unreadable<'a>(mut pass: Pass<'a>, why: &str, error: String, label: ErrorLabel) -> Step<'a> {
    pass.events.push(Event::warning("FailedGetScale", why.to_owned()));
    let message = format!("the HPA controller was unable to get the target's current scale: {why}");
    pass.set(ABLE_TO_SCALE, false, "FailedGetScale", message);
    Step::Finish(Finish::failed(pass, error, label, None))
}
