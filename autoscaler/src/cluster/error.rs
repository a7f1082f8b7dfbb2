//! Errors of a reconcile. Each leads to another attempt after a back-off.

use super::target_key::TargetError;
use autoscaler_core::history::Obstacle;
use common_controller::{Failure, WriteError, code};

/// Result of a step of a reconcile.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Error that ended a reconcile.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A write failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The target is not available.
    #[error("failed to get scale target: {0}")]
    Target(#[from] TargetError),
}

impl Error {
    /// Adds the operation that failed to an error.
    pub(crate) fn during(doing: &'static str) -> impl FnOnce(Self) -> Self {
        move |error| match error {
            Self::Write(part) => Self::Write(WriteError::during(doing)(part)),
            Self::Target(error) => Self::Target(error),
        }
    }

    /// Returns the HTTP status of the API server's response, if there was one.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Write(WriteError::Api { source, .. }) => code(source),
            Self::Write(_) | Self::Target(_) => None,
        }
    }

    /// Returns the obstacle to a change of replicas, for the history.
    pub(crate) fn obstacle(&self) -> Obstacle {
        match self {
            Self::Write(WriteError::LeaseEnds) => Obstacle::LeaseEnding,
            Self::Target(_) => Obstacle::TargetNotFound,
            Self::Write(_) => Obstacle::NotAccepted,
        }
    }
}

impl Failure for Error {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Write(error) if error.is_conflict())
    }

    fn is_temporary(&self) -> bool {
        match self {
            Self::Write(error) => error.is_temporary(),
            Self::Target(error) => matches!(error, TargetError::NotListed(_)),
        }
    }

    fn is_reported(&self) -> bool {
        match self {
            Self::Write(error) => error.is_reported(),
            Self::Target(error) => matches!(error, TargetError::Unwatchable { .. }),
        }
    }
}
