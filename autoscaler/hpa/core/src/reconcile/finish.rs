//! End of a reconcile: the status to write, the events, and the metrics.

use super::Pass;
use crate::status::Event;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;

/// Decided reconcile. Write [`Finish::status`] if there is one, then [conclude](Finish::conclude).
#[derive(Debug)]
pub struct Finish {
    name: String,
    /// Status to write; `None`: the stored status is up to date.
    status: Option<HorizontalPodAutoscalerStatus>,
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

/// Completed reconcile.
pub(super) struct Done {
    /// Wanted replicas.
    pub(super) desired: i32,
    /// Change that was made.
    pub(super) action: Action,
    /// Error of failed metrics if the other metrics sufficed.
    pub(super) partial_error: Option<String>,
}

/// Failed reconcile.
pub(super) struct Failed {
    pub(super) error: String,
    pub(super) label: ErrorLabel,
    /// Event that follows the write of the status.
    pub(super) last_event: Option<Event>,
}

impl Finish {
    pub(super) fn new(pass: Pass<'_>, outcome: Result<Done, Failed>) -> Self {
        let changed = pass.status != *pass.autoscaler.status;
        let (events, metrics) = (pass.events, pass.runs);
        let (conclusion, last_event) = match outcome {
            Ok(Done { desired, action, partial_error: error }) => {
                let error_label = if error.is_some() { ErrorLabel::Internal } else { ErrorLabel::None };
                (Conclusion { events, error, action, error_label, desired_replicas: Some(desired), metrics }, None)
            }
            Err(Failed { error, label, last_event }) => {
                let (action, error) = (Action::None, Some(error));
                let failed = Conclusion { events, error, action, error_label: label, desired_replicas: None, metrics };
                (failed, last_event)
            }
        };
        let name = pass.autoscaler.name.to_owned();
        Self { name, status: changed.then_some(pass.status), conclusion, last_event }
    }

    /// Returns the status to write, or `None` if it did not change.
    pub fn status(&self) -> Option<&HorizontalPodAutoscalerStatus> {
        self.status.as_ref()
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
