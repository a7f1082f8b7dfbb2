//! Why a pod brought no answer, and what that says of the pod.

use super::Prepared;
use super::pool::Pool;
use crate::body::Upload;
use crate::refusal::Refusal;
use std::io::ErrorKind;

/// Why a pod brought no answer.
pub(crate) enum Failure {
    /// The request may go elsewhere: none of it was sent, or no byte came back and to send it again does no harm.
    Elsewhere {
        /// The request, as it was.
        request: Box<Prepared>,
        /// What was wrong with the pod.
        cause: String,
        /// Whether the pod may have acted on it.
        may_have_run: bool,
        /// What follows for the pod.
        evidence: Evidence,
    },
    /// Something may have been sent.
    Final {
        /// The answer.
        refusal: Refusal,
        /// What follows for the pod.
        evidence: Evidence,
    },
}

/// What a failure says of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// Nothing: one connection broke.
    None,
    /// It gets nothing more until its probe passes.
    Out,
    /// Besides, on a connection that had worked its kernel acknowledged nothing: if it does not answer a connect
    /// either, all that is in flight there is lost.
    Silent,
}

/// Whether the pod closed the connection instead of answering, and not for what it said that we did.
pub(super) fn is_stale(error: &hyper::Error) -> bool {
    let broke = |cause: &std::io::Error| cause.kind() != ErrorKind::InvalidData;
    error.is_incomplete_message() || error.is_closed() || io_cause(error).is_some_and(broke)
}

/// Whether an HTTP/2 pod has said that it did not touch the request (RFC 9113, 8.7): with REFUSED_STREAM, or with a GOAWAY that
/// names an earlier stream as the last.
pub(super) fn is_unprocessed(error: &hyper::Error) -> bool {
    http2_cause(error).is_some_and(|cause| {
        cause.is_remote() && (cause.is_go_away() || cause.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// Whether the pod takes no more streams on this connection.
pub(super) fn is_goodbye(error: &hyper::Error) -> bool {
    http2_cause(error).is_some_and(h2::Error::is_go_away)
}

fn io_cause(error: &hyper::Error) -> Option<&std::io::Error> {
    let direct = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    direct.or_else(|| http2_cause(error).and_then(h2::Error::get_io))
}

fn http2_cause(error: &hyper::Error) -> Option<&h2::Error> {
    std::error::Error::source(error).and_then(|source| source.downcast_ref())
}

/// An exchange that cannot be repeated. If it was the client's body that broke off, the pod is not to blame.
pub(super) fn broken(pool: &Pool, error: &hyper::Error, upload: Option<&Upload>, evidence: Evidence) -> Failure {
    if upload.is_some_and(Upload::broken) {
        let refusal = Refusal::Malformed("the request's body is malformed or incomplete");
        return Failure::Final { refusal, evidence: Evidence::None };
    }
    Failure::Final { refusal: Refusal::Pod { dest: pool.address, cause: cause_of(error) }, evidence }
}

/// What a broken connection says of its pod. `worked`: an answer had come over it before.
pub(super) fn evidence_of(error: &hyper::Error, worked: bool) -> Evidence {
    match io_cause(error).map(std::io::Error::kind) {
        Some(ErrorKind::TimedOut) if worked => Evidence::Silent,
        Some(ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable) => Evidence::Out,
        _ => Evidence::None,
    }
}

/// An error and what is behind it.
pub(super) fn cause_of(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
