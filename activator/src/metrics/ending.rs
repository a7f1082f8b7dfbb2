//! How an exchange ended, as a label or two.
//!
//! By OpenTelemetry's conventions an exchange has the status that was sent, if one was, and `error.type` if it failed: a
//! word of ours where the activator knows why, else the status. What is an error depends on the side: a server's begin at
//! 500, a client's at 400. Knative's activator tells the status alone, and nothing of what has none.

use super::Convention;
use crate::refusal::Refusal;
use http::StatusCode;
use std::fmt;

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    status: Option<StatusLabel>,
    /// What Knative would call it, where no status was sent.
    instead: Option<StatusLabel>,
    error: Option<&'static str>,
}

impl From<&Refusal> for Ending {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::ClientGone => Self::unanswered(refusal.reason()).knative_says(refusal.status()),
            // What it gets instead is no error.
            Refusal::Asleep => Self::answered(StatusCode::OK),
            refusal => Self::refused(refusal.status(), refusal.reason()),
        }
    }
}

impl Ending {
    /// With this status, by whoever was asked.
    pub(crate) fn answered(status: StatusCode) -> Self {
        Self { status: Some(status.into()), instead: None, error: None }
    }

    /// With this status, by ourselves, for this reason.
    pub(crate) fn refused(status: StatusCode, reason: &'static str) -> Self {
        let error = status.is_server_error().then_some(reason);
        Self { error, ..Self::answered(status) }
    }

    /// Without an answer.
    pub(crate) fn unanswered(reason: &'static str) -> Self {
        Self { status: None, instead: None, error: Some(reason) }
    }

    /// The same, and the status that it has in a drop-in.
    pub(crate) fn knative_says(self, status: StatusCode) -> Self {
        Self { instead: Some(status.into()), ..self }
    }

    /// What is told of it; none: nothing.
    pub(super) fn told_by(self, convention: Convention) -> Option<Self> {
        match convention {
            Convention::OpenTelemetry => Some(Self { instead: None, ..self }),
            Convention::Knative => {
                let status = self.status.or(self.instead)?;
                Some(Self { status: Some(status), instead: None, error: None })
            }
        }
    }

    /// The status that was sent.
    pub(super) fn status(self) -> Option<String> {
        self.status.map(|status| status.to_string())
    }

    /// Of what type of error it is, statuses being errors from `errors_from` on.
    pub(super) fn error(self, errors_from: u16) -> Option<String> {
        let by_status = || self.status.filter(|status| status.least() >= errors_from).map(|status| status.to_string());
        self.error.map(str::to_owned).or_else(by_status)
    }
}

/// A status as a label: as it is if HTTP's registry names it, else its class. A pod may answer anything from 200 to
/// 999, each of which would be a series of every measure for as long as its revision lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusLabel {
    Code(StatusCode),
    /// The first digit.
    Class(u16),
}

impl From<StatusCode> for StatusLabel {
    fn from(status: StatusCode) -> Self {
        match status.canonical_reason() {
            Some(_) => Self::Code(status),
            None => Self::Class(status.as_u16() / 100),
        }
    }
}

impl fmt::Display for StatusLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(status) => f.write_str(status.as_str()),
            Self::Class(digit) => write!(f, "{digit}xx"),
        }
    }
}

impl StatusLabel {
    /// The status, or the first one of its class.
    fn least(self) -> u16 {
        match self {
            Self::Code(status) => status.as_u16(),
            Self::Class(digit) => digit * 100,
        }
    }
}
