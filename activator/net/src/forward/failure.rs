//! Failures of exchanges, and their evidence about the pod.

use super::Prepared;
use crate::body::Upload;
use crate::error::ProxyError;
use crate::http1::{ExchangeError, Malformed};
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

pub(super) fn from_http2(error: h2::Error) -> ExchangeError {
    if error.is_io() {
        return error.into_io().map_or(ExchangeError::Closed, ExchangeError::Io);
    }
    let is_rejected = error.is_library() && error.is_reset() && error.reason() == Some(h2::Reason::PROTOCOL_ERROR);
    match is_rejected {
        true => Malformed("the response is malformed, or its head is larger than 400 KiB").into(),
        false => ExchangeError::Http2(error),
    }
}

/// Reports whether the pod closed the connection instead of responding, but not because of invalid data.
pub(super) fn is_stale(error: &ExchangeError) -> bool {
    match error {
        ExchangeError::Io(cause) => cause.kind() != ErrorKind::InvalidData,
        error => matches!(error, ExchangeError::Closed),
    }
}

/// Reports whether the pod's kernel reset the connection, as for a killed pod.
pub(super) fn is_reset(error: &ExchangeError) -> bool {
    matches!(error, ExchangeError::Io(cause) if cause.kind() == ErrorKind::ConnectionReset)
}

/// Reports whether an HTTP/2 pod has not processed the request (RFC 9113, 8.7): it sent REFUSED_STREAM, or a GOAWAY
/// that names an earlier stream as the last.
pub(super) fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Returns the failure of an exchange that cannot be repeated. If the client's body failed, the pod is not to blame.
pub(super) fn broken(pool: &Pool, error: &ExchangeError, upload: Option<&Upload>, evidence: Evidence) -> Failure {
    if upload.is_some_and(Upload::broken) {
        let error = ProxyError::Malformed("the request's body is malformed or incomplete");
        return Failure::Final { error, evidence: Evidence::None };
    }
    Failure::of_pod(pool, cause_of(error), evidence)
}

/// Returns the evidence of a broken connection. `worked` is set if it had carried a response before.
pub(super) fn evidence_of(error: &ExchangeError, worked: bool) -> Evidence {
    let ExchangeError::Io(cause) = error else { return Evidence::None };
    match cause.kind() {
        ErrorKind::TimedOut if worked => Evidence::Silent,
        ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Evidence::Unavailable,
        _ => Evidence::None,
    }
}

pub(super) fn cause_of(error: &ExchangeError) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
