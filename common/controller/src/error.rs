//! Errors of writes, and the properties that this crate needs of the error of a pass.

use std::fmt;
use std::time::Duration;

/// Error of a write.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The API server rejected the write or could not be reached.
    #[error("{doing}: {source}")]
    Api {
        /// Attempted operation, with the object's name.
        doing: String,
        /// Response of the API server.
        source: kube::Error,
    },
    /// The data that the write is based on had changed before it could be sent, so nothing was written.
    #[error("{doing}: not written, because its data changed meanwhile")]
    Outdated {
        /// Attempted operation, with the object's name.
        doing: String,
    },
    /// The lease may end before the write is done, so nothing was written.
    #[error("not written: the lease may end within two seconds")]
    LeaseEnds,
    /// The API server did not respond in time; the write may have been carried out.
    #[error("{doing}: no response within {within:?}")]
    NoAnswer {
        /// Attempted operation.
        doing: String,
        /// Time limit of the response.
        within: Duration,
    },
    /// A required object name is taken by an object with another owner.
    #[error("{owner} does not own {kind}: {name}")]
    NotOwned {
        /// Expected owner, such as `PA: hello`.
        owner: String,
        /// Kind of the foreign object.
        kind: &'static str,
        /// Name of the foreign object.
        name: String,
    },
}

/// Properties of an error of a pass. Every error leads to a retry after a back-off.
pub trait Failure: fmt::Display {
    /// Reports whether another writer was first. The retry reads the object again, and the error need not be reported.
    fn is_conflict(&self) -> bool;

    /// Reports whether the error is temporary: a first list is incomplete, or a lease is about to be renewed. No status
    /// is written, because too little is known for one.
    fn is_temporary(&self) -> bool;

    /// Reports whether the error has already been reported once for all objects.
    fn is_reported(&self) -> bool;
}

impl WriteError {
    /// Wraps an API error with the attempted operation.
    pub fn api(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Api { doing, source }
    }

    /// Reports whether there was no response, so the write may still be carried out.
    pub fn is_unanswered(&self) -> bool {
        match self {
            Self::Api { source, .. } => code(source).is_none(),
            Self::NoAnswer { .. } => true,
            Self::Outdated { .. } | Self::LeaseEnds | Self::NotOwned { .. } => false,
        }
    }

    fn is_api_error(&self, is_such: impl FnOnce(&kube::Error) -> bool) -> bool {
        if let Self::Api { source, .. } = self { is_such(source) } else { false }
    }

    /// Adds the enclosing operation to the error of a step.
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
        matches!(self, Self::Outdated { .. }) || self.is_api_error(|source| code(source) == Some(409))
    }

    fn is_temporary(&self) -> bool {
        matches!(self, Self::LeaseEnds)
    }

    fn is_reported(&self) -> bool {
        matches!(self, Self::NoAnswer { .. }) || self.is_api_error(common_runtime::api_server::is_reported)
    }
}

/// Returns the HTTP status of an API server's response.
pub fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
