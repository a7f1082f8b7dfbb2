//! Why a pod brought no answer, and what that says of the pod.

use super::Prepared;
use crate::body::Upload;
use crate::error::ProxyError;
use crate::http1::connection::Http1Error;
use crate::pool::Pool;
use crate::tcp::is_shortage;
use rustix::io::Errno;
use std::error::Error;
use std::io::{self, ErrorKind};

/// Why a pod brought no answer.
pub enum Failure {
    /// The request may go elsewhere: none of it was sent, or no byte came back, to send it again does no harm, and this
    /// was the first time.
    Elsewhere {
        /// The request, as it was.
        request: Box<Prepared>,
        /// What was wrong with the pod.
        cause: String,
        /// What follows for the pod. With [`Evidence::None`] it stays in use, and another is preferred.
        evidence: Evidence,
    },
    /// Something may have been sent.
    Final {
        /// Why there is no answer.
        error: ProxyError,
        /// What follows for the pod.
        evidence: Evidence,
    },
}

/// What a failure says of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Nothing: one connection broke.
    None,
    /// Nothing: this process, or this machine, has no room for a connection, and may have some soon.
    Ours,
    /// It gets nothing more until its probe passes.
    Out,
    /// Besides, on a connection that had worked its kernel acknowledged nothing: if it does not answer a connect
    /// either, all that is in flight there is lost.
    Silent,
    /// [`Out`](Self::Out), if the probe asks at the same port: nobody listens at this one.
    Refused,
}

/// What a connect that failed says of its pod.
pub fn evidence_of_connect(error: &io::Error) -> Evidence {
    match error.kind() {
        _ if Errno::from_io_error(error).is_some_and(is_shortage) => Evidence::Ours,
        ErrorKind::ResourceBusy => Evidence::None,
        ErrorKind::ConnectionRefused => Evidence::Refused,
        _ => Evidence::Out,
    }
}

/// What broke an exchange, in either protocol.
pub(super) trait Break: Error {
    /// The system's error behind it.
    fn io(&self) -> Option<&io::Error>;

    /// Whether the connection ended in order, without an answer.
    fn is_close(&self) -> bool;

    /// What is wrong with the answer, where the error does not say.
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
        refused.then_some("its answer is malformed, or its head is too large")
    }
}

/// Whether the pod closed the connection instead of answering, and not for what it said that we did.
pub(super) fn is_stale(error: &impl Break) -> bool {
    error.is_close() || error.io().is_some_and(|cause| cause.kind() != ErrorKind::InvalidData)
}

/// Returns whether the pod's kernel has reset the connection, as for a killed pod.
pub(super) fn is_reset(error: &impl Break) -> bool {
    error.io().is_some_and(|cause| cause.kind() == ErrorKind::ConnectionReset)
}

/// Whether an HTTP/2 pod has said that it did not touch the request (RFC 9113, 8.7): with REFUSED_STREAM, or with a
/// GOAWAY that names an earlier stream as the last.
pub(super) fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// An exchange that cannot be repeated. If it was the client's body that broke off, the pod is not to blame.
pub(super) fn broken(pool: &Pool, error: &impl Break, upload: Option<&Upload>, evidence: Evidence) -> Failure {
    if upload.is_some_and(Upload::broken) {
        let error = ProxyError::Malformed("the request's body is malformed or incomplete");
        return Failure::Final { error, evidence: Evidence::None };
    }
    Failure::Final { error: ProxyError::Pod { dest: pool.address, cause: cause_of(error) }, evidence }
}

/// What a broken connection says of its pod. `worked`: an answer had come over it before.
pub(super) fn evidence_of(error: &impl Break, worked: bool) -> Evidence {
    match error.io().map(io::Error::kind) {
        Some(ErrorKind::TimedOut) if worked => Evidence::Silent,
        Some(ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable) => Evidence::Out,
        _ => Evidence::None,
    }
}

/// An error and what is behind it.
pub(super) fn cause_of(error: &impl Break) -> String {
    match (error.problem(), error.source()) {
        (Some(problem), _) => problem.to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}
