//! Why a pod brought no answer, and what that says of the pod.

use super::Prepared;
use super::pool::Pool;
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

/// Whether the pod closed the connection instead of answering.
pub(super) fn is_stale(error: &hyper::Error) -> bool {
    error.is_incomplete_message() || error.is_closed() || io_cause(error).is_some()
}

fn io_cause(error: &hyper::Error) -> Option<&std::io::Error> {
    std::error::Error::source(error).and_then(|source| source.downcast_ref())
}

pub(super) fn broken(pool: &Pool, error: &hyper::Error, evidence: Evidence) -> Failure {
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
