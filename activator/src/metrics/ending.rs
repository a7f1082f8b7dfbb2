//! Result of an exchange, as one or two labels.
//!
//! In OpenTelemetry an exchange has the status that was sent, if any, and `error.type` if it failed: our own reason if
//! the activator knows one, or else the status. The limit for errors depends on the side: 500 for a server, 400 for a
//! client. Knative's activator reports only the status, and nothing for an exchange without one.

use crate::refusal::Refusal;
use common_runtime::environment::Mode;
use http::StatusCode;
use std::fmt;

/// Result of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    status: Option<StatusLabel>,
    /// Status that Knative reports if none was sent.
    instead: Option<StatusLabel>,
    error: Option<&'static str>,
}

impl From<&Refusal> for Ending {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::ClientGone => {
                Self { instead: Some(refusal.status().into()), ..Self::unanswered(refusal.reason()) }
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
        Self { status: Some(status.into()), instead: None, error: None }
    }

    /// Returns the result of an exchange without a response.
    pub(crate) fn unanswered(reason: &'static str) -> Self {
        Self { status: None, instead: None, error: Some(reason) }
    }

    /// Returns the reported part; `None` if the exchange is not reported.
    pub(super) fn reported_by(self, mode: Mode) -> Option<Self> {
        match mode {
            Mode::Standalone => Some(Self { instead: None, ..self }),
            Mode::Knative => {
                let status = self.status.or(self.instead)?;
                Some(Self { status: Some(status), instead: None, error: None })
            }
        }
    }

    /// Returns the status that was sent.
    pub(super) fn status(self) -> Option<String> {
        self.status.map(|status| status.to_string())
    }

    /// Returns the type of error. Statuses from `errors_from` on are errors.
    pub(super) fn error(self, errors_from: u16) -> Option<String> {
        let by_status = || self.status.filter(|status| status.least() >= errors_from).map(|status| status.to_string());
        self.error.map(str::to_owned).or_else(by_status)
    }
}

/// Label of a status: the status itself if HTTP names it, or else its class. A pod may send any status from 200 to 999,
/// and each would create a series per measure for the lifetime of its revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusLabel {
    Code(StatusCode),
    /// First digit.
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
    /// Returns the status, or the first one of its class.
    fn least(self) -> u16 {
        match self {
            Self::Code(status) => status.as_u16(),
            Self::Class(digit) => digit * 100,
        }
    }
}
