//! Failures of exchanges, and their evidence about the pod.

use super::Prepared;
use crate::body::Upload;
use crate::error::ProxyError;
use crate::http1::connection::Http1Error;
use crate::pool::Pool;
use crate::tcp::is_shortage;
use rustix::io::Errno;
use std::error::Error;
use std::io::{self, ErrorKind};

/// Failure to get a response from a pod.
pub enum Failure {
    /// The request may be sent to another pod. Either none of it was sent, or no byte came back, a repeat is harmless,
    /// and this was the first attempt.
    Elsewhere {
        /// The request, unchanged.
        request: Box<Prepared>,
        /// Description of the failure.
        cause: String,
        /// Consequence for the pod. With [`Evidence::None`] it stays in use, but another pod is preferred.
        evidence: Evidence,
    },
    /// The pod may have received a part of the request.
    Final {
        /// Error for the client.
        error: ProxyError,
        /// Consequence for the pod.
        evidence: Evidence,
    },
}

impl Failure {
    /// Returns the failure of a request that the pod may have received a part of.
    pub(super) fn of_pod(pool: &Pool, cause: String, evidence: Evidence) -> Self {
        Self::Final { error: ProxyError::Pod { dest: pool.address, cause }, evidence }
    }
}

/// Evidence that a failure gives about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// No evidence: a single connection broke.
    None,
    /// No evidence: this process or machine has no resources for a connection, but may have some soon.
    LocalShortage,
    /// The pod gets no more requests until its probe passes.
    Unavailable,
    /// Like [`Unavailable`](Self::Unavailable), and the pod's kernel acknowledged nothing on a connection that had
    /// worked. If it does not answer a connect either, all its requests in flight are lost.
    Silent,
    /// Like [`Unavailable`](Self::Unavailable) if the probe uses the same port: nothing listens on this one.
    Refused,
}

/// Returns the evidence of a failed connect.
pub fn evidence_of_connect(error: &io::Error) -> Evidence {
    match error.kind() {
        _ if Errno::from_io_error(error).is_some_and(is_shortage) => Evidence::LocalShortage,
        ErrorKind::ResourceBusy => Evidence::None,
        ErrorKind::ConnectionRefused => Evidence::Refused,
        _ => Evidence::Unavailable,
    }
}

/// An error of an exchange, in either protocol.
pub(super) trait Break: Error {
    /// Returns the underlying I/O error.
    fn io(&self) -> Option<&io::Error>;

    /// Reports whether the connection was closed in order, without a response.
    fn is_close(&self) -> bool;

    /// Describes the problem with the response, if the error does not.
    fn problem(&self) -> Option<&'static str> {
        None
    }
}

impl Break for Http1Error {
    fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }

    fn is_close(&self) -> bool {
        matches!(self, Self::Closed)
    }
}

impl Break for h2::Error {
    fn io(&self) -> Option<&io::Error> {
        self.get_io()
    }

    fn is_close(&self) -> bool {
        false
    }

    fn problem(&self) -> Option<&'static str> {
        let refused = self.is_library() && self.is_reset() && self.reason() == Some(h2::Reason::PROTOCOL_ERROR);
        refused.then_some("the response is malformed, or its head is larger than 400 KiB")
    }
}

/// Reports whether the pod closed the connection instead of responding, but not because of invalid data.
pub(super) fn is_stale(error: &impl Break) -> bool {
    error.is_close() || error.io().is_some_and(|cause| cause.kind() != ErrorKind::InvalidData)
}

/// Reports whether the pod's kernel reset the connection, as for a killed pod.
pub(super) fn is_reset(error: &impl Break) -> bool {
    error.io().is_some_and(|cause| cause.kind() == ErrorKind::ConnectionReset)
}

/// Reports whether an HTTP/2 pod has not processed the request (RFC 9113, 8.7): it sent REFUSED_STREAM, or a GOAWAY
/// that names an earlier stream as the last.
pub(super) fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Returns the failure of an exchange that cannot be repeated. If the client's body failed, the pod is not to blame.
pub(super) fn broken(pool: &Pool, error: &impl Break, upload: Option<&Upload>, evidence: Evidence) -> Failure {
    if upload.is_some_and(Upload::broken) {
        let error = ProxyError::Malformed("the request's body is malformed or incomplete");
        return Failure::Final { error, evidence: Evidence::None };
    }
    Failure::of_pod(pool, cause_of(error), evidence)
}

/// Returns the evidence of a broken connection. `worked` is set if it had carried a response before.
pub(super) fn evidence_of(error: &impl Break, worked: bool) -> Evidence {
    match error.io().map(io::Error::kind) {
        Some(ErrorKind::TimedOut) if worked => Evidence::Silent,
        Some(ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable) => Evidence::Unavailable,
        _ => Evidence::None,
    }
}

/// Formats an error and its source.
pub(super) fn cause_of(error: &impl Break) -> String {
    match (error.problem(), error.source()) {
        (Some(problem), _) => problem.to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}
