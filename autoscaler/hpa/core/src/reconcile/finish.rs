//! The end of a pass: what to write, what to say, and what to count.

use super::Pass;
use crate::status::{Event, Status};

/// A pass that has decided. Write [`Finish::status`] if there is one, then [conclude](Finish::conclude).
#[derive(Debug)]
pub struct Finish {
    name: String,
    /// The status to write; none: it is already written like this.
    status: Option<Status>,
    events: Vec<Event>,
    /// What is said after the status was written.
    last_event: Option<Event>,
    error: Option<String>,
    /// The status' error is worth more than the pass'.
    complete: bool,
    spec_error: bool,
    action: Action,
    desired: Option<i32>,
    runs: Vec<MetricRun>,
}

/// What a pass came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conclusion {
    /// Events, in order.
    pub events: Vec<Event>,
    /// What went wrong; the next pass is not hurried by it. It may have scaled all the same.
    pub error: Option<String>,
    /// Label of `reconciliations_total` and its duration.
    pub action: Action,
    /// Label of the same.
    pub error_label: ErrorLabel,
    /// Value of the gauge `desired_replicas`, if the pass came that far.
    pub desired_replicas: Option<i32>,
    /// Labels of `metric_computation_total` and its duration, one for each metric that was computed.
    pub metrics: Vec<MetricRun>,
}

/// What was done, or proposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    #[default]
    None,
    /// More replicas.
    ScaleUp,
    /// Fewer replicas.
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

    /// As a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ScaleUp => "scale_up",
            Self::ScaleDown => "scale_down",
        }
    }
}

/// Whose fault it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorLabel {
    /// Nothing went wrong.
    #[default]
    None,
    /// The spec's.
    Spec,
    /// Any other's.
    Internal,
}

impl ErrorLabel {
    /// As a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Spec => "spec",
            Self::Internal => "internal",
        }
    }
}

/// How the computation of one metric is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricRun {
    /// The metric's type.
    pub kind: String,
    /// The replicas that it asks for; none: it failed.
    pub proposed: Option<i32>,
    /// Where its proposal goes from the replicas of the stored status.
    pub action: Action,
    /// Whether it failed.
    pub error: ErrorLabel,
}

impl Finish {
    /// A pass that reached its end, wanting `desired` replicas.
    pub(super) fn done(pass: Pass<'_>, desired: i32, partial_error: Option<String>) -> Self {
        Self { error: partial_error, complete: true, desired: Some(desired), ..Self::of(pass) }
    }

    /// A pass that broke off.
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

    /// The status to write; none: nothing changed.
    pub fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    /// Ends the pass, with how writing the status went (any answer does if there was none to write).
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
