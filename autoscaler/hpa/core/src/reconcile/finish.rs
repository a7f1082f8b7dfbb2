//! End of a reconcile: the status to write, the events, and the metrics.

use super::Pass;
use crate::status::Event;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;

/// Reconcile before the write of its status: write [`Finish::status`] if there is one, then
/// [conclude](Finish::conclude).
#[derive(Debug)]
pub struct Finish {
    name: String,
    /// Status to write; `None`: the stored status is up to date.
    pub status: Option<HorizontalPodAutoscalerStatus>,
    /// Result of the reconcile if the status can be written.
    conclusion: Conclusion,
    /// Event that follows the write of the status.
    last_event: Option<Event>,
}

/// Result of a reconcile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conclusion {
    /// Events, in order.
    pub events: Vec<Event>,
    /// Error of the reconcile. It does not bring the next reconcile forward. The reconcile may have scaled
    /// nevertheless.
    pub error: Option<String>,
    /// Label of `reconciliations_total` and of its duration.
    pub action: Action,
    /// Second label of these metrics.
    pub error_label: ErrorLabel,
    /// Value of the gauge `desired_replicas`, if the reconcile got that far.
    pub desired_replicas: Option<i32>,
    /// Labels of `metric_computation_total` and of its duration, one entry for each evaluated metric.
    pub metrics: Vec<MetricRun>,
}

/// Change that was made or proposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// No change.
    #[default]
    None,
    /// Increase of the replicas.
    ScaleUp,
    /// Decrease of the replicas.
    ScaleDown,
}

impl Action {
    pub(super) fn between(from: i32, to: i32) -> Self {
        match to.cmp(&from) {
            std::cmp::Ordering::Less => Self::ScaleDown,
            std::cmp::Ordering::Equal => Self::None,
            std::cmp::Ordering::Greater => Self::ScaleUp,
        }
    }

    /// Returns the label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ScaleUp => "scale_up",
            Self::ScaleDown => "scale_down",
        }
    }
}

/// Origin of an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorLabel {
    /// No error.
    #[default]
    None,
    /// Error in the spec.
    Spec,
    /// Any other error.
    Internal,
}

impl ErrorLabel {
    /// Returns the label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Spec => "spec",
            Self::Internal => "internal",
        }
    }
}

/// Labels for the evaluation of one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricRun {
    /// Type of the metric.
    pub kind: String,
    /// Proposed replicas; `None` if the metric failed.
    pub proposed: Option<i32>,
    /// Direction of the proposal relative to the replicas in the stored status.
    pub action: Action,
    /// Origin of the failure, if any.
    pub error: ErrorLabel,
}

impl Finish {
    pub(super) fn new(pass: Pass<'_>, outcome: Result<(), String>) -> Self {
        let status = Some(pass.status).filter(|status| status != pass.autoscaler.status);
        let mut conclusion = pass.conclusion;
        conclusion.error = outcome.err().or(conclusion.error);
        if conclusion.error.is_some() && conclusion.error_label == ErrorLabel::None {
            conclusion.error_label = ErrorLabel::Internal;
        }
        Self { name: pass.autoscaler.name.to_owned(), status, conclusion, last_event: pass.last_event }
    }

    /// Ends the reconcile with the result of the status write. The result is ignored if there was no status to write. A
    /// failed write replaces the error of a completed reconcile.
    pub fn conclude(self, written: Result<(), String>) -> Conclusion {
        let mut conclusion = self.conclusion;
        if let (Err(e), Some(_)) = (written, &self.status) {
            conclusion.events.push(Event::warning("FailedUpdateStatus", e.clone()));
            if conclusion.desired_replicas.is_some() {
                conclusion.error = Some(format!("failed to update status for {}: {e}", self.name));
                conclusion.error_label = ErrorLabel::Internal;
            }
        }
        conclusion.events.extend(self.last_event);
        conclusion
    }
}
