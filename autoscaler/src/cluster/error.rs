//! Why a reconcile did not come to its end. All of them lead to another try after a back-off.

use super::target_key::TargetError;
use autoscaler_core::history::Obstacle;
use common_controller::{Failure, WriteError, code};

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Something could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The target cannot be looked at.
    #[error("failed to get scale target: {0}")]
    Target(#[from] TargetError),
}

impl Error {
    /// An error of a part, with what it was a part of.
    pub(crate) fn during(doing: &'static str) -> impl FnOnce(Self) -> Self {
        move |error| match error {
            Self::Write(part) => Self::Write(WriteError::during(doing)(part)),
            Self::Target(error) => Self::Target(error),
        }
    }

    /// The HTTP status that the API server answered with, if it did.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Write(WriteError::Api { source, .. }) => code(source),
            Self::Write(_) | Self::Target(_) => None,
        }
    }

    /// What it means for a change of replicas, in the words of the history.
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

    fn is_early(&self) -> bool {
        match self {
            Self::Write(error) => error.is_early(),
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
