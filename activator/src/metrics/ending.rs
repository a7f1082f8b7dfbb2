//! Result of an exchange, as one or two labels.
//!
//! In OpenTelemetry an exchange has the status that was sent, if any, and `error.type` if it failed: our own reason if
//! the activator knows one, or else the status. The limit for errors depends on the side: 500 for a server, 400 for a
//! client. Knative's activator reports only the status, and nothing for an exchange without one.

use crate::refusal::Refusal;
use common_runtime::environment::Mode;
use http::StatusCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    status: Option<StatusCode>,
    /// Status that Knative reports if none was sent.
    knative_status: Option<StatusCode>,
    error: Option<&'static str>,
}

impl From<&Refusal> for Ending {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::ClientGone => {
                Self { knative_status: Some(refusal.status()), ..Self::unanswered(refusal.reason()) }
            }
            // The replacement response is not an error.
            Refusal::Asleep => Self::answered(StatusCode::OK),
            refusal => {
                let error = refusal.status().is_server_error().then_some(refusal.reason());
                Self { error, ..Self::answered(refusal.status()) }
            }
        }
    }
}

impl Ending {
    /// Returns the result of an exchange that the peer answered with this status.
    pub(crate) fn answered(status: StatusCode) -> Self {
        Self { status: Some(reported(status)), knative_status: None, error: None }
    }

    /// Returns the result of an exchange without a response.
    pub(crate) fn unanswered(reason: &'static str) -> Self {
        Self { status: None, knative_status: None, error: Some(reason) }
    }

    /// Returns the reported part; `None` if the exchange is not reported.
    pub(super) fn reported_by(self, mode: Mode) -> Option<Self> {
        match mode {
            Mode::Standalone => Some(Self { knative_status: None, ..self }),
            Mode::Knative => {
                let status = self.status.or(self.knative_status)?;
                Some(Self { status: Some(status), knative_status: None, error: None })
            }
        }
    }

    pub(super) fn status(self) -> Option<String> {
        self.status.map(label)
    }

    /// Returns the type of error. Statuses from `errors_from` on are errors.
    pub(super) fn error(self, errors_from: u16) -> Option<String> {
        let by_status = || self.status.filter(|status| status.as_u16() >= errors_from).map(label);
        self.error.map(str::to_owned).or_else(by_status)
    }
}

/// Returns the status itself if HTTP names it, or else the last one of its class, which HTTP does not name. A pod may
/// send any status from 200 to 999, and each would create a series per measure for the lifetime of its revision.
fn reported(status: StatusCode) -> StatusCode {
    let last = StatusCode::from_u16(status.as_u16() / 100 * 100 + 99).unwrap_or(status);
    if status.canonical_reason().is_some() { status } else { last }
}

/// Returns the label of a reported status. A class is shown as `4xx`.
fn label(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(_) => status.as_str().to_owned(),
        None => format!("{}xx", status.as_u16() / 100),
    }
}
