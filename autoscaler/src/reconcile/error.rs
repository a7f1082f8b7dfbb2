//! Why a reconcile did not come to its end. All of them lead to another try after a back-off.

use super::world::targets::TargetError;
use autoscaler_core::history::Obstacle;
use std::time::Duration;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The API server refused or could not be reached.
    #[error("{doing}: {source}")]
    Api {
        /// What was tried, with the object's name.
        doing: String,
        /// Its answer.
        source: kube::Error,
    },
    /// The target cannot be looked at.
    #[error("failed to get scale target: {0}")]
    Target(#[from] TargetError),
    /// Our lease may end before the write is done, so nothing was written.
    #[error("not written: the lease may end within two seconds")]
    LeaseEnds,
    /// The API server did not answer in time; the write may have been carried out.
    #[error("{doing}: no answer within {within:?}")]
    NoAnswer {
        /// What was tried.
        doing: String,
        /// How long an answer was waited for.
        within: Duration,
    },
    /// An object of the name that we need belongs to somebody else.
    #[error("{owner} does not own {kind}: {name}")]
    NotOwned {
        /// What should own it, such as `PA: hello`.
        owner: String,
        /// Kind of the foreign object.
        kind: &'static str,
        /// Its name.
        name: String,
    },
}

impl Error {
    /// An API error with what was tried.
    pub(crate) fn api(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Api { doing, source }
    }

    /// Whether somebody else wrote first: the next try reads again, and nobody needs to hear of it.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { source, .. } if code(source) == Some(409))
    }

    /// Whether the client tells of it, once for all objects.
    pub(crate) fn is_told(&self) -> bool {
        match self {
            Self::Api { source, .. } => common_runtime::api_server::is_told(source),
            Self::Target(TargetError::Unwatchable { .. }) | Self::NoAnswer { .. } => true,
            Self::Target(_) | Self::LeaseEnds | Self::NotOwned { .. } => false,
        }
    }

    /// An error of a part, with what it was a part of.
    pub(crate) fn during(doing: &'static str) -> impl FnOnce(Self) -> Self {
        move |error| match error {
            Self::Api { doing: part, source } => Self::Api { doing: format!("{doing}: {part}"), source },
            Self::NoAnswer { doing: part, within } => Self::NoAnswer { doing: format!("{doing}: {part}"), within },
            Self::NotOwned { owner, kind, name } => Self::NotOwned { owner: format!("{doing}: {owner}"), kind, name },
            other => other,
        }
    }

    /// What it means for a change of replicas, in the words of the history.
    pub(crate) fn obstacle(&self) -> Obstacle {
        match self {
            Self::LeaseEnds => Obstacle::LeaseEnding,
            Self::Target(_) => Obstacle::TargetNotFound,
            Self::Api { .. } | Self::NoAnswer { .. } | Self::NotOwned { .. } => Obstacle::NotAccepted,
        }
    }

    /// Whether it will pass by itself: a first list is not complete yet, or a lease about to be renewed.
    pub(crate) fn is_early(&self) -> bool {
        matches!(self, Self::Target(TargetError::NotListed { .. }) | Self::LeaseEnds)
    }
}

/// The HTTP status of an API server's answer.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
