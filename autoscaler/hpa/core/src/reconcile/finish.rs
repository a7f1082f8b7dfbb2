//! End of a reconcile: the status to write, the events, and the metrics.

use super::Pass;
use crate::status::{Event, Status};

/// Decided reconcile. Write [`Finish::status`] if there is one, then [conclude](Finish::conclude).
#[derive(Debug)]
pub struct Finish {
    name: String,
    /// Status to write; `None`: the stored status is up to date.
    status: Option<Status>,
    events: Vec<Event>,
    /// Event that follows the write of the status.
    last_event: Option<Event>,
    error: Option<String>,
    /// Set if a failed write of the status replaces the error of the reconcile.
    complete: bool,
    spec_error: bool,
    action: Action,
    desired: Option<i32>,
    runs: Vec<MetricRun>,
}

/// Result of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Ends a completed reconcile that wants `desired` replicas.
    pub(super) fn done(pass: Pass<'_>, desired: i32, partial_error: Option<String>) -> Self {
        Self { error: partial_error, complete: true, desired: Some(desired), ..Self::of(pass) }
    }

    /// Ends a reconcile that failed.
    pub(super) fn failed(pass: Pass<'_>, error: String, last_event: Option<Event>) -> Self {
        Self { error: Some(error), last_event, ..Self::of(pass) }
    }

    fn of(pass: Pass<'_>) -> Self {
        let changed = pass.status != *pass.autoscaler.status;
        Self {
            name: pass.autoscaler.name.to_owned(),
            status: changed.then_some(pass.status),
            events: pass.events,
            last_event: None,
            error: None,
            complete: false,
            spec_error: false,
            action: Action::None,
            desired: None,
            runs: pass.runs,
        }
    }

    pub(super) fn with_action(self, action: Action) -> Self {
        Self { action, ..self }
    }

    pub(super) fn with_spec_error(self) -> Self {
        Self { spec_error: true, ..self }
    }

    /// Returns the status to write, or `None` if it did not change.
    pub fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    /// Ends the reconcile with the result of the status write. The result is ignored if there was no status to write.
    pub fn conclude(self, written: Result<(), String>) -> Conclusion {
        let Self { mut events, mut error, .. } = self;
        if let (Err(e), Some(_)) = (written, &self.status) {
            events.push(Event::warning("FailedUpdateStatus", e.clone()));
            if self.complete {
                error = Some(format!("failed to update status for {}: {e}", self.name));
            }
        }
        events.extend(self.last_event);
        let error_label = match &error {
            None => ErrorLabel::None,
            Some(_) if self.spec_error => ErrorLabel::Spec,
            Some(_) => ErrorLabel::Internal,
        };
        Conclusion {
            events,
            error,
            action: self.action,
            error_label,
            desired_replicas: self.desired,
            metrics: self.runs,
        }
    }
}
