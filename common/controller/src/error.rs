//! Why a write was not carried out, and what the kit asks of any error of a pass.

use std::fmt;
use std::time::Duration;

/// What went wrong with a write.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The API server refused or could not be reached.
    #[error("{doing}: {source}")]
    Api {
        /// What was tried, with the object's name.
        doing: String,
        /// Its answer.
        source: kube::Error,
    },
    /// What it rests on had changed by the time that it could be sent, so nothing was written.
    #[error("{doing}: not written: it is outdated")]
    Outdated {
        /// What was tried, with the object's name.
        doing: String,
    },
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

/// What the kit must know of an error of a pass. All of them lead to another try after a back-off.
pub trait Failure: fmt::Display {
    /// Whether somebody else wrote first: the next try reads again, and nobody needs to hear of it.
    fn is_conflict(&self) -> bool;

    /// Whether it will pass by itself: a first list is not complete yet, or a lease about to be renewed. Too little was
    /// known to say anything, so no status is written.
    fn is_early(&self) -> bool;

    /// Whether it has been told already, once for all objects.
    fn is_reported(&self) -> bool;
}

impl WriteError {
    /// An API error with what was tried.
    pub fn api(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Api { doing, source }
    }

    /// Whether nobody has answered, so that the write may still be carried out.
    pub fn is_silence(&self) -> bool {
        match self {
            Self::Api { source, .. } => code(source).is_none(),
            Self::NoAnswer { .. } => true,
            Self::Outdated { .. } | Self::LeaseEnds | Self::NotOwned { .. } => false,
        }
    }

    /// An error of a part, with what it was a part of.
    pub fn during(doing: &'static str) -> impl FnOnce(Self) -> Self {
        move |error| match error {
            Self::Api { doing: part, source } => Self::Api { doing: format!("{doing}: {part}"), source },
            Self::NoAnswer { doing: part, within } => Self::NoAnswer { doing: format!("{doing}: {part}"), within },
            Self::NotOwned { owner, kind, name } => Self::NotOwned { owner: format!("{doing}: {owner}"), kind, name },
            Self::Outdated { doing: part } => Self::Outdated { doing: format!("{doing}: {part}") },
            Self::LeaseEnds => Self::LeaseEnds,
        }
    }
}

impl Failure for WriteError {
    fn is_conflict(&self) -> bool {
        match self {
            Self::Api { source, .. } => code(source) == Some(409),
            Self::Outdated { .. } => true,
            Self::LeaseEnds | Self::NoAnswer { .. } | Self::NotOwned { .. } => false,
        }
    }

    fn is_early(&self) -> bool {
        matches!(self, Self::LeaseEnds)
    }

    fn is_reported(&self) -> bool {
        match self {
            Self::Api { source, .. } => common_runtime::api_server::is_reported(source),
            Self::NoAnswer { .. } => true,
            Self::LeaseEnds | Self::Outdated { .. } | Self::NotOwned { .. } => false,
        }
    }
}

/// The HTTP status of an API server's answer.
pub fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
